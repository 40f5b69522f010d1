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

use super::home::{Home, Life, Residence, Street};
use super::post::{Heard, receive};

#[derive(Debug)]
pub(super) struct Lookout {
    watched: Mutex<Watched>,
    /// An eventfd that interrupts the thread's `poll`.
    bell: OwnedFd,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Watched {
    waiting: ClaimMap<(Arc<Claim>, Vec<Home>)>,
    homes: HashMap<Home, (Arc<OwnedFd>, BTreeSet<ClaimHash>)>,
}

impl Lookout {
    pub(super) fn new() -> Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = eventfd(0, flags).map_err(|error| Error::unavailable("making an eventfd", error))?;
        Ok(Self { watched: Mutex::default(), bell, is_over: AtomicBool::new(false) })
    }

    /// Watches these processes on behalf of `claim`, instead of those before. Returns the ones that are dead already.
    pub(super) fn wait_for(&self, claim: &Arc<Claim>, homes: Vec<Home>, street: &Street) -> Vec<Home> {
        let owner = claim.id.hash();
        let mut watched = self.watched();
        let is_watched = |home| watched.homes.contains_key(home);
        if watched.waiting.get(&owner).is_some_and(|(_, before)| *before == homes) && homes.iter().all(is_watched) {
            return Vec::new();
        }
        watched.forget(owner);
        let mut dead = Vec::new();
        for home in &homes {
            match watched.homes.get_mut(home) {
                Some((_, waiting)) => drop(waiting.insert(owner)),
                None => match street.look_at(*home) {
                    Life::Alive(pipe) => {
                        watched.homes.insert(*home, (Arc::new(pipe), BTreeSet::from([owner])));
                    }
                    Life::Dead => dead.push(*home),
                    Life::Unknown => {}
                },
            }
        }
        watched.waiting.insert(owner, (Arc::clone(claim), homes));
        drop(watched);
        self.ring();
        dead
    }

    /// The claim no longer waits.
    pub(super) fn forget(&self, owner: ClaimHash) {
        self.watched().forget(owner);
    }

    /// The claim, if it is a waiter of this process.
    pub(super) fn waiting(&self, owner: ClaimHash) -> Option<Arc<Claim>> {
        self.watched().waiting.get(&owner).map(|(claim, _)| Arc::clone(claim))
    }

    /// Stops watching a process. Returns the claims on whose behalf it was watched.
    fn take(&self, home: Home) -> Vec<Arc<Claim>> {
        let mut watched = self.watched();
        let Some((_, owners)) = watched.homes.remove(&home) else { return Vec::new() };
        let claims: Vec<_> =
            owners.iter().filter_map(|owner| watched.waiting.get(owner).map(|(claim, _)| Arc::clone(claim))).collect();
        owners.into_iter().for_each(|owner| watched.forget(owner));
        claims
    }

    pub(super) fn ring(&self) {
        // A full counter wakes the thread already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until a datagram arrives, a watched process dies, or `at_most` is over. `None` once the watch is stopped.
    pub(super) fn next(&self, residence: &Residence, at_most: Option<Duration>) -> Option<Seen> {
        let homes: Vec<_> = self.watched().homes.iter().map(|(home, (pipe, _))| (*home, Arc::clone(pipe))).collect();
        let mut files = vec![PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&residence.socket, PollFlags::IN)];
        files.extend(homes.iter().map(|(_, pipe)| PollFd::new(&**pipe, PollFlags::IN)));
        let at_most = at_most.and_then(|pause| Timespec::try_from(pause).ok());
        if poll(&mut files, at_most.as_ref()).is_err() {
            // Interrupted, or out of memory: in both cases no retry at once.
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended: Vec<Home> = files[2..]
            .iter()
            .zip(&homes)
            .filter(|(file, (_, pipe))| !file.revents().is_empty() && super::home::has_ended(pipe))
            .map(|(_, (home, _))| *home)
            .collect();
        drop(files);
        if self.is_over() {
            return None;
        }
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        let deaths = ended.into_iter().map(|home| (home, self.take(home))).collect();
        Some(Seen { heard: receive(residence), deaths })
    }
}

impl Watched {
    fn forget(&mut self, owner: ClaimHash) {
        let Some((_, homes)) = self.waiting.remove(&owner) else { return };
        for home in homes {
            if let Some((_, waiting)) = self.homes.get_mut(&home) {
                waiting.remove(&owner);
                if waiting.is_empty() {
                    self.homes.remove(&home);
                }
            }
        }
    }
}

/// Why the thread woke up.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) heard: Vec<Heard>,
    /// The processes that died, each with the claims on whose behalf it was watched.
    pub(super) deaths: Vec<(Home, Vec<Arc<Claim>>)>,
}
