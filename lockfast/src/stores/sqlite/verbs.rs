//! The verbs of the store, for any thread: one transaction, then the messages that follow.

use std::sync::Arc;

use crate::claim::Claim;
use crate::store::{Admission, Busy, Counters, Lease, Leaving, Page, Query, Standing};

use super::home::Life;
use super::inside::Inside;
use super::ledger::Ledger;
use super::rule::Failure;
use super::transaction::{Done, Lasting, Undone};
use super::waiting::Patience;

impl Inside {
    pub(super) fn acquire(self: &Arc<Self>, claim: &Arc<Claim>, busy: Busy, patience: Patience<'_>) -> Done<Admission> {
        let is_dead = |home| matches!(self.residence.street.look_at(home), Life::Dead);
        let asked = self.verb("acquiring in", Lasting::No, patience, |ledger| {
            let admission = ledger.acquire(claim, busy, &is_dead)?;
            let dead = match admission {
                Admission::Queued { .. } => self.look_out_for(ledger, claim)?,
                _ => Vec::new(),
            };
            Ok((admission, dead))
        });
        if !matches!(asked, Ok((Admission::Queued { .. }, _)) | Err(Undone::Busy)) {
            self.lookout.forget(claim.id.hash());
        }
        let (admission, dead) = asked?;
        self.deliver(self.bury_those_ahead(claim, dead));
        Ok(admission)
    }

    pub(super) fn renew(self: &Arc<Self>, leases: &[Lease], patience: Patience<'_>) -> Done<Vec<Standing>> {
        let standings = self.verb("renewing in", Lasting::No, patience, |ledger| {
            let mut standings = Vec::with_capacity(leases.len());
            for lease in leases {
                let standing = ledger.renew(lease)?;
                let dead = match standing {
                    // Independent of lost messages, a renewal watches the right processes from now on.
                    Standing::Waiting { .. } => self.look_out_for(ledger, &lease.claim)?,
                    _ => {
                        self.lookout.forget(lease.claim.id.hash());
                        Vec::new()
                    }
                };
                standings.push((standing, dead));
            }
            Ok(standings)
        })?;
        let looked_after = standings.into_iter().zip(leases).map(|((standing, dead), lease)| {
            self.deliver(self.bury_those_ahead(&lease.claim, dead));
            standing
        });
        Ok(looked_after.collect())
    }

    pub(super) fn release(
        self: &Arc<Self>,
        leaving: &[Leaving],
        lasting: Lasting,
        patience: Patience<'_>,
    ) -> Done<Vec<Standing>> {
        let standings = self.verb("releasing in", lasting, patience, |ledger| {
            leaving
                .iter()
                .map(|one| ledger.release(one).map_err(Failure::from))
                .collect::<std::result::Result<Vec<_>, _>>()
        })?;
        for one in leaving {
            if let Some(claim) = one.claim() {
                self.lookout.forget(claim.id.hash());
            }
        }
        Ok(standings)
    }

    pub(super) fn inspect(self: &Arc<Self>, query: &Query, patience: Patience<'_>) -> Done<Page> {
        self.verb("reading", Lasting::No, patience, |ledger| {
            for home in ledger.homes_shown(query)? {
                if matches!(self.residence.street.look_at(home), Life::Dead) {
                    ledger.bury(home)?;
                }
            }
            Ok(ledger.inspect(query)?)
        })
    }

    /// Only counters are stored. `inspect` reads the queues themselves, so there is no listing to update.
    pub(super) fn record(self: &Arc<Self>, counters: &Counters, patience: Patience<'_>) -> Done<()> {
        self.verb("counting in", Lasting::No, patience, |ledger| Ok(ledger.count(counters)?))
    }

    pub(super) fn watch(self: &Arc<Self>, beginning: &str, patience: Patience<'_>) -> Done<()> {
        self.verb("watching", Lasting::No, patience, |ledger| Ok(ledger.add_watcher(beginning)?))
    }

    fn verb<T>(
        self: &Arc<Self>,
        doing: &str,
        lasting: Lasting,
        patience: Patience<'_>,
        act: impl FnOnce(&mut Ledger<'_>) -> std::result::Result<T, Failure>,
    ) -> Done<T> {
        let (answer, news) = self.transaction(doing, lasting, patience, act)?;
        self.deliver(news);
        Ok(answer)
    }
}
