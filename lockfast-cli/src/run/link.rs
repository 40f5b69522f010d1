//! Lockfast's end of the socket to a guardian, and the guardian's process.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use lockfast::Clock;
use lockfast::store::Moment;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{Task, terminal};
use crate::guardian::tree;
use crate::guardian::wire::{Charge, Deadline, Order, Report};

/// The name of the hidden command that is the guardian.
pub(crate) const GUARDIAN: &str = "__guardian";

pub(super) struct Link {
    guardian: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    pub(super) cap: Moment,
    /// Children that this process had before, from when it was another program: not ours to kill.
    others: Vec<Pid>,
}

impl Link {
    /// Starts a guardian and arms it. The command is the guardian's to start.
    pub(super) fn start(task: &Task, deadline: Deadline, cap: Moment) -> std::io::Result<Self> {
        tree::adopt_orphans();
        let others = tree::children();
        let (ours, theirs) = Pair::pair()?;
        let guardian = start(task, theirs)?;
        let charge = Charge {
            signal: task.signal,
            kill_after: task.kill_after,
            deadline,
            cap,
            ends_with_us: task.ends_on_loss,
            foreground: terminal::is_for_the_command(),
            sent: Clock::boot().now(),
        };
        let (charged, sent) = (ours.try_clone()?, charge.to_string());
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        // Order matters: the command begins with this, so nothing may fail after it.
        send(&charged, &sent)?;
        Ok(Self { guardian, reports: BufReader::new(reports).lines(), orders, cap, others })
    }

    /// What the guardian says next; nothing when it is dead.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Report> {
        Report::read(&self.reports.next_line().await.ok()??)
    }

    pub(super) fn order(&mut self, order: Order) {
        // A guardian that cannot take one line more has not listened for a long time; the deadline that it has stands, and
        // lockfast kills the command itself when that has passed.
        let _ = self.orders.try_write(order.to_string().as_bytes());
    }

    /// Kills the guardian and everything that comes to us by that. Whether nothing is left.
    pub(super) fn kill_all(&mut self, command: Option<Pid>) -> bool {
        let _ = self.guardian.kill();
        let _ = self.guardian.wait();
        if cfg!(target_os = "linux") {
            tree::kill_all(&self.others);
            tree::reap(&self.others) == 0
        } else {
            let kill = |command| rustix::process::kill_process_group(command, rustix::process::Signal::KILL);
            command.is_none_or(|command| kill(command).is_err())
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It has said its last word, or was killed: this takes no time, and leaves no zombie behind.
        let _ = self.guardian.wait();
    }
}

/// The guardian is this very program again, even if its file was replaced in the meantime.
fn start(task: &Task, socket: Pair) -> std::io::Result<Child> {
    let image = match cfg!(target_os = "linux") && File::open("/proc/self/exe").is_ok() {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe()?,
    };
    let mut guardian = Command::new(image);
    guardian.arg0("lockfast").arg(GUARDIAN).arg("--").args(&task.command).process_group(0);
    for key in &task.hidden {
        guardian.env_remove(key);
    }
    guardian.envs(task.variables.iter().map(|(key, value)| (key, value)));
    guardian.stdin(Stdio::from(OwnedFd::from(socket))).spawn()
}

/// Sends the charge, with our standard input for the command.
fn send(socket: &Pair, charge: &str) -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(socket, &[IoSlice::new(charge.as_bytes())], &mut rights, SendFlags::empty())?;
    Ok(())
}
