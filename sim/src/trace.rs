//! The last steps of a world, one short line each.

use std::collections::VecDeque;
use std::fmt::Write;

use lockfast::Result;
use lockfast::engine::{AcquireCall, Effect, Input, Next, Release, Renewal};
use lockfast::store::{Admission, Leaving, Standing};
use lockfast::store::{Claim, ClaimHash};

use crate::caller::claim_of;
use crate::clock::Time;
use crate::network::{Delivery, Reply, Request};
use crate::plan::Fault;

/// How many lines are kept.
const MAX_LINES: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    is_on: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn on() -> Self {
        Self { is_on: true, lines: VecDeque::new() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }

    fn line(&mut self, line: String) {
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn input(&mut self, now: Time, client: u32, input: &Input) {
        self.line(format!("{now:?}  client {client}  <- {}", of_input(input)));
    }

    pub(crate) fn outcome(&mut self, now: Time, client: u32, next: &Next, effects: &[Effect]) {
        if !matches!(next, Next::Nothing) {
            self.line(format!("{now:?}  client {client}     -> {}", of_next(next)));
        }
        for effect in effects {
            self.line(format!("{now:?}  client {client}        {}", of_effect(effect)));
        }
    }

    pub(crate) fn verb(&mut self, now: Time, delivery: &Delivery) {
        let request = match &*delivery.request {
            Request::Acquire(claim, busy) => format!("acquire {} {busy:?}", of_claim(claim)),
            Request::Renew(leases) => {
                leases.iter().fold("renew".to_owned(), |text, it| text + " " + &of_claim(&it.claim))
            }
            Request::Release(batch) => batch.iter().fold("release".to_owned(), |text, it| text + " " + &of_leaving(it)),
            Request::Record => return,
        };
        let Delivery { client, link, sent, .. } = delivery;
        self.line(format!("{now:?}  store: {request} from client index {client} {link:?}, sent {sent:?}"));
    }

    pub(crate) fn reply(&mut self, now: Time, reply: &Reply) {
        let reply = match reply {
            Reply::Admission(answer) => of_admission(answer),
            Reply::Standings(standings) => of_standings(standings),
            Reply::Recorded => return,
            Reply::Failed => "no answer".to_owned(),
        };
        self.line(format!("{now:?}  store: -> {reply}"));
    }

    pub(crate) fn fault(&mut self, now: Time, fault: &Fault) {
        self.line(format!("{now:?}  fault: {fault:?}"));
    }
}

fn of_hash(owner: ClaimHash) -> String {
    format!("#{:02x}{:02x}", owner.0[0], owner.0[1])
}

fn of_claim(claim: &Claim) -> String {
    let mut text = of_hash(claim.id.hash());
    for demand in claim.demands.iter() {
        let _ = write!(text, "/{}", demand.name);
    }
    text
}

fn of_acquire(asked: &AcquireCall) -> String {
    let unsure = if asked.unsure { ", unsure" } else { "" };
    format!("{:?} {} sent {:?}{unsure}", asked.key, of_claim(&asked.claim), asked.sent)
}

fn of_renewal(renewal: &Renewal) -> String {
    let Renewal { key, claim, ttl, waits, is_beside } = renewal;
    format!("{key:?} {} for {ttl:?} waits:{waits} beside:{is_beside}", of_claim(claim))
}

fn of_leaving(leaving: &Leaving) -> String {
    let claim = claim_of(leaving).map(|claim| of_claim(claim)).unwrap_or_default();
    match leaving {
        Leaving::Done(_) => format!("Done {claim}"),
        Leaving::Unknown(_) => format!("Unknown {claim}"),
        Leaving::Linger(_, span) => format!("Linger {claim} {span:?}"),
        Leaving::Seal { keep, .. } => format!("Seal {claim} {keep:?}"),
        Leaving::UnlessAlone { block, floor, .. } => format!("UnlessAlone {claim} block {block} floor {floor}"),
        other => format!("{other:?}"),
    }
}

fn of_release(release: &Release) -> String {
    let Release { leaving, hold, tries, caller, alone, .. } = release;
    format!("{} hold {hold:?} tries {tries} caller {caller:?} alone {alone}", of_leaving(leaving))
}

fn of_standings(standings: &[Standing]) -> String {
    standings.iter().map(|standing| format!("{standing:?}")).collect::<Vec<_>>().join(", ")
}

fn of_admission(answer: &Result<Admission>) -> String {
    match answer {
        Ok(admission) => format!("{admission:?}"),
        Err(error) => format!("{error}"),
    }
}

fn of_answer(answer: &Result<Vec<Standing>>) -> String {
    answer.as_ref().map_or_else(ToString::to_string, |standings| of_standings(standings))
}

fn of_input(input: &Input) -> String {
    match input {
        Input::Enter(terms) => format!("Enter {:?}", terms.demands.iter().map(|it| &it.name).collect::<Vec<_>>()),
        Input::Admitted { asked, answer } => format!("Admitted {}: {}", of_acquire(asked), of_admission(answer)),
        Input::Pausing { asked, until } => format!("Pausing {} until {until:?}", of_acquire(asked)),
        Input::Repeating(asked) => format!("Repeating {}", of_acquire(asked)),
        Input::Sent { leaving, hold, .. } => format!("Sent {} hold {hold:?}", of_leaving(leaving)),
        Input::Unanswered { leaving, hold, waits } => {
            format!("Unanswered {} hold {hold:?} waits {waits}", of_leaving(leaving))
        }
        Input::Left { hold, claim, standing, .. } => format!("Left {hold:?} {}: {standing:?}", of_claim(claim)),
        Input::Extended { renewal, standing, .. } => format!("Extended {}: {standing:?}", of_renewal(renewal)),
        Input::Joined { asked, stood, answer } => {
            format!("Joined {} stood {stood:?}: {}", of_acquire(asked), of_admission(answer))
        }
        Input::Renewed { renewals, sent, answer } => {
            let renewals: Vec<_> = renewals.iter().map(of_renewal).collect();
            format!("Renewed sent {sent:?} [{}]: {}", renewals.join("; "), of_answer(answer))
        }
        Input::Released { releases, answer, .. } => {
            let releases: Vec<_> = releases.iter().map(of_release).collect();
            format!("Released [{}]: {}", releases.join("; "), of_answer(answer))
        }
        Input::Reported { is_ok, .. } => format!("Reported {is_ok}"),
        Input::Missed(leaving) => format!("Missed {}", of_leaving(leaving)),
        Input::Pushed(change) => format!("Pushed {change:?}"),
        other => format!("{other:?}"),
    }
}

fn of_next(next: &Next) -> String {
    match next {
        Next::Ask(asked) => format!("Ask {}", of_acquire(asked)),
        Next::Enter(held) => format!("Enter {:?} fence {} until {:?}", held.hold, held.fence, held.until),
        Next::Send { leaving, keeps, lost } => format!("Send {} keeps {keeps} lost {lost:?}", of_leaving(leaving)),
        other => format!("{other:?}"),
    }
}

fn of_effect(effect: &Effect) -> String {
    match effect {
        Effect::Lost { hold, why, .. } => format!("Lost {hold:?}: {why:?}"),
        Effect::Acquire(asked, stood) => format!("Acquire {} stood {stood:?}", of_acquire(asked)),
        Effect::Renew(renewal) => format!("Renew {}", of_renewal(renewal)),
        Effect::Release(release) => format!("Release {}", of_release(release)),
        Effect::Record(_) => "Record".to_owned(),
        other => format!("{other:?}"),
    }
}
