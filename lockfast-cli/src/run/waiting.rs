//! Waiting for a lock in a command: a signal ends the wait, and messages say what it waits for: a holder, or a store that
//! does not answer.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use futures::StreamExt;
use lockfast::{EventKind, Locks, Resource};

use super::signals::{STOP_FROM_TERMINAL, Signals};
use super::terminal;
use crate::duration::brief;
use crate::show::is_foreign;

/// A shorter wait is not explained.
const SHORT_WAIT: Duration = Duration::from_millis(500);

/// Whether the store answers a waiter. A change is reported once, however many requests fail in between.
#[derive(Debug)]
pub(crate) struct StoreStatus<'a> {
    key: &'a str,
    is_silent: Cell<bool>,
}

impl<'a> StoreStatus<'a> {
    pub(crate) fn new(key: &'a str) -> Self {
        Self { key, is_silent: Cell::new(false) }
    }

    /// Reports that the store does not answer, unless that was reported already.
    pub(crate) fn on_unanswered(&self, cause: &str) {
        if !self.is_silent.replace(true) {
            tracing::warn!("the store does not answer: {cause}; still waiting for {}", self.key);
        }
    }

    /// Reports that the store answers again, if it did not answer before.
    fn on_answered(&self) {
        if self.is_silent.replace(false) {
            tracing::info!("the store answers again");
        }
    }

    /// Reports the client's events for as long as this is polled. Has to be polled before the wait itself, whose end is one of
    /// the events.
    pub(crate) async fn listen(&self, locks: &Locks) -> Infallible {
        let mut events = locks.events();
        while let Some(event) = events.next().await {
            match event.kind {
                EventKind::Unanswered { cause } => self.on_unanswered(&cause),
                EventKind::Answered | EventKind::Waiting | EventKind::Acquired { .. } => self.on_answered(),
                _ => {}
            }
        }
        std::future::pending().await
    }
}

/// Waits for `acquiring`, unless a signal comes first: then its number.
pub(crate) async fn unless_signalled<T>(
    acquiring: impl Future<Output = T>,
    signals: &mut Signals,
    locks: &Locks,
    status: &StoreStatus<'_>,
) -> Result<T, i32> {
    let mut listening = std::pin::pin!(status.listen(locks));
    let mut acquiring = std::pin::pin!(acquiring);
    let mut showing = std::pin::pin!(show_holder(locks, status.key));
    let mut is_shown = false;
    loop {
        tokio::select! {
            biased;
            never = &mut listening => match never {},
            acquired = &mut acquiring => return Ok(acquired),
            signal = signals.next() => match signal {
                STOP_FROM_TERMINAL if terminal::has_a_shell() => terminal::stop_here(),
                STOP_FROM_TERMINAL => {}
                signal => return Err(signal),
            },
            () = &mut showing, if !is_shown => is_shown = true,
        }
    }
}

/// Reports the holder and the number of waiters ahead once, on a terminal or with `-v`.
async fn show_holder(locks: &Locks, key: &str) {
    if !std::io::stderr().is_terminal() && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    tokio::time::sleep(SHORT_WAIT).await;
    if let Ok(Some(resource)) = locks.mutex(key).info().await {
        tracing::info!("waiting for {key}{}", holder_and_position(&resource));
    }
}

fn holder_and_position(resource: &Resource) -> String {
    let mut text = String::new();
    if let Some(holder) = resource.holders().next() {
        text += &format!(", held by {}", holder.note);
        if !is_foreign(holder) {
            text += &format!(" for {}", brief(holder.since));
        }
    }
    let ahead = resource.waiters().take_while(|entry| entry.note.pid != std::process::id()).count();
    match ahead {
        0 => text += "; next in the queue",
        1 => text += "; 1 ahead in the queue",
        more => text += &format!("; {more} ahead in the queue"),
    }
    text
}
