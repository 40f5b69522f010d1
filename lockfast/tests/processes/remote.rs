//! The calling side: processes that were started for a test, and stores whose every verb runs in one of them.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use lockfast::store::Claim;
use lockfast::store::{
    Admission, Busy, Change, Guarantees, Lease, Leaving, Page, Query, Report, Scope, Standing, Store,
};
use lockfast::{Error, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::encoding::{Codec, Request, decode_all, receive, send};
use crate::{SERVER_TEST, URL_VAR};

/// Where the store of a test keeps its queues. Dropped after the processes that serve it have ended.
#[derive(Debug)]
pub struct Site {
    url: String,
    folder: Option<PathBuf>,
}

impl Site {
    /// Inside each process.
    pub fn memory() -> Self {
        Self { url: "memory:".to_owned(), folder: None }
    }

    /// In a file that did not exist before.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    pub fn file() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("lockfast-processes-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self { url: format!("sqlite:{}", folder.join("locks.db").display()), folder: Some(folder) }
    }

    /// In a Redis server that all tests of this binary share.
    #[cfg(feature = "redis")]
    pub fn redis() -> Self {
        static SERVER: std::sync::OnceLock<servers::Redis> = std::sync::OnceLock::new();
        Self { url: SERVER.get_or_init(servers::Redis::start).url(), folder: None }
    }

    /// Whether the store has a clock that tests cannot set.
    pub fn has_real_clock(&self) -> bool {
        self.url.starts_with("redis:")
    }

    /// The directory of the file.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.as_deref().expect("only a file has a directory")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// A process that serves. It is killed when its test is over. If this process dies before, its input ends, and the process ends
/// by itself.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    socket: Mutex<UnixStream>,
    next_number: AtomicU64,
    in_flight: InFlight,
}

/// The senders of the answers, by the number of the request; `None` when the process is gone.
type InFlight = Arc<Mutex<Option<HashMap<u64, UnboundedSender<Vec<u8>>>>>>;

impl Process {
    /// Starts a process that serves this site.
    pub fn start(site: &Site) -> Arc<Self> {
        let (socket, child_socket) = UnixStream::pair().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", SERVER_TEST, "--nocapture"]).env(URL_VAR, &site.url);
        let child = command.stdin(OwnedFd::from(child_socket)).stdout(Stdio::null()).spawn().unwrap();
        let in_flight = InFlight::new(Mutex::new(Some(HashMap::new())));
        let (from, answers) = (socket.try_clone().unwrap(), Arc::clone(&in_flight));
        std::thread::spawn(move || {
            while let Ok((number, body)) = receive(&from) {
                let in_flight = answers.lock().unwrap();
                // An answer that is not awaited any more is dropped.
                if let Some(caller) = in_flight.as_ref().and_then(|in_flight| in_flight.get(&number)) {
                    let _ = caller.send(body);
                }
            }
            *answers.lock().unwrap() = None;
        });
        // The command keeps the child's end of the socket open. Once it is dropped, the end of the process ends our reading.
        drop(command);
        let (child, socket, next_number) = (Mutex::new(child), Mutex::new(socket), AtomicU64::new(0));
        Arc::new(Self { child, socket, next_number, in_flight })
    }

    /// Ends the input of the process, which then ends by itself.
    pub fn hang_up(&self) {
        self.socket.lock().unwrap().shutdown(Shutdown::Write).unwrap();
    }

    /// Kills the process, also if handles to it exist: it runs no clean-up. Returns when it is gone.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Sends the process a signal: stop or continue.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.lock().unwrap().id()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Stops the process, and returns when all of its threads are stopped.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.lock().unwrap().id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        while !std::fs::read_dir(&tasks).unwrap().flatten().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    /// The exit status of the process, if it has ended.
    pub fn exit_status(&self) -> Option<std::process::ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    /// Moves the clock of the process.
    pub async fn pass(self: &Arc<Self>, span: Duration) {
        self.ask(&Request::Pass(span)).only::<()>().await.expect("the process answers");
    }

    fn ask(self: &Arc<Self>, request: &Request) -> Answers {
        let (sender, bodies) = unbounded_channel();
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        if let Some(in_flight) = self.in_flight.lock().unwrap().as_mut() {
            in_flight.insert(number, sender);
        }
        self.tell(number, request);
        Answers { process: Arc::clone(self), number, bodies, is_complete: false }
    }

    fn tell(&self, number: u64, request: &Request) {
        // The reading thread notices that a process is gone.
        let _ = send(&self.socket.lock().unwrap(), number, request);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The answers to one request. When they are dropped, the other process cancels the request.
struct Answers {
    process: Arc<Process>,
    number: u64,
    bodies: UnboundedReceiver<Vec<u8>>,
    /// Whether the last answer has arrived.
    is_complete: bool,
}

impl Answers {
    /// The answer to a request that has one; `None` when the process is gone.
    async fn only<T: Codec>(mut self) -> Option<T> {
        let body = self.bodies.recv().await;
        self.is_complete = true;
        body.map(|body| decode_all(&body))
    }

    /// The next change of a watch, until its stream ends.
    async fn change(mut self) -> Option<(Change, Self)> {
        match self.bodies.recv().await.and_then(|body| decode_all(&body)) {
            Some(change) => Some((change, self)),
            None => {
                self.is_complete = true;
                None
            }
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if let Some(in_flight) = self.process.in_flight.lock().unwrap().as_mut() {
            in_flight.remove(&self.number);
        }
        if !self.is_complete {
            self.process.tell(self.number, &Request::Forget(self.number));
        }
    }
}

/// A handle that is open in another process.
#[derive(Debug)]
pub struct Remote {
    process: Arc<Process>,
    time: Arc<RwLock<()>>,
    handle: u64,
    guarantees: Guarantees,
}

impl Remote {
    /// Opens a handle. While `time` is locked for writing, no verb is in flight.
    pub async fn open(process: &Arc<Process>, time: &Arc<RwLock<()>>) -> Self {
        let answers = process.ask(&Request::Open);
        let handle = answers.number;
        let opened: Result<Guarantees> = answers.only().await.expect("the process lives");
        let (process, time) = (Arc::clone(process), Arc::clone(time));
        Self { process, time, handle, guarantees: opened.unwrap() }
    }

    /// Opens a handle in a process that may be killed meanwhile: then `None`.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    pub async fn try_open(process: &Arc<Process>) -> Option<Self> {
        let answers = process.ask(&Request::Open);
        let handle = answers.number;
        let opened: Result<Guarantees> = answers.only().await?;
        let (process, time) = (Arc::clone(process), Arc::default());
        Some(Self { process, time, handle, guarantees: opened.unwrap() })
    }

    async fn ask<T: Codec>(&self, request: Request) -> Result<T> {
        let _time_stands_still: RwLockReadGuard<'_, ()> = self.time.read().await;
        let answer = self.process.ask(&request).only::<Result<T>>().await;
        answer.unwrap_or_else(|| Err(Error::unavailable("asking another process", "it is gone")))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.process.tell(self.handle, &Request::Close(self.handle));
    }
}

#[async_trait]
impl Store for Remote {
    fn guarantees(&self) -> Guarantees {
        self.guarantees.clone()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.ask(Request::Acquire(self.handle, Arc::clone(claim), busy)).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.ask(Request::Renew(self.handle, leases.to_vec())).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.ask(Request::Release(self.handle, leaving.to_vec())).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.ask(Request::Inspect(self.handle, query.clone())).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.ask(Request::Record(self.handle, report.clone())).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let answers = self.process.ask(&Request::Watch(self.handle, scope));
        futures::stream::unfold(answers, Answers::change).boxed()
    }
}
