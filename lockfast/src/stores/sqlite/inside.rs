//! The state of one open store in this process: the file, its endpoint in the runtime directory, and the watch thread.
//! Delivers messages, and removes the claims of dead processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::claim::{Claim, ClaimMap, ClientId, Ticket};
use crate::store::Change;

use super::super::mailbox::Subscribers;
use super::boot_time::BootTime;
use super::file::File;
use super::home::{Home, Life, Residence};
use super::ledger::{Ledger, Letter, News};
use super::lookout::Lookout;
use super::post::Post;
use super::transaction::{Done, Lasting};
use super::waiting::{Patience, Waiting};

/// The first and the longest pause before datagrams are sent again whose receiver's socket buffer was full. The pause
/// doubles while no datagram gets through.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(250);

pub(super) struct Inside {
    pub(super) path: PathBuf,
    pub(super) time: BootTime,
    pub(super) kept: Mutex<Kept>,
    pub(super) subscribers: Mutex<Subscribers>,
    pub(super) residence: Residence,
    pub(super) lookout: Lookout,
    pub(super) post: Post,
    pub(super) waiting: Waiting,
}

/// What a transaction needs exclusively.
#[derive(Debug)]
pub(super) struct Kept {
    /// `None` if the file has to be opened again.
    pub(super) file: Option<File>,
    /// The tickets of this process's claims.
    pub(super) known: ClaimMap<Ticket>,
}

impl Kept {
    pub(super) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_some_and(File::is_in_place)
    }
}

impl Inside {
    /// Delivers messages to local subscribers and to other processes, and then the messages that follow from that: a
    /// receiver may turn out to be dead, and the removal of its claims grants others.
    pub(super) fn deliver(self: &Arc<Self>, mut news: News) {
        while !news.is_empty() {
            let (own, others): (News, News) =
                std::mem::take(&mut news).into_iter().partition(|(home, ..)| *home == self.residence.home);
            for (_, client, letter) in own {
                news.extend(self.hear(client, letter));
            }
            for home in self.post.send(&self.residence, &others) {
                let is_dead = matches!(self.residence.street.look_at(home), Life::Dead);
                news.extend(self.follow_up(move |inside, patience| match is_dead {
                    true => inside.bury(home, patience),
                    false => inside.forget_watcher(home, patience),
                }));
            }
            if self.post.is_waiting() {
                self.lookout.ring();
            }
        }
    }

    /// Removes the claims of a dead process, then its files. Returns the messages that follow.
    pub(super) fn bury(&self, home: Home, patience: Patience<'_>) -> Done<News> {
        let ((), news) = self.transaction("tidying up in", Lasting::No, patience, |ledger| Ok(ledger.bury(home)?))?;
        // Order matters: other processes see by the pipe that the process is dead. Removed first, the death would
        // become unknown while claims are left.
        self.residence.street.clear(home);
        Ok(news)
    }

    /// Removes the watcher rows of a process without a socket.
    fn forget_watcher(&self, home: Home, patience: Patience<'_>) -> Done<News> {
        let gone = |ledger: &mut Ledger<'_>| Ok(ledger.remove_watcher(home, None)?);
        self.transaction("tidying up in", Lasting::No, patience, gone).map(|((), news)| news)
    }

    /// Handles one message for this process. Returns the messages that follow.
    pub(super) fn hear(self: &Arc<Self>, client: ClientId, letter: Letter) -> News {
        match letter {
            Letter::LookAgain(owner) => self.lookout.waiting(owner).map_or_else(News::new, |claim| {
                self.follow_up(move |inside, patience| inside.look_again(&claim, patience))
            }),
            Letter::Change(change) => {
                if let Change::Held(owner, _) | Change::Gone(owner) = &change {
                    self.lookout.forget(*owner);
                }
                let mut told = Vec::new();
                let mut subscribers = self.subscribers();
                match &change {
                    Change::Resource(name) => subscribers.tell_of_queue(name, &mut told),
                    other => subscribers.tell(client, other, &mut told),
                }
                let nobody_watches = matches!(change, Change::Resource(_)) && !subscribers.watch_queues();
                drop(subscribers);
                told.iter().for_each(|mailbox| mailbox.wake());
                // If this fails, the next such message repeats it.
                if nobody_watches {
                    self.follow_up(|inside, patience| inside.stop_watching(patience))
                } else {
                    News::new()
                }
            }
        }
    }

    /// Ends notifications about queues, unless a local subscriber has come in the meantime.
    fn stop_watching(&self, patience: Patience<'_>) -> Done<News> {
        let stop = |ledger: &mut Ledger<'_>| {
            if !self.subscribers().watch_queues() {
                ledger.remove_watcher(self.residence.home, None)?;
            }
            Ok(())
        };
        self.transaction("watching", Lasting::No, patience, stop).map(|((), news)| news)
    }

    /// Determines again which deaths a waiter has to watch for, and watches them. Returns the messages that follow. If
    /// it fails, the lease of the claim ahead ends that claim.
    fn look_again(self: &Arc<Self>, claim: &Arc<Claim>, patience: Patience<'_>) -> Done<News> {
        let (dead, mut news) = self.transaction("reading", Lasting::No, patience, |ledger| {
            Ok(match ledger.living(claim)? {
                Some(entry) if !entry.holds() => self.look_out_for(ledger, claim)?,
                _ => {
                    self.lookout.forget(claim.id.hash());
                    Vec::new()
                }
            })
        })?;
        news.extend(self.bury_those_ahead(claim, dead));
        Ok(news)
    }

    /// Watches the processes whose death matters to a waiter. Returns those that are dead already.
    ///
    /// Order matters: inside the transaction, while no other process can change the queue. Done later, `AheadChanged`
    /// could arrive before the claim is watched for, and would be ignored.
    pub(super) fn look_out_for(&self, ledger: &mut Ledger<'_>, claim: &Arc<Claim>) -> rusqlite::Result<Vec<Home>> {
        let homes = ledger.deaths_of_those_before(claim)?;
        Ok(self.lookout.wait_for(claim, homes, &self.residence.street))
    }

    /// Removes the claims of these dead processes ahead of a waiter. Returns the messages that follow.
    pub(super) fn bury_those_ahead(self: &Arc<Self>, claim: &Arc<Claim>, dead: Vec<Home>) -> News {
        let mut news = News::new();
        for home in dead {
            let (client, owner) = (claim.client, claim.id.hash());
            news.extend(self.follow_up(move |inside, patience| {
                // Order matters: only a removal that succeeded leads to another check. A process that cannot be removed
                // would be found dead and checked again for ever.
                let mut buried = inside.bury(home, patience)?;
                // Other claims may be ahead now.
                buried.push((inside.residence.home, client, Letter::LookAgain(owner)));
                Ok(buried)
            }));
        }
        news
    }

    /// The loop of the watch thread.
    pub(super) fn look_out(self: &Arc<Self>) {
        let mut pause = SOON;
        while let Some(seen) = self.lookout.next(&self.residence, self.post.is_waiting().then_some(pause)) {
            for heard in seen.heard {
                let news = self.hear(heard.client, heard.letter);
                self.deliver(news);
            }
            for (home, waited) in seen.deaths {
                let mut news = self.follow_up(move |inside, patience| inside.bury(home, patience));
                for claim in waited {
                    let client = claim.client;
                    news.extend(self.follow_up(move |inside, patience| inside.look_again(&claim, patience)));
                    // The process may have died after it handed a lock off and before it sent the message, so its
                    // waiters ask.
                    news.push((self.residence.home, client, Letter::Change(Change::Resync)));
                }
                self.deliver(news);
            }
            // Only a failed retry lengthens the pause.
            let was_in_vain = self.post.is_waiting() && !self.post.try_again(&self.residence);
            pause = if was_in_vain { (pause * 2).min(LATER) } else { SOON };
        }
    }

    /// Whether this process knows of claims of its own in the file.
    pub(super) fn has_claims(&self) -> bool {
        !self.kept().known.is_empty()
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
