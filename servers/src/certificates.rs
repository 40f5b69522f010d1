//! Certificates for the servers and clients of one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with an authority and the certificates that it signed: `ca.pem`, and `NAME.pem` with `NAME.key`. The directory
/// is removed when this is dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// A new authority, and a certificate of a server on the loopback: `server.pem`.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("lockfast-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the directory for temporary files can be used");
        let certificates = Self { folder };
        certificates.openssl(&format!(
            "req -x509 -newkey {KEY_TYPE} -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"
        ));
        certificates.write("names", "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
        certificates.sign("server");
        certificates
    }

    /// One more certificate from the authority.
    pub fn sign(&self, name: &str) {
        self.openssl(&format!("req -newkey {KEY_TYPE} -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem"
        ));
    }

    /// The path of a file in the directory, whether the file exists or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The path of a file in the directory as text, for a URL or a command line.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file of the directory.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the directory of a test can be written to");
        path
    }

    /// Runs `openssl` in the directory. Its arguments are separated by spaces.
    pub fn openssl(&self, args: &str) {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).current_dir(Path::new(&self.folder)).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().expect("openssl is installed, and no test is skipped for it");
        assert!(status.success(), "openssl {args}");
    }
}

/// The arguments of `openssl req -newkey`: an elliptic-curve key, which takes milliseconds to generate.
const KEY_TYPE: &str = "ec -pkeyopt ec_paramgen_curve:prime256v1";

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
