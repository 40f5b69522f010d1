//! Waiting for a lock as a program: a signal ends the wait, and whoever looks on is told who is in the way.

use std::io::IsTerminal;
use std::time::Duration;

use lockfast::{Locks, Resource};

use super::signals::{STOP_FROM_TERMINAL, Signals};
use super::terminal;
use crate::duration::brief;
use crate::show::is_foreign;

/// Who waits for less than this need not be told why.
const A_MOMENT: Duration = Duration::from_millis(500);

/// Waits for `entering`, unless a signal comes first: then its number.
pub(crate) async fn unless_signalled<T>(
    entering: impl Future<Output = T>,
    signals: &mut Signals,
    locks: &Locks,
    key: &str,
) -> Result<T, i32> {
    let mut entering = std::pin::pin!(entering);
    let mut telling = std::pin::pin!(tell_who_is_in_the_way(locks, key));
    let mut is_told = false;
    loop {
        tokio::select! {
            biased;
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
    let ahead = resource.waiters().take_while(|seat| seat.note.pid != std::process::id()).count();
    match ahead {
        0 => text += "; next in line",
        1 => text += "; 1 ahead in line",
        more => text += &format!("; {more} ahead in line"),
    }
    text
}
