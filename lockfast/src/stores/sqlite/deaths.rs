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

use super::datagrams::{Received, receive};
use super::runtime_dir::{Endpoint, Liveness, ProcessId, RuntimeDir};

#[derive(Debug)]
pub(super) struct DeathWatch {
    watched: Mutex<Watched>,
    /// An eventfd that interrupts the thread's `poll`.
    wakeup: OwnedFd,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct Watched {
    waiters: ClaimMap<(Arc<Claim>, Vec<ProcessId>)>,
    processes: HashMap<ProcessId, (Arc<OwnedFd>, BTreeSet<ClaimHash>)>,
}

impl DeathWatch {
    pub(super) fn new() -> Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wakeup = eventfd(0, flags).map_err(|error| Error::unavailable("making an eventfd", error))?;
        Ok(Self { watched: Mutex::default(), wakeup, is_stopped: AtomicBool::new(false) })
    }

    /// Watches these processes on behalf of `claim`, instead of those before. Returns the ones that are dead already.
    pub(super) fn watch(&self, claim: &Arc<Claim>, processes: Vec<ProcessId>, dir: &RuntimeDir) -> Vec<ProcessId> {
        let owner = claim.id.hash();
        let mut watched = self.watched();
        let is_watched = |process| watched.processes.contains_key(process);
        if watched.waiters.get(&owner).is_some_and(|(_, before)| *before == processes)
            && processes.iter().all(is_watched)
        {
            return Vec::new();
        }
        watched.forget(owner);
        let mut dead = Vec::new();
        for process in &processes {
            match watched.processes.get_mut(process) {
                Some((_, waiters)) => drop(waiters.insert(owner)),
                None => match dir.liveness_of(*process) {
                    Liveness::Alive(pipe) => {
                        watched.processes.insert(*process, (Arc::new(pipe), BTreeSet::from([owner])));
                    }
                    Liveness::Dead => dead.push(*process),
                    Liveness::Unknown => {}
                },
            }
        }
        watched.waiters.insert(owner, (Arc::clone(claim), processes));
        drop(watched);
        self.wake();
        dead
    }

    /// The claim no longer waits.
    pub(super) fn forget(&self, owner: ClaimHash) {
        self.watched().forget(owner);
    }

    /// The claim, if it is a waiter of this process.
    pub(super) fn waiter(&self, owner: ClaimHash) -> Option<Arc<Claim>> {
        self.watched().waiters.get(&owner).map(|(claim, _)| Arc::clone(claim))
    }

    /// Stops watching a process. Returns the claims on whose behalf it was watched.
    fn take_claims(&self, process: ProcessId) -> Vec<Arc<Claim>> {
        let mut watched = self.watched();
        let Some((_, owners)) = watched.processes.remove(&process) else { return Vec::new() };
        let claims: Vec<_> =
            owners.iter().filter_map(|owner| watched.waiters.get(owner).map(|(claim, _)| Arc::clone(claim))).collect();
        owners.into_iter().for_each(|owner| watched.forget(owner));
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

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until a datagram arrives, a watched process dies, or `at_most` is over. `None` once the watch is stopped.
    pub(super) fn next(&self, endpoint: &Endpoint, at_most: Option<Duration>) -> Option<Wakeup> {
        let processes: Vec<_> =
            self.watched().processes.iter().map(|(process, (pipe, _))| (*process, Arc::clone(pipe))).collect();
        let mut files = vec![PollFd::new(&self.wakeup, PollFlags::IN), PollFd::new(&endpoint.socket, PollFlags::IN)];
        files.extend(processes.iter().map(|(_, pipe)| PollFd::new(&**pipe, PollFlags::IN)));
        let at_most = at_most.and_then(|pause| Timespec::try_from(pause).ok());
        if poll(&mut files, at_most.as_ref()).is_err() {
            // Interrupted, or out of memory: in both cases no retry at once.
            std::thread::sleep(Duration::from_millis(1));
        }
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

impl Watched {
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
    pub(super) received: Vec<Received>,
    /// The processes that died, each with the claims on whose behalf it was watched.
    pub(super) deaths: Vec<(ProcessId, Vec<Arc<Claim>>)>,
}
