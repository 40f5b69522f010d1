//! The signals that lockfast forwards to the command, and their names.

use std::future::poll_fn;
use std::str::FromStr;
use std::task::Poll;

use nix::sys::signal::Signal as NamedSignal;
use tokio::signal::unix::{Signal, SignalKind, signal};

use NamedSignal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

/// Forwarded to the command; before it runs, they end the wait for the lock.
const FORWARDED: &[i32] =
    &[SIGINT as i32, SIGTERM as i32, SIGHUP as i32, SIGQUIT as i32, SIGUSR1 as i32, SIGUSR2 as i32];
/// The signals with which people and service managers end a program.
const ENDING: &[i32] = &[SIGINT as i32, SIGTERM as i32, SIGQUIT as i32];
/// The signals that must neither end nor stop a guardian.
pub(crate) const DROPPED_BY_GUARDIAN: &[i32] = &[
    SIGINT as i32,
    SIGTERM as i32,
    SIGHUP as i32,
    SIGQUIT as i32,
    SIGUSR1 as i32,
    SIGUSR2 as i32,
    SIGTSTP as i32,
    SIGTTIN as i32,
    SIGTTOU as i32,
];
pub(crate) const STOP_FROM_TERMINAL: i32 = SIGTSTP as i32;
pub(crate) const CONTINUE: i32 = NamedSignal::SIGCONT as i32;

/// Whether this signal stops a process that uses the terminal while another group has it.
pub(crate) fn is_terminal_access_stop(signal: i32) -> bool {
    signal == SIGTTIN as i32 || signal == SIGTTOU as i32
}

/// Reads `TERM`, `SIGTERM` or `15`, for clap.
pub(crate) fn parse(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = format!("SIG{}", upper.trim_start_matches("SIG"));
    let number = text.parse().ok().and_then(|number: i32| NamedSignal::try_from(number).ok());
    match number.or_else(|| NamedSignal::from_str(&name).ok()) {
        Some(signal) => Ok(signal as i32),
        None => Err(format!("{text:?} is not a signal; write a name like TERM, INT or HUP, or a number")),
    }
}

/// The signals among `kinds` that this process does not ignore. A signal that `nohup` set to ignored is inherited as ignored
/// by our children, and a handler here would change that.
pub(crate) fn not_ignored(kinds: &[i32]) -> impl Iterator<Item = i32> {
    let ignored = ignored_mask();
    kinds.iter().copied().filter(move |kind| ignored & (1 << (kind - 1)) == 0)
}

/// The ignored signals, one bit each.
fn ignored_mask() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Signals to this process, one after the other. A signal that arrives between two calls of `next` is kept, once for each
/// kind.
#[derive(Debug)]
pub(crate) struct Signals {
    kinds: Vec<(i32, Signal)>,
    /// Whether one of [`ENDING`] has arrived.
    has_end_request: bool,
}

impl Signals {
    /// From here on, this process handles the signals itself.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let each = |kind: i32| Ok((kind, signal(SignalKind::from_raw(kind))?));
        let kinds = not_ignored(FORWARDED).map(each).collect::<std::io::Result<_>>()?;
        Ok(Self { kinds, has_end_request: false })
    }

    /// Handles the terminal's stop signal too. Not called while waiting in the queue: there is no command to forward it to,
    /// and lockfast itself should stop.
    pub(crate) fn listen_to_stops(&mut self) -> std::io::Result<()> {
        for kind in not_ignored(&[STOP_FROM_TERMINAL]) {
            if self.kinds.iter().all(|(known, _)| *known != kind) {
                self.kinds.push((kind, signal(SignalKind::from_raw(kind))?));
            }
        }
        Ok(())
    }

    /// The number of the next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future loses no signal.
    pub(crate) async fn next(&mut self) -> i32 {
        let kind = poll_fn(|cx| {
            let mut kinds = self.kinds.iter_mut();
            let ready = kinds.find_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.has_end_request |= ENDING.contains(&kind);
        kind
    }

    /// Whether a signal that has arrived was a request to end.
    pub(crate) fn has_end_request(&self) -> bool {
        self.has_end_request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_and_a_number() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(parse(text), Ok(15), "{text}");
        }
        for text in ["", "NOPE", "0", "999", "-1"] {
            assert!(parse(text).unwrap_err().contains("TERM"), "{text}");
        }
    }
}
