//! The verbs of the store, for any thread: one transaction, then the messages that follow.

use std::sync::Arc;

use crate::claim::Claim;
use crate::store::{Admission, Busy, Counters, Lease, Leaving, Page, Query, Standing};

use super::file_wait::Patience;
use super::open_store::OpenStore;
use super::rule::Failure;
use super::runtime_dir::Liveness;
use super::transaction::{Durable, TransactionError, TransactionResult};
use super::view::TransactionView;

impl OpenStore {
    pub(super) fn acquire(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        busy: Busy,
        patience: Patience<'_>,
    ) -> TransactionResult<Admission> {
        let is_dead = |process| matches!(self.endpoint.dir.liveness_of(process), Liveness::Dead);
        let acquired = self.run_verb("acquiring in", Durable::No, patience, |view| {
            let admission = view.acquire(claim, busy, &is_dead)?;
            let dead = match admission {
                Admission::Queued { .. } => self.watch_processes_ahead(view, claim)?,
                _ => Vec::new(),
            };
            Ok((admission, dead))
        });
        if !matches!(acquired, Ok((Admission::Queued { .. }, _)) | Err(TransactionError::Busy)) {
            self.death_watch.forget(claim.id.hash());
        }
        let (admission, dead) = acquired?;
        self.deliver(self.remove_dead_processes_ahead(claim, dead));
        Ok(admission)
    }

    pub(super) fn renew(
        self: &Arc<Self>,
        leases: &[Lease],
        patience: Patience<'_>,
    ) -> TransactionResult<Vec<Standing>> {
        let standings = self.run_verb("renewing in", Durable::No, patience, |view| {
            let mut standings = Vec::with_capacity(leases.len());
            for lease in leases {
                let standing = view.renew(lease)?;
                let dead = match standing {
                    // Independent of lost messages, a renewal watches the right processes from now on.
                    Standing::Waiting { .. } => self.watch_processes_ahead(view, &lease.claim)?,
                    _ => {
                        self.death_watch.forget(lease.claim.id.hash());
                        Vec::new()
                    }
                };
                standings.push((standing, dead));
            }
            Ok(standings)
        })?;
        let standings = standings.into_iter().zip(leases).map(|((standing, dead), lease)| {
            self.deliver(self.remove_dead_processes_ahead(&lease.claim, dead));
            standing
        });
        Ok(standings.collect())
    }

    pub(super) fn release(
        self: &Arc<Self>,
        leaving: &[Leaving],
        durable: Durable,
        patience: Patience<'_>,
    ) -> TransactionResult<Vec<Standing>> {
        let standings = self.run_verb("releasing in", durable, patience, |view| {
            leaving
                .iter()
                .map(|one| view.release(one).map_err(Failure::from))
                .collect::<std::result::Result<Vec<_>, _>>()
        })?;
        for one in leaving {
            if let Some(claim) = one.claim() {
                self.death_watch.forget(claim.id.hash());
            }
        }
        Ok(standings)
    }

    pub(super) fn inspect(self: &Arc<Self>, query: &Query, patience: Patience<'_>) -> TransactionResult<Page> {
        self.run_verb("reading", Durable::No, patience, |view| {
            for process in view.processes_shown(query)? {
                if matches!(self.endpoint.dir.liveness_of(process), Liveness::Dead) {
                    view.remove_dead_process(process)?;
                }
            }
            Ok(view.inspect(query)?)
        })
    }

    /// Only counters are stored. `inspect` reads the queues themselves, so there is no listing to update.
    pub(super) fn record(self: &Arc<Self>, counters: &Counters, patience: Patience<'_>) -> TransactionResult<()> {
        self.run_verb("counting in", Durable::No, patience, |view| Ok(view.add_counters(counters)?))
    }

    pub(super) fn watch(self: &Arc<Self>, prefix: &str, patience: Patience<'_>) -> TransactionResult<()> {
        self.run_verb("watching", Durable::No, patience, |view| Ok(view.add_watcher(prefix)?))
    }

    /// Runs one transaction, and delivers the messages that follow from it.
    fn run_verb<T>(
        self: &Arc<Self>,
        doing: &str,
        durable: Durable,
        patience: Patience<'_>,
        act: impl FnOnce(&mut TransactionView<'_>) -> std::result::Result<T, Failure>,
    ) -> TransactionResult<T> {
        let (reply, messages) = self.transaction(doing, durable, patience, act)?;
        self.deliver(messages);
        Ok(reply)
    }
}
