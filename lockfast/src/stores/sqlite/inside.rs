//! What one open store has in this process: the file, its place on the street, and the thread that looks out.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::claim::{Claim, ClaimMap, ClientId, Ticket};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::store::Change;

use super::super::mailbox::Subscribers;
use super::file::File;
use super::home::{Home, Life, Residence};
use super::ledger::{Ledger, Letter, News};
use super::lookout::Lookout;
use super::post::Post;
use super::rule::Failure;

/// How soon letters are tried again that found their reader's queue full; when that gets nowhere, later and later.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(250);

pub(super) struct Inside {
    pub(super) path: PathBuf,
    pub(super) clock: Clock,
    pub(super) kept: Mutex<Kept>,
    pub(super) subscribers: Mutex<Subscribers>,
    pub(super) residence: Residence,
    pub(super) lookout: Lookout,
    pub(super) post: Post,
}

/// What belongs to the one who runs a verb.
#[derive(Debug)]
pub(super) struct Kept {
    /// `None` when it has to be opened anew.
    pub(super) file: Option<File>,
    /// The tickets of this process's claims.
    pub(super) known: ClaimMap<Ticket>,
}

impl Inside {
    /// One verb: one transaction, then the letters it leaves behind.
    pub(super) fn verb<T>(
        &self,
        doing: &str,
        lasting: bool,
        act: impl FnOnce(&mut Ledger<'_>) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        let (answer, news) = self.transaction(doing, lasting, act)?;
        self.deliver(news);
        Ok(answer)
    }

    fn transaction<T>(
        &self,
        doing: &str,
        lasting: bool,
        act: impl FnOnce(&mut Ledger<'_>) -> std::result::Result<T, Failure>,
    ) -> Result<(T, News)> {
        let mut kept = self.kept();
        let Kept { file, known } = &mut *kept;
        if file.as_ref().is_none_or(|file| !file.is_in_place()) {
            // What is kept in a file that was taken away is seen by nobody else. The new one does not know our claims.
            *file = None;
            *file = Some(File::open(&self.path, &self.clock)?);
            known.clear();
        }
        let open = file.as_mut().expect("it was put there just above");
        let failed = |error: &rusqlite::Error| open.explain(doing, error);
        if lasting {
            open.connection.pragma_update(None, "synchronous", "FULL").map_err(|error| failed(&error))?;
        }
        let done = in_transaction(open, self.residence.home, &self.clock, known, act);
        if lasting {
            // Left at FULL it is only slower.
            let _ = open.connection.pragma_update(None, "synchronous", "NORMAL");
        }
        let done = done.map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::File(error) => failed(&error),
        });
        if !open.connection.is_autocommit() {
            // It could not even be rolled back. A new connection knows nothing of it.
            *file = None;
        }
        done
    }

    /// Takes letters to where they belong, and those that follow from them: some of the readers turn out to be dead, and
    /// what that changes is to be said as well.
    pub(super) fn deliver(&self, mut news: News) {
        while !news.is_empty() {
            let (own, others): (News, News) =
                std::mem::take(&mut news).into_iter().partition(|(home, ..)| *home == self.residence.home);
            for (_, client, letter) in own {
                news.extend(self.hear(client, letter));
            }
            for home in self.post.send(&self.residence, &others) {
                let is_dead = matches!(self.residence.street.look_at(home), Life::Dead);
                news.extend(if is_dead { self.bury(home).unwrap_or_default() } else { self.forget_watcher(home) });
            }
            if self.post.is_waiting() {
                self.lookout.ring();
            }
        }
    }

    /// Ends the claims of a process that is dead, and takes away what it left behind. What that leaves to say; `None` if it
    /// could not be done: then somebody else does it, or the lease.
    pub(super) fn bury(&self, home: Home) -> Option<News> {
        let ((), news) = self.transaction("tidying up in", false, |ledger| Ok(ledger.bury(home)?)).ok()?;
        // Only now: by its pipe others see that it is dead.
        self.residence.street.clear(home);
        Some(news)
    }

    /// Nobody reads there any more.
    pub(super) fn forget_watcher(&self, home: Home) -> News {
        let gone = self.transaction("tidying up in", false, |ledger| Ok(ledger.remove_watcher(home, None)?));
        gone.map_or_else(|_| News::new(), |((), news)| news)
    }

    /// Takes one letter in. What follows from it.
    pub(super) fn hear(&self, client: ClientId, letter: Letter) -> News {
        match letter {
            Letter::LookAgain(owner) => {
                self.lookout.waiting(owner).map(|claim| self.look_again(&claim)).unwrap_or_default()
            }
            Letter::Change(change) => {
                if let Change::Held(owner, _) | Change::Gone(owner) = &change {
                    self.lookout.forget(*owner);
                }
                let mut told = Vec::new();
                let mut subscribers = self.subscribers();
                match &change {
                    Change::Resource(name) => subscribers.tell_of_line(name, &mut told),
                    other => subscribers.tell(client, other, &mut told),
                }
                let nobody_watches = matches!(change, Change::Resource(_)) && !subscribers.watch_lines();
                drop(subscribers);
                told.iter().for_each(|mailbox| mailbox.wake());
                if nobody_watches { self.stop_watching() } else { News::new() }
            }
        }
    }

    /// No letters about lines any more, unless somebody has come to watch in the meantime.
    fn stop_watching(&self) -> News {
        let stopped = self.transaction("watching", false, |ledger| {
            if !self.subscribers().watch_lines() {
                ledger.remove_watcher(self.residence.home, None)?;
            }
            Ok(())
        });
        // If that failed, the next letter comes, and is as useless.
        stopped.map_or_else(|_| News::new(), |((), news)| news)
    }

    /// Finds out whose death matters to a claim that waits, and looks out for it. What follows from that.
    fn look_again(&self, claim: &Arc<Claim>) -> News {
        let found = self.transaction("reading", false, |ledger| {
            Ok(match ledger.living(claim)? {
                Some(seat) if !seat.holds() => self.look_out_for(ledger, claim)?,
                _ => {
                    self.lookout.forget(claim.id.hash());
                    Vec::new()
                }
            })
        });
        // If that failed, the lease of who is ahead ends it.
        let (dead, mut news) = found.unwrap_or_default();
        news.extend(self.bury_those_ahead(claim, dead));
        news
    }

    /// Looks out for those whose deaths matter to a claim that waits. Says who of them is dead already.
    ///
    /// Order matters: while nobody else can change the line. Done later, a letter that who is ahead has changed could come
    /// in between, and find nobody who looks.
    pub(super) fn look_out_for(&self, ledger: &mut Ledger<'_>, claim: &Arc<Claim>) -> rusqlite::Result<Vec<Home>> {
        let homes = ledger.deaths_of_those_before(claim)?;
        Ok(self.lookout.wait_for(claim, homes, &self.residence.street))
    }

    /// What follows from the deaths of those that a claim waits for.
    pub(super) fn bury_those_ahead(&self, claim: &Claim, dead: Vec<Home>) -> News {
        let mut news = News::new();
        // Order matters: only who was buried makes us look again. Who could not be would be found, and looked at, for ever.
        for buried in dead.into_iter().filter_map(|home| self.bury(home)) {
            news.extend(buried);
            // Others may be ahead now.
            news.push((self.residence.home, claim.client, Letter::LookAgain(claim.id.hash())));
        }
        news
    }

    /// What the thread does.
    pub(super) fn look_out(&self) {
        let mut pause = SOON;
        while let Some(seen) = self.lookout.next(&self.residence, self.post.is_waiting().then_some(pause)) {
            for heard in seen.heard {
                let news = self.hear(heard.client, heard.letter);
                self.deliver(news);
            }
            for (home, waited) in seen.deaths {
                let mut news = self.bury(home).unwrap_or_default();
                for claim in waited {
                    news.extend(self.look_again(&claim));
                    // It may have died after it handed on and before it said so: whoever waited for it asks.
                    news.push((self.residence.home, claim.client, Letter::Change(Change::Resync)));
                }
                self.deliver(news);
            }
            // Only what was tried in vain makes the next try a later one.
            let was_in_vain = self.post.is_waiting() && !self.post.try_again(&self.residence);
            pause = if was_in_vain { (pause * 2).min(LATER) } else { SOON };
        }
    }

    /// Whether this process has claims in the file, as far as it knows.
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

fn in_transaction<T>(
    file: &File,
    home: Home,
    clock: &Clock,
    known: &mut ClaimMap<Ticket>,
    act: impl FnOnce(&mut Ledger<'_>) -> std::result::Result<T, Failure>,
) -> std::result::Result<(T, News), Failure> {
    let rows = &file.connection;
    rows.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let act = || {
        // Read once, when nobody else can come between: so time never goes back for the rows.
        let now = clock.now();
        let Some(mut ledger) = Ledger::open(rows, file.boot(), now, home, known)? else {
            return Err(Failure::Refused(Error::unavailable(
                "using the file of locks",
                "another machine uses it too, or it is a copy of another machine's; give each machine its own",
            )));
        };
        ledger.settle()?;
        let answer = act(&mut ledger)?;
        ledger.close()?;
        ledger.tell_watchers()?;
        Ok((answer, std::mem::take(&mut ledger.news)))
    };
    let done = act().and_then(|done| {
        rows.prepare_cached("COMMIT")?.execute([])?;
        Ok(done)
    });
    if done.is_err() && !rows.is_autocommit() {
        let _ = rows.execute_batch("ROLLBACK");
    }
    done
}
