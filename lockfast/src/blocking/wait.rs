//! Blocking a thread until a future is ready.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::client::is_keepers_thread;
use crate::error::{Error, Result};

/// Wakes a thread that blocks on a future.
struct Bell {
    thread: Thread,
    has_rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls on this thread and sleeps in between. May be nested, unlike the executors that forbid it: work that is done once
/// takes other locks. So each call has a bell of its own; an inner one may use up the thread's wake-up, never the bell.
pub(super) fn block_on<T, E: From<Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    if is_keepers_thread() {
        // It would wait for what only this thread does.
        let what =
            "a callback of on_lost waits for a lock, on the thread that keeps them; send a message to another thread";
        return Err(Error::invalid(what).into());
    }
    let mut work = pin!(work);
    let bell = Arc::new(Bell { thread: thread::current(), has_rung: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !bell.has_rung.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}
