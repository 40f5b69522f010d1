//! Waits for datagrams, and for the deaths of processes that waiters of this process depend on. One thread for each
//! open store.
//!
//! A waiter watches the process of the entry just ahead of it; the first waiter watches the processes of all holders.
//! So a death wakes one process, not all, and when several die at once each survivor finds the next.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::claim::{Claim, ClaimHash, ClaimMap};
use crate::error::{Error, Result};

use super::datagrams::{ReceivedMessage, receive};
use super::runtime_dir::{Endpoint, Liveness, ProcessId, RuntimeDir};

#[derive(Debug)]
pub(super) struct DeathWatch {
    state: Mutex<WatchState>,
    /// An eventfd that interrupts the thread's `poll`.
    wakeup: OwnedFd,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct WatchState {
    /// Each waiter of this process, and the processes that are watched on its behalf.
    waiters: ClaimMap<(Arc<Claim>, Vec<ProcessId>)>,
    /// Each watched process: its liveness pipe, and the waiters on whose behalf it is watched.
    processes: HashMap<ProcessId, (Arc<OwnedFd>, BTreeSet<ClaimHash>)>,
}

impl DeathWatch {
    pub(super) fn new() -> Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wakeup = eventfd(0, flags).map_err(|error| Error::unavailable("making an eventfd", error))?;
        Ok(Self { state: Mutex::default(), wakeup, is_stopped: AtomicBool::new(false) })
    }

    /// Watches these processes on behalf of `claim`, instead of the processes watched before. Returns the
    /// processes that are dead already.
    pub(super) fn watch(&self, claim: &Arc<Claim>, processes: Vec<ProcessId>, dir: &RuntimeDir) -> Vec<ProcessId> {
        let owner = claim.id.hash();
        let mut state = self.state();
        let is_watched = |process| state.processes.contains_key(process);
        if state.waiters.get(&owner).is_some_and(|(_, before)| *before == processes) && processes.iter().all(is_watched)
        {
            return Vec::new();
        }
        state.forget(owner);
        let mut dead = Vec::new();
        for process in &processes {
            match state.processes.get_mut(process) {
                Some((_, waiters)) => drop(waiters.insert(owner)),
                None => match dir.liveness_of(*process) {
                    Liveness::Alive(pipe) => {
                        state.processes.insert(*process, (Arc::new(pipe), BTreeSet::from([owner])));
                    }
                    Liveness::Dead => dead.push(*process),
                    Liveness::Unknown => {}
                },
            }
        }
        state.waiters.insert(owner, (Arc::clone(claim), processes));
        drop(state);
        self.wake();
        dead
    }

    /// To be called when the claim no longer waits: stops watching on its behalf.
    pub(super) fn forget(&self, owner: ClaimHash) {
        self.state().forget(owner);
    }

    /// The claim, if it is a waiter of this process.
    pub(super) fn waiter(&self, owner: ClaimHash) -> Option<Arc<Claim>> {
        self.state().waiters.get(&owner).map(|(claim, _)| Arc::clone(claim))
    }

    /// Stops watching a process. Returns the claims on whose behalf it was watched.
    fn take_claims(&self, process: ProcessId) -> Vec<Arc<Claim>> {
        let mut state = self.state();
        let Some((_, owners)) = state.processes.remove(&process) else { return Vec::new() };
        let claims: Vec<_> =
            owners.iter().filter_map(|owner| state.waiters.get(owner).map(|(claim, _)| Arc::clone(claim))).collect();
        owners.into_iter().for_each(|owner| state.forget(owner));
        claims
    }

    pub(super) fn wake(&self) {
        // A full counter wakes the thread already.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until a datagram arrives, a watched process dies, or `timeout` is over. `None` once the watch is stopped.
    pub(super) fn next(&self, endpoint: &Endpoint, timeout: Option<Duration>) -> Option<Wakeup> {
        let processes: Vec<_> =
            self.state().processes.iter().map(|(process, (pipe, _))| (*process, Arc::clone(pipe))).collect();
        let mut files = vec![PollFd::new(&self.wakeup, PollFlags::IN), PollFd::new(&endpoint.socket, PollFlags::IN)];
        files.extend(processes.iter().map(|(_, pipe)| PollFd::new(&**pipe, PollFlags::IN)));
        let timeout = timeout.and_then(|pause| Timespec::try_from(pause).ok());
        if poll(&mut files, timeout.as_ref()).is_err() {
            // Interrupted, or out of memory: in both cases no retry at once.
            std::thread::sleep(Duration::from_millis(1));
        }
        // The first two are the eventfd and the socket.
        let dead: Vec<ProcessId> = files[2..]
            .iter()
            .zip(&processes)
            .filter(|(file, (_, pipe))| !file.revents().is_empty() && super::runtime_dir::has_ended(pipe))
            .map(|(_, (process, _))| *process)
            .collect();
        drop(files);
        if self.is_stopped() {
            return None;
        }
        let _ = rustix::io::read(&self.wakeup, &mut [0u8; 8]);
        let deaths = dead.into_iter().map(|process| (process, self.take_claims(process))).collect();
        Some(Wakeup { received: receive(endpoint), deaths })
    }
}

impl WatchState {
    fn forget(&mut self, owner: ClaimHash) {
        let Some((_, processes)) = self.waiters.remove(&owner) else { return };
        for process in processes {
            if let Some((_, waiters)) = self.processes.get_mut(&process) {
                waiters.remove(&owner);
                if waiters.is_empty() {
                    self.processes.remove(&process);
                }
            }
        }
    }
}

/// Why the thread woke up.
#[derive(Debug)]
pub(super) struct Wakeup {
    pub(super) received: Vec<ReceivedMessage>,
    /// The processes that died, each with the claims on whose behalf it was watched.
    pub(super) deaths: Vec<(ProcessId, Vec<Arc<Claim>>)>,
}
