//! The terminal's foreground group. The command's group has the terminal while it runs, so that Ctrl-C and Ctrl-Z reach the
//! command, and reach it once.

use std::fs::File;
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::Pid;

/// Whether the command should have the terminal from the beginning: it was ours, and both ends of the command are on it.
/// In a pipeline like `lockfast run .. | less` the terminal belongs to all of its programs, and stays with them until the
/// command asks for it.
pub(crate) fn is_for_the_command() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && is_ours()
}

/// Whether our own group has the terminal.
pub(crate) fn is_ours() -> bool {
    is_of(rustix::process::getpgrp())
}

/// Whether this group has the terminal.
pub(crate) fn is_of(group: Pid) -> bool {
    controlling_terminal().and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok()) == Some(group)
}

/// Gives the terminal to this group, if there is a terminal.
pub(crate) fn give_to(group: Pid) {
    let Some(terminal) = controlling_terminal() else { return };
    // A background process that changes the foreground group is stopped by SIGTTOU, unless that is blocked.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let blocked = stop.thread_block();
    let _ = rustix::termios::tcsetpgrp(terminal, group);
    if blocked.is_ok() {
        let _ = stop.thread_unblock();
    }
}

/// Takes the terminal back from this group, if it has it.
pub(crate) fn take_from(group: Pid) {
    if is_of(group) {
        give_to(rustix::process::getpgrp());
    }
}

/// Takes the terminal back from this group when it is over, or from a descendant's group without members: no process can
/// read a terminal whose foreground group is empty.
pub(crate) fn take_back_after(group: Pid) {
    let is_empty = |group| rustix::process::test_kill_process_group(group) == Err(rustix::io::Errno::SRCH);
    let owner = controlling_terminal().and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
    if owner.is_some_and(|owner| owner == group || is_empty(owner)) {
        give_to(rustix::process::getpgrp());
    }
}

/// Whether a shell in the same session, with another group, can continue this process after it has stopped. Without one, the
/// kernel ignores stop signals from the terminal too.
pub(crate) fn has_a_shell() -> bool {
    let Some(parent) = rustix::process::getppid() else { return false };
    let is_same_session = rustix::process::getsid(Some(parent)).ok() == rustix::process::getsid(None).ok();
    let is_other_group = rustix::process::getpgid(Some(parent)).is_ok_and(|group| group != rustix::process::getpgrp());
    controlling_terminal().is_some() && is_same_session && is_other_group
}

/// Stops this process until its shell continues it.
pub(crate) fn stop_here() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

fn controlling_terminal() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}
