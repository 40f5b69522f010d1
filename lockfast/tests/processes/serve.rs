//! The serving process: it runs requests with stores and a clock of its own, until its input ends. A panic anywhere in it ends
//! the process, so that each caller that waits for an answer gets an error.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use futures::StreamExt;
use lockfast::store::{Change, Store};
use lockfast::{Error, ManualClock, Memory, Result};
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use crate::encoding::{Codec, Request, decode_all, receive, send};

/// Serves the backend at `url` to the process at the other end of the standard input, which is a socket.
pub fn serve(url: &str) {
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print_panic(panic);
        std::process::exit(101);
    }));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stores, running) = Default::default();
    let answers = Mutex::new(socket.try_clone().unwrap());
    let server = Server { runtime: runtime.handle().clone(), backend: Backend::at(url), stores, running, answers };
    let server = Arc::new(server);
    while let Ok((number, request)) = receive(&socket) {
        server.run(number, decode_all(&request));
    }
}

struct Server {
    runtime: Handle,
    backend: Backend,
    stores: Mutex<HashMap<u64, Arc<dyn Store>>>,
    /// The tasks of requests that are not answered yet.
    running: Mutex<HashMap<u64, AbortHandle>>,
    answers: Mutex<UnixStream>,
}

impl Server {
    fn run(self: &Arc<Self>, number: u64, request: Request) {
        let store = |handle: u64| Arc::clone(&self.stores.lock().unwrap()[&handle]);
        match request {
            Request::Open => {
                let server = Arc::clone(self);
                self.answer(number, async move {
                    let store = server.backend.open().await?;
                    let guarantees = store.guarantees();
                    server.stores.lock().unwrap().insert(number, store);
                    Ok::<_, Error>(guarantees)
                });
            }
            Request::Close(handle) => drop(self.stores.lock().unwrap().remove(&handle)),
            Request::Acquire(handle, claim, busy) => {
                let store = store(handle);
                self.answer(number, async move { store.acquire(&claim, busy).await });
            }
            Request::Renew(handle, leases) => {
                let store = store(handle);
                self.answer(number, async move { store.renew(&leases).await });
            }
            Request::Release(handle, leaving) => {
                let store = store(handle);
                self.answer(number, async move { store.release(&leaving).await });
            }
            Request::Inspect(handle, query) => {
                let store = store(handle);
                self.answer(number, async move { store.inspect(&query).await });
            }
            Request::Record(handle, report) => {
                let store = store(handle);
                self.answer(number, async move { store.record(&report).await });
            }
            Request::Watch(handle, scope) => {
                // Order matters: the watch begins before the next request is read, or it would miss what that request changes.
                let _entered = self.runtime.enter();
                let mut changes = store(handle).watch(scope);
                let server = Arc::clone(self);
                self.answer(number, async move {
                    while let Some(change) = changes.next().await {
                        server.reply(number, &Some(change));
                    }
                    None::<Change>
                });
            }
            Request::Forget(forgotten) => {
                if let Some(task) = self.running.lock().unwrap().remove(&forgotten) {
                    task.abort();
                }
            }
            Request::Pass(span) => {
                self.backend.clock.advance(span);
                self.reply(number, &());
            }
        }
    }

    /// Runs a request concurrently with the others, and answers it.
    fn answer<T: Codec>(self: &Arc<Self>, number: u64, work: impl Future<Output = T> + Send + 'static) {
        let server = Arc::clone(self);
        let mut work = Box::pin(async move {
            let answer = work.await;
            server.reply(number, &answer);
        });
        // A request that does not have to wait is completed here: waking another thread takes longer than most verbs.
        let _entered = self.runtime.enter();
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let server = Arc::clone(self);
        // Order matters: `running` is locked, so that a task that ends removes itself only after it was inserted.
        let mut running = self.running.lock().unwrap();
        let task = self.runtime.spawn(async move {
            work.await;
            server.running.lock().unwrap().remove(&number);
        });
        running.insert(number, task.abort_handle());
    }

    fn reply(&self, number: u64, body: &impl Codec) {
        // If the other process is gone, the input ends too, and with it this process.
        let _ = send(&self.answers.lock().unwrap(), number, body);
    }
}

/// The store that a process opens its handles to, on a clock of its own.
struct Backend {
    clock: ManualClock,
    kind: BackendKind,
}

enum BackendKind {
    Memory(Arc<Memory>),
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    InFile(std::path::PathBuf),
    #[cfg(feature = "redis")]
    InRedis(String),
}

impl Backend {
    fn at(url: &str) -> Self {
        let clock = ManualClock::new();
        let kind = match url.split_once(':') {
            Some(("memory", "")) => BackendKind::Memory(Arc::new(Memory::with_clock(clock.clock()))),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Some(("sqlite", path)) => BackendKind::InFile(path.into()),
            #[cfg(feature = "redis")]
            Some(("redis", _)) => BackendKind::InRedis(url.to_owned()),
            _ => panic!("{url} cannot be served"),
        };
        Self { clock, kind }
    }

    async fn open(&self) -> Result<Arc<dyn Store>> {
        match &self.kind {
            BackendKind::Memory(memory) => Ok(memory.clone()),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            BackendKind::InFile(path) => Ok(lockfast::SqliteOptions::default().clock(self.clock.clock()).open(path)?),
            #[cfg(feature = "redis")]
            BackendKind::InRedis(url) => Ok(lockfast::Redis::open(url).await?),
        }
    }
}
