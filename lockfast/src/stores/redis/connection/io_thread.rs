//! Which runtime drives the connections of a caller: the caller's own where it can, else the store's I/O thread.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::blocking::wait::is_blocking_here;
use crate::clock::Clock;
use crate::error::{Error, Result};

use super::timing::LONGEST_RESPONSE;

/// Long enough that a clock which runs has moved.
const CLOCK_MOVES_WITHIN: Duration = Duration::from_micros(50);
/// How often the thread looks whether its last tasks have ended.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// The tokio runtime around the caller. None if there is none, or if its thread is blocked until this call ends.
pub(super) fn of_caller() -> Option<Handle> {
    if is_blocking_here() { None } else { Handle::try_current().ok() }
}

/// Whether a runtime has I/O, and timers that follow the clock (a test may have paused them).
///
/// tokio can only be asked by trying, and panics where they are missing. The panic ends a task of its own; its message is
/// printed, once for a runtime.
pub(super) fn drives_connections(runtime: &Handle) -> impl Future<Output = bool> + Send + use<> {
    let tried = runtime.spawn(async {
        drop(tokio::time::sleep(Duration::ZERO));
        drop(tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await);
        let (clock, before) = (Clock::boot(), tokio::time::Instant::now());
        let began = clock.now();
        while clock.now().since(began) < CLOCK_MOVES_WITHIN {
            std::hint::spin_loop();
        }
        tokio::time::Instant::now() > before
    });
    async { tried.await.unwrap_or(false) }
}

/// A thread with a runtime of the store's own, started at first need.
#[derive(Default)]
pub(crate) struct IoThread(Mutex<Option<Running>>);

struct Running {
    runtime: Handle,
    /// Dropped with the store: then the thread ends when its tasks have.
    _store: oneshot::Sender<()>,
}

impl IoThread {
    pub(crate) fn runtime(&self) -> Result<Handle> {
        let mut running = self.running();
        match &*running {
            Some(running) => Ok(running.runtime.clone()),
            None => {
                let started = Running::start().map_err(|error| Error::unavailable("starting the I/O thread", error))?;
                Ok(running.insert(started).runtime.clone())
            }
        }
    }
}

impl IoThread {
    /// Lets the thread end when its tasks have.
    pub(super) fn end(&self) {
        self.running().take();
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (store, is_dropped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let run = move || {
            runtime.block_on(async {
                let _ = is_dropped.await;
                let _ = tokio::time::timeout(LONGEST_RESPONSE, tasks_end(&runtime)).await;
            });
            // A look-up of a name that hangs does not keep the thread.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("lockfast-redis".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, _store: store })
    }
}

/// Connections that were left end when their last request is answered.
async fn tasks_end(runtime: &Runtime) {
    while runtime.metrics().num_alive_tasks() > 0 {
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}
