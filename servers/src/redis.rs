//! A Redis server of one's own.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::Certificates;

/// The program to start instead of `redis-server`, for tests against another version or Valkey.
pub const PROGRAM: &str = "LOCKFAST_REDIS_SERVER";

/// A server that says nothing for this long is not going to start.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    settings: Vec<String>,
    tls_port: Option<u16>,
}

impl RedisOptions {
    /// Listens for encrypted connections too, with `server.pem`. With `demands_certificates`, each client has to show a
    /// certificate of the same authority.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates, demands_certificates: bool) -> Self {
        let port = free_port();
        self.tls_port = Some(port);
        self.setting(format!("tls-port {port}"))
            .setting(format!("tls-cert-file {}", certificates.file("server.pem")))
            .setting(format!("tls-key-file {}", certificates.file("server.key")))
            .setting(format!("tls-ca-cert-file {}", certificates.file("ca.pem")))
            .setting(format!("tls-auth-clients {}", if demands_certificates { "yes" } else { "no" }))
    }

    /// One more setting, as in the server's configuration file: `maxmemory 4mb`.
    #[must_use]
    pub fn setting(mut self, line: impl Into<String>) -> Self {
        self.settings.push(line.into());
        self
    }

    /// Its debugging commands can be used. Before version 7 they always can, and there is no such setting.
    #[must_use]
    pub fn with_debug_commands(self) -> Self {
        if is_before_7() { self } else { self.setting("enable-debug-command yes") }
    }

    /// Starts it.
    pub fn start(self) -> Redis {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("lockfast-redis-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the directory for temporary files can be used");
        for _ in 0..20 {
            // Somebody else may take the port before the server does; then the server ends, and another port is tried.
            let port = free_port();
            if let Some(child) = spawn(&folder, port, &self.settings) {
                return Redis { child, port, tls_port: self.tls_port, folder, settings: self.settings };
            }
        }
        panic!("no port for a Redis server could be found; does `{} --version` work?", program());
    }
}

/// A running server; ended, with all that it kept, when dropped.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    port: u16,
    tls_port: Option<u16>,
    folder: PathBuf,
    settings: Vec<String>,
}

impl Redis {
    /// A server that keeps nothing on disk, with nothing special about it.
    pub fn start() -> Self {
        RedisOptions::default().start()
    }

    /// One with more settings.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The URL of its first database for encrypted connections; see [`RedisOptions::tls`].
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.tls_port.expect("it was started with `tls`"))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its directory, where it keeps what it keeps on disk.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends it at once, as a power cut of the process would; its files stay.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same port, with what is left on disk. It must have been killed.
    pub fn start_again(&mut self) {
        for _ in 0..50 {
            if let Some(child) = spawn(&self.folder, self.port, &self.settings) {
                self.child = child;
                return;
            }
            // The port is taken for a moment longer.
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not start again on port {}", self.port);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> String {
    std::env::var(PROGRAM).unwrap_or_else(|_| "redis-server".to_owned())
}

fn is_before_7() -> bool {
    let said = Command::new(program()).arg("--version").output().expect("a server says what it is");
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("v=")?.split('.').next()?.parse().ok());
    version.unwrap_or(0) < 7
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a port left");
    listener.local_addr().expect("what listens has an address").port()
}

/// Starts the server and waits until it answers; `None` if it ends instead.
///
/// The kernel kills it when the thread that started it ends. That thread lives as long as this process or the server,
/// whichever is shorter, so that not even a killed test leaves a server behind.
fn spawn(folder: &Path, port: u16, settings: &[String]) -> Option<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program());
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--dir"]);
    command.arg(folder);
    for line in settings {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        command.arg(format!("--{name}"));
        // Values with several words are several arguments, but for those in quotes.
        command.args(value.split(' ').map(|word| word.trim_matches('"')));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{} cannot be started, and no test is skipped for it: {error}", program()),
        };
        let output = child.stdout.take().expect("its output was asked for");
        let mut child = Some(child);
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if line.contains("eady to accept connections")
                && let Some(child) = child.take()
            {
                let _ = say.send(child);
            }
        }
        if let Some(mut child) = child {
            let _ = child.wait();
        }
    });
    said.recv_timeout(STARTS_WITHIN).ok()
}
