//! Running a command under a lock that is held: starting it behind its guardian, telling the guardian each new deadline,
//! passing signals on, and not coming back before the command is over.
//!
//! It promises that nothing of a command is alive when [`supervise`] comes back after a loss or a cap, or that it said so,
//! and never gives the lock back itself: who holds it does, after the command is dead.

pub(crate) mod environment;
pub(crate) mod link;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod waiting;

use std::ffi::OsString;
use std::time::Duration;

use lockfast::store::{Moment, Timer};
use lockfast::{Clock, Guard, LostWhy};
use rustix::process::Pid;

use crate::guardian::wire::{Cause, Deadline, Order, Report, Status};
use link::Link;
use signals::Signals;

/// How long a guardian that works may take to kill what does not die, before lockfast looks into it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to run, and what ends it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) command: Vec<OsString>,
    /// Set in the command's environment.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Removed from it.
    pub(crate) hidden: Vec<OsString>,
    /// What asks the command to end, and how long it has after that.
    pub(crate) signal: i32,
    pub(crate) kill_after: Duration,
    /// The longest that it may run.
    pub(crate) at_most: Option<Duration>,
    /// Whether it is ended when the lock is lost; otherwise that is only said.
    pub(crate) ends_on_loss: bool,
    pub(crate) ttl: Duration,
}

/// How a command came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself.
    Exited(Status),
    /// The lock was lost, and the command was ended.
    Lost,
    /// It had its time, and was ended.
    AtMost,
    /// It could not be started.
    NotStarted(std::io::Error),
    /// Its guardian died, so it was killed.
    Unguarded,
}

/// What is kept between killing the command and the end of the lock's validity, for the kernel to do its part.
fn margin(ttl: Duration) -> Duration {
    (ttl / 50).clamp(Duration::from_millis(25), Duration::from_millis(250))
}

fn before(moment: Moment, span: Duration) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
}

/// Runs the command until it is over. The lock stays the caller's.
pub(crate) async fn supervise(guard: &Guard, task: &Task, signals: &mut Signals) -> std::io::Result<Ended> {
    signals.listen_to_stops()?;
    let clock = Clock::boot();
    let cap = task.at_most.map_or(Moment::NEVER, |span| clock.now() + span);
    let deadline = deadline(guard, task);
    let link = Link::start(task, deadline, cap)?;
    let mut supervisor =
        Supervisor { guard, task, clock, link, deadline, command: None, ended: None, act_at: Moment::NEVER };
    supervisor.act_at = (deadline.kill_at + margin(task.ttl) / 2).min(cap + task.kill_after + PATIENCE);
    let ended = supervisor.run(signals).await;
    if let Some(command) = supervisor.command {
        terminal::take_back_from(command);
    }
    Ok(ended)
}

fn deadline(guard: &Guard, task: &Task) -> Deadline {
    if !task.ends_on_loss {
        return Deadline::NEVER;
    }
    let kill_at = before(guard.valid_until(), margin(task.ttl));
    Deadline { signal_at: before(kill_at, task.kill_after), kill_at }
}

struct Supervisor<'a> {
    guard: &'a Guard,
    task: &'a Task,
    clock: Clock,
    link: Link,
    /// The last one that the guardian was told.
    deadline: Deadline,
    command: Option<Pid>,
    /// Why the command is being ended, once it is.
    ended: Option<Ended>,
    /// When the guardian has had its chance, and lockfast kills the command itself.
    act_at: Moment,
}

impl Supervisor<'_> {
    async fn run(&mut self, signals: &mut Signals) -> Ended {
        let mut timer = Timer::new(self.clock.clone());
        let guard = self.guard;
        let mut lost = std::pin::pin!(guard.lost());
        let mut is_lost = false;
        // A guardian that knows an older deadline only acts too early; a tenth of the lease is soon enough.
        let mut renewed = tokio::time::interval(self.task.ttl / 10);
        loop {
            tokio::select! {
                biased;
                report = self.link.next() => match report {
                    Some(report) => if let Some(ended) = self.take_in(report) {
                        return ended;
                    },
                    None => return self.take_over(Ended::Unguarded).await,
                },
                () = timer.sleep_until(self.act_at) => match self.last_word().await {
                    Some(report) => if let Some(ended) = self.take_in(report) {
                        return ended;
                    },
                    None => {
                        let has_had_its_time = self.clock.now() >= self.link.cap;
                        let ended = if has_had_its_time { Ended::AtMost } else { Ended::Lost };
                        return self.take_over(ended).await;
                    }
                },
                why = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.lose(why);
                }
                // Until the command has started there is nobody to pass a signal on to, and it is kept.
                signal = signals.next(), if self.command.is_some() => self.link.order(Order::Signal(signal)),
                _ = renewed.tick(), if self.command.is_some() => self.renew(),
            }
        }
    }

    /// Tells the guardian of a later deadline, if there is one.
    fn renew(&mut self) {
        let deadline = deadline(self.guard, self.task);
        if deadline.kill_at > self.deadline.kill_at {
            self.deadline = deadline;
            self.link.order(Order::Deadline(deadline));
            if self.ended.is_none() {
                let cap = self.link.cap + self.task.kill_after + PATIENCE;
                self.act_at = (deadline.kill_at + margin(self.task.ttl) / 2).min(cap);
            }
        }
    }

    fn lose(&mut self, why: LostWhy) {
        let names = names(self.guard);
        if !self.task.ends_on_loss {
            tracing::warn!("the lock on {names} was lost: {why}; the command goes on without it (--on-lost warn)");
        } else if self.ended.is_none() {
            // Order matters: whoever should read the message may not, and then writing it takes for ever.
            self.ended = Some(Ended::Lost);
            self.link.order(Order::End);
            tracing::error!("the lock on {names} was lost: {why}; ending the command");
        }
    }

    /// What the guardian says, and whether that was its last word.
    fn take_in(&mut self, report: Report) -> Option<Ended> {
        match report {
            Report::Started(pid) => {
                self.command = Pid::from_raw(pid);
                // It was lost between the charge and this.
                if matches!(self.ended, Some(Ended::Lost)) {
                    self.link.order(Order::End);
                }
            }
            Report::NotStarted(errno) => return Some(Ended::NotStarted(std::io::Error::from_raw_os_error(errno))),
            Report::Stopped(signal) => self.stopped(signal),
            Report::Ending(cause) => {
                self.act_at = self.clock.now() + self.task.kill_after + PATIENCE;
                match cause {
                    _ if self.ended.is_some() => {}
                    Cause::Cap => {
                        tracing::error!("the command ran for as long as --at-most allows; ending it");
                        self.ended = Some(Ended::AtMost);
                    }
                    Cause::Deadline | Cause::Asked => {
                        let names = names(self.guard);
                        tracing::error!("the lock on {names} could not be renewed in time; ending the command");
                        self.ended = Some(Ended::Lost);
                    }
                }
            }
            Report::Exited(status) if self.ended.is_none() => return Some(Ended::Exited(status)),
            // It was asked to, and some of what it has started may be left.
            Report::Exited(_) => {}
            Report::Dead => return self.ended.take().or(Some(Ended::Lost)),
        }
        None
    }

    /// The command was stopped: by Ctrl-Z, or because it wants the terminal, or by somebody else.
    fn stopped(&mut self, signal: i32) {
        let Some(command) = self.command else { return };
        if signals::wants_terminal(signal) && terminal::is_ours() {
            terminal::give_to(command);
            return self.link.order(Order::Signal(signals::CONTINUE));
        }
        let had_terminal = terminal::is_of(command);
        let by_terminal = had_terminal || signal == signals::STOP_FROM_TERMINAL || signals::wants_terminal(signal);
        if !by_terminal || self.ended.is_some() {
            // Who stopped it will let it go on. The guardian's deadline stands.
            return;
        }
        if terminal::has_a_shell() {
            terminal::take_from(command);
            terminal::stop_here();
            // Much later, perhaps. While we stood still nobody renewed the lock, and by now the guardian may have ended the
            // command; a lock that is still valid is ours.
            if self.task.ends_on_loss && self.guard.check().is_err() {
                return;
            }
            if terminal::is_ours() && had_terminal {
                terminal::give_to(command);
            }
        } else if signals::wants_terminal(signal) {
            // It would only stop again. It stays as it is until somebody gives it the terminal.
            return;
        }
        self.link.order(Order::Signal(signals::CONTINUE));
    }

    /// What the guardian has said and we have not read: we may have been stopped, and see the time before anything else.
    async fn last_word(&mut self) -> Option<Report> {
        tokio::time::timeout(Duration::from_millis(5), self.link.next()).await.ok().flatten()
    }

    /// The guardian is dead, or does not do its work. What it guarded falls to us, and is killed.
    async fn take_over(&mut self, otherwise: Ended) -> Ended {
        let ended = self.ended.take().unwrap_or(otherwise);
        tracing::error!("the guardian process does not answer; killing the command");
        let until = self.clock.now() + PATIENCE;
        while !self.link.kill_all(self.command) {
            // As long as the lock is ours it is not given back over a living command.
            if self.clock.now() >= until && self.guard.check().is_err() {
                tracing::error!("processes of the command are still there and cannot be killed");
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        ended
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
    async fn the_command_is_killed_a_margin_before_the_lock_is_not_valid_any_more() {
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
