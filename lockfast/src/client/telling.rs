//! What the client tells people: counts, events and log lines. Failing to tell never fails a lock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::clock::Clock;
use crate::event::{Event, Happening, TraceId};

use super::slot::Slot;
use super::stats::Tally;

/// How many events a slow listener may be behind before it misses some.
const EVENTS_KEPT: usize = 1024;

/// What happens to the locks of one client, as a stream. It ends with the client.
///
/// ```
/// # use lockfast::{Happening, Locks};
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let locks = Locks::in_memory();
/// let mut events = locks.events();
/// locks.mutex("account:123").lock().await?.release().await?;
/// assert!(matches!(events.next().await.unwrap().what, Happening::Acquired { .. }));
/// assert!(matches!(events.next().await.unwrap().what, Happening::Released { .. }));
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

#[derive(Debug)]
pub(crate) struct Telling {
    pub(crate) tally: Tally,
    events: broadcast::Sender<Event>,
    clock: Clock,
}

impl Telling {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { tally: Tally::new(), events: broadcast::Sender::new(EVENTS_KEPT), clock })
    }

    pub(crate) fn listen(&self) -> Events {
        let missed = Arc::new(AtomicU64::new(0));
        let state = (self.events.subscribe(), Arc::clone(&missed));
        let inner = stream::unfold(state, |(mut events, missed)| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((event, (events, missed))),
                    Err(RecvError::Lagged(count)) => drop(missed.fetch_add(count, Ordering::Relaxed)),
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Events { inner: inner.boxed(), missed }
    }

    /// Whether making an event is worth the while.
    pub(crate) fn is_heard(&self, what: &Happening) -> bool {
        // Only the level: asking a subscriber would run its code under the book's mutex.
        self.events.receiver_count() > 0 || LevelFilter::current() >= level(what)
    }

    pub(crate) fn event(&self, slot: &Slot, what: Happening) -> Event {
        let has_held = slot.fence.0 != 0;
        Event {
            at: self.clock.wall(),
            demands: slot.request.demands.clone(),
            owner: slot.claim.as_ref().map(|claim| claim.id.hash()),
            fence: has_held.then_some(slot.fence),
            trace: TraceId(u128::from_ne_bytes(slot.request.trace)),
            what,
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        log(&event);
        // Nobody listening is no failure.
        let _ = self.events.send(event);
    }
}

fn level(what: &Happening) -> Level {
    match what {
        Happening::Renewed { .. } => Level::TRACE,
        Happening::TimedOut { .. } | Happening::Unanswered { .. } | Happening::Answered => Level::INFO,
        Happening::AtRisk { .. } => Level::WARN,
        Happening::Lost { .. } => Level::ERROR,
        _ => Level::DEBUG,
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
    match &event.what {
        Happening::Waiting => line!(debug, "waiting in line"),
        Happening::Unanswered { cause } => line!(info, "the store does not answer a waiter", cause = cause),
        Happening::Answered => line!(info, "the store answers a waiter again"),
        Happening::Acquired { waited } => line!(debug, "acquired", waited = waited),
        Happening::Renewed { margin } => line!(trace, "renewed", margin = margin),
        Happening::AtRisk { remaining, cause } => line!(warn, "a renewal failed", remaining = remaining, cause = cause),
        Happening::Lost { why } => line!(error, "lost", why = why),
        Happening::Released { held } => line!(debug, "released", held = held),
        Happening::TimedOut { waited } => line!(info, "gave up waiting", waited = waited),
        Happening::Cancelled => line!(debug, "stopped waiting"),
    }
}
