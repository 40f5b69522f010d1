//! The clients that keys are shared with, and a running driver of one of them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Longer than any answer takes; shorter than it takes a person to give up.
const ANSWERS_WITHIN: Duration = Duration::from_secs(40);

/// A lock library of somebody else.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// What its registry calls it.
    pub name: &'static str,
    /// What it puts before a name to get a key.
    pub prefix: &'static str,
    driver: Driver,
    /// Whether it tells its caller that a release had no effect.
    pub tells: bool,
}

#[derive(Clone, Copy, Debug)]
enum Driver {
    Python(&'static str),
    Node(&'static str),
    Rust,
}

pub const REDIS_PY: Client =
    Client { name: "redis-py", prefix: "", driver: Driver::Python("redis_py.py"), tells: true };
pub const PYTHON_REDIS_LOCK: Client =
    Client { name: "python-redis-lock", prefix: "lock:", driver: Driver::Python("python_redis_lock.py"), tells: true };
pub const REDLOCK: Client = Client { name: "redlock 4", prefix: "", driver: Driver::Node("redlock.js"), tells: true };
pub const REDLOCK_5: Client = Client { name: "redlock 5", driver: Driver::Node("redlock_5.js"), ..REDLOCK };
pub const REDIS_SEMAPHORE: Client =
    Client { name: "redis-semaphore", prefix: "mutex:", driver: Driver::Node("redis_semaphore.js"), tells: false };
pub const RSLOCK: Client = Client { name: "rslock", prefix: "", driver: Driver::Rust, tells: false };

/// A driver that runs. It is killed when its test is over; should this process die before, it ends by itself, because its
/// input does, or the server that it waits for.
#[derive(Debug)]
pub struct Peer {
    client: Client,
    child: Child,
    input: ChildStdin,
    output: UnboundedReceiver<String>,
}

impl Peer {
    /// Starts one that talks to the server at `url`.
    pub async fn start(client: Client, url: &str) -> Self {
        let mut command = client.command();
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Not ours to inherit: Node.js makes it non-blocking, and then whoever else prints there fails.
        command.stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let (input, printed) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let complaints = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(complaints)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| eprintln!("{}: {line}", client.name));
        });
        let (say, output) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let mut peer = Self { client, child, input, output };
        let first = tokio::time::timeout(ANSWERS_WITHIN, peer.output.recv()).await.ok().flatten();
        assert_eq!(
            first.as_deref(),
            Some("ready"),
            "the driver of {} did not begin; `cargo xtask setup` installs what it needs",
            client.name
        );
        peer
    }

    /// Tells it to do something, and does not wait for the answer.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap_or_else(|error| panic!("{} has gone: {error}", self.client.name));
    }

    /// Its next answer.
    pub async fn hear(&mut self) -> String {
        let answer = tokio::time::timeout(ANSWERS_WITHIN, self.output.recv()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{} does not answer", self.client.name));
        answer.unwrap_or_else(|| panic!("the driver of {} has ended; it says why above", self.client.name))
    }

    /// Whether it has answered.
    pub fn has_answered(&mut self) -> Option<String> {
        self.output.try_recv().ok()
    }

    /// Tells it to do something, and waits until it has.
    pub async fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear().await
    }

    /// Whether it gets the lock at once, for half a minute.
    pub async fn gets(&mut self, name: &str) -> bool {
        match self.ask(&format!("try {name} 30000")).await.as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{} answers {other:?}", self.client.name),
        }
    }

    /// It gives back what it got last.
    pub async fn releases(&mut self) {
        assert_eq!(self.ask("release").await, "done", "{} gives back its own lock", self.client.name);
    }

    /// It tries to extend and to release what it does not have any more, or never had, and notices if it can.
    pub async fn cannot_touch_it(&mut self) {
        let extended = self.ask("extend 40000").await;
        assert!(extended.starts_with("refused"), "{} extended it: {extended}", self.client.name);
        let released = self.ask("release").await;
        assert!(released.starts_with("refused") || !self.client.tells, "{} released it: {released}", self.client.name);
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
                // Nothing but what was installed for this is seen, and no compiled files are left beside the drivers.
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
