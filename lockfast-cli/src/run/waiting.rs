//! Waiting for a lock as a program: a signal ends the wait, and people are told what is in the way: a holder, or a store
//! that does not answer.

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

/// Who waits for less than this need not be told why.
const A_MOMENT: Duration = Duration::from_millis(500);

/// Whether the store answers a waiter. A change is told once, however often the store is asked in between.
#[derive(Debug)]
pub(crate) struct Contact<'a> {
    key: &'a str,
    is_lost: Cell<bool>,
}

impl<'a> Contact<'a> {
    pub(crate) fn new(key: &'a str) -> Self {
        Self { key, is_lost: Cell::new(false) }
    }

    pub(crate) fn lost(&self, cause: &str) {
        if !self.is_lost.replace(true) {
            tracing::warn!("the store does not answer: {cause}; still waiting for {}", self.key);
        }
    }

    fn back(&self) {
        if self.is_lost.replace(false) {
            tracing::info!("the store answers again");
        }
    }

    /// Tells what the client notices, for as long as this is polled: before the wait itself, whose end is one of the events.
    pub(crate) async fn listen(&self, locks: &Locks) -> Infallible {
        let mut events = locks.events();
        while let Some(event) = events.next().await {
            match event.kind {
                EventKind::Unanswered { cause } => self.lost(&cause),
                EventKind::Answered | EventKind::Waiting | EventKind::Acquired { .. } => self.back(),
                _ => {}
            }
        }
        std::future::pending().await
    }
}

/// Waits for `entering`, unless a signal comes first: then its number.
pub(crate) async fn unless_signalled<T>(
    entering: impl Future<Output = T>,
    signals: &mut Signals,
    locks: &Locks,
    contact: &Contact<'_>,
) -> Result<T, i32> {
    let mut listening = std::pin::pin!(contact.listen(locks));
    let mut entering = std::pin::pin!(entering);
    let mut telling = std::pin::pin!(tell_who_is_in_the_way(locks, contact.key));
    let mut is_told = false;
    loop {
        tokio::select! {
            biased;
            never = &mut listening => match never {},
            entered = &mut entering => return Ok(entered),
            signal = signals.next() => match signal {
                STOP_FROM_TERMINAL if terminal::has_a_shell() => terminal::stop_here(),
                STOP_FROM_TERMINAL => {}
                signal => return Err(signal),
            },
            () = &mut telling, if !is_told => is_told = true,
        }
    }
}

/// Says once who holds the lock and how many are ahead, to people at a terminal and to those who want to know more.
async fn tell_who_is_in_the_way(locks: &Locks, key: &str) {
    if !std::io::stderr().is_terminal() && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    tokio::time::sleep(A_MOMENT).await;
    if let Ok(Some(resource)) = locks.mutex(key).info().await {
        tracing::info!("waiting for {key}{}", in_the_way(&resource));
    }
}

fn in_the_way(resource: &Resource) -> String {
    let mut text = String::new();
    if let Some(holder) = resource.holders().next() {
        text += &format!(", held by {}", holder.note);
        if !is_foreign(holder) {
            text += &format!(" for {}", brief(holder.since));
        }
    }
    let ahead = resource.waiters().take_while(|entry| entry.note.pid != std::process::id()).count();
    match ahead {
        0 => text += "; next in line",
        1 => text += "; 1 ahead in line",
        more => text += &format!("; {more} ahead in line"),
    }
    text
}
