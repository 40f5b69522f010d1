//! The far side: a process that does what it is asked to, with stores of its own and a clock of its own, until nobody can
//! ask any more. A panic anywhere in it ends it, so that whoever waits for an answer hears of it.

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

use crate::wire::{Request, Travels, receive, send, unpacked};

/// Serves the place behind `url` to whoever is at the other end of the standard input, which is a socket.
pub fn serve(url: &str) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(101);
    }));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stores, work) = Default::default();
    let answers = Mutex::new(socket.try_clone().unwrap());
    let inside = Inside { runtime: runtime.handle().clone(), place: Place::behind(url), stores, work, answers };
    let inside = Arc::new(inside);
    while let Ok((number, request)) = receive(&socket) {
        inside.take(number, unpacked(&request));
    }
}

struct Inside {
    runtime: Handle,
    place: Place,
    stores: Mutex<HashMap<u64, Arc<dyn Store>>>,
    /// What is not answered yet.
    work: Mutex<HashMap<u64, AbortHandle>>,
    answers: Mutex<UnixStream>,
}

impl Inside {
    fn take(self: &Arc<Self>, number: u64, request: Request) {
        let store = |handle: u64| Arc::clone(&self.stores.lock().unwrap()[&handle]);
        match request {
            Request::Open => {
                let inside = Arc::clone(self);
                self.answer(number, async move {
                    let store = inside.place.open().await?;
                    let guarantees = store.guarantees();
                    inside.stores.lock().unwrap().insert(number, store);
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
                // Order matters: it watches before the next request is read, or what that one does would not be seen.
                let _inside_the_runtime = self.runtime.enter();
                let mut changes = store(handle).watch(scope);
                let inside = Arc::clone(self);
                self.answer(number, async move {
                    while let Some(change) = changes.next().await {
                        inside.say(number, &Some(change));
                    }
                    None::<Change>
                });
            }
            Request::Forget(forgotten) => {
                if let Some(work) = self.work.lock().unwrap().remove(&forgotten) {
                    work.abort();
                }
            }
            Request::Pass(span) => {
                self.place.hand.advance(span);
                self.say(number, &());
            }
        }
    }

    /// Works on a request beside the others, and answers it.
    fn answer<T: Travels>(self: &Arc<Self>, number: u64, work: impl Future<Output = T> + Send + 'static) {
        let inside = Arc::clone(self);
        let mut work = Box::pin(async move {
            let answer = work.await;
            inside.say(number, &answer);
        });
        // What does not have to wait is done here: another thread would have to be woken, which takes longer than most verbs.
        let _inside_the_runtime = self.runtime.enter();
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let inside = Arc::clone(self);
        // Order matters: work that has ended is taken out of the list after it was put in.
        let mut list = self.work.lock().unwrap();
        let task = self.runtime.spawn(async move {
            work.await;
            inside.work.lock().unwrap().remove(&number);
        });
        list.insert(number, task.abort_handle());
    }

    fn say(&self, number: u64, body: &impl Travels) {
        // If nobody is there to hear it, nobody asks any more either, and the process ends.
        let _ = send(&self.answers.lock().unwrap(), number, body);
    }
}

/// What a process opens its handles to, on a clock of its own.
struct Place {
    hand: ManualClock,
    kept: Kept,
}

enum Kept {
    Here(Arc<Memory>),
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    InFile(std::path::PathBuf),
    #[cfg(feature = "redis")]
    InRedis(String),
}

impl Place {
    fn behind(url: &str) -> Self {
        let hand = ManualClock::new();
        let kept = match url.split_once(':') {
            Some(("memory", "")) => Kept::Here(Arc::new(Memory::with_clock(hand.clock()))),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Some(("sqlite", path)) => Kept::InFile(path.into()),
            #[cfg(feature = "redis")]
            Some(("redis", _)) => Kept::InRedis(url.to_owned()),
            _ => panic!("{url} cannot be served"),
        };
        Self { hand, kept }
    }

    async fn open(&self) -> Result<Arc<dyn Store>> {
        match &self.kept {
            Kept::Here(memory) => Ok(memory.clone()),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Kept::InFile(path) => Ok(lockfast::SqliteOptions::default().clock(self.hand.clock()).open(path)?),
            #[cfg(feature = "redis")]
            Kept::InRedis(url) => Ok(lockfast::Redis::open(url).await?),
        }
    }
}
