//! The keeper of a process: looks at what is due, sends the calls that the engine wants, and gives it the answers.

use std::time::Duration;

use lockfast::engine::{Input, Next, Release};
use lockfast::store::{Change, Lease, Leaving, Standing, Why};
use lockfast::{Error, Result};

use crate::clock::Time;
use crate::invariants::Invariant;
use crate::network::{CallPurpose, Reply, Request};
use crate::plan::Link;
use crate::world::World;

/// How many renewals or releases go into one request: `MAX_BATCH` of lockfast's own keeper.
const MAX_BATCH: usize = 282;
/// How long the keeper awaits an answer: `CALL_TIMEOUT` of lockfast's own keeper.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A keeper that looks more often than this without a millisecond passing never sleeps.
const MAX_LOOKS: u32 = 2_000;

impl World<'_> {
    /// The keeper looks at what is due.
    pub(crate) fn look(&mut self, client: u32) {
        self.clients[client as usize].keeper.at = Time::NEVER;
        self.count_looks(client);
        let next = self.handle(client, Input::Elapsed);
        if let Next::At(moment) = next {
            let at = self.clients[client as usize].skew.time_of(moment);
            // The clock's grain is a nanosecond; a thread does not come back sooner than a microsecond later.
            self.wake_keeper(client, at.max(self.now + Duration::from_micros(1)));
        }
        self.send_all(client);
    }

    /// Fails if the keeper looks again and again within a millisecond.
    fn count_looks(&mut self, client: u32) {
        let keeper = &mut self.clients[client as usize].keeper;
        let (from, looks) = keeper.looks;
        keeper.looks = if self.now.since(from) > Duration::from_millis(1) { (self.now, 0) } else { (from, looks + 1) };
        if looks > MAX_LOOKS {
            self.fail(Invariant::Awake, "a keeper that sleeps", format!("client {client} looks again and again"));
        }
    }

    fn send_all(&mut self, client: u32) {
        let process = &mut self.clients[client as usize];
        let sent = process.skew.local(self.now);
        let keeper = &mut process.keeper;
        let renewals = std::mem::take(&mut keeper.renewals);
        let joins = std::mem::take(&mut keeper.joins);
        let releases = std::mem::take(&mut keeper.releases);
        let reports = std::mem::take(&mut keeper.reports);
        for renewals in chunks(renewals) {
            renewals.iter().for_each(|renewal| self.count_request(client, renewal.key));
            let leases: Vec<_> = renewals.iter().map(|it| Lease { claim: it.claim.clone(), ttl: it.ttl }).collect();
            let shortest = leases.iter().map(|lease| lease.claim.ttl).min().unwrap_or(CALL_TIMEOUT);
            let limit = (shortest / 4).clamp(Duration::from_millis(100), CALL_TIMEOUT);
            self.send(client, Link::Keeper, Request::Renew(leases), limit, CallPurpose::Renew { renewals, sent });
        }
        for (asked, stood) in joins {
            self.count_request(client, asked.key);
            let request = Request::Acquire(asked.claim.clone(), lockfast::store::Busy::Wait);
            self.send(client, Link::Keeper, request, CALL_TIMEOUT, CallPurpose::Join { asked, stood });
        }
        let (alone, together): (Vec<_>, Vec<_>) = releases.into_iter().partition(|release| release.alone);
        for releases in alone.into_iter().map(|release| vec![release]).chain(chunks(together)) {
            let leaving = releases.iter().map(|release| release.leaving.clone()).collect();
            self.send(
                client,
                Link::Keeper,
                Request::Release(leaving),
                CALL_TIMEOUT,
                CallPurpose::Release { releases, sent },
            );
        }
        for report in reports {
            self.send(client, Link::Keeper, Request::Record, CALL_TIMEOUT, CallPurpose::Record { report });
        }
    }

    /// An answer to the keeper, or none by its limit.
    pub(crate) fn on_keeper_reply(&mut self, client: u32, purpose: CallPurpose, reply: Reply) {
        let input = match purpose {
            CallPurpose::Renew { renewals, sent } => Input::Renewed { renewals, sent, answer: standings(reply) },
            CallPurpose::Join { asked, stood } => {
                self.note_admission_reply(client, &asked, &reply);
                let answer = match reply {
                    Reply::Admission(answer) => *answer,
                    _ => Err(no_answer()),
                };
                Input::Joined { asked, stood, answer }
            }
            CallPurpose::Release { releases, sent } => {
                let answer = self.on_keeper_release(client, &releases, standings(reply));
                Input::Released { releases, sent, answer }
            }
            CallPurpose::Record { report } => Input::Reported { report, is_ok: matches!(reply, Reply::Recorded) },
            CallPurpose::Ask { .. } | CallPurpose::Leave { .. } | CallPurpose::Extend { .. } => return,
        };
        if let Input::Renewed { renewals, answer: Ok(standings), .. } = &input {
            for (renewal, standing) in renewals.iter().zip(standings) {
                if matches!(standing, Standing::Gone(_)) {
                    self.forget_acknowledged(client, renewal.key, &renewal.claim);
                }
            }
        }
        self.handle(client, input);
        // The engine returns the next calls when the keeper looks again; the thread does so at once.
        self.wake_keeper(client, self.now);
    }

    fn on_keeper_release(
        &mut self,
        client: u32,
        releases: &[Release],
        answer: Result<Vec<Standing>>,
    ) -> Result<Vec<Standing>> {
        let mut answer = answer;
        match &mut answer {
            Ok(standings) => standings.iter_mut().for_each(|standing| self.pass_on_next_holder(client, standing)),
            Err(_) => {
                if let [only] = releases {
                    self.on_lost_reply(client, &only.leaving);
                }
            }
        }
        answer
    }

    /// An answer to a release may name the next holder of the same client; it is a push, too.
    pub(crate) fn pass_on_next_holder(&mut self, client: u32, standing: &mut Standing) {
        if let Standing::Gone(Why::PassedOn(owner, ticket)) = *standing {
            self.handle(client, Input::Pushed(Change::Held(owner, ticket)));
            *standing = Standing::Gone(Why::Left);
        }
    }

    /// The answer to a release was lost.
    pub(crate) fn on_lost_reply(&mut self, client: u32, leaving: &Leaving) {
        self.handle(client, Input::Missed(leaving.clone()));
    }
}

pub(crate) fn no_answer() -> Error {
    Error::unavailable("asking", "no answer")
}

pub(crate) fn standings(reply: Reply) -> Result<Vec<Standing>> {
    match reply {
        Reply::Standings(standings) => Ok(standings),
        _ => Err(no_answer()),
    }
}

fn chunks<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter().peekable();
    std::iter::from_fn(move || {
        all.peek()?;
        Some(all.by_ref().take(MAX_BATCH).collect())
    })
}
