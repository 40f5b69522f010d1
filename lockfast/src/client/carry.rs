//! Carries out the engine's effects. The engine, and what belongs to its requests but is not plain data (wakers, callbacks,
//! channels), are behind one mutex. Wakers are woken, events sent and foreign destructors run only after the mutex is free. Wakers
//! are cloned under it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use tokio::sync::oneshot;

use crate::claim::{ClientId, draw_ids};
use crate::clock::Moment;
use crate::engine::{Effect, Effects, Engine, Input, Key, Next, ReleaseId, UntimedEvent};
use crate::error::{LostWhy, Result};
use crate::store::Standing;

use super::Client;
#[cfg(feature = "record")]
use super::recorder::{EndedRecording, Recorder};
use super::wakers::Wakers;

/// Ids are drawn when the engine has fewer than this beyond those that it needs at once.
const MIN_IDS: usize = 16;

pub(crate) type Callback = Box<dyn FnOnce(LostWhy) + Send>;
/// Gives the caller of a release the store's answer.
type ReplySender = oneshot::Sender<Result<Standing>>;
/// Delivers to the caller what the store answers to a release that the keeper repeats.
pub(crate) type ReleaseReply = oneshot::Receiver<Result<Standing>>;

/// Futures and callbacks that wait for the loss of a hold.
#[derive(Default)]
pub(crate) struct Watchers {
    pub(crate) wakers: BTreeMap<u64, Waker>,
    pub(crate) callbacks: Vec<Callback>,
}

/// The engine, with the wakers, callbacks and channels of its requests.
pub(crate) struct Carrier {
    engine: Engine,
    effects: Effects,
    /// Waiting futures, by request.
    wakers: Wakers,
    watchers: HashMap<Key, Watchers>,
    /// Callers that wait for the answer to a release that the keeper repeats.
    callers: BTreeMap<ReleaseId, ReplySender>,
    serial: u64,
    /// To be run on the keeper's thread.
    callbacks: Vec<(Callback, LostWhy)>,
    /// To be sent by the keeper.
    calls: Vec<Effect>,
    /// Work to be done once the mutex is free, if there is any.
    deferred: Option<Box<Deferred>>,
    /// The first waker to be woken then. A hand-off wakes one future, and so needs no allocation.
    woken: Option<Waker>,
    wakes_keeper: bool,
    #[cfg(feature = "record")]
    recorder: Option<Box<Recorder>>,
    /// All handles are dropped: no new request can come, and the keeper ends with the last request.
    pub(crate) is_abandoned: bool,
    /// The keeper has ended: no claim is renewed and no waiter is woken any more.
    pub(crate) is_unattended: bool,
}

/// Work to be done once the mutex is free.
#[derive(Default)]
struct Deferred {
    wakers: Vec<Waker>,
    /// Callers of releases, with their answers. Sending wakes a caller, and so does dropping the sender.
    replies: Vec<(ReplySender, Option<Box<Result<Standing>>>)>,
    events: Vec<UntimedEvent>,
    #[cfg(feature = "record")]
    unrecorded: Option<EndedRecording>,
    /// Foreign values, whose destructors may run arbitrary code.
    to_drop: (Vec<Waker>, Vec<Watchers>),
}

impl Client {
    /// The only way to the engine.
    pub(crate) fn with_carrier<R>(&self, work: impl FnOnce(&mut Carrier, Moment) -> R) -> R {
        let (result, wakes_keeper, woken, deferred) = {
            let mut carrier = self.carrier.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            carrier.engine.set_event_rank(self.events.max_rank());
            let result = work(&mut carrier, now);
            let wakes_keeper = std::mem::take(&mut carrier.wakes_keeper);
            (result, wakes_keeper, carrier.woken.take(), carrier.deferred.take())
        };
        if wakes_keeper {
            self.keeper_wakeup.notify_one();
        }
        if let Some(woken) = woken {
            woken.wake();
        }
        if let Some(deferred) = deferred {
            self.finish(*deferred);
        }
        result
    }

    #[inline(never)]
    fn finish(&self, deferred: Deferred) {
        let Deferred { wakers, replies, events, to_drop, .. } = deferred;
        drop(to_drop);
        // Order matters: a subscriber that panics must not keep a future asleep.
        wakers.into_iter().for_each(Waker::wake);
        for (caller, said) in replies {
            let _ = said.map(|said| caller.send(*said));
        }
        #[cfg(feature = "record")]
        deferred.unrecorded.iter().for_each(EndedRecording::warn);
        events.into_iter().for_each(|event| self.events.tell(event));
    }

    /// Gives the engine one input.
    #[inline]
    pub(crate) fn tell(&self, input: Input) -> Next {
        self.with_carrier(|carrier, now| carrier.tell(input, now))
    }
}

impl Carrier {
    pub(super) fn new(client: ClientId, seed: u64) -> Self {
        Self {
            engine: Engine::new(client, seed),
            effects: Effects::default(),
            wakers: Wakers::default(),
            watchers: HashMap::new(),
            callers: BTreeMap::new(),
            serial: 0,
            callbacks: Vec::new(),
            calls: Vec::new(),
            deferred: None,
            woken: None,
            wakes_keeper: false,
            #[cfg(feature = "record")]
            recorder: None,
            is_abandoned: false,
            is_unattended: false,
        }
    }

    /// Records the engine's inputs from now on.
    #[cfg(feature = "record")]
    pub(super) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
    }

    /// For reads that need no input.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives the engine an input and carries out its effects.
    #[inline(always)]
    pub(crate) fn tell(&mut self, input: Input, now: Moment) -> Next {
        if self.engine.ids_left() < MIN_IDS + self.engine.ids_wanted() {
            self.draw_ids(now);
        }
        let next = self.handle(input, now);
        if let Next::Enter(held) = &next {
            // Order matters: a renewal may be answered before the guard exists, and must find the validity granted.
            held.terms.validity.grant(held.until, held.why);
        }
        self.wakes_keeper |= std::mem::take(&mut self.effects.wakes_keeper);
        if !self.effects.list.is_empty() {
            self.carry_out(now);
        }
        next
    }

    #[cold]
    fn draw_ids(&mut self, now: Moment) {
        while self.engine.ids_left() < MIN_IDS + self.engine.ids_wanted() {
            // Without ids the engine fails the requests that need one.
            let Ok(ids) = draw_ids() else { return };
            self.handle(Input::Ids(ids), now);
        }
    }

    /// The only place that calls the engine, so that a recording has every input.
    #[inline(always)]
    fn handle(&mut self, input: Input, now: Moment) -> Next {
        #[cfg(feature = "record")]
        if self.recorder.is_some() {
            return self.handle_recorded(input, now);
        }
        self.engine.handle(input, now, &mut self.effects)
    }

    #[cfg(feature = "record")]
    #[cold]
    fn handle_recorded(&mut self, input: Input, now: Moment) -> Next {
        let recorder = self.recorder.as_mut().expect("`handle` has just seen it");
        let (next, ended) = recorder.handle(&mut self.engine, input, now, &mut self.effects);
        if ended.is_some() {
            self.recorder = None;
            self.deferred().unrecorded = ended;
        }
        next
    }

    #[inline(never)]
    fn carry_out(&mut self, now: Moment) {
        let mut effects = std::mem::take(&mut self.effects.list);
        for effect in effects.drain(..) {
            match effect {
                Effect::Wake(key) => {
                    if let Some(waker) = self.wakers.take(key) {
                        match &self.woken {
                            Some(_) => self.deferred().wakers.push(waker),
                            None => self.woken = Some(waker),
                        }
                    }
                }
                Effect::Trust { hold, until, why } => {
                    let terms = self.engine.terms(hold).map(Arc::clone);
                    if terms.is_some_and(|terms| !terms.validity.extend(until, why, now)) {
                        // Between the engine's decision and this line, the guard has seen its deadline pass.
                        self.handle(Input::SeenOver(hold), now);
                    }
                }
                Effect::Lost { hold, terms, why } => {
                    terms.validity.end(why);
                    if let Some(watchers) = self.watchers.remove(&hold) {
                        self.deferred().wakers.extend(watchers.wakers.into_values());
                        self.callbacks.extend(watchers.callbacks.into_iter().map(|callback| (callback, why)));
                        self.wakes_keeper = true;
                    }
                }
                Effect::Emit(event) => self.deferred().events.push(*event),
                Effect::Tell(release, said) => {
                    if let Some(caller) = self.callers.remove(&release) {
                        self.deferred().replies.push((caller, said));
                    }
                }
                call @ (Effect::Acquire(..) | Effect::Renew(_) | Effect::Release(_) | Effect::Record(_)) => {
                    self.calls.push(call);
                }
            }
        }
        if self.effects.list.is_empty() {
            // Reuses the allocation.
            self.effects.list = effects;
        } else {
            self.wakes_keeper |= std::mem::take(&mut self.effects.wakes_keeper);
            self.carry_out(now);
        }
    }

    fn deferred(&mut self) -> &mut Deferred {
        self.deferred.get_or_insert_default()
    }

    fn drop_later(&mut self, waker: Option<Waker>) {
        if waker.is_some() {
            self.deferred().to_drop.0.extend(waker);
        }
    }

    /// The calls that the keeper has to send, and the callbacks that it has to run.
    pub(super) fn take_work(&mut self) -> (Vec<Effect>, Vec<(Callback, LostWhy)>) {
        (std::mem::take(&mut self.calls), std::mem::take(&mut self.callbacks))
    }

    /// Registers the waker of a request's future; `false` if the request does not have to wait.
    pub(super) fn register_waker(&mut self, key: Key, waker: &Waker) -> bool {
        let waits = self.engine.is_waiting(key);
        if waits {
            let old = self.wakers.put(key, waker.clone());
            self.drop_later(old);
        }
        waits
    }

    /// Removes the waker of a request's future. A request that has ended already has none, and its slot may belong to another one.
    pub(super) fn forget_waker(&mut self, key: Key) {
        if self.engine.terms(key).is_some() {
            let old = self.wakers.take(key);
            self.drop_later(old);
        }
    }

    /// The answer to a release that the keeper repeats, for its caller.
    pub(super) fn await_release(&mut self, release: ReleaseId) -> ReleaseReply {
        let (sender, receiver) = oneshot::channel();
        self.callers.insert(release, sender);
        receiver
    }

    /// Registers a waker for the loss of a hold; `None` if it is lost already.
    pub(super) fn watch_loss(&mut self, hold: Key, serial: Option<u64>, waker: &Waker) -> Option<u64> {
        if self.engine.has_lost(hold) {
            return None;
        }
        let serial = serial.unwrap_or_else(|| {
            self.serial += 1;
            self.serial
        });
        let old = self.watchers.entry(hold).or_default().wakers.insert(serial, waker.clone());
        self.drop_later(old);
        Some(serial)
    }

    pub(super) fn unwatch_loss(&mut self, hold: Key, serial: u64) {
        let waker = self.watchers.get_mut(&hold).and_then(|watchers| watchers.wakers.remove(&serial));
        self.drop_later(waker);
    }

    /// Runs `callback` on the keeper's thread when the hold is lost. Returns it if it is lost and there is no keeper.
    pub(super) fn add_callback(&mut self, hold: Key, callback: Callback, why: LostWhy) -> Option<Callback> {
        match self.engine.has_lost(hold) {
            false => self.watchers.entry(hold).or_default().callbacks.push(callback),
            true if self.is_unattended => return Some(callback),
            true => self.callbacks.push((callback, why)),
        }
        self.wakes_keeper = true;
        None
    }

    /// Removes the watchers of a guard that has ended.
    pub(super) fn forget_watchers(&mut self, hold: Key) {
        if !self.watchers.is_empty() {
            let watchers = self.watchers.remove(&hold);
            if watchers.is_some() {
                self.deferred().to_drop.1.extend(watchers);
            }
        }
    }

    pub(super) fn wake_keeper(&mut self) {
        self.wakes_keeper = true;
    }
}

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carrier").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::{Ticket, Tickets};
    use crate::engine::{Renewal, Terms};
    use crate::store::Admission;

    fn terms(hands_off: bool) -> Arc<Terms> {
        Arc::new(Terms { hands_off, ..Terms::example() })
    }

    #[test]
    fn a_renewal_answered_before_the_guard_exists_is_no_loss() {
        let (mut carrier, now) = (Carrier::new(ClientId(1), 1), Moment::from_nanos(1_000_000_000_000));
        let Next::Entered(key) = carrier.tell(Input::Enter(terms(false)), now) else { panic!("it is open") };
        let Next::Ask(asked) = carrier.tell(Input::Polled(key), now) else { panic!("it leads") };
        let (claim, tickets) = (Arc::clone(&asked.claim), Tickets::new(Ticket(1), 1));
        carrier.tell(Input::Admitted { asked, answer: Ok(Admission::Held(tickets)) }, now);
        let Next::Enter(held) = carrier.tell(Input::Polled(key), now) else { panic!("it holds") };
        let renewal = Renewal { key, claim, ttl: Duration::from_secs(30), waits: false, is_beside: false };
        carrier.tell(Input::Extended { renewal, sent: now, standing: Standing::Held(tickets) }, now);
        assert!(!held.terms.validity.is_over(now) && !carrier.engine().has_lost(key));
    }

    #[test]
    fn an_ended_request_removes_no_waker_of_its_successor() {
        let (mut carrier, now) = (Carrier::new(ClientId(1), 1), Moment::from_nanos(1_000_000_000_000));
        let enter = |carrier: &mut Carrier| match carrier.tell(Input::Enter(terms(true)), now) {
            Next::Entered(key) => key,
            next => panic!("it is open: {next:?}"),
        };
        let (lead, gone) = (enter(&mut carrier), enter(&mut carrier));
        carrier.tell(Input::Withdrawn(gone), now);
        let later = enter(&mut carrier);
        assert!(later.index() == gone.index() && carrier.register_waker(later, Waker::noop()));
        carrier.forget_waker(gone);
        carrier.tell(Input::Withdrawn(lead), now);
        assert!(carrier.woken.is_some(), "it leads now, and is woken");
    }
}
