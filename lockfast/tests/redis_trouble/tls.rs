//! Encrypted connections: with a certificate that is trusted, with one that is not, and where there is none.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use lockfast::{Error, Locks};

use crate::stage::{connect, secs, soon};

/// A directory that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lockfast-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn openssl(&self, line: &str) {
        let mut command = Command::new("openssl");
        command.args(line.split(' ')).current_dir(&self.0).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success(), "openssl {line}");
    }

    /// An authority, and a certificate from it for the loopback.
    fn certify(&self) {
        self.openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
        self.openssl("req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr");
        std::fs::write(self.0.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
        self.openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
        );
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(folder: &Path) -> (servers::Redis, u16) {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let file = |name: &str| folder.join(name).display().to_string();
    let server = servers::Redis::options()
        .setting(format!("tls-port {port}"))
        .setting(format!("tls-cert-file {}", file("server.pem")))
        .setting(format!("tls-key-file {}", file("server.key")))
        .setting(format!("tls-ca-cert-file {}", file("ca.pem")))
        .setting("tls-auth-clients no");
    (server.start(), port)
}

fn assert_unavailable(error: &Error) {
    assert!(matches!(error, Error::Unavailable { .. }) && !error.to_string().contains("s3cret"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_server_is_spoken_to_in_secret_and_others_are_not() {
    let folder = Folder::new();
    folder.certify();
    let (server, port) = start(&folder.0);
    let authority = folder.0.join("ca.pem").display().to_string();

    let trusting = format!("rediss://127.0.0.1:{port}?ca={authority}");
    let (ours, theirs) = (connect(&trusting, secs(5)).await, connect(&trusting, secs(5)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let entering = tokio::spawn(async move { theirs.mutex("a").lock().await.unwrap() });
    guard.release().await.unwrap();
    soon(entering).await.unwrap().release().await.unwrap();

    // Signed by nobody this machine knows.
    let unknown = Locks::connect(&format!("rediss://127.0.0.1:{port}")).await.unwrap_err();
    assert_unavailable(&unknown);
    assert!(unknown.to_string().to_lowercase().contains("certificate"), "{unknown}");
    // Signed by somebody else than the one to be trusted.
    let other = Folder::new();
    other.certify();
    let stranger = other.0.join("ca.pem").display().to_string();
    assert_unavailable(&Locks::connect(&format!("rediss://127.0.0.1:{port}?ca={stranger}")).await.unwrap_err());
    // Encrypted here, not there; and the other way round.
    let plain = Locks::connect(&format!("rediss://:s3cret@127.0.0.1:{}", server.port())).await.unwrap_err();
    assert_unavailable(&plain);
    assert_unavailable(&Locks::connect(&format!("redis://:s3cret@127.0.0.1:{port}")).await.unwrap_err());
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let folder = Folder::new();
    let file = folder.0.join("nonsense.pem");
    std::fs::write(&file, "no certificate at all").unwrap();
    for path in [file, folder.0.join("missing.pem")] {
        let url = format!("rediss://:s3cret@127.0.0.1:1?ca={}", path.display());
        let refused = Locks::connect(&url).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(text) if text.contains("ca=")), "{path:?}: {refused:?}");
        assert!(!refused.to_string().contains("s3cret"));
    }
}
