//! The lock libraries that keys are shared with, and a running driver of one of them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A driver that has not answered after this time has failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// Another lock library.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Its name in its registry.
    pub name: &'static str,
    /// The prefix of its keys.
    pub prefix: &'static str,
    driver: Driver,
    /// Whether it reports that a release had no effect.
    pub reports_refusals: bool,
}

/// The language of a driver, and its file in `foreign/drivers`.
#[derive(Clone, Copy, Debug)]
enum Driver {
    Python(&'static str),
    Node(&'static str),
    Rust,
}

pub const REDIS_PY: Client =
    Client { name: "redis-py", prefix: "", driver: Driver::Python("redis_py.py"), reports_refusals: true };
pub const PYTHON_REDIS_LOCK: Client = Client {
    name: "python-redis-lock",
    prefix: "lock:",
    driver: Driver::Python("python_redis_lock.py"),
    reports_refusals: true,
};
pub const REDLOCK: Client =
    Client { name: "redlock 4", prefix: "", driver: Driver::Node("redlock.js"), reports_refusals: true };
pub const REDLOCK_5: Client = Client { name: "redlock 5", driver: Driver::Node("redlock_5.js"), ..REDLOCK };
pub const REDIS_SEMAPHORE: Client = Client {
    name: "redis-semaphore",
    prefix: "mutex:",
    driver: Driver::Node("redis_semaphore.js"),
    reports_refusals: false,
};
pub const RSLOCK: Client = Client { name: "rslock", prefix: "", driver: Driver::Rust, reports_refusals: false };

/// A running driver. It is killed when its test is over. If this process dies before, the driver ends by itself: its input
/// ends, or its server.
#[derive(Debug)]
pub struct Peer {
    client: Client,
    child: Child,
    input: ChildStdin,
    output: UnboundedReceiver<String>,
}

impl Peer {
    /// Starts a driver for the server at `url`.
    pub async fn start(client: Client, url: &str) -> Self {
        let mut command = client.command();
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Not inherited: Node.js makes it non-blocking, and then other processes fail to print there.
        command.stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let (input, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let errors = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(errors).lines().map_while(Result::ok).for_each(|line| eprintln!("{}: {line}", client.name));
        });
        let (send, output) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut peer = Self { client, child, input, output };
        let first = tokio::time::timeout(ANSWER_TIMEOUT, peer.output.recv()).await.ok().flatten();
        assert_eq!(
            first.as_deref(),
            Some("ready"),
            "the driver of {} did not begin; `cargo xtask setup` installs what it needs",
            client.name
        );
        peer
    }

    /// Sends a command, and does not wait for the answer.
    pub fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap_or_else(|error| panic!("{} has gone: {error}", self.client.name));
    }

    /// The next answer.
    pub async fn answer(&mut self) -> String {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.output.recv()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{} does not answer", self.client.name));
        answer.unwrap_or_else(|| panic!("the driver of {} has ended; its error is printed above", self.client.name))
    }

    /// The next answer, if it has arrived.
    pub fn try_answer(&mut self) -> Option<String> {
        self.output.try_recv().ok()
    }

    /// Sends a command, and waits for the answer.
    pub async fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer().await
    }

    /// Tries to take the lock, with a lease of 30 s. Returns whether the lock was free.
    pub async fn try_lock(&mut self, name: &str) -> bool {
        match self.ask(&format!("try {name} 30000")).await.as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{} answers {other:?}", self.client.name),
        }
    }

    /// Releases the lock that the peer got last.
    pub async fn release(&mut self) {
        assert_eq!(self.ask("release").await, "done", "{} releases its own lock", self.client.name);
    }

    /// Asserts that the peer can neither extend nor release a lock that it holds no longer, or never held.
    pub async fn expect_no_access(&mut self) {
        let extended = self.ask("extend 40000").await;
        assert!(extended.starts_with("refused"), "{} extended the lock: {extended}", self.client.name);
        let released = self.ask("release").await;
        assert!(
            released.starts_with("refused") || !self.client.reports_refusals,
            "{} released the lock: {released}",
            self.client.name
        );
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn command(&self) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is a folder of the workspace");
        let (drivers, peers) = (root.join("foreign/drivers"), root.join("target/peers"));
        match self.driver {
            Driver::Python(file) => {
                let mut command = Command::new("python3");
                // Uses only the packages that were installed for this, and leaves no compiled files beside the drivers.
                command.args(["-s", "-B"]).arg(drivers.join(file)).env("PYTHONPATH", peers.join("python/packages"));
                command
            }
            Driver::Node(file) => {
                let mut command = Command::new("node");
                command.arg(drivers.join(file)).env("NODE_PATH", peers.join("node/node_modules"));
                command
            }
            Driver::Rust => Command::new(env!("CARGO_BIN_EXE_foreign")),
        }
    }
}
