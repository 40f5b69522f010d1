//! A Redis server for one test.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::Certificates;

/// The environment variable that names the program to start instead of `redis-server`: another version, or Valkey.
pub const PROGRAM: &str = "LOCKFAST_REDIS_SERVER";

/// A server that is not ready after this time is taken for one that cannot start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How many free ports are tried for a new server.
const MAX_PORTS: u32 = 20;

/// How often a killed server is started on its old port: 20 ms apart, so for one second in all.
const MAX_RESTARTS: u32 = 50;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    settings: Vec<String>,
    tls_port: Option<u16>,
}

impl RedisOptions {
    /// Listens for TLS connections too, with `server.pem`. A client needs no certificate.
    #[must_use]
    pub fn tls(self, certificates: &Certificates) -> Self {
        self.listen_for_tls(certificates).setting("tls-auth-clients no")
    }

    /// As [`Self::tls`], but each client has to present a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(self, certificates: &Certificates) -> Self {
        self.listen_for_tls(certificates).setting("tls-auth-clients yes")
    }

    fn listen_for_tls(mut self, certificates: &Certificates) -> Self {
        let port = free_port();
        self.tls_port = Some(port);
        self.setting(format!("tls-port {port}"))
            .setting(format!("tls-cert-file {}", certificates.file("server.pem")))
            .setting(format!("tls-key-file {}", certificates.file("server.key")))
            .setting(format!("tls-ca-cert-file {}", certificates.file("ca.pem")))
    }

    /// One more setting, as in the server's configuration file: `maxmemory 4mb`.
    #[must_use]
    pub fn setting(mut self, line: impl Into<String>) -> Self {
        self.settings.push(line.into());
        self
    }

    /// Enables the `DEBUG` command. Before version 7 it is always enabled, and the setting does not exist.
    #[must_use]
    pub fn with_debug_commands(self) -> Self {
        if is_before_7() { self } else { self.setting("enable-debug-command yes") }
    }

    /// Several settings of the configuration file, in the order given.
    #[must_use]
    pub fn settings<'a>(self, lines: impl IntoIterator<Item = &'a str>) -> Self {
        lines.into_iter().fold(self, Self::setting)
    }

    /// Writes each command to disk before it is answered, so that [`Redis::start_again`] finds the data after a kill.
    #[must_use]
    pub fn durable(self) -> Self {
        self.settings(["appendonly yes", "appendfsync always"])
    }

    /// Replicates this primary.
    #[must_use]
    pub fn replica_of(self, primary: &Redis) -> Self {
        self.setting(format!("replicaof 127.0.0.1 {}", primary.port()))
    }

    /// Starts the server, and returns when it accepts connections.
    pub fn start(self) -> Redis {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("lockfast-redis-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the directory for temporary files can be used");
        for _ in 0..MAX_PORTS {
            // Another process may take the port before the server does. Then the server ends, and another port is tried.
            let port = free_port();
            if let Some(child) = spawn(&folder, port, &self.settings) {
                return Redis { child, port, tls_port: self.tls_port, folder, settings: self.settings };
            }
        }
        panic!("no port for a Redis server could be found; does `{} --version` work?", program());
    }
}

/// A running server. It is killed, and its directory removed, when this is dropped.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    port: u16,
    tls_port: Option<u16>,
    folder: PathBuf,
    settings: Vec<String>,
}

impl Redis {
    /// A server with default settings that keeps nothing on disk.
    pub fn start() -> Self {
        RedisOptions::default().start()
    }

    /// A server with more settings.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// The port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The URL of its first database for TLS connections; see [`RedisOptions::tls`] and
    /// [`RedisOptions::mutual_tls`].
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.tls_port.expect("it was started with `tls` or `mutual_tls`"))
    }

    /// The id of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The directory of the server's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Kills the server without a shutdown. Its files stay.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a killed server again on the same port, with the data that is on disk.
    pub fn start_again(&mut self) {
        for _ in 0..MAX_RESTARTS {
            if let Some(child) = spawn(&self.folder, self.port, &self.settings) {
                self.child = child;
                return;
            }
            // The kernel may keep the port for a moment after the kill.
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not start again on port {}", self.port);
    }

    /// Runs one command as its administrator, on a connection of its own. Returns the first line of the reply as the protocol
    /// writes it: `:1`, `+OK`.
    pub fn command(&self, line: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).expect("the server accepts connections");
        write!(connection, "{line}\r\n").expect("the server reads commands");
        let mut reply = String::new();
        BufReader::new(connection).read_line(&mut reply).expect("the server answers a command");
        reply.trim_end().to_owned()
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
    let output = Command::new(program()).arg("--version").output().expect("a server prints its version");
    let output = String::from_utf8_lossy(&output.stdout);
    // `Redis server v=7.0.15 sha=..`
    let version = output.split_whitespace().find_map(|word| word.strip_prefix("v=")?.split('.').next()?.parse().ok());
    version.unwrap_or(0) < 7
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a port left");
    listener.local_addr().expect("a listener has an address").port()
}

/// Starts the server and waits until it accepts connections; `None` if it ends instead.
///
/// The kernel kills the server when the thread that started it ends. That thread reads the server's output until the server or
/// this process ends, so that not even a killed test leaves a server behind.
fn spawn(folder: &Path, port: u16, settings: &[String]) -> Option<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program());
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--dir"]);
    command.arg(folder);
    for line in settings {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        command.arg(format!("--{name}"));
        // Each word of a value is an argument. Quotes around a word are not part of it.
        command.args(value.split(' ').map(|word| word.trim_matches('"')));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let (send_child, started) = mpsc::channel();
    std::thread::spawn(move || {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{} cannot be started, and no test is skipped for it: {error}", program()),
        };
        let output = child.stdout.take().expect("its output is piped");
        let mut child = Some(child);
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            // "Ready" or "ready", depending on the version.
            if line.contains("eady to accept connections")
                && let Some(child) = child.take()
            {
                let _ = send_child.send(child);
            }
        }
        if let Some(mut child) = child {
            let _ = child.wait();
        }
    });
    started.recv_timeout(START_TIMEOUT).ok()
}
