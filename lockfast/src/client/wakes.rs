//! What pushes mean. A push that a claim holds is believed when claim and ticket match; everything else is a hint to ask.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::claim::{ClaimHash, Mode, Ticket};
use crate::clock::Moment;
use crate::error::Result;
use crate::store::{Change, Leaving, Standing, Why};

use super::Client;
use super::book::{Book, Outbox};
use super::slot::{Phase, Slot};
use super::slots::Key;

impl Client {
    /// Tells the store who leaves. Its answer may be a push at the same time: to whom of this client it has handed on.
    pub(crate) fn release<'a>(&'a self, leaving: &'a [Leaving]) -> Releasing<'a> {
        Releasing { call: self.store.release(leaving), leaving, client: self, heard: false }
    }
}

/// What the store says to those who leave. Should its answer never come, those who want the same have to ask: it may have named
/// one of them.
pub(crate) struct Releasing<'a> {
    call: BoxFuture<'a, Result<Vec<Standing>>>,
    leaving: &'a [Leaving],
    client: &'a Client,
    heard: bool,
}

impl Future for Releasing<'_> {
    type Output = Result<Vec<Standing>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut standings = ready!(self.call.as_mut().poll(cx))?;
        self.heard = true;
        for standing in &mut standings {
            if let Standing::Gone(Why::PassedOn(owner, ticket)) = *standing {
                self.client.with_book(|book, now, out| book.push(&Change::Held(owner, ticket), now, out));
                *standing = Standing::Gone(Why::Left);
            }
        }
        Poll::Ready(Ok(standings))
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.heard
            && let [leaving] = self.leaving
        {
            self.client.with_book(|book, _, out| {
                book.may_have_missed(leaving);
                out.ring |= !book.missed.is_empty();
            });
        }
    }
}

impl Book {
    pub(crate) fn push(&mut self, change: &Change, now: Moment, out: &mut Outbox) {
        match change {
            Change::Held(owner, ticket) => self.pushed_held(*owner, *ticket, now, out),
            Change::Gone(owner) => {
                if let Some(key) = self.by_hash.get(owner).copied() {
                    self.doubt(key, out);
                }
            }
            Change::Recheck(owner, span) => {
                if let Some(key) = self.by_hash.get(owner).copied() {
                    self.recheck(key, now + *span, out);
                }
            }
            Change::Resync => self.resync(out),
            Change::Resource(_) => {}
        }
    }

    fn pushed_held(&mut self, owner: ClaimHash, ticket: Ticket, now: Moment, out: &mut Outbox) {
        let Some(key) = self.by_hash.get(&owner).copied() else {
            if let Some((_, claim)) = self.withdrawn.get(&owner).cloned() {
                // It was in line after all, and got the lock that nobody here wants any more.
                self.depart(Leaving::Unknown(claim), now, out);
            }
            return;
        };
        let Some(slot) = self.slots.get_mut(key) else { return };
        match slot.phase {
            Phase::Waiting { .. } => self.hand(key, ticket, now, out),
            // The push has overtaken the answer to the acquire; that one decides which ticket is ours.
            Phase::Asking { .. } | Phase::Outside { .. } => slot.wait().early = ticket,
            _ => {}
        }
    }

    /// A lease ahead of a waiting claim ends at `at`, earlier than its last answer said.
    fn recheck(&mut self, key: Key, at: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get(key) else { return };
        if matches!(slot.phase, Phase::Waiting { .. }) && !slot.in_flight {
            // What is due before that stays due: a renewal that failed is tried again, one that settles a grant is sent.
            if self.slots.due_at(key).is_none_or(|due| at < due) {
                self.schedule_waiting(key, at, out);
            }
        } else {
            // The answer on its way may be from before that lease became shorter: ask once more after it.
            self.doubt(key, out);
        }
    }

    /// Asks about a claim soon.
    pub(crate) fn doubt(&mut self, key: Key, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.claim.is_some() && !slot.lost {
            slot.doubted = true;
            if !slot.in_flight && matches!(slot.phase, Phase::Held | Phase::Between | Phase::Waiting { .. }) {
                self.slots.schedule_now(key);
                self.note_next(out);
            }
        }
    }

    /// The answer to this may have said who of this client holds now, and was not heard.
    pub(crate) fn may_have_missed(&mut self, leaving: &Leaving) {
        if let Leaving::Done(claim) = leaving
            && let [only] = &*claim.demands
            && only.mode() == Mode::Exclusive
        {
            self.missed.push(only.name.clone());
        }
    }

    /// Those who want what such an answer was about ask, also if they are just asking: it may be behind what they hear.
    pub(crate) fn ask_for_missed(&mut self, out: &mut Outbox) {
        let missed = std::mem::take(&mut self.missed);
        if !missed.is_empty() {
            self.doubt_all(|slot| matches!(&*slot.request.demands, [only] if missed.contains(&only.name)), out);
        }
    }

    /// Something may have been missed: everybody who waits asks, with a renewal, which never joins.
    pub(crate) fn resync(&mut self, out: &mut Outbox) {
        self.doubt_all(|_| true, out);
    }

    fn doubt_all(&mut self, is_meant: impl Fn(&Slot) -> bool, out: &mut Outbox) {
        let waits =
            |slot: &Slot| matches!(slot.phase, Phase::Waiting { .. } | Phase::Asking { .. } | Phase::Outside { .. });
        let meant = self.slots.keys().filter(|(_, slot)| waits(slot) && is_meant(slot));
        let keys: Vec<_> = meant.map(|(key, _)| key).collect();
        for key in keys {
            self.doubt(key, out);
        }
    }
}
