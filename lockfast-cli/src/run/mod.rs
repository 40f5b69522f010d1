//! Running a command under a lock that is held: starts the command behind its guardian, sends the guardian each new deadline,
//! forwards signals, and returns when the command is over.
//!
//! When [`supervise`] returns after a loss or a cap, no process of the command is alive, or an error message has reported that some
//! could not be killed. This module never releases the lock: its caller does, after the command is dead.

pub(crate) mod environment;
pub(crate) mod guardian_connection;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod waiting;

use std::ffi::OsString;
use std::time::Duration;

use lockfast::store::{Moment, Timer};
use lockfast::{Clock, Guard, LostWhy};
use rustix::process::Pid;

use crate::guardian::messages::{Cause, Deadline, Order, Report, Status};
use guardian_connection::GuardianConnection;
use signals::Signals;

/// How long a guardian may take to kill the command's tree before lockfast kills it itself.
const GUARDIAN_PATIENCE: Duration = Duration::from_secs(10);

/// A command, its environment, and the conditions that end it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) command: Vec<OsString>,
    /// Set in the command's environment.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Removed from the command's environment.
    pub(crate) hidden: Vec<OsString>,
    /// The ending signal, and the time between it and SIGKILL.
    pub(crate) signal: i32,
    pub(crate) kill_after: Duration,
    /// The longest that the command may run.
    pub(crate) at_most: Option<Duration>,
    /// Whether the command is ended when the lock is lost; otherwise a message reports the loss.
    pub(crate) ends_on_loss: bool,
    pub(crate) ttl: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum CommandEnd {
    /// By itself.
    Exited(Status),
    /// The lock was lost, and the command was ended.
    Lost,
    /// The command ran for as long as `--at-most` allows, and was ended.
    AtMost,
    /// The command could not be started.
    NotStarted(std::io::Error),
    /// The guardian died, so the command was killed.
    Unguarded,
}

/// The time between SIGKILL and the end of the lock's validity, in which the kernel ends the processes: a fiftieth of the lease,
/// from 25 ms to 250 ms.
fn kill_margin(ttl: Duration) -> Duration {
    (ttl / 50).clamp(Duration::from_millis(25), Duration::from_millis(250))
}

/// The moment that is `span` earlier.
fn before(moment: Moment, span: Duration) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
}

/// Runs the command until it is over. The caller still holds the lock afterwards.
pub(crate) async fn supervise(guard: &Guard, task: &Task, signals: &mut Signals) -> std::io::Result<CommandEnd> {
    signals.listen_to_stops()?;
    let clock = Clock::boot();
    let cap = task.at_most.map_or(Moment::NEVER, |span| clock.now() + span);
    let deadline = deadline(guard, task);
    let guardian = GuardianConnection::start(task, deadline, cap)?;
    let take_over_at = take_over_at(task, deadline, cap);
    let mut supervisor = Supervisor { guard, task, clock, guardian, deadline, command: None, end: None, take_over_at };
    let end = supervisor.run(signals).await;
    if let Some(command) = supervisor.command {
        terminal::take_back_after(command);
    }
    Ok(end)
}

/// When the guardian has to end the command, by the lock's present validity.
fn deadline(guard: &Guard, task: &Task) -> Deadline {
    if !task.ends_on_loss {
        return Deadline::NEVER;
    }
    let kill_at = before(guard.valid_until(), kill_margin(task.ttl));
    Deadline { signal_at: before(kill_at, task.kill_after), kill_at }
}

/// When lockfast kills the command itself if the guardian has not: half a margin before the lock's validity ends, and well after
/// the guardian should have ended a command at its cap.
fn take_over_at(task: &Task, deadline: Deadline, cap: Moment) -> Moment {
    (deadline.kill_at + kill_margin(task.ttl) / 2).min(cap + task.kill_after + GUARDIAN_PATIENCE)
}

struct Supervisor<'a> {
    guard: &'a Guard,
    task: &'a Task,
    clock: Clock,
    guardian: GuardianConnection,
    /// The last deadline that was sent to the guardian.
    deadline: Deadline,
    command: Option<Pid>,
    /// Why the command is being ended, once it is.
    end: Option<CommandEnd>,
    /// When lockfast kills the command itself, because the guardian has not.
    take_over_at: Moment,
}

impl Supervisor<'_> {
    async fn run(&mut self, signals: &mut Signals) -> CommandEnd {
        let mut timer = Timer::new(self.clock.clone());
        let guard = self.guard;
        let mut lost = std::pin::pin!(guard.lost());
        let mut is_lost = false;
        // A guardian with an older deadline can only act too early, so a tenth of the lease is often enough.
        let mut deadline_updates = tokio::time::interval(self.task.ttl / 10);
        loop {
            tokio::select! {
                biased;
                report = self.guardian.next_report() => match report {
                    Some(report) => if let Some(end) = self.handle(report) {
                        return end;
                    },
                    None => return self.take_over(CommandEnd::Unguarded).await,
                },
                () = timer.sleep_until(self.take_over_at) => match self.unread_report().await {
                    Some(report) => if let Some(end) = self.handle(report) {
                        return end;
                    },
                    None => {
                        let is_past_cap = self.clock.now() >= self.guardian.cap;
                        let end = if is_past_cap { CommandEnd::AtMost } else { CommandEnd::Lost };
                        return self.take_over(end).await;
                    }
                },
                why = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.on_lost(why);
                }
                // Signals are kept until the command has started: only then can they be forwarded.
                signal = signals.next(), if self.command.is_some() => self.guardian.send_order(Order::Signal(signal)),
                _ = deadline_updates.tick(), if self.command.is_some() => self.update_deadline(),
            }
        }
    }

    /// Sends the guardian a later deadline, if there is one.
    fn update_deadline(&mut self) {
        let deadline = deadline(self.guard, self.task);
        if deadline.kill_at > self.deadline.kill_at {
            self.deadline = deadline;
            self.guardian.send_order(Order::Deadline(deadline));
            if self.end.is_none() {
                self.take_over_at = take_over_at(self.task, deadline, self.guardian.cap);
            }
        }
    }

    fn on_lost(&mut self, why: LostWhy) {
        let names = names(self.guard);
        if !self.task.ends_on_loss {
            tracing::warn!("the lock on {names} was lost: {why}; the command goes on without it (--on-lost warn)");
        } else if self.end.is_none() {
            // Order matters: the end is ordered first, so that it never depends on whether a message can be written.
            self.end = Some(CommandEnd::Lost);
            self.guardian.send_order(Order::End);
            tracing::error!("the lock on {names} was lost: {why}; ending the command");
        }
    }

    /// Handles a report. Returns how the command ended if this was the last one.
    fn handle(&mut self, report: Report) -> Option<CommandEnd> {
        match report {
            Report::Started(pid) => {
                self.command = Pid::from_raw(pid);
                // The lock was lost between the setup and this report.
                if matches!(self.end, Some(CommandEnd::Lost)) {
                    self.guardian.send_order(Order::End);
                }
            }
            Report::NotStarted(errno) => return Some(CommandEnd::NotStarted(std::io::Error::from_raw_os_error(errno))),
            Report::Stopped(signal) => self.on_stopped(signal),
            Report::Ending(cause) => {
                self.take_over_at = self.clock.now() + self.task.kill_after + GUARDIAN_PATIENCE;
                match cause {
                    _ if self.end.is_some() => {}
                    Cause::Cap => {
                        tracing::error!("the command ran for as long as --at-most allows; ending it");
                        self.end = Some(CommandEnd::AtMost);
                    }
                    Cause::Deadline | Cause::Asked => {
                        let names = names(self.guard);
                        tracing::error!("the lock on {names} could not be renewed in time; ending the command");
                        self.end = Some(CommandEnd::Lost);
                    }
                }
            }
            Report::Exited(status) if self.end.is_none() => return Some(CommandEnd::Exited(status)),
            // The command was ended; some of its descendants may be left.
            Report::Exited(_) => {}
            Report::Dead => return self.end.take().or(Some(CommandEnd::Lost)),
        }
        None
    }

    /// The command was stopped: by Ctrl-Z, because it used the terminal in the background, or by another process.
    fn on_stopped(&mut self, signal: i32) {
        let Some(command) = self.command else { return };
        if signals::is_terminal_access_stop(signal) && terminal::is_ours() {
            terminal::give_to(command);
            return self.guardian.send_order(Order::Signal(signals::CONTINUE));
        }
        let had_terminal = terminal::is_of(command);
        let by_terminal =
            had_terminal || signal == signals::STOP_FROM_TERMINAL || signals::is_terminal_access_stop(signal);
        if !by_terminal || self.end.is_some() {
            // The process that stopped it will continue it. The guardian's deadline stays in force.
            return;
        }
        if terminal::has_a_shell() {
            terminal::take_from(command);
            terminal::stop_here();
            // Any time may have passed. The lease was not renewed while lockfast was stopped, so the guardian may have ended
            // the command; if the lease is still valid, the lock is still held.
            if self.task.ends_on_loss && self.guard.check().is_err() {
                return;
            }
            if terminal::is_ours() && had_terminal {
                terminal::give_to(command);
            }
        } else if signals::is_terminal_access_stop(signal) {
            // Continued without the terminal it would stop again, so it stays stopped until it gets the terminal.
            return;
        }
        self.guardian.send_order(Order::Signal(signals::CONTINUE));
    }

    /// A report that was sent but not read yet. After lockfast was stopped, the timer is seen before the report.
    async fn unread_report(&mut self) -> Option<Report> {
        tokio::time::timeout(Duration::from_millis(5), self.guardian.next_report()).await.ok().flatten()
    }

    /// The guardian is dead or missed its deadline: kills it and the command's tree. Returns why the command was ended, which is
    /// `default` if the guardian was not ending it already.
    async fn take_over(&mut self, default: CommandEnd) -> CommandEnd {
        let end = self.end.take().unwrap_or(default);
        tracing::error!("the guardian process does not answer; killing the command");
        let until = self.clock.now() + GUARDIAN_PATIENCE;
        while !self.guardian.kill_all(self.command) {
            // A lock that is still held must not be released while the command lives, so go on trying until it is lost.
            if self.clock.now() >= until && self.guard.check().is_err() {
                tracing::error!("processes of the command are still there and cannot be killed");
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        end
    }
}

fn names(guard: &Guard) -> String {
    guard.names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use lockfast::Locks;

    use super::*;

    #[tokio::test]
    async fn the_command_is_killed_a_margin_before_the_lease_ends() {
        let locks = Locks::in_memory();
        for (seconds, margin) in [(1, 25), (5, 100), (30, 250), (3600, 250)] {
            let (ttl, margin) = (Duration::from_secs(seconds), Duration::from_millis(margin));
            let guard = locks.mutex(format!("{seconds}")).ttl(ttl).no_renewal().lock().await.unwrap();
            let mut task = Task {
                command: Vec::new(),
                variables: Vec::new(),
                hidden: Vec::new(),
                signal: 15,
                kill_after: ttl / 3,
                at_most: None,
                ends_on_loss: true,
                ttl,
            };
            let Deadline { signal_at, kill_at } = deadline(&guard, &task);
            assert_eq!(kill_at + margin, guard.valid_until(), "{seconds} s");
            assert_eq!(signal_at + ttl / 3, kill_at, "{seconds} s");
            task.ends_on_loss = false;
            assert_eq!(deadline(&guard, &task), Deadline::NEVER);
        }
    }
}
