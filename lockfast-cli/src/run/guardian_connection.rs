//! Lockfast's end of the socket to a guardian, and the guardian's process: sends the setup and the orders, receives the
//! reports, and kills the processes that a dead guardian leaves behind.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
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
use crate::guardian::messages::{Deadline, Order, Report, Setup};
use crate::guardian::tree;

/// The name of the hidden command that runs the guardian.
pub(crate) const GUARDIAN_COMMAND: &str = "__guardian";

pub(super) struct GuardianConnection {
    process: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    /// When `--at-most` ends the command.
    pub(super) cap: Moment,
    /// Children from before an `exec` of this process: they belong to the earlier program and are never killed.
    earlier_children: Vec<Pid>,
}

impl GuardianConnection {
    /// Starts a guardian and sends its setup; the guardian then starts the command.
    pub(super) fn start(task: &Task, deadline: Deadline, cap: Moment) -> std::io::Result<Self> {
        tree::adopt_orphans();
        let earlier_children = tree::children();
        let (ours, theirs) = StdUnixStream::pair()?;
        let process = spawn_guardian(task, theirs)?;
        let setup = Setup {
            signal: task.signal,
            kill_after: task.kill_after,
            deadline,
            cap,
            ends_with_lockfast: task.ends_on_loss,
            gets_terminal: terminal::is_for_the_command(),
            sent_at: Clock::boot().now(),
        };
        let setup_socket = ours.try_clone()?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        // Order matters: the setup starts the command, so nothing may fail after it.
        send_setup(&setup_socket, &setup)?;
        Ok(Self { process, reports: BufReader::new(reports).lines(), orders, cap, earlier_children })
    }

    /// The guardian's next report; `None` when it is dead.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future loses nothing.
    pub(super) async fn next_report(&mut self) -> Option<Report> {
        Report::decode(&self.reports.next_line().await.ok()??)
    }

    pub(super) fn send_order(&mut self, order: Order) {
        // The socket's buffer is full only when the guardian has not read for a long time. Its last deadline still holds, and
        // lockfast kills the command itself when that has passed.
        let _ = self.orders.try_write(order.to_string().as_bytes());
    }

    /// Kills the guardian and the processes that become our children by its death. Returns whether none is left.
    pub(super) fn kill_all(&mut self, command: Option<Pid>) -> bool {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if cfg!(target_os = "linux") {
            tree::kill_all(&self.earlier_children);
            tree::reap(&self.earlier_children) == 0
        } else {
            let kill = |command| rustix::process::kill_process_group(command, rustix::process::Signal::KILL);
            command.is_none_or(|command| kill(command).is_err())
        }
    }
}

impl Drop for GuardianConnection {
    fn drop(&mut self) {
        // The guardian has sent its last report or was killed, so this returns at once, and it leaves no zombie.
        let _ = self.process.wait();
    }
}

/// Starts the same program image as a guardian, even if its file was replaced in the meantime.
fn spawn_guardian(task: &Task, socket: StdUnixStream) -> std::io::Result<Child> {
    let image = match cfg!(target_os = "linux") && File::open("/proc/self/exe").is_ok() {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe()?,
    };
    let mut guardian = Command::new(image);
    guardian.arg0("lockfast").arg(GUARDIAN_COMMAND).arg("--").args(&task.command).process_group(0);
    for key in &task.hidden {
        guardian.env_remove(key);
    }
    guardian.envs(task.variables.iter().map(|(key, value)| (key, value)));
    guardian.stdin(Stdio::from(OwnedFd::from(socket))).spawn()
}

/// Sends the setup together with our standard input, which becomes the command's.
fn send_setup(socket: &StdUnixStream, setup: &Setup) -> std::io::Result<()> {
    let message = setup.to_string();
    let stdin = std::io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(socket, &[IoSlice::new(message.as_bytes())], &mut rights, SendFlags::empty())?;
    Ok(())
}
