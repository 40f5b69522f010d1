//! Blocks a thread until a future is ready.
//!
//! If the call comes from a task of a tokio runtime, that runtime makes no progress on this thread meanwhile; a runtime with a
//! single thread makes none at all. A task that a store spawns there, or a driver that it waits for, may never run. So a store that
//! drives its I/O on the caller's runtime checks [`is_inside_block_on`] first.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::client::is_keeper_thread;
use crate::error::{Error, Result};

/// Wakes a thread that blocks on a future.
struct ThreadWaker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

thread_local! {
    /// How many calls of [`block_on`] are on this thread's stack.
    static BLOCK_ON_DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether a call of [`block_on`] is on this thread's stack. If so, a store must not rely on the tokio runtime of this thread: it may
/// be blocked until the future that is being polled is ready.
///
/// It is also `true` inside a runtime that the future itself starts: the answer errs on the side of *blocked*.
#[allow(dead_code, reason = "the features decide which stores are compiled, and not every store calls it")]
pub(crate) fn is_inside_block_on() -> bool {
    BLOCK_ON_DEPTH.get() > 0
}

/// Counts one call of [`block_on`]. Its drop ends the call, also after a panic in the future.
struct BlockOnCall;

impl BlockOnCall {
    fn begin() -> Self {
        BLOCK_ON_DEPTH.set(BLOCK_ON_DEPTH.get() + 1);
        Self
    }
}

impl Drop for BlockOnCall {
    fn drop(&mut self) {
        BLOCK_ON_DEPTH.set(BLOCK_ON_DEPTH.get() - 1);
    }
}

/// Polls on this thread and parks it in between. Calls may be nested, unlike in most executors: the work of a `Once` takes other
/// locks. So each call has a flag of its own: an inner call may consume the thread's unpark token, never the flag of an outer one.
pub(crate) fn block_on<T, E: From<Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    if is_keeper_thread() {
        // It would wait for the keeper, which is this thread.
        let message =
            "a callback of on_lost waits for a lock, on the thread that keeps them; send a message to another thread";
        return Err(Error::invalid(message).into());
    }
    // Order matters: declared before the future is pinned, so that the future is dropped within the call.
    let _call = BlockOnCall::begin();
    // Inside a task, tokio's own futures are pending after 128 polls until the task yields to its runtime (cooperative budget). A
    // blocked thread does not yield: without `unconstrained` it would poll for ever.
    let mut work = pin!(tokio::task::unconstrained(work));
    let thread_waker = Arc::new(ThreadWaker { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&thread_waker));
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !thread_waker.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn block_on_is_noticed() -> Result<bool> {
        block_on(async { Ok(is_inside_block_on()) })
    }

    #[test]
    fn only_a_thread_in_block_on_says_so() {
        assert!(!is_inside_block_on());
        assert!(block_on_is_noticed().unwrap());
        assert!(!is_inside_block_on());
    }

    #[test]
    fn the_end_of_an_inner_call_does_not_end_the_outer() {
        let after_inner = block_on(async {
            assert!(block_on_is_noticed()?);
            Ok::<_, Error>(is_inside_block_on())
        });
        assert!(after_inner.unwrap());
        assert!(!is_inside_block_on());
    }

    #[test]
    fn a_panic_in_the_future_ends_the_call() {
        let panics = || block_on::<(), Error>(async { std::panic::resume_unwind(Box::new(())) });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(!is_inside_block_on());
    }

    #[test]
    fn another_thread_is_not_inside_block_on() {
        let elsewhere = block_on(async { Ok::<_, Error>(thread::spawn(is_inside_block_on).join().unwrap()) });
        assert!(!elsewhere.unwrap());
    }

    #[test]
    fn a_future_is_dropped_within_the_call() {
        struct OnDrop<'a>(&'a Cell<bool>);
        impl Drop for OnDrop<'_> {
            fn drop(&mut self) {
                self.0.set(is_inside_block_on());
            }
        }
        let answer = Cell::new(false);
        let on_drop = OnDrop(&answer);
        // Not an `async` block: that would drop its captured values as soon as it is ready. This closure keeps them until the future
        // is dropped.
        let future = std::future::poll_fn(move |_| {
            let _owned = &on_drop;
            Poll::Ready(Ok::<_, Error>(()))
        });
        block_on(future).unwrap();
        assert!(answer.get());
    }

    /// tokio makes a task yield to its runtime after 128 polls. A thread that blocks inside a task never yields.
    #[test]
    fn a_call_in_a_task_ends_however_often_it_polls() {
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let polls = async {
                for _ in 0..1000 {
                    let (sender, receiver) = tokio::sync::oneshot::channel();
                    sender.send(()).unwrap();
                    receiver.await.unwrap();
                }
                Ok::<_, Error>(())
            };
            runtime.block_on(async { block_on(polls) }).unwrap();
            sender.send(()).unwrap();
        });
        receiver
            .recv_timeout(std::time::Duration::from_secs(10))
            .expect("the call must not wait for its runtime, which waits for the call");
    }
}
