//! Events and log lines of a client. A listener that is slow or gone never fails a lock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::level_filters::LevelFilter;

use crate::clock::Clock;
use crate::engine::UntimedEvent;
use crate::event::{Event, EventKind, TraceId};

/// How many events a slow listener may be behind before it misses some.
const EVENTS_KEPT: usize = 1024;

/// The events of one client's locks, as a stream. It ends with the client.
///
/// ```
/// # use lockfast::{EventKind, Locks};
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let locks = Locks::in_memory();
/// let mut events = locks.events();
/// locks.mutex("account:123").lock().await?.release().await?;
/// assert!(matches!(events.next().await.unwrap().kind, EventKind::Acquired { .. }));
/// assert!(matches!(events.next().await.unwrap().kind, EventKind::Released { .. }));
/// # Ok(()) }
/// ```
pub struct Events {
    inner: BoxStream<'static, Event>,
    missed: Arc<AtomicU64>,
}

impl Events {
    /// How many events this listener was too slow for.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.inner.poll_next_unpin(cx)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("missed", &self.missed()).finish_non_exhaustive()
    }
}

/// Sends events to listeners and to `tracing`.
#[derive(Debug)]
pub(crate) struct Sender {
    events: broadcast::Sender<Event>,
    listeners: Arc<AtomicUsize>,
    clock: Clock,
}

/// Counts as one listener.
struct Listener(Arc<AtomicUsize>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sender {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { events: broadcast::Sender::new(EVENTS_KEPT), listeners: Arc::default(), clock }
    }

    pub(crate) fn listen(&self) -> Events {
        let missed = Arc::new(AtomicU64::new(0));
        self.listeners.fetch_add(1, Ordering::Relaxed);
        let listener = Listener(Arc::clone(&self.listeners));
        let state = (self.events.subscribe(), Arc::clone(&missed), listener);
        let inner = stream::unfold(state, |(mut events, missed, listener)| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((event, (events, missed, listener))),
                    Err(RecvError::Lagged(count)) => drop(missed.fetch_add(count, Ordering::Relaxed)),
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Events { inner: inner.boxed(), missed }
    }

    /// Up to which [rank](EventKind::rank) events have a listener.
    #[inline]
    pub(super) fn max_rank(&self) -> u8 {
        // Only the global level: asking a subscriber would run its code under the engine's mutex.
        match LevelFilter::current() {
            _ if self.listeners.load(Ordering::Relaxed) > 0 => u8::MAX,
            LevelFilter::OFF => 0,
            LevelFilter::ERROR => 1,
            LevelFilter::WARN => 2,
            LevelFilter::INFO => 3,
            LevelFilter::DEBUG => 4,
            _ => 5,
        }
    }

    pub(super) fn tell(&self, emitted: UntimedEvent) {
        let UntimedEvent { terms, owner, fence, kind } = emitted;
        let trace = TraceId(u128::from_ne_bytes(terms.trace));
        let event = Event { at: self.clock.wall(), demands: terms.demands.clone(), owner, fence, trace, kind };
        log(&event);
        // Without a listener there is nothing to send to.
        let _ = self.events.send(event);
    }
}

fn log(event: &Event) {
    let key = event.demands[0].name.as_str();
    let (mode, trace, fence) = (event.mode(), event.trace, event.fence.map(|fence| fence.0));
    let owner = event.owner.map(tracing::field::display);
    macro_rules! line {
        ($level:ident, $text:literal $(, $field:ident = $value:expr)*) => {
            tracing::$level!(key, %mode, %trace, fence, owner $(, $field = ?$value)*, $text)
        };
    }
    match &event.kind {
        EventKind::Waiting => line!(debug, "waiting in the queue"),
        EventKind::Unanswered { cause } => line!(info, "the store does not answer a waiter", cause = cause),
        EventKind::Answered => line!(info, "the store answers a waiter again"),
        EventKind::Acquired { waited } => line!(debug, "acquired", waited = waited),
        EventKind::Renewed { margin } => line!(trace, "renewed", margin = margin),
        EventKind::AtRisk { remaining, cause } => line!(warn, "a renewal failed", remaining = remaining, cause = cause),
        EventKind::Lost { why } => line!(error, "lost", why = why),
        EventKind::Released { held } => line!(debug, "released", held = held),
        EventKind::TimedOut { waited } => line!(info, "gave up waiting", waited = waited),
        EventKind::Cancelled => line!(debug, "stopped waiting"),
    }
}
