//! Decides which runtime drives the connection of a caller: the caller's own if it can, otherwise the store's I/O thread.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::blocking::wait::is_inside_block_on;
use crate::clock::Clock;
use crate::error::{Error, Result};

use super::timing::MAX_RESPONSE_TIMEOUT;

/// The time in which tokio's clock advances, unless a test has paused it.
const CLOCK_MOVES_WITHIN: Duration = Duration::from_micros(50);
/// How often a thread that is to end checks whether its last tasks have ended.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// The tokio runtime of the caller. `None` if there is none, or if its thread is blocked until this call ends.
pub(super) fn caller_runtime() -> Option<Handle> {
    if is_inside_block_on() { None } else { Handle::try_current().ok() }
}

/// Whether a runtime has I/O, and timers that follow the clock (a test may have paused them).
///
/// tokio cannot be asked for either, and panics if one is missing: so a task tries both. A panic ends only that task; its message
/// is printed once for each runtime.
pub(super) fn can_drive_connections(runtime: &Handle) -> impl Future<Output = bool> + Send + use<> {
    let probe = runtime.spawn(async {
        drop(tokio::time::sleep(Duration::ZERO));
        drop(tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await);
        let (clock, before) = (Clock::boot(), tokio::time::Instant::now());
        let began = clock.now();
        while clock.now().since(began) < CLOCK_MOVES_WITHIN {
            std::hint::spin_loop();
        }
        tokio::time::Instant::now() > before
    });
    async { probe.await.unwrap_or(false) }
}

/// A thread with a runtime of the store, started at first use.
#[derive(Default)]
pub(crate) struct IoThread(Mutex<Option<RunningThread>>);

struct RunningThread {
    runtime: Handle,
    /// Dropped with the store: then the thread ends once its tasks have ended.
    _end_sender: oneshot::Sender<()>,
}

impl IoThread {
    pub(crate) fn runtime(&self) -> Result<Handle> {
        let mut running = self.running();
        match &*running {
            Some(running) => Ok(running.runtime.clone()),
            None => {
                let started =
                    RunningThread::start().map_err(|error| Error::unavailable("starting the I/O thread", error))?;
                Ok(running.insert(started).runtime.clone())
            }
        }
    }
}

impl IoThread {
    /// Lets the thread end once its tasks have ended.
    pub(super) fn end(&self) {
        self.running().take();
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningThread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningThread {
    fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (end_sender, end_receiver)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let run = move || {
            runtime.block_on(async {
                let _ = end_receiver.await;
                let _ = tokio::time::timeout(MAX_RESPONSE_TIMEOUT, wait_for_tasks(&runtime)).await;
            });
            // A DNS query that hangs does not keep the thread.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("lockfast-redis".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, _end_sender: end_sender })
    }
}

/// Waits until no task is left: retired connections end with the reply to their last request.
async fn wait_for_tasks(runtime: &Runtime) {
    while runtime.metrics().num_alive_tasks() > 0 {
        tokio::time::sleep(CHECK_EVERY).await;
    }
}
