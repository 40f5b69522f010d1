//! The messages between lockfast and its guardian: lines of text over one socket, a word and some numbers each.
//!
//! Moments are those of the machine's clock since boot, which on Linux is the same for every process. Elsewhere each
//! process counts from its own start, and the offset between the two clocks is taken from the first message.

use std::fmt;
use std::time::Duration;

use lockfast::Clock;
use lockfast::store::Moment;

/// When the command gets the ending signal, and when it is killed, unless a later deadline arrives first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) signal_at: Moment,
    pub(crate) kill_at: Moment,
}

impl Deadline {
    pub(crate) const NEVER: Self = Self { signal_at: Moment::NEVER, kill_at: Moment::NEVER };
}

/// The first message, which arms the guardian; the command's standard input comes along with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The ending signal.
    pub(crate) signal: i32,
    /// The time between the ending signal and SIGKILL.
    pub(crate) kill_after: Duration,
    pub(crate) deadline: Deadline,
    /// When `--at-most` ends the command, whether the lock is still held or not.
    pub(crate) cap: Moment,
    /// Whether the command is ended when lockfast dies.
    pub(crate) ends_with_lockfast: bool,
    /// Whether the command's group gets the terminal.
    pub(crate) gets_terminal: bool,
    /// The sender's clock when this was sent.
    pub(crate) sent_at: Moment,
}

/// From lockfast to its guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Deadline(Deadline),
    /// End the command now.
    End,
    /// Pass this signal on to the command's group.
    Signal(i32),
}

/// From the guardian to lockfast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs, with this process id, which is also its group's.
    Started(i32),
    /// The command could not be started; the number is the `errno`.
    NotStarted(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command is being ended.
    Ending(Cause),
    /// The command has ended. Without an `Ending` before it, this is the last report.
    Exited(Status),
    /// Neither the command nor any of its descendants is left; the last report.
    Dead,
}

/// Why a command is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No later deadline arrived in time.
    Deadline,
    /// It ran for as long as `--at-most` allows.
    Cap,
    /// Lockfast ordered it, or is dead.
    Asked,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Code(u8),
    Signal(u8),
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deadline { signal_at, kill_at } = self.deadline;
        let after = u64::try_from(self.kill_after.as_nanos()).unwrap_or(u64::MAX);
        let moments = [signal_at, kill_at, self.cap, self.sent_at].map(|at| at.as_nanos().to_string()).join(" ");
        let (ends, front) = (u8::from(self.ends_with_lockfast), u8::from(self.gets_terminal));
        writeln!(f, "setup {} {after} {moments} {ends} {front}", self.signal)
    }
}

impl Setup {
    /// The setup in a line, with its moments converted to the receiver's clock.
    pub(crate) fn decode(line: &str) -> Option<Self> {
        let numbers = numbers(line, "setup")?;
        let [signal, after, signal_at, kill_at, cap, sent_at, ends, front] = numbers.try_into().ok()?;
        let offset = ClockOffset::of(Moment::from_nanos(sent_at));
        Some(Self {
            signal: i32::try_from(signal).ok()?,
            kill_after: Duration::from_nanos(after),
            deadline: Deadline { signal_at: offset.to_local(signal_at), kill_at: offset.to_local(kill_at) },
            cap: offset.to_local(cap),
            ends_with_lockfast: ends != 0,
            gets_terminal: front != 0,
            sent_at: Moment::from_nanos(sent_at),
        })
    }
}

/// How many nanoseconds the sender's clock is ahead of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockOffset(u64);

impl ClockOffset {
    /// Called as soon as a message that was sent at `sent_at`, by the sender's clock, has arrived.
    pub(crate) fn of(sent_at: Moment) -> Self {
        match cfg!(target_os = "linux") {
            true => Self(0),
            false => Self(sent_at.as_nanos().saturating_sub(Clock::boot().now().as_nanos())),
        }
    }

    fn to_local(self, nanos: u64) -> Moment {
        Moment::from_nanos(if nanos == Moment::NEVER.as_nanos() { nanos } else { nanos.saturating_sub(self.0) })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(Deadline { signal_at, kill_at }) => {
                writeln!(f, "deadline {} {}", signal_at.as_nanos(), kill_at.as_nanos())
            }
            Self::End => writeln!(f, "end"),
            Self::Signal(number) => writeln!(f, "signal {number}"),
        }
    }
}

impl Order {
    pub(crate) fn decode(line: &str, offset: ClockOffset) -> Option<Self> {
        let (word, _) = line.split_once(' ').unwrap_or((line, ""));
        match (word, numbers(line, word)?.as_slice()) {
            ("deadline", &[signal_at, kill_at]) => Some(Self::Deadline(Deadline {
                signal_at: offset.to_local(signal_at),
                kill_at: offset.to_local(kill_at),
            })),
            ("end", []) => Some(Self::End),
            ("signal", &[number]) => Some(Self::Signal(i32::try_from(number).ok()?)),
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => writeln!(f, "started {pid}"),
            Self::NotStarted(errno) => writeln!(f, "not-started {errno}"),
            Self::Stopped(signal) => writeln!(f, "stopped {signal}"),
            Self::Ending(Cause::Deadline) => writeln!(f, "ending-deadline"),
            Self::Ending(Cause::Cap) => writeln!(f, "ending-cap"),
            Self::Ending(Cause::Asked) => writeln!(f, "ending-asked"),
            Self::Exited(Status::Code(code)) => writeln!(f, "exited {code}"),
            Self::Exited(Status::Signal(signal)) => writeln!(f, "killed {signal}"),
            Self::Dead => writeln!(f, "dead"),
        }
    }
}

impl Report {
    pub(crate) fn decode(line: &str) -> Option<Self> {
        let (word, _) = line.split_once(' ').unwrap_or((line, ""));
        match (word, numbers(line, word)?.as_slice()) {
            ("started", &[pid]) => Some(Self::Started(i32::try_from(pid).ok()?)),
            ("not-started", &[errno]) => Some(Self::NotStarted(i32::try_from(errno).ok()?)),
            ("stopped", &[signal]) => Some(Self::Stopped(i32::try_from(signal).ok()?)),
            ("ending-deadline", []) => Some(Self::Ending(Cause::Deadline)),
            ("ending-cap", []) => Some(Self::Ending(Cause::Cap)),
            ("ending-asked", []) => Some(Self::Ending(Cause::Asked)),
            ("exited", &[code]) => Some(Self::Exited(Status::Code(u8::try_from(code).ok()?))),
            ("killed", &[signal]) => Some(Self::Exited(Status::Signal(u8::try_from(signal).ok()?))),
            ("dead", []) => Some(Self::Dead),
            _ => None,
        }
    }
}

/// The numbers after `word` in a line. `None` if the line begins with another word, or something after it is no number.
fn numbers(line: &str, word: &str) -> Option<Vec<u64>> {
    let mut words = line.split_whitespace();
    (words.next() == Some(word)).then(|| words.map(|number| number.parse().ok()).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_decodes_to_itself() {
        let deadline = Deadline { signal_at: Moment::from_nanos(17), kill_at: Moment::NEVER };
        let setup = Setup {
            signal: 15,
            kill_after: Duration::from_millis(5),
            deadline,
            cap: Moment::NEVER,
            ends_with_lockfast: true,
            gets_terminal: false,
            sent_at: Moment::START,
        };
        assert_eq!(Setup::decode(setup.to_string().trim_end()), Some(setup));
        let offset = ClockOffset::of(Moment::START);
        for order in [Order::Deadline(deadline), Order::End, Order::Signal(2)] {
            assert_eq!(Order::decode(order.to_string().trim_end(), offset), Some(order));
        }
        let causes = [Cause::Deadline, Cause::Cap, Cause::Asked].map(Report::Ending);
        let statuses = [Status::Code(3), Status::Signal(9)].map(Report::Exited);
        let others = [Report::Started(7), Report::NotStarted(2), Report::Stopped(20), Report::Dead];
        for report in causes.into_iter().chain(statuses).chain(others) {
            assert_eq!(Report::decode(report.to_string().trim_end()), Some(report));
        }
    }

    #[test]
    fn an_unknown_message_is_not_decoded() {
        for line in ["", "deadline 1", "end now", "signal x", "setup 1 2", "dead 1", "exited 256"] {
            assert_eq!(Order::decode(line, ClockOffset::of(Moment::START)), None, "{line}");
            assert_eq!(Report::decode(line), None, "{line}");
            assert_eq!(Setup::decode(line), None, "{line}");
        }
    }
}
