//! The descendants of this process: listing them, killing them, and proving that none is left.
//!
//! This process is a child subreaper: a descendant that loses its parent becomes our child. So the tree is dead exactly when
//! we have no child left, and a process that hid behind `setsid` or a double fork becomes our child in the end.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};

/// From here on, orphans among our descendants become our children. Does nothing on systems without subreapers.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Whether this process has any child at all, dead or alive.
pub(crate) fn is_childless() -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(WaitId::All, peek), Err(Errno::CHILD))
}

/// The children of this process, dead ones included.
pub(crate) fn children() -> Vec<Pid> {
    children_of(rustix::process::getpid())
}

/// Reaps the dead children of this process, except those in `kept`. Returns how many others live.
pub(crate) fn reap(kept: &[Pid]) -> usize {
    let others = children().into_iter().filter(|pid| !kept.contains(pid));
    others.filter(|pid| matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None))).count()
}

/// Sends SIGKILL to every descendant of this process, except the children in `spared` and their descendants. A process that
/// is started during the call is found by the next call.
pub(crate) fn kill_all(spared: &[Pid]) {
    let me = rustix::process::getpid();
    let mut families = vec![(me, children())];
    while let Some((parent, family)) = families.pop() {
        for child in family.into_iter().filter(|child| !spared.contains(child)) {
            // Order matters: list its children before it dies. After its death they are our children, and this walk would
            // miss them.
            families.push((child, children_of(child)));
            kill(child, parent, me);
        }
    }
}

/// Kills `child` unless its number belongs to another process by now. That cannot happen to a child of our own, which keeps
/// its number until we reap it.
fn kill(child: Pid, parent: Pid, me: Pid) {
    if parent == me {
        let _ = rustix::process::kill_process(child, Signal::KILL);
        return;
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        // Order matters: open the descriptor, then read the parent. The parent is then that of the process behind the
        // descriptor, or of one that was started after its death, which the signal does not reach.
        let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else { return };
        if parent_of(child).is_some_and(|now| now == parent || now == me) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

#[cfg(target_os = "linux")]
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, including parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    Pid::from_raw(rest.split(' ').nth(1)?.parse().ok()?)
}

#[cfg(target_os = "linux")]
fn children_of(pid: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let read = |list: String| list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    lists.flat_map::<Vec<Pid>, _>(read).collect()
}

/// Without `/proc`, only the command's group is known.
#[cfg(not(target_os = "linux"))]
fn children_of(_: Pid) -> Vec<Pid> {
    Vec::new()
}
