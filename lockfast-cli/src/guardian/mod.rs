//! The guardian: a small process between lockfast and the command, which ends the command in time even when lockfast
//! itself is stopped or dead.
//!
//! It owns the command and everything below it, and knows nothing of locks. It promises:
//!
//! 1. It has a deadline before the command begins. A command whose deadline has passed is not started.
//! 2. At `signal_at` the command's group gets the ending signal, at `kill_at` every descendant is killed. If lockfast has
//!    died, both happen at once, and never later than the last deadline that the guardian received.
//! 3. It reports that the tree is dead when no descendant is left, and not before.
//! 4. The command is reaped last, so that the number of its process group stays its own for as long as the group may be
//!    signalled.

pub(crate) mod messages;
pub(crate) mod tree;

use std::ffi::OsString;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast::Clock;
use lockfast::store::{Moment, Timer};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use crate::run::{signals, terminal};
use messages::{Cause, ClockOffset, Deadline, Order, Report, Setup, Status};

/// The first and the longest pause between two attempts to kill a process that does not die.
const FIRST_KILL_PAUSE: Duration = Duration::from_millis(2);
const MAX_KILL_PAUSE: Duration = Duration::from_secs(1);

/// Runs the guardian. Its standard input is the socket to lockfast.
pub(crate) fn main(command: Vec<OsString>) -> std::io::Result<()> {
    tree::adopt_orphans();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let Some((setup, stdin)) = receive(&socket)? else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(guard(&socket, setup, stdin, command))
}

/// The setup message and the command's standard input; `None` when lockfast died before it sent them.
fn receive(socket: &UnixStream) -> std::io::Result<Option<(Setup, OwnedFd)>> {
    // A setup message has eight numbers of at most 20 digits.
    let mut bytes = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let stdin = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // Lockfast sends nothing more until it has a report, so this is the whole message and nothing else.
    let setup = str::from_utf8(&bytes[..received.bytes]).ok().and_then(Setup::decode);
    Ok(setup.zip(stdin))
}

/// Starts the command, and obeys lockfast's orders and deadlines until the command is over.
async fn guard(socket: &UnixStream, setup: Setup, stdin: OwnedFd, command: Vec<OsString>) -> std::io::Result<()> {
    // These signals are handled and dropped, so that they do not end the guardian. Ignoring them instead would be inherited
    // by the command.
    for kind in signals::not_ignored(signals::DROPPED_BY_GUARDIAN) {
        let _ = signal(SignalKind::from_raw(kind))?;
    }
    let mut children = signal(SignalKind::child())?;
    let clock = Clock::boot();
    let mut reports = ReportWriter(socket.try_clone()?);
    // By 1.
    if clock.now() >= setup.deadline.signal_at {
        reports.send(Report::Ending(Cause::Deadline));
        reports.send(Report::Dead);
        return Ok(());
    }
    let lockfast = rustix::process::getppid().unwrap_or(Pid::INIT);
    let command = match start(command, stdin) {
        Ok(command) => command,
        Err(error) => {
            reports.send(Report::NotStarted(error.raw_os_error().unwrap_or(0)));
            return Ok(());
        }
    };
    if setup.gets_terminal {
        terminal::give_to(command);
        // The command may have been stopped because it used the terminal before it had it.
        let _ = rustix::process::kill_process_group(command, Signal::CONT);
    }
    reports.send(Report::Started(command.as_raw_nonzero().get()));

    let offset = ClockOffset::of(setup.sent_at);
    socket.set_nonblocking(true)?;
    let mut orders = BufReader::new(tokio::net::UnixStream::from_std(socket.try_clone()?)?).lines();
    let mut timer = Timer::new(clock.clone());
    let mut guarded = GuardedCommand::new(lockfast, command, setup, reports);
    let mut is_connected = true;
    loop {
        if guarded.step(clock.now()) {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = timer.sleep_until(guarded.next_step_at()) => {}
            line = orders.next_line(), if is_connected => match line.ok().flatten() {
                Some(line) => guarded.obey(Order::decode(&line, offset), clock.now()),
                None => {
                    is_connected = false;
                    guarded.on_lockfast_death(clock.now());
                }
            },
            _ = children.recv() => {}
        }
    }
}

fn start(command: Vec<OsString>, stdin: OwnedFd) -> std::io::Result<Pid> {
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let child = Command::new(program).args(words).stdin(Stdio::from(stdin)).process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

/// Sends reports to lockfast, which may be dead.
struct ReportWriter(UnixStream);

impl ReportWriter {
    fn send(&mut self, report: Report) {
        // A few short lines always fit into the socket's buffer. An error means that lockfast is dead.
        let _ = self.0.write_all(report.to_string().as_bytes());
    }
}

/// The command, its deadline, and how far its end has come.
struct GuardedCommand {
    lockfast: Pid,
    command: Pid,
    setup: Setup,
    deadline: Deadline,
    reports: ReportWriter,
    /// When the command is killed, once it is being ended.
    kill_at: Option<Moment>,
    /// When to try again to kill the rest of the tree, and how long to pause after that attempt.
    next_kill_at: Moment,
    kill_pause: Duration,
    has_exited: bool,
    /// From here on, the command's number may belong to another process.
    is_reaped: bool,
}

impl GuardedCommand {
    fn new(lockfast: Pid, command: Pid, setup: Setup, reports: ReportWriter) -> Self {
        Self {
            lockfast,
            command,
            setup,
            deadline: setup.deadline,
            reports,
            kill_at: None,
            next_kill_at: Moment::START,
            kill_pause: FIRST_KILL_PAUSE,
            has_exited: false,
            is_reaped: false,
        }
    }

    /// When [`step`](Self::step) is due, if no event comes first.
    fn next_step_at(&self) -> Moment {
        match self.kill_at {
            None => self.deadline.signal_at.min(self.setup.cap),
            Some(kill_at) => kill_at.min(self.deadline.kill_at).max(self.next_kill_at),
        }
    }

    fn obey(&mut self, order: Option<Order>, now: Moment) {
        match order {
            Some(Order::Deadline(deadline)) => self.deadline = deadline,
            Some(Order::End) => self.end(Cause::Asked, now),
            Some(Order::Signal(number)) => self.signal(number),
            // Lockfast and its guardian are the same program, so an order that cannot be decoded is a fault: end the command
            // rather than let it run with a deadline that may be wrong.
            None => self.end(Cause::Asked, now),
        }
    }

    /// Lockfast is dead, so the lease is not renewed any more.
    fn on_lockfast_death(&mut self, now: Moment) {
        if self.setup.ends_with_lockfast {
            self.end(Cause::Asked, now);
        }
    }

    /// Sends the ending signal and sets when the command is killed, unless that has been done before.
    fn end(&mut self, cause: Cause, now: Moment) {
        if self.kill_at.is_none() {
            self.kill_at = Some(now + self.setup.kill_after);
            self.reports.send(Report::Ending(cause));
            self.signal(self.setup.signal);
            // A stopped command cannot handle the signal.
            self.signal(Signal::CONT.as_raw());
        }
    }

    /// Continues a stopped lockfast once the tree is dead. It may be stopped in the middle of a store operation, where it would
    /// block all other clients of the store.
    fn wake_lockfast(&self) {
        if let Some(lockfast) = rustix::process::getppid().filter(|parent| *parent == self.lockfast) {
            let _ = rustix::process::kill_process(lockfast, Signal::CONT);
        }
    }

    /// Sends a signal to the command's group.
    fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number).filter(|_| !self.is_reaped) {
            let _ = rustix::process::kill_process_group(self.command, signal);
        }
    }

    /// Collects the command's status and does what is due. Returns whether the guardian is finished.
    fn step(&mut self, now: Moment) -> bool {
        self.collect_status();
        if self.kill_at.is_none() {
            if self.has_exited {
                // Order matters: reap the command before the guardian exits and the lock can be handed off. Otherwise the
                // next holder could still see the command as a process, until another parent reaps it.
                let _ = rustix::process::waitpid(Some(self.command), WaitOptions::NOHANG);
                return true;
            }
            if now >= self.deadline.signal_at {
                self.end(Cause::Deadline, now);
            } else if now >= self.setup.cap {
                self.end(Cause::Cap, now);
            }
        }
        let other_children = tree::reap(&[self.command]);
        let Some(kill_at) = self.kill_at else { return false };
        if self.has_exited && other_children == 0 {
            // By 4, the command is reaped last. The list of children may have missed a process; `is_childless` is certain.
            self.is_reaped = true;
            let _ = rustix::process::waitpid(Some(self.command), WaitOptions::NOHANG);
            if tree::is_childless() {
                self.reports.send(Report::Dead);
                self.wake_lockfast();
                return true;
            }
        }
        if now >= kill_at.min(self.deadline.kill_at) && now >= self.next_kill_at {
            self.signal(Signal::KILL.as_raw());
            tree::kill_all(&[]);
            self.next_kill_at = now + self.kill_pause;
            self.kill_pause = (self.kill_pause * 2).min(MAX_KILL_PAUSE);
        }
        false
    }

    /// Reports the stops and the exit of the command itself.
    fn collect_status(&mut self) {
        if self.has_exited {
            return;
        }
        let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while let Some(signal) = self.wait_status(stops).and_then(|status| status.stopping_signal()) {
            self.reports.send(Report::Stopped(signal));
        }
        // By 4, without reaping it.
        let Some(status) = self.wait_status(WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
        else {
            return;
        };
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Status::Code(code as u8),
            (_, signal) => Status::Signal(signal.unwrap_or(0) as u8),
        };
        self.has_exited = true;
        self.reports.send(Report::Exited(status));
    }

    /// Asks the kernel for a status of the command, without waiting if `options` say so.
    fn wait_status(&self, options: WaitIdOptions) -> Option<WaitIdStatus> {
        rustix::process::waitid(WaitId::Pid(self.command), options).ok().flatten()
    }
}
