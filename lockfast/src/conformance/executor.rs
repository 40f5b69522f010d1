//! The executors that cases run on, and how cases spawn, sleep and limit their waits.
//!
//! No case uses the runtime's own functions for that. So no case needs a tokio runtime or its timer; a failure on a
//! runtime without a timer is the client's or the store's.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::ThreadPool;
use futures::future::{AbortHandle, Aborted, Either, abortable, select};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The executor of a case and of all tasks it spawns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// A tokio runtime of two threads, with its timer and its I/O driver.
    Tokio,
    /// A tokio runtime of two threads without a timer: a `tokio::time::sleep` on it panics.
    WithoutTime,
    /// A tokio runtime of two threads without an I/O driver: a `tokio::net::TcpStream` made on it panics.
    WithoutIo,
    /// A tokio runtime of one thread, with neither a timer nor an I/O driver.
    Bare,
    /// A tokio runtime of one thread whose time is paused, as in `#[tokio::test(start_paused = true)]`: as soon as it has nothing
    /// to do, its clock jumps to its next timer.
    Paused,
    /// The thread pool of the `futures` crate: no tokio runtime anywhere.
    ThreadPool,
}

impl Executor {
    /// Runs `work` to its end on this thread; tasks it spawns run on this executor.
    pub(super) fn run<T>(self, work: impl Future<Output = T>) -> T {
        let (mut threads, mut single) = (Builder::new_multi_thread(), Builder::new_current_thread());
        let builder = match self {
            Self::ThreadPool => return futures::executor::block_on(work),
            Self::Tokio => threads.worker_threads(2).enable_all(),
            Self::WithoutTime => threads.worker_threads(2).enable_io(),
            Self::WithoutIo => threads.worker_threads(2).enable_time(),
            Self::Bare => &mut single,
            Self::Paused => single.enable_all().start_paused(true),
        };
        builder.build().expect("a test can start threads").block_on(work)
    }
}

/// Sleeps by the machine's clock, on any executor. For [`Subject::advance`](super::Subject::advance) where time is
/// real.
///
/// ```
/// # use std::time::Duration;
/// futures::executor::block_on(lockfast::conformance::sleep(Duration::from_millis(1)));
/// ```
pub async fn sleep(span: Duration) {
    // The suite's own timer. Its one thread runs nothing else, and no case runs inside its runtime.
    static TIMER: OnceLock<Runtime> = OnceLock::new();
    let timer = TIMER.get_or_init(|| {
        let mut timer = Builder::new_multi_thread();
        timer.worker_threads(1).enable_time().build().expect("a test can start threads")
    });
    let mut sleeping = AbortOnDrop(timer.spawn(async move { tokio::time::sleep(span).await }));
    (&mut sleeping.0).await.expect("it is aborted by its drop alone");
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result, or `None` if it took longer than the limit by the machine's clock.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    match select(pin!(work), pin!(sleep(limit))).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(((), _)) => None,
    }
}

/// Spawns a task: on the caller's tokio runtime, or else on the thread pool. If its handle is dropped, the task goes
/// on.
pub(super) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Task<T> {
    let (work, stop) = abortable(AssertUnwindSafe(work).catch_unwind());
    let (sender, end) = oneshot::channel();
    let task = async move {
        // Order matters: the work is dropped before its end is sent, so that a cancelled task has been dropped when
        // `cancel` returns.
        let ended = work.await;
        let _ = sender.send(ended);
    };
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(task)),
        Err(_) => pool().spawn_ok(task),
    }
    Task { stop, end }
}

/// The thread pool of all cases on [`Executor::ThreadPool`].
fn pool() -> &'static ThreadPool {
    static POOL: OnceLock<ThreadPool> = OnceLock::new();
    POOL.get_or_init(|| ThreadPool::builder().pool_size(2).create().expect("a test can start threads"))
}

/// A spawned task.
#[derive(Debug)]
pub(super) struct Task<T> {
    stop: AbortHandle,
    end: oneshot::Receiver<Result<thread::Result<T>, Aborted>>,
}

impl<T> Task<T> {
    /// The result; a panic of the task is resumed here.
    pub(super) async fn join(self) -> T {
        match self.end.await.expect("an executor outlives its tasks") {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(Aborted) => panic!("a cancelled task is joined"),
        }
    }

    /// Stops the task, and returns once all it owned is dropped, including a result that was ready.
    pub(super) async fn cancel(self) {
        self.stop.abort();
        drop(self.end.await);
    }

    /// Stops the task without waiting for it.
    pub(super) fn stop(&self) {
        self.stop.abort();
    }

    pub(super) fn is_over(&self) -> bool {
        !self.end.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Executor; 6] = [
        Executor::Tokio,
        Executor::WithoutTime,
        Executor::WithoutIo,
        Executor::Bare,
        Executor::Paused,
        Executor::ThreadPool,
    ];

    /// Whether the current runtime has a timer, and an I/O driver. `None` without a runtime.
    fn drivers() -> Option<(bool, bool)> {
        Handle::try_current().ok()?;
        let works = |make: fn()| std::panic::catch_unwind(make).is_ok();
        let timer = works(|| drop(tokio::time::sleep(Duration::ZERO)));
        let io = works(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("this machine has a network");
            socket.set_nonblocking(true).expect("a socket can be set");
            drop(tokio::net::UdpSocket::from_std(socket));
        });
        Some((timer, io))
    }

    #[test]
    fn each_executor_has_its_drivers_also_for_spawned_tasks() {
        let expected = [
            (Executor::Tokio, Some((true, true))),
            (Executor::WithoutTime, Some((false, true))),
            (Executor::WithoutIo, Some((true, false))),
            (Executor::Bare, Some((false, false))),
            (Executor::Paused, Some((true, true))),
            (Executor::ThreadPool, None),
        ];
        for (executor, has) in expected {
            let seen = executor.run(async { (drivers(), spawn(async { drivers() }).join().await) });
            assert_eq!(seen, (has, has), "{executor:?}");
        }
    }

    #[test]
    fn a_sleep_takes_its_time_on_every_executor() {
        let span = Duration::from_millis(20);
        for executor in ALL {
            let clock = crate::clock::Clock::boot();
            let before = clock.now();
            executor.run(sleep(span));
            assert!(clock.now().since(before) >= span, "{executor:?}");
        }
    }

    #[test]
    fn within_ends_only_work_that_exceeds_the_limit() {
        for executor in ALL {
            let long = Duration::from_secs(60);
            assert_eq!(executor.run(within(long, async { 1 })), Some(1), "{executor:?}");
            assert_eq!(
                executor.run(within(Duration::from_millis(1), std::future::pending::<()>())),
                None,
                "{executor:?}"
            );
        }
    }

    #[test]
    fn a_cancelled_task_has_dropped_its_values() {
        for executor in ALL {
            executor.run(async {
                let (owned, mut left) = oneshot::channel::<()>();
                let task = spawn(async move {
                    let _owned = owned;
                    std::future::pending::<()>().await;
                });
                assert!(!task.is_over());
                task.cancel().await;
                assert_eq!(left.try_recv(), Err(oneshot::error::TryRecvError::Closed), "{executor:?}");
            });
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_its_caller() {
        for executor in ALL {
            let joins = || executor.run(async { spawn(async { resume_unwind(Box::new(7)) }).join().await });
            let panic: thread::Result<()> = std::panic::catch_unwind(joins);
            assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&7), "{executor:?}");
        }
    }
}
