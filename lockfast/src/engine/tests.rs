use super::request::Request;
use super::*;
use crate::claim::Tickets;
use crate::error::{Error, LostWhy};
use crate::store::{Admission, Change, Leaving, Standing, Why};

/// Two requests that fell out of the queue of one name; the first has used up its questions.
fn fallen_out(now: Moment) -> Engine {
    let mut engine = Engine::new(ClientId(1), 1);
    engine.ids.extend((1..=8).map(|id| ClaimId::from_secret([id; 16])));
    for ticket in [7, 8] {
        let mut fx = Effects::default();
        let Next::Entered(key) = engine.handle(Input::Enter(terms()), now, &mut fx) else { panic!("it is open") };
        let Next::Ask(asked) = engine.handle(Input::Polled(key), now, &mut fx) else { panic!("it leads") };
        let ticket = Ticket(ticket);
        let answer = Ok(crate::store::Admission::Queued { ticket, position: 1, recheck_in: Duration::from_secs(60) });
        engine.handle(Input::Admitted { asked, answer }, now, &mut fx);
        for _ in 0..if ticket.0 == 7 { 5 } else { 0 } {
            request::RateLimit::note(engine.requests.get_mut(key).unwrap(), now);
        }
        let renewal =
            Renewal { key, claim: engine.claim(key).unwrap().0, ttl: Duration::ZERO, waits: false, is_beside: false };
        let standing = crate::store::Standing::Gone(crate::store::Why::Unknown);
        engine.handle(Input::Extended { renewal, sent: now, standing }, now, &mut fx);
    }
    engine
}

fn joins(fx: &Effects) -> usize {
    fx.list.iter().filter(|effect| matches!(effect, Effect::Acquire(..))).count()
}

#[test]
fn a_waiter_behind_one_that_may_not_ask_lets_the_keeper_sleep() {
    let now = Moment::from_nanos(1_000_000_000_000);
    let mut engine = fallen_out(now);
    let mut fx = Effects::default();
    let Next::At(next) = engine.handle(Input::Elapsed, now, &mut fx) else { panic!("it says when") };
    assert!(joins(&fx) == 0 && next >= now + Duration::from_secs(1), "{next:?}");
    let mut fx = Effects::default();
    engine.handle(Input::Elapsed, now + Duration::from_secs(1), &mut fx);
    assert_eq!(joins(&fx), 1, "one after the other");
}

#[test]
fn what_every_acquisition_moves_stays_small() {
    use std::mem::size_of;
    let sizes =
        [size_of::<Next>(), size_of::<Effect>(), size_of::<On<'_>>(), size_of::<Action>(), size_of::<Request>()];
    assert!(sizes.iter().zip([64, 48, 64, 48, 120]).all(|(size, most)| *size <= most), "{sizes:?}");
}

/// When everything happens, unless said otherwise.
fn now() -> Moment {
    Moment::from_nanos(1_000_000_000_000)
}

fn terms() -> Arc<Terms> {
    Arc::new(Terms::example())
}

fn engine() -> Engine {
    let mut engine = Engine::new(ClientId(1), 1);
    engine.ids.extend((1..=8).map(|id| ClaimId::from_secret([id; 16])));
    engine
}

/// A request that asks the store.
fn start_asking(engine: &mut Engine, fx: &mut Effects) -> AcquireCall {
    let Next::Entered(key) = engine.handle(Input::Enter(terms()), now(), fx) else { panic!("it is open") };
    let Next::Ask(asked) = engine.handle(Input::Polled(key), now(), fx) else { panic!("it leads") };
    asked
}

/// A request that waits with ticket 7.
fn start_waiting(engine: &mut Engine, fx: &mut Effects) -> Key {
    let asked = start_asking(engine, fx);
    let key = asked.key;
    let recheck_in = Duration::from_secs(3600);
    let answer = Ok(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in });
    engine.handle(Input::Admitted { asked, answer }, now(), fx);
    key
}

#[test]
fn a_future_whose_grant_is_renewed_first_waits() {
    let (mut engine, mut fx) = (engine(), Effects::default());
    let key = start_waiting(&mut engine, &mut fx);
    let owner = engine.claim(key).unwrap().0.id.hash();
    engine.handle(Input::Pushed(Change::Held(owner, Ticket(7))), now(), &mut fx);
    let late = now() + Duration::from_secs(40);
    let next = engine.handle(Input::Polled(key), late, &mut fx);
    assert!(matches!(next, Next::Wait) && engine.is_waiting(key), "{next:?}");
}

#[test]
fn a_request_that_needs_a_new_claim_fails_without_ids() {
    let (mut engine, mut fx) = (engine(), Effects::default());
    // One fell out of the queue, and the id of the other one is out.
    let fallen = start_waiting(&mut engine, &mut fx);
    let renewal = Renewal {
        key: fallen,
        claim: engine.claim(fallen).unwrap().0,
        ttl: Duration::ZERO,
        waits: false,
        is_beside: false,
    };
    let standing = Standing::Gone(Why::Unknown);
    engine.handle(Input::Extended { renewal, sent: now(), standing }, now(), &mut fx);
    let asked = start_asking(&mut engine, &mut fx);
    let out = asked.key;
    engine.handle(Input::Admitted { asked, answer: Ok(Admission::Gone(Why::Unknown)) }, now(), &mut fx);
    engine.ids.clear();
    fx.list.clear();
    engine.handle(Input::Elapsed, now(), &mut fx);
    for key in [fallen, out] {
        assert!(matches!(engine.phase(key), Some(Phase::Failed(_))), "{:?}", engine.phase(key));
        assert!(fx.list.iter().any(|effect| matches!(effect, Effect::Wake(woken) if *woken == key)));
    }
}

#[test]
fn requests_without_an_id_go_on_with_the_next_ids() {
    let (mut engine, mut fx) = (engine(), Effects::default());
    for _ in 0..2 {
        let asked = start_asking(&mut engine, &mut fx);
        engine.handle(Input::Admitted { asked, answer: Ok(Admission::Gone(Why::Unknown)) }, now(), &mut fx);
    }
    engine.ids.truncate(1);
    let Next::At(next) = engine.handle(Input::Elapsed, now(), &mut fx) else { panic!("it says when") };
    assert_eq!(joins(&fx), 1);
    engine.handle(Input::Ids(vec![ClaimId::from_secret([9; 16])]), next, &mut fx);
    engine.handle(Input::Elapsed, next, &mut fx);
    assert_eq!(joins(&fx), 2);
}

#[test]
fn a_caller_gets_an_outcome_when_the_store_leaves_it_out() {
    let (mut engine, mut fx) = (engine(), Effects::default());
    let asked = start_asking(&mut engine, &mut fx);
    let hold = asked.key;
    let answer = Ok(Admission::Held(Tickets::new(Ticket(7), 1)));
    engine.handle(Input::Admitted { asked, answer }, now(), &mut fx);
    assert!(matches!(engine.handle(Input::Polled(hold), now(), &mut fx), Next::Enter(_)));
    let next = engine.handle(Input::Release { hold, ending: Ending::Release }, now(), &mut fx);
    let Next::Send { leaving, .. } = next else { panic!("a release is sent: {next:?}") };
    let next = engine.handle(Input::Sent { leaving, hold: None, sent: now() }, now(), &mut fx);
    let Next::Watched(release) = next else { panic!("it is watched: {next:?}") };
    let late = now() + Duration::from_millis(100);
    engine.handle(Input::Elapsed, late, &mut fx);
    let next = engine.handle(Input::Answered { release, waits: true }, late, &mut fx);
    assert!(matches!(next, Next::TakenOver(_)), "{next:?}");
    let is_release = |effect| if let Effect::Release(release) = effect { Some(*release) } else { None };
    let releases: Vec<_> = fx.list.drain(..).filter_map(is_release).collect();
    assert_eq!(releases.len(), 1);
    engine.handle(Input::Released { releases, sent: late, answer: Ok(Vec::new()) }, late, &mut fx);
    assert!(fx.list.iter().any(|effect| matches!(effect, Effect::Tell(id, None) if *id == release)));
}

#[test]
fn a_claim_with_a_lost_acquire_leaves_a_tombstone() {
    // Also when the answer to a later copy says that its id is out.
    for out in [Admission::Gone(Why::Unknown), Admission::Sealed(bytes::Bytes::new())] {
        let (mut engine, mut fx) = (engine(), Effects::default());
        let asked = start_asking(&mut engine, &mut fx);
        let (key, owner) = (asked.key, asked.claim.id.hash());
        let lost = Err(Error::unavailable("testing", "the answer was lost"));
        engine.handle(Input::Admitted { asked, answer: lost }, now(), &mut fx);
        let later = now() + Duration::from_secs(1);
        engine.handle(Input::Elapsed, later, &mut fx);
        let is_join = |effect| if let Effect::Acquire(asked, _) = effect { Some(asked) } else { None };
        let asked = fx.list.drain(..).find_map(is_join).expect("the keeper asks again");
        // Its future is dropped while that is in flight.
        engine.handle(Input::Withdrawn(key), later, &mut fx);
        engine.handle(Input::Joined { asked, stood: None, answer: Ok(out) }, later, &mut fx);
        engine.handle(Input::Elapsed, later, &mut fx);
        let keeps_out = |effect: &Effect| match effect {
            Effect::Release(release) => {
                matches!(&release.leaving, Leaving::Unknown(claim) if claim.id.hash() == owner)
            }
            _ => false,
        };
        assert!(fx.list.iter().any(keeps_out), "{:?}", fx.list);
    }
}

/// When a waiter with these terms asks, for three seconds, if the store answers each time that it waits.
fn moments_of_requests(terms: Terms) -> Vec<Moment> {
    let (mut engine, mut fx) = (engine(), Effects::default());
    let Next::Entered(key) = engine.handle(Input::Enter(Arc::new(terms)), now(), &mut fx) else { panic!("it is open") };
    let Next::Ask(asked) = engine.handle(Input::Polled(key), now(), &mut fx) else { panic!("it leads") };
    let recheck_in = Duration::from_secs(60);
    let answer = Ok(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in });
    engine.handle(Input::Admitted { asked, answer }, now(), &mut fx);
    let (mut at, mut sent) = (now(), vec![now()]);
    while at < now() + Duration::from_secs(3) {
        fx.list.clear();
        engine.handle(Input::Elapsed, at, &mut fx);
        for effect in std::mem::take(&mut fx.list) {
            let Effect::Renew(renewal) = effect else { continue };
            sent.push(at);
            let answer = Ok(vec![Standing::Waiting { ticket: Ticket(7), recheck_in }]);
            engine.handle(Input::Renewed { renewals: vec![renewal], sent: at, answer }, at, &mut fx);
        }
        let Next::At(next) = engine.handle(Input::Elapsed, at, &mut fx) else { panic!("it says when") };
        at = next.max(at + Duration::from_millis(1));
    }
    sent
}

#[test]
fn a_waiter_with_a_short_lease_never_uses_up_its_requests() {
    for (ttl, period) in [(500, 50), (651, 66), (500, 166), (1_400, 100), (30_000, 50)].map(|(ttl, every)| {
        let millis = |millis| Span::of(Duration::from_millis(millis));
        (millis(ttl), millis(every))
    }) {
        let sent = moments_of_requests(Terms { ttl, renew_every: Some(period), ..Terms::example() });
        let gaps: Vec<_> = sent.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(
            gaps.iter().all(|gap| *gap < Duration::from(ttl) * 9 / 10),
            "{ttl:?} ends between two requests: {gaps:?}"
        );
        let five = sent.windows(6).map(|six| six[5].since(six[0])).min();
        assert!(five.is_none_or(|span| span >= Duration::from_secs(1)), "six within {five:?}");
    }
}

#[test]
fn a_hold_that_reached_hold_at_most_is_lost_by_that() {
    let (mut engine, mut fx) = (engine(), Effects::default());
    let terms = Terms { hold_at_most: Some(Span::of(Duration::from_secs(5))), ..Terms::example() };
    let Next::Entered(key) = engine.handle(Input::Enter(Arc::new(terms)), now(), &mut fx) else { panic!("it is open") };
    let Next::Ask(asked) = engine.handle(Input::Polled(key), now(), &mut fx) else { panic!("it leads") };
    let (claim, tickets) = (Arc::clone(&asked.claim), Tickets::new(Ticket(7), 1));
    engine.handle(Input::Admitted { asked, answer: Ok(Admission::Held(tickets)) }, now(), &mut fx);
    engine.handle(Input::Polled(key), now(), &mut fx);
    // The answer to a renewal comes before the keeper has looked.
    let late = now() + Duration::from_secs(6);
    let renewal = Renewal { key, claim, ttl: Duration::from_secs(60), waits: false, is_beside: false };
    engine.handle(Input::Extended { renewal, sent: now(), standing: Standing::Held(tickets) }, late, &mut fx);
    let why = fx.list.iter().find_map(|effect| if let Effect::Lost { why, .. } = effect { Some(*why) } else { None });
    assert_eq!(why, Some(LostWhy::HeldAtMost));
}
