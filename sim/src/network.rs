//! The network: one connection for the callers of a process, one for its keeper, one for its pushes. Each delivers in order
//! unless a fault holds a message up; between them there is no order.
//!
//! A process awaits a call in flight (`calls.rs`); the store gets a delivery, which may come twice, late or never.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lockfast::engine::{AcquireCall, Release, Renewal};
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Report, Standing};
use lockfast::store::{Claim, Moment, Ticket};

use crate::calls::{Call, CallId};
use crate::clock::Time;
use crate::faults::Kind;
use crate::plan::{Link, Message};
use crate::schedule::Event;
use crate::world::World;

/// How soon a process learns that a connection is closed.
const REFUSED_AFTER: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(crate) enum Request {
    Acquire(Arc<Claim>, Busy),
    Renew(Vec<Lease>),
    Release(Vec<Leaving>),
    Record,
}

/// A request on its way to the store.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) call: CallId,
    pub(crate) client: u32,
    pub(crate) life: u32,
    pub(crate) link: Link,
    /// How often the connection had been cut when it was sent.
    cut: u32,
    pub(crate) request: Rc<Request>,
    pub(crate) sent: Time,
    is_copy: bool,
    is_late: bool,
}

/// The store's answer.
#[derive(Debug)]
pub(crate) enum Reply {
    Admission(Box<lockfast::Result<Admission>>),
    Standings(Vec<Standing>),
    Recorded,
    /// The outcome is unknown.
    Failed,
}

/// Why a process awaits an answer, with the data that it needs to handle the answer.
#[derive(Debug)]
pub(crate) enum CallPurpose {
    Ask { caller: u32, asked: AcquireCall },
    Leave { caller: u32 },
    Extend { caller: u32, renewal: Renewal, sent: Moment },
    Join { asked: AcquireCall, stood: Option<Ticket> },
    Renew { renewals: Vec<Renewal>, sent: Moment },
    Release { releases: Vec<Release>, sent: Moment },
    Record { report: Report },
}

impl CallPurpose {
    /// The caller whose future waits, unless the keeper does.
    pub(crate) fn caller(&self) -> Option<u32> {
        match self {
            Self::Ask { caller, .. } | Self::Leave { caller } | Self::Extend { caller, .. } => Some(*caller),
            _ => None,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) is_up: bool,
    /// How often it was cut.
    pub(crate) cut: u32,
    /// When the last request in order arrives, and the last answer or push.
    out: Time,
    back: Time,
    /// When the request arrives that others may overtake.
    held_up: Time,
    pub(crate) armed: Vec<Message>,
    pub(crate) requests_vanish_until: Time,
    pub(crate) answers_vanish_until: Time,
    random: fastrand::Rng,
}

impl Connection {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            is_up: true,
            cut: 0,
            out: Time(0),
            back: Time(0),
            held_up: Time(0),
            armed: Vec::new(),
            requests_vanish_until: Time(0),
            answers_vanish_until: Time(0),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn delay(&mut self, usual: Duration) -> Duration {
        usual.mul_f64(0.5 + self.random.f64())
    }

    fn take_armed(&mut self, is_meant: impl Fn(&Message) -> bool) -> Option<Message> {
        if self.armed.is_empty() {
            return None;
        }
        let index = self.armed.iter().position(is_meant)?;
        Some(self.armed.remove(index))
    }
}

impl World<'_> {
    /// Sends a request, and awaits its answer for at most `limit` by the process's clock.
    pub(crate) fn send(
        &mut self,
        client: u32,
        link: Link,
        request: Request,
        limit: Duration,
        purpose: CallPurpose,
    ) -> CallId {
        let now = self.now;
        let process = &mut self.clients[client as usize];
        let deadline = process.skew.time_of(process.skew.local(now) + limit);
        let call = self.calls.insert(Call { client, link, deadline, purpose });
        let connection = &mut process.connections[link as usize];
        if !connection.is_up {
            process.note_trouble(now);
            self.bites.note(Kind::Disconnected);
            self.schedule.put(now + REFUSED_AFTER, Event::Answer(call, Reply::Failed));
            return call;
        }
        if now < connection.requests_vanish_until {
            process.note_trouble(now);
            self.bites.note(Kind::BlackHole);
            self.schedule.put(deadline, Event::Limit(call));
            return call;
        }
        let delay = connection.delay(self.plan.delay);
        let mut at = connection.out.max(now + delay);
        if at < connection.held_up {
            connection.held_up = Time(0);
            self.bites.note(Kind::RequestReordered);
        }
        let cut = connection.cut;
        let is_request_fault = |message: &Message| {
            matches!(
                message,
                Message::LoseRequest | Message::Duplicate(_) | Message::Overtaken(_) | Message::LateRequest(_)
            )
        };
        let fault = connection.take_armed(is_request_fault);
        let (mut is_late, mut copy_at) = (false, None);
        match fault {
            Some(Message::LoseRequest) => {
                process.note_trouble(now);
                self.bites.note(Kind::RequestLost);
                self.schedule.put(deadline, Event::Limit(call));
                return call;
            }
            Some(Message::Overtaken(by)) => {
                at = at + by;
                connection.held_up = at;
            }
            Some(Message::LateRequest(by)) => {
                at = at + by;
                is_late = true;
            }
            Some(Message::Duplicate(by)) => {
                connection.out = at;
                copy_at = Some(at + by);
            }
            _ => connection.out = at,
        }
        if fault.is_some() {
            process.note_trouble(copy_at.unwrap_or(at));
        }
        if at > deadline {
            self.schedule.put(deadline, Event::Limit(call));
        }
        let life = process.life;
        let request = Rc::new(request);
        let delivery = |is_copy| {
            let request = Rc::clone(&request);
            Box::new(Delivery { call, client, life, link, cut, request, sent: now, is_copy, is_late })
        };
        if let Some(copy_at) = copy_at {
            self.schedule.put(copy_at, Event::Arrive(delivery(true)));
        }
        self.schedule.put(at, Event::Arrive(delivery(false)));
        call
    }

    /// Whether a request that reaches the store runs there.
    pub(crate) fn does_run(&mut self, delivery: &Delivery) -> bool {
        if !self.store.is_up {
            return false;
        }
        let process = &mut self.clients[delivery.client as usize];
        let connection = &mut process.connections[delivery.link as usize];
        if connection.cut != delivery.cut {
            // It was in some buffer when the connection was closed.
            if connection.random.bool() {
                return false;
            }
            process.note_trouble(self.now);
            self.bites.note(Kind::RequestRanAfterDisconnect);
        }
        if delivery.is_copy {
            self.bites.note(Kind::RequestDuplicated);
        }
        if delivery.is_late {
            self.bites.note(Kind::RequestLate);
        }
        if let Request::Acquire(claim, _) = &*delivery.request
            && self.now.since(delivery.sent) > claim.tombstone()
        {
            self.bites.note(Kind::RequestAfterTombstone);
        }
        true
    }

    /// The store answers.
    pub(crate) fn answer(&mut self, delivery: &Delivery, reply: Reply) {
        let process = &mut self.clients[delivery.client as usize];
        let connection = &mut process.connections[delivery.link as usize];
        if delivery.is_copy || process.life != delivery.life || connection.cut != delivery.cut {
            return;
        }
        let Some(call) = self.calls.get(delivery.call) else { return };
        let deadline = call.deadline;
        if self.now < connection.answers_vanish_until {
            process.note_trouble(self.now);
            self.bites.note(Kind::BlackHole);
            self.schedule.put(deadline, Event::Limit(delivery.call));
            return;
        }
        let delay = connection.delay(self.plan.delay);
        let mut at = connection.back.max(self.now + delay);
        let is_answer_fault = |message: &Message| matches!(message, Message::LoseAnswer | Message::LateAnswer(_));
        match connection.take_armed(is_answer_fault) {
            Some(Message::LoseAnswer) => {
                process.note_trouble(self.now);
                self.bites.note(Kind::AnswerLost);
                self.schedule.put(deadline, Event::Limit(delivery.call));
                return;
            }
            Some(Message::LateAnswer(by)) => {
                at = at + by;
                process.note_trouble(at);
                self.bites.note(Kind::AnswerLate);
            }
            _ => connection.back = at,
        }
        if at > deadline {
            self.schedule.put(deadline, Event::Limit(delivery.call));
        }
        self.schedule.put(at, Event::Answer(delivery.call, reply));
    }

    /// The store pushes.
    pub(crate) fn push(&mut self, client: u32, life: u32, change: Change) {
        let now = self.now;
        let process = &mut self.clients[client as usize];
        if !process.is_alive || process.life != life {
            return;
        }
        let connection = &mut process.connections[Link::Pushes as usize];
        if !connection.is_up {
            self.bites.note(Kind::Disconnected);
            return;
        }
        if now < connection.answers_vanish_until {
            self.bites.note(Kind::BlackHole);
            process.note_trouble(now);
            return;
        }
        let delay = connection.delay(self.plan.delay);
        let mut at = connection.back.max(now + delay);
        let is_push_fault =
            |message: &Message| matches!(message, Message::LosePush | Message::LatePush(_) | Message::DuplicatePush(_));
        match connection.take_armed(is_push_fault) {
            Some(Message::LosePush) => {
                process.note_trouble(now);
                self.bites.note(Kind::PushLost);
                return;
            }
            Some(Message::LatePush(by)) => {
                at = at + by;
                process.note_trouble(at);
                self.bites.note(Kind::PushLate);
            }
            Some(Message::DuplicatePush(by)) => {
                connection.back = at;
                process.note_trouble(at + by);
                self.bites.note(Kind::PushDuplicated);
                self.schedule.put(at + by, Event::Push { client, life, change: change.clone() });
            }
            _ => connection.back = at,
        }
        self.schedule.put(at, Event::Push { client, life, change });
    }

    /// Closes a connection. Requests that were sent on it may or may not run; their answers are lost.
    pub(crate) fn disconnect(&mut self, client: u32, link: Link) {
        let process = &mut self.clients[client as usize];
        process.note_cut(link, self.now);
        let connection = &mut process.connections[link as usize];
        connection.is_up = false;
        connection.cut += 1;
        for call in self.calls.of(client, Some(link)) {
            self.bites.note(Kind::Disconnected);
            self.schedule.put(self.now + REFUSED_AFTER, Event::Answer(call, Reply::Failed));
        }
    }

    /// Opens it again, unless it was closed once more in between.
    pub(crate) fn reconnect(&mut self, client: u32, link: Link, cut: u32) {
        let is_store_up = self.store.is_up;
        let process = &mut self.clients[client as usize];
        let connection = &mut process.connections[link as usize];
        if connection.cut != cut || connection.is_up || !is_store_up {
            return;
        }
        connection.is_up = true;
        process.note_cut(link, self.now);
        if link == Link::Pushes && process.is_alive {
            let (life, at) = (process.life, self.now + self.plan.delay);
            process.note_cut(link, at);
            self.schedule.put(at, Event::Push { client, life, change: Change::Resync });
        }
    }
}
