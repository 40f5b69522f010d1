//! The guardian: a small process between lockfast and the command, which ends the command in time even when lockfast
//! itself is stopped or dead.
//!
//! It owns the command and everything below it, and knows nothing of locks. It promises:
//!
//! 1. It has a deadline before the command begins. A command whose time is up is not started.
//! 2. At `signal_at` the command's group is asked to end, at `kill_at` every descendant is killed. Both also when lockfast
//!    has died, then at once, and never later than the last deadline that it got.
//! 3. It says that the tree is dead when no descendant is left, and not before.
//! 4. The command is taken off the list of children last, so that the number of its process group stays its own for as long
//!    as the group may be signalled.

pub(crate) mod tree;
pub(crate) mod wire;

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
use wire::{Ahead, Cause, Charge, Deadline, Order, Report, Status};

/// The first pause between two attempts to kill what does not die, and the longest.
const AGAIN: Duration = Duration::from_millis(2);
const AGAIN_AT_MOST: Duration = Duration::from_secs(1);

/// Runs the guardian. Its standard input is the socket to lockfast.
pub(crate) fn main(command: Vec<OsString>) -> std::io::Result<()> {
    tree::adopt_orphans();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let Some((charge, stdin)) = receive(&socket)? else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(guard(&socket, charge, stdin, command))
}

/// The charge and the command's standard input; nothing when lockfast has died before it sent them.
fn receive(socket: &UnixStream) -> std::io::Result<Option<(Charge, OwnedFd)>> {
    let mut bytes = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let stdin = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // Lockfast says nothing more until it has an answer, so this is the whole line and nothing else.
    let charge = str::from_utf8(&bytes[..received.bytes]).ok().and_then(Charge::read);
    Ok(charge.zip(stdin))
}

async fn guard(socket: &UnixStream, charge: Charge, stdin: OwnedFd, command: Vec<OsString>) -> std::io::Result<()> {
    // Handled and not looked at: what ends others must not end the guardian. Unlike ignoring, this is not inherited.
    for kind in signals::not_ignored(signals::ALL) {
        let _ = signal(SignalKind::from_raw(kind))?;
    }
    let mut children = signal(SignalKind::child())?;
    let clock = Clock::boot();
    let mut say = Say(socket.try_clone()?);
    // By 1.
    if clock.now() >= charge.deadline.signal_at {
        say.report(Report::Ending(Cause::Deadline));
        say.report(Report::Dead);
        return Ok(());
    }
    let lockfast = rustix::process::getppid().unwrap_or(Pid::INIT);
    let command = match start(command, stdin) {
        Ok(command) => command,
        Err(error) => {
            say.report(Report::NotStarted(error.raw_os_error().unwrap_or(0)));
            return Ok(());
        }
    };
    if charge.foreground {
        terminal::give_to(command);
        // It may have asked for the terminal before it had it.
        let _ = rustix::process::kill_process_group(command, Signal::CONT);
    }
    say.report(Report::Started(command.as_raw_nonzero().get()));

    let ahead = Ahead::of(charge.sent);
    socket.set_nonblocking(true)?;
    let mut orders = BufReader::new(tokio::net::UnixStream::from_std(socket.try_clone()?)?).lines();
    let mut timer = Timer::new(clock.clone());
    let mut watch = Watch::new(lockfast, command, charge, say);
    let mut is_heard = true;
    loop {
        if watch.look(clock.now()) {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = timer.sleep_until(watch.next_at()) => {}
            line = orders.next_line(), if is_heard => match line.ok().flatten() {
                Some(line) => watch.obey(Order::read(&line, ahead), clock.now()),
                None => {
                    is_heard = false;
                    watch.orphaned(clock.now());
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

/// The way back to lockfast, who may not be there any more.
struct Say(UnixStream);

impl Say {
    fn report(&mut self, report: Report) {
        // A few short lines always fit into the socket's buffer. Whoever has died needs to know nothing.
        let _ = self.0.write_all(report.to_string().as_bytes());
    }
}

/// The command, and what is to become of it.
struct Watch {
    lockfast: Pid,
    command: Pid,
    charge: Charge,
    deadline: Deadline,
    say: Say,
    /// When it is killed, once it is being ended.
    kill_at: Option<Moment>,
    /// When to try again to kill what is left, and the pause after that.
    again: (Moment, Duration),
    /// It has ended.
    has_exited: bool,
    /// It was taken off the list of children, and its number may be somebody else's.
    is_reaped: bool,
}

impl Watch {
    fn new(lockfast: Pid, command: Pid, charge: Charge, say: Say) -> Self {
        let again = (Moment::START, AGAIN);
        Self {
            lockfast,
            command,
            charge,
            deadline: charge.deadline,
            say,
            kill_at: None,
            again,
            has_exited: false,
            is_reaped: false,
        }
    }

    /// When to look again, if nothing happens before.
    fn next_at(&self) -> Moment {
        match self.kill_at {
            None => self.deadline.signal_at.min(self.charge.cap),
            Some(kill_at) => kill_at.min(self.deadline.kill_at).max(self.again.0),
        }
    }

    fn obey(&mut self, order: Option<Order>, now: Moment) {
        match order {
            Some(Order::Deadline(deadline)) => self.deadline = deadline,
            Some(Order::End) => self.end(Cause::Asked, now),
            Some(Order::Signal(number)) => self.signal(number),
            // Lockfast and its guardian are the same program; what is not understood is no reason to go on unguarded.
            None => self.end(Cause::Asked, now),
        }
    }

    /// Lockfast is gone, and with it whoever renewed the lock.
    fn orphaned(&mut self, now: Moment) {
        if self.charge.ends_with_us {
            self.end(Cause::Asked, now);
        }
    }

    fn end(&mut self, cause: Cause, now: Moment) {
        if self.kill_at.is_none() {
            self.kill_at = Some(now + self.charge.kill_after);
            self.say.report(Report::Ending(cause));
            self.signal(self.charge.signal);
            // Who is stopped cannot end itself.
            self.signal(Signal::CONT.as_raw());
        }
    }

    /// Lockfast may be stopped, and with nothing left to guard there is no reason for that any more. It might even stand still
    /// in the middle of a verb, with everybody else who uses the store behind it.
    fn wake_lockfast(&self) {
        if let Some(lockfast) = rustix::process::getppid().filter(|parent| *parent == self.lockfast) {
            let _ = rustix::process::kill_process(lockfast, Signal::CONT);
        }
    }

    fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number).filter(|_| !self.is_reaped) {
            let _ = rustix::process::kill_process_group(self.command, signal);
        }
    }

    /// Does what is due, and takes note of what has happened. Whether this is the end.
    fn look(&mut self, now: Moment) -> bool {
        self.notice();
        if self.kill_at.is_none() {
            if self.has_exited {
                // Order matters: it is off the list before we end and the next holder looks, whoever reaps after us.
                let _ = rustix::process::waitpid(Some(self.command), WaitOptions::NOHANG);
                return true;
            }
            if now >= self.deadline.signal_at {
                self.end(Cause::Deadline, now);
            } else if now >= self.charge.cap {
                self.end(Cause::Cap, now);
            }
        }
        let others = tree::reap(&[self.command]);
        let Some(kill_at) = self.kill_at else { return false };
        if self.has_exited && others == 0 {
            // By 4: nothing else was found. The list may have missed one; whether we have a child at all is certain.
            self.is_reaped = true;
            let _ = rustix::process::waitpid(Some(self.command), WaitOptions::NOHANG);
            if tree::is_childless() {
                self.say.report(Report::Dead);
                self.wake_lockfast();
                return true;
            }
        }
        if now >= kill_at.min(self.deadline.kill_at) && now >= self.again.0 {
            self.signal(Signal::KILL.as_raw());
            tree::kill_all(&[]);
            self.again = (now + self.again.1, (self.again.1 * 2).min(AGAIN_AT_MOST));
        }
        false
    }

    /// What has become of the command itself.
    fn notice(&mut self) {
        if self.has_exited {
            return;
        }
        let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while let Some(signal) = self.ask(stops).and_then(|status| status.stopping_signal()) {
            self.say.report(Report::Stopped(signal));
        }
        // By 4, without taking it off the list.
        let Some(status) = self.ask(WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) else {
            return;
        };
        let ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Status::Code(code as u8),
            (_, signal) => Status::Signal(signal.unwrap_or(0) as u8),
        };
        self.has_exited = true;
        self.say.report(Report::Exited(ended));
    }

    fn ask(&self, options: WaitIdOptions) -> Option<WaitIdStatus> {
        rustix::process::waitid(WaitId::Pid(self.command), options).ok().flatten()
    }
}
