//! Standard error, written by a thread of its own: a message is queued and never blocks its sender.
//!
//! 1. Sending a message never waits for a reader. A lock is renewed for as long as its process lives, so a message that
//!    blocks between the end of a command and the release would keep the lock for ever.
//! 2. Messages are written in the order in which they were sent. When the reader is so slow that [`MAX_QUEUED_BYTES`] are queued,
//!    later messages are dropped, and one that follows says how many.
//! 3. The end of the program waits for the reader, but not for longer than [`FLUSH_PATIENCE`].
//!
//! Standard error itself stays blocking: it is shared with the command and the terminal, so making it non-blocking would
//! change it for them too.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How many bytes of messages are queued for a slow reader.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// How long the end of the program waits for the reader.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

static MESSAGES: Messages = Messages::new(MAX_QUEUED_BYTES);

/// A writer to standard error: one call is one message. Never fails, never waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, message: &[u8]) -> std::io::Result<usize> {
        send(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn send(message: &[u8]) {
    // Most runs write no message and need no thread.
    let start = || std::thread::Builder::new().name("lockfast-stderr".to_owned()).spawn(write_all).is_ok();
    let has_thread = MESSAGES.send(message, start);
    // By 1, without a thread a message is written only if that does not block.
    if !has_thread && is_ready(Some(Duration::ZERO)) {
        write(message);
    }
}

/// The thread's loop, until the process ends.
fn write_all() {
    loop {
        write(&MESSAGES.next());
        if let Some(dropped) = MESSAGES.take_dropped_count() {
            tracing::warn!("{dropped} messages were dropped here: standard error was not read in time");
        }
    }
}

/// Writes a whole message, however long that takes. Errors are ignored: a reader that has left or a full disk must not change
/// how the program ends.
fn write(mut message: &[u8]) {
    while !message.is_empty() {
        match std::io::stderr().write(message) {
            Ok(0) => return,
            Ok(count) => message = &message[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process has made it non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock && is_ready(None) => {}
            Err(_) => return,
        }
    }
}

/// Whether standard error can be written to, within this time if there is a limit.
fn is_ready(within: Option<Duration>) -> bool {
    let stderr = std::io::stderr();
    let within = within.and_then(|span| Timespec::try_from(span).ok());
    matches!(poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], within.as_ref()), Ok(1..))
}

/// Waits for the reader when it is dropped, as the last thing that the program does: by 3.
#[derive(Debug)]
pub(crate) struct Flush;

impl Flush {
    /// From here on, the message of a panic is queued like every other; by default its thread would wait for the reader.
    pub(crate) fn at_the_end() -> Self {
        std::panic::set_hook(Box::new(|panic| {
            // Empty unless RUST_BACKTRACE asks for it.
            let trace = std::backtrace::Backtrace::capture();
            let is_captured = trace.status() == std::backtrace::BacktraceStatus::Captured;
            let trace = if is_captured { trace.to_string() } else { String::new() };
            send(format!("lockfast: {panic}\n{trace}").as_bytes());
        }));
        Self
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        MESSAGES.flush(FLUSH_PATIENCE);
    }
}

/// The queue between the senders of messages and the thread that writes them.
struct Messages {
    max_bytes: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    messages: VecDeque<Vec<u8>>,
    queued_bytes: usize,
    dropped_count: usize,
    has_thread: bool,
    /// A message has left the queue and is not written yet.
    is_writing: bool,
}

impl Messages {
    const fn new(max_bytes: usize) -> Self {
        let queue = Queue {
            messages: VecDeque::new(),
            queued_bytes: 0,
            dropped_count: 0,
            has_thread: false,
            is_writing: false,
        };
        Self { max_bytes, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message for the thread, which is started with the first one. Returns whether there is a thread.
    fn send(&self, message: &[u8], start: impl FnOnce() -> bool) -> bool {
        let mut queue = self.queue();
        queue.has_thread = queue.has_thread || start();
        if !queue.has_thread {
            return false;
        }
        if queue.queued_bytes + message.len() > self.max_bytes {
            queue.dropped_count += 1;
        } else {
            queue.queued_bytes += message.len();
            queue.messages.push_back(message.to_vec());
            self.changed.notify_all();
        }
        true
    }

    /// The next message, as soon as there is one. Calling it means that the one before is written.
    fn next(&self) -> Vec<u8> {
        let mut queue = self.queue();
        loop {
            if let Some(message) = queue.messages.pop_front() {
                queue.queued_bytes -= message.len();
                queue.is_writing = true;
                return message;
            }
            queue.is_writing = false;
            self.changed.notify_all();
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many messages were dropped, once every message that was queued before them is written.
    fn take_dropped_count(&self) -> Option<usize> {
        let mut queue = self.queue();
        let is_due = queue.messages.is_empty() && queue.dropped_count > 0;
        is_due.then(|| std::mem::take(&mut queue.dropped_count))
    }

    /// Waits until every message is written, for at most `patience`.
    fn flush(&self, patience: Duration) {
        let is_busy = |queue: &mut Queue| !queue.messages.is_empty() || queue.is_writing;
        let _ = self.changed.wait_timeout_while(self.queue(), patience, is_busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_does_not_fit_is_dropped_and_counted() {
        let messages = Messages::new(5);
        for message in ["ab", "cde", "f", "g"] {
            assert!(messages.send(message.as_bytes(), || true));
        }
        assert_eq!(messages.next(), b"ab");
        assert_eq!(messages.take_dropped_count(), None, "a message before them is not written yet");
        assert_eq!(messages.next(), b"cde");
        assert_eq!((messages.take_dropped_count(), messages.take_dropped_count()), (Some(2), None));
        messages.send(b"12345", || panic!("there is one thread"));
        assert_eq!(messages.next(), b"12345", "there is room again");
    }

    #[test]
    fn a_flush_waits_until_the_last_message_is_written() {
        let messages = Messages::new(5);
        messages.send(b"a", || true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(messages.next(), b"a");
                // Asking for the next one means that this one is written.
                assert_eq!(messages.next(), b"end");
            });
            messages.flush(Duration::MAX);
            messages.send(b"end", || true);
        });
    }

    #[test]
    fn a_flush_does_not_wait_for_ever() {
        let messages = Messages::new(5);
        messages.send(b"a", || true);
        assert_eq!(messages.next(), b"a");
        messages.flush(Duration::from_millis(1));
    }
}
