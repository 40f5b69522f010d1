//! Local hand-off: requests of one process with the same terms hand a hold to each other without a round trip, each with the
//! next ticket of the claim's block.
//!
//! 1. Tickets come from blocks that were reserved when the claim joined, or when no other claim waited. So a local hand-off
//!    never overtakes a ticket that a waiter elsewhere was given before.
//! 2. A run of hand-offs ends after [`MAX_HANDOFFS`] of them or [`MAX_RUN`], whichever is first, with one question to the store: if
//!    another claim waits there, the lock goes to it; if not, the run goes on with fresh tickets. So a waiter elsewhere waits
//!    for one run at most.
//! 3. A hand-off needs half a lease of validity: the next holder gets time to use the lock.
//! 4. The request in `LocalQueue::lead` is the only one of its queue that the store may know of.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;

use crate::claim::{Claim, Demand, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::Error;
use crate::planted::Rule;
use crate::store::{Leaving, Standing, Why};

use super::action::On;
use super::effect::{Effects, Next};
use super::phase::Phase;
use super::request::grace;
use super::requests::Key;
use super::terms::{Span, Terms};
use super::{Engine, UNAVAILABLE_AFTER};

/// How many hand-offs one run has at most. With [`MAX_RUN`], it bounds how long a waiter elsewhere is overtaken.
pub(super) const MAX_HANDOFFS: u32 = 64;
/// How long a run may take before it ends at the next hand-off.
pub(super) const MAX_RUN: Duration = Duration::from_millis(10);

/// Requests with equal terms may hand a hold to each other.
#[derive(Clone, Debug)]
struct EqualTerms(Arc<Terms>);

impl EqualTerms {
    /// The terms that are compared.
    fn compared(&self) -> (&Demand, Span, Option<Span>) {
        (&self.0.demands[0], self.0.ttl, self.0.renew_every)
    }
}

impl PartialEq for EqualTerms {
    fn eq(&self, other: &Self) -> bool {
        self.compared() == other.compared()
    }
}

impl Eq for EqualTerms {}

impl Hash for EqualTerms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.compared().hash(state);
    }
}

/// The local queues of one client, one for each set of equal terms.
#[derive(Debug, Default)]
pub(super) struct LocalQueues {
    by_terms: HashMap<EqualTerms, LocalQueueId, RandomState>,
    /// By the number of the queue; free ones included.
    all: Vec<LocalQueue>,
    /// The numbers of queues that have ended, for new ones.
    free: Vec<LocalQueueId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalQueueId(u32);

#[derive(Debug)]
struct LocalQueue {
    /// The request that asks the store, or holds, for the whole queue.
    lead: Key,
    /// `None` until a request waits behind the leader: most locks are held without a local waiter.
    waiters: Option<Box<Waiters>>,
}

#[derive(Debug, Default)]
struct Waiters {
    /// May name requests that have left; they are skipped.
    requests: VecDeque<Key>,
    /// How many of them have not left.
    live: u32,
    /// When the present run began.
    run_began: Moment,
    /// How many hand-offs the present run has had.
    handoffs: u32,
    /// The ticket of the next hand-off.
    next_ticket: Ticket,
    /// How many tickets of the block are left.
    tickets_left: u32,
}

impl LocalQueues {
    fn start(&mut self, terms: EqualTerms, lead: Key) -> LocalQueueId {
        let queue = LocalQueue { lead, waiters: None };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id.0 as usize] = queue;
                id
            }
            None => {
                self.all.push(queue);
                LocalQueueId(u32::try_from(self.all.len() - 1).expect("four billion locks do not fit into memory"))
            }
        };
        self.by_terms.insert(terms, id);
        id
    }

    fn end(&mut self, terms: &EqualTerms) {
        if let Some(id) = self.by_terms.remove(terms) {
            self.all[id.0 as usize].waiters = None;
            self.free.push(id);
        }
    }

    fn get(&mut self, id: LocalQueueId) -> &mut LocalQueue {
        &mut self.all[id.0 as usize]
    }
}

impl LocalQueue {
    fn live(&self) -> u32 {
        self.waiters.as_ref().map_or(0, |waiters| waiters.live)
    }

    fn push(&mut self, key: Key) {
        let waiters = self.waiters.get_or_insert_default();
        waiters.requests.push_back(key);
        waiters.live += 1;
    }
}

impl Waiters {
    /// Begins a run with the `count` tickets from `first` on.
    fn begin_run(&mut self, first: Ticket, count: u32, now: Moment) {
        (self.next_ticket, self.tickets_left, self.run_began, self.handoffs) = (first, count, now, 0);
    }

    fn may_hand_off(&self, now: Moment) -> bool {
        let has_tickets = self.tickets_left > 0 || Rule::TicketsAreReserved.is_left_out();
        let goes_on = self.handoffs < MAX_HANDOFFS && now.since(self.run_began) < MAX_RUN;
        has_tickets && (goes_on || Rule::RunsEnd.is_left_out())
    }

    /// Draws the ticket of a hand-off.
    fn draw(&mut self) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket = Ticket(ticket.0 + 1);
        self.tickets_left = self.tickets_left.saturating_sub(1);
        self.handoffs += 1;
        ticket
    }
}

impl Engine {
    /// Puts a request behind others with the same terms, if there are any.
    pub(super) fn join_local_queue(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key).filter(|request| request.terms.hands_off) else { return };
        let terms = EqualTerms(Arc::clone(&request.terms));
        match self.local_queues.by_terms.get(&terms).copied() {
            Some(id) => {
                request.local_queue = Some(id);
                self.local_queues.get(id).push(key);
                self.on(key, On::Follows, now, fx);
            }
            None => request.local_queue = Some(self.local_queues.start(terms, key)),
        }
    }

    /// The local queue that this request leads.
    fn led_queue(&mut self, key: Key) -> Option<(LocalQueueId, &mut LocalQueue)> {
        let id = self.requests.get(key)?.local_queue?;
        let queue = self.local_queues.all.get_mut(id.0 as usize).filter(|queue| queue.lead == key)?;
        Some((id, queue))
    }

    /// How many tickets a claim reserves when it joins: one for itself, and one for each local waiter behind it.
    pub(super) fn block_for(&mut self, key: Key) -> u32 {
        self.led_queue(key).map_or(1, |(_, queue)| (queue.live() + 1).min(MAX_HANDOFFS))
    }

    /// The leader holds: a run begins.
    pub(super) fn begin_run(&mut self, key: Key, tickets: Tickets, now: Moment) {
        if let Some((_, LocalQueue { waiters: Some(waiters), .. })) = self.led_queue(key) {
            waiters.begin_run(Ticket(tickets.first.0 + 1), tickets.count.saturating_sub(1), now);
        }
    }

    /// Takes the next request out of a local queue.
    fn next_behind(&mut self, id: LocalQueueId) -> Option<Key> {
        let waiters = self.local_queues.get(id).waiters.as_mut()?;
        while let Some(key) = waiters.requests.pop_front() {
            if self.requests.get(key).is_some_and(|request| matches!(*request.phase, Phase::Behind)) {
                waiters.live -= 1;
                return Some(key);
            }
        }
        None
    }

    /// A request behind the leader has left.
    pub(super) fn leave_local_queue(&mut self, queue: Option<LocalQueueId>) {
        let Some(waiters) = queue.and_then(|id| self.local_queues.get(id).waiters.as_mut()) else { return };
        waiters.live -= 1;
        // Requests that left are skipped when they are next; many of them are swept out before that.
        if waiters.requests.len() > 2 * waiters.live as usize + 16 {
            let is_behind = |key: &Key| self.requests.get(*key).is_some_and(|it| matches!(*it.phase, Phase::Behind));
            waiters.requests.retain(is_behind);
        }
    }

    /// The leader has found the store silent for so long that it fails; so do the requests behind it that have waited as long.
    pub(super) fn fail_behind(&mut self, key: Key, error: &Error, now: Moment, fx: &mut Effects) {
        let Some((_, LocalQueue { waiters: Some(waiters), .. })) = self.led_queue(key) else { return };
        let requests = std::mem::take(&mut waiters.requests);
        let mut stay = VecDeque::new();
        for behind in requests {
            let Some(request) = self.requests.get(behind).filter(|it| matches!(*it.phase, Phase::Behind)) else {
                continue;
            };
            if request.since + UNAVAILABLE_AFTER <= now {
                self.on(behind, On::Fails(Box::new(error.clone())), now, fx);
            } else {
                stay.push_back(behind);
            }
        }
        if let Some((_, LocalQueue { waiters: Some(waiters), .. })) = self.led_queue(key) {
            waiters.live = stay.len() as u32;
            waiters.requests = stay;
        }
    }

    /// The leader of a local queue does not lead any more: the next request asks the store itself.
    pub(super) fn hand_lead_on(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some((id, _)) = self.led_queue(key) else { return };
        let request = self.requests.get_mut(key).expect("it leads a local queue");
        // It may stay for a long time, and the number of the queue may belong to another one by then.
        request.local_queue = None;
        let terms = EqualTerms(Arc::clone(&request.terms));
        match self.next_behind(id) {
            Some(next) => {
                self.local_queues.get(id).lead = next;
                self.on(next, On::Leads, now, fx);
            }
            None => self.local_queues.end(&terms),
        }
    }

    /// The hold that was handed to this request is lost: it leads, and asks for itself.
    pub(super) fn take_lead(&mut self, key: Key, hold: Key, now: Moment, fx: &mut Effects) -> Next {
        if let Some((_, queue)) = self.led_queue(hold) {
            queue.lead = key;
        }
        self.end_hold(hold, now, fx);
        self.on_poll(key, now, fx)
    }

    /// The request takes over the hold that was handed to it.
    pub(super) fn take_over(&mut self, key: Key, hold: Key, ticket: Ticket, now: Moment, fx: &mut Effects) -> Next {
        let request = self.remove(key).expect("the table found it just now");
        let held = self.requests.get_mut(hold).expect("`polled` found it just now");
        held.terms = request.terms;
        held.since = request.since;
        self.on(hold, On::Taken, now, fx);
        self.enter_hold(hold, ticket, now, fx)
    }

    /// A holder is done, and its caller does not wait for the answer: if a release is needed, the keeper sends it.
    pub(super) fn end_hold(&mut self, hold: Key, now: Moment, fx: &mut Effects) {
        if let Some((leaving, keeps)) = self.hand_off_or_leave(hold, now, fx) {
            self.add_keeper_release(leaving, keeps.then_some(hold), None, now, fx);
        }
    }

    /// Ends a hold: hands it to the next local request, or returns the release to send, and whether the hold depends on its
    /// answer ([`Engine::on_unless_alone_answer`]).
    pub(super) fn hand_off_or_leave(&mut self, hold: Key, now: Moment, fx: &mut Effects) -> Option<(Leaving, bool)> {
        let request = self.requests.get(hold)?;
        let claim = Arc::clone(request.claim.as_ref().expect("a hold has a claim"));
        let is_over = request.is_over(now);
        let last_word = request.last_word(Arc::clone(&claim), now);
        // By 3.
        let has_half_a_lease = request.lease_until.since(now) >= request.terms.ttl() / 2;
        self.count_guard_end(hold, is_over, now, fx);
        if !is_over && let Some((id, LocalQueue { waiters: Some(waiters), .. })) = self.led_queue(hold) {
            let (may_hand_off, block) = (waiters.may_hand_off(now) && has_half_a_lease, waiters.live.min(MAX_HANDOFFS));
            if may_hand_off && let Some(next) = self.next_behind(id) {
                self.hand_off(hold, next, id, now, fx);
                return None;
            }
            if block > 0 {
                self.on(hold, On::AsksIfAlone, now, fx);
                // If the future that sends this is never polled again, the others go on without the answer.
                self.requests.schedule(hold, now + UNAVAILABLE_AFTER + grace(claim.ttl));
                self.look_at_next(fx);
                return Some((Leaving::UnlessAlone { claim, block, floor: self.largest_ticket }, true));
            }
        }
        self.hand_lead_on(hold, now, fx);
        self.remove(hold);
        Some((last_word, false))
    }

    fn hand_off(&mut self, hold: Key, next: Key, id: LocalQueueId, now: Moment, fx: &mut Effects) {
        let ticket = self.local_queues.get(id).waiters.as_mut().expect("a request was behind").draw();
        self.note_ticket(ticket);
        self.on(hold, On::HandsOff, now, fx);
        self.on(next, On::Handed { hold, ticket }, now, fx);
    }

    /// The store's answer to an [`UnlessAlone`](Leaving::UnlessAlone). `Some`: one more release to send.
    pub(super) fn on_unless_alone_answer(
        &mut self,
        hold: Key,
        claim: &Arc<Claim>,
        sent: Moment,
        standing: Option<Standing>,
        now: Moment,
        fx: &mut Effects,
    ) -> Option<Leaving> {
        let tickets = match standing {
            Some(Standing::Held(tickets)) => tickets,
            // A copy whose answer was lost may have run before the claim was broken: then its entry is there until it leaves.
            Some(Standing::Gone(Why::Broken)) => return self.leave_after_all(hold, claim, now, fx),
            Some(Standing::Gone(_) | Standing::Waiting { .. }) => {
                self.hand_lead_on(hold, now, fx);
                // It has left. If one of its acquires may still run, its id has to be kept out all the same.
                let unsure = self.remove(hold).is_some_and(|request| request.unsure);
                return unsure.then(|| Leaving::Unknown(Arc::clone(claim)));
            }
            // It may still hold; local waiters do not wait to find out.
            None => return self.leave_after_all(hold, claim, now, fx),
        };
        self.note_ticket(tickets.last());
        let Some(request) = self.requests.get_mut(hold) else { return Some(Leaving::Done(Arc::clone(claim))) };
        let was_over = request.is_over(now);
        request.note_lease(sent, claim.ttl);
        // By 3, also when the store answered late.
        let goes_on = !was_over && request.lease_until.since(now) >= claim.ttl / 2;
        if goes_on && let Some((id, LocalQueue { waiters: Some(waiters), .. })) = self.led_queue(hold) {
            waiters.begin_run(tickets.first, tickets.count, now);
            if let Some(next) = self.next_behind(id) {
                self.hand_off(hold, next, id, now, fx);
                self.schedule_held(hold, fx);
                return None;
            }
        }
        // All local waiters have left meanwhile, or the answer came too late to be worth handing off.
        self.leave_after_all(hold, claim, now, fx)
    }

    fn leave_after_all(&mut self, hold: Key, claim: &Arc<Claim>, now: Moment, fx: &mut Effects) -> Option<Leaving> {
        self.hand_lead_on(hold, now, fx);
        let claim = Arc::clone(claim);
        Some(self.remove(hold).map_or(Leaving::Done(Arc::clone(&claim)), |request| request.leaving(claim)))
    }

    /// The caller that sent the release of this hold has waited too long for the answer.
    pub(super) fn go_on_without_answer(&mut self, hold: Key, now: Moment, fx: &mut Effects) {
        let Some(claim) = self.requests.get(hold).and_then(|request| request.claim.clone()) else { return };
        if let Some(last) = self.on_unless_alone_answer(hold, &claim, now, None, now, fx) {
            self.release_by_keeper(last, now, fx);
        }
    }
}
