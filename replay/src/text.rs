//! Inputs, phases and effects in a line each, for people. Moments are counted from the beginning of the recording.

use std::time::Duration;

use lockfast::engine::{AcquireCall, Effect, Ending, GuardParts, Input, Next, Phase, Release, Renewal, Terms};
use lockfast::store::{Admission, Change, Leaving, Report, Standing};
use lockfast::store::{Claim, ClaimHash, Demands, Moment, Tickets};
use lockfast::{Error, Result};

/// How moments are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    start: Moment,
}

impl Text {
    pub(crate) fn starting_at(start: Moment) -> Self {
        Self { start }
    }

    pub(crate) fn moment(&self, moment: Moment) -> String {
        match moment {
            Moment::NEVER => "never".to_owned(),
            Moment::START => "at once".to_owned(),
            _ if moment < self.start => format!("-{:.6}s", self.start.since(moment).as_secs_f64()),
            _ => format!("+{:.6}s", moment.since(self.start).as_secs_f64()),
        }
    }

    pub(crate) fn input(&self, input: &Input) -> String {
        match input {
            Input::Enter(it) => format!("Enter {}", terms(it)),
            Input::Polled(key) => format!("Polled {key}"),
            Input::Admitted { asked, answer } => format!("Admitted {}: {}", self.asked(asked), admission(answer)),
            Input::Refused(key) => format!("Refused {key}"),
            Input::Pausing { asked, until } => {
                format!("Pausing {} until {}", self.asked(asked), self.moment(*until))
            }
            Input::Repeating(asked) => format!("Repeating {}", self.asked(asked)),
            Input::Withdrawn(key) => format!("Withdrawn {key}"),
            Input::TimedOut(key) => format!("TimedOut {key}"),
            Input::Release { hold, ending: Ending::Release } => format!("Release {hold}"),
            Input::Release { hold, ending: Ending::Seal { value, keep } } => {
                format!("Release {hold} sealed with {} bytes for {keep:?}", value.len())
            }
            Input::Dropped(hold) => format!("Dropped {hold}"),
            Input::Sent { leaving: it, hold, sent } => {
                format!("Sent {}{} at {}", leaving(it), for_hold(hold), self.moment(*sent))
            }
            Input::Answered { release, waits } => format!("Answered release {}{}", release.0, waiting(*waits)),
            Input::Unanswered { leaving: it, hold, waits } => {
                format!("Unanswered {}{}{}", leaving(it), for_hold(hold), waiting(*waits))
            }
            Input::Left { hold, claim: it, sent, standing: stands } => {
                let stands = stands.as_ref().map_or("no answer".to_owned(), standing);
                format!("Left {hold} {} sent {}: {stands}", claim(it), self.moment(*sent))
            }
            Input::Extended { renewal: it, sent, standing: stands } => {
                format!("Extended {} sent {}: {}", renewal(it), self.moment(*sent), standing(stands))
            }
            Input::LetGo(hold) => format!("LetGo {hold}"),
            Input::TokenReleased => "TokenReleased".to_owned(),
            Input::SeenOver(hold) => format!("SeenOver {hold}"),
            Input::Close(why) => format!("Close: {}", why.text()),
            Input::ReportNow => "ReportNow".to_owned(),
            Input::Elapsed => "Elapsed".to_owned(),
            Input::Joined { asked, stood, answer } => {
                let stood = stood.map_or(String::new(), |ticket| format!(" in place of ticket {ticket}"));
                format!("Joined {}{stood}: {}", self.asked(asked), admission(answer))
            }
            Input::Renewed { renewals, sent, answer } => {
                let answers = answers(renewals.iter().map(renewal), answer);
                format!("Renewed, sent {}: {answers}", self.moment(*sent))
            }
            Input::Released { releases, sent, answer } => {
                let answers = answers(releases.iter().map(|release| self.release(release)), answer);
                format!("Released, sent {}: {answers}", self.moment(*sent))
            }
            Input::Reported { report: it, is_ok } => {
                format!("Reported {}: {}", report(it), if *is_ok { "ok" } else { "no answer" })
            }
            Input::Pushed(it) => format!("Pushed {}", change(it)),
            Input::Missed(it) => format!("Missed {}", leaving(it)),
            Input::Ids(ids) => format!("Ids: {}", ids.len()),
        }
    }

    pub(crate) fn phase(&self, phase: &Phase) -> String {
        match phase {
            Phase::Asking { until, is_held } => {
                format!("Asking until {}{}", self.moment(*until), if *is_held { ", holds" } else { "" })
            }
            Phase::Outside { give_up_at } => format!("Outside, gives up {}", self.moment(*give_up_at)),
            Phase::Waiting { ticket, settling } => {
                format!("Waiting with ticket {ticket}{}", if *settling { ", settling" } else { "" })
            }
            Phase::Granted { first, count, settled, at } => {
                let settled = if *settled { ", settled" } else { "" };
                format!("Granted {} at {}{settled}", tickets(Tickets::new(*first, *count)), self.moment(*at))
            }
            Phase::Handed { hold, ticket } => format!("Handed {hold} with ticket {ticket}"),
            Phase::Sealed(value) => format!("Sealed with {} bytes", value.len()),
            Phase::Failed(it) => format!("Failed: {}", error(it)),
            Phase::Behind | Phase::Lead | Phase::GivenBack | Phase::Held | Phase::Between | Phase::Releasing => {
                format!("{phase:?}")
            }
        }
    }

    pub(crate) fn next(&self, next: &Next) -> String {
        match next {
            Next::Entered(key) => format!("Entered {key}"),
            Next::Ask(asked) => format!("Ask {}", self.asked(asked)),
            Next::Enter(GuardParts { hold, fence, until, why, .. }) => {
                format!("Enter {hold} with fence {fence} until {} ({why:?})", self.moment(*until))
            }
            Next::Sealed(value) => format!("Sealed with {} bytes", value.len()),
            Next::Fail(it) => format!("Fail: {}", error(it)),
            Next::Send { leaving: it, keeps, lost } => {
                let keeps = if *keeps { ", and the hold depends on the answer" } else { "" };
                format!("Send {}{keeps}{}", leaving(it), was_lost(lost))
            }
            Next::Done { lost } => format!("Done{}", was_lost(lost)),
            Next::Watched(release) => format!("Watched as release {}", release.0),
            Next::TakenOver(release) => format!("TakenOver release {}", release.0),
            Next::Told(said) => format!("Told: {}", outcome(said)),
            Next::Report(it) => format!("Report {}", report(it)),
            Next::LetGo(was_there) => format!("LetGo: {was_there}"),
            Next::At(moment) => format!("At {}", self.moment(*moment)),
            Next::Nothing | Next::Wait | Next::Mine => format!("{next:?}"),
        }
    }

    pub(crate) fn effect(&self, effect: &Effect) -> String {
        match effect {
            Effect::Wake(key) => format!("Wake {key}"),
            Effect::Trust { hold, until, why } => format!("Trust {hold} until {} ({why:?})", self.moment(*until)),
            Effect::Lost { hold, why, .. } => format!("Lost {hold}: {why}"),
            Effect::Emit(event) => format!("Emit {:?} for {}", event.kind, demands(&event.terms.demands)),
            Effect::Tell(release, said) => format!("Tell release {}: {}", release.0, outcome(said)),
            Effect::Acquire(asked, stood) => {
                let stood = stood.map_or(String::new(), |ticket| format!(" in place of ticket {ticket}"));
                format!("Acquire {}{stood}", self.asked(asked))
            }
            Effect::Renew(it) => format!("Renew {}", renewal(it)),
            Effect::Release(it) => format!("Release {}", self.release(it)),
            Effect::Record(it) => format!("Record {}", report(it)),
        }
    }

    fn asked(&self, asked: &AcquireCall) -> String {
        let AcquireCall { key, claim: it, sent, inline, unsure } = asked;
        let by = if *inline { "" } else { " by the keeper" };
        let unsure = if *unsure { ", an earlier one may still run" } else { "" };
        format!("{key} {} sent {}{by}{unsure}", claim(it), self.moment(*sent))
    }

    fn release(&self, release: &Release) -> String {
        let Release { leaving: it, hold, until, tries, caller, alone } = release;
        let tries = if *tries > 0 { format!(", {tries} tries before") } else { String::new() };
        let caller = caller.map_or(String::new(), |caller| format!(", as release {}", caller.0));
        let alone = if *alone { ", alone" } else { "" };
        format!("{}{} until {}{tries}{caller}{alone}", leaving(it), for_hold(hold), self.moment(*until))
    }
}

fn terms(terms: &Terms) -> String {
    let mut text = format!("{}, ttl {:?}", demands(&terms.demands), terms.ttl());
    let spans = [
        (terms.renew_every, "renewed every"),
        (terms.hold_at_least, "held at least"),
        (terms.hold_at_most, "held at most"),
    ];
    for (span, what) in spans {
        text += &span.map_or(String::new(), |span| format!(", {what} {:?}", Duration::from(span)));
    }
    for (is_so, what) in [(terms.hands_off, ", with local hand-off"), (terms.detached, ", detached")] {
        text += if is_so { what } else { "" };
    }
    text
}

fn demands(demands: &Demands) -> String {
    let one = |demand: &lockfast::store::Demand| match demand.mode() {
        lockfast::Mode::Permits => format!("{:?} {} of {}", demand.name, demand.weight, demand.capacity),
        mode => format!("{:?} {mode}", demand.name),
    };
    demands.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// The beginning of a hash identifies a claim.
fn owner(hash: ClaimHash) -> String {
    hash.to_string()[..8].to_owned()
}

fn claim(claim: &Claim) -> String {
    let block = if claim.block > 1 { format!(" of {} tickets", claim.block) } else { String::new() };
    format!("claim {}{block}", owner(claim.id.hash()))
}

fn tickets(tickets: Tickets) -> String {
    match tickets.count {
        0 | 1 => format!("ticket {}", tickets.first),
        count => format!("{count} tickets from {}", tickets.first),
    }
}

fn leaving(leaving: &Leaving) -> String {
    match leaving {
        Leaving::Done(it) => format!("Done {}", claim(it)),
        Leaving::Unknown(it) => format!("Unknown {}", claim(it)),
        Leaving::Linger(it, rest) => format!("Linger {} for {rest:?}", claim(it)),
        Leaving::Seal { claim: it, value, keep } => {
            format!("Seal {} with {} bytes for {keep:?}", claim(it), value.len())
        }
        Leaving::UnlessAlone { claim: it, block, floor } => {
            format!("UnlessAlone {}, {block} tickets above {floor}", claim(it))
        }
        other => format!("{other:?}"),
    }
}

fn renewal(renewal: &Renewal) -> String {
    let Renewal { key, claim: it, ttl, waits, is_beside } = renewal;
    let lease = if ttl.is_zero() { "as a question".to_owned() } else { format!("for {ttl:?}") };
    let waits = if *waits { ", waiting" } else { "" };
    let beside = if *is_beside { ", beside its acquire" } else { "" };
    format!("{key} {} {lease}{waits}{beside}", claim(it))
}

fn report(report: &Report) -> String {
    let Report { counters, entered, left, .. } = report;
    format!("{counters:?}, {} entered, {} left", entered.len(), left.len())
}

fn change(change: &Change) -> String {
    match change {
        Change::Held(hash, ticket) => format!("Held {} with ticket {ticket}", owner(*hash)),
        Change::Gone(hash) => format!("Gone {}", owner(*hash)),
        Change::Recheck(hash, span) => format!("Recheck {} in {span:?}", owner(*hash)),
        other => format!("{other:?}"),
    }
}

fn admission(answer: &Result<Admission>) -> String {
    match answer {
        Ok(Admission::Held(block)) => format!("Held with {}", tickets(*block)),
        Ok(Admission::Queued { ticket, position, recheck_in }) => {
            format!("Queued with ticket {ticket}, {position} ahead, recheck in {recheck_in:?}")
        }
        Ok(Admission::Sealed(value)) => format!("Sealed with {} bytes", value.len()),
        Ok(other) => format!("{other:?}"),
        Err(it) => error(it),
    }
}

fn standing(standing: &Standing) -> String {
    match standing {
        Standing::Held(block) => format!("Held with {}", tickets(*block)),
        Standing::Waiting { ticket, recheck_in } => format!("Waiting with ticket {ticket}, recheck in {recheck_in:?}"),
        Standing::Gone(why) => format!("Gone: {why:?}"),
        other => format!("{other:?}"),
    }
}

fn answers(sent: impl Iterator<Item = String>, answer: &Result<Vec<Standing>>) -> String {
    let one = |(index, sent)| match answer {
        Ok(standings) => format!("{sent}: {}", standings.get(index).map_or("no answer".to_owned(), standing)),
        Err(it) => format!("{sent}: {}", error(it)),
    };
    sent.enumerate().map(one).collect::<Vec<_>>().join("; ")
}

fn outcome(said: &Option<Box<Result<Standing>>>) -> String {
    match said.as_deref() {
        Some(Ok(it)) => standing(it),
        Some(Err(it)) => error(it),
        None => "nothing".to_owned(),
    }
}

/// The kind only: a recording has no text of errors.
fn error(error: &Error) -> String {
    let kind = format!("{error:?}");
    kind.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

fn for_hold(hold: &Option<lockfast::engine::Key>) -> String {
    hold.map_or(String::new(), |hold| format!(" for {hold}"))
}

fn waiting(waits: bool) -> &'static str {
    if waits { ", its caller waits" } else { "" }
}

fn was_lost(lost: &Option<lockfast::LostWhy>) -> String {
    lost.map_or(String::new(), |why| format!(", lost: {why}"))
}
