//! A few worlds in every run of the tests, and proof that the simulation notices a broken invariant. Longer with `cargo xtask sim`.

use std::time::Duration;

use sim::{
    Ask, Bites, CallerPlan, ClientPlan, End, Invariant, Plan, Settings, Skew, Time, describe, run_plan, run_world,
};

/// How many worlds are run: about ten seconds in a debug build on two cores.
const WORLDS: u64 = 400;

#[test]
fn every_invariant_holds_in_the_worlds_of_the_first_seeds() {
    let run = |seeds: std::ops::RangeInclusive<u64>| {
        let mut bites = Bites::default();
        for seed in seeds {
            let plan = Plan::of_seed(seed);
            let outcome = run_plan(&plan, false);
            assert!(outcome.violation.is_none(), "seed {seed}\n{}", describe(&plan, &outcome));
            bites.add(&outcome.bites);
        }
        bites
    };
    let bites = std::thread::scope(|scope| {
        let half = scope.spawn(|| run(1..=WORLDS / 2));
        let mut bites = run(WORLDS / 2 + 1..=WORLDS);
        bites.add(&half.join().unwrap());
        bites
    });
    // A fault that never bit was not survived.
    assert_eq!(bites.missing().collect::<Vec<_>>(), []);
}

#[test]
fn a_world_follows_from_its_seed_alone() {
    for seed in [3, 14, 15] {
        let runs = [run_world(seed, &Settings { trace: true }), run_world(seed, &Settings { trace: true })];
        let [first, second] = runs.map(|it| (it.steps, it.grants, it.losses, it.lasted, it.bites, it.trace));
        assert_eq!(first, second);
    }
}

/// One process that holds a lock for longer than its lease, by a clock that runs at this speed.
fn holding_by_a_clock(drift: i32) -> Plan {
    let caller = CallerPlan {
        id: 0,
        client: 0,
        begins: Time::BEGINNING,
        rounds: 3,
        rest: Duration::from_secs(1),
        wants: vec![(0, 1)],
        ask: Ask::Wait,
        ttl: Duration::from_secs(30),
        renew_every: Some(Duration::from_secs(10)),
        hands_off: false,
        hold_at_least: None,
        hold_at_most: None,
        works: Duration::from_secs(60),
        extends: None,
        ends: End::Release,
        cancel: None,
    };
    Plan {
        seed: 1,
        ends: Time::BEGINNING + Duration::from_secs(600),
        names: vec![1],
        store: Skew { offset: 1 << 40, drift: 0 },
        names_next_holder: false,
        delay: Duration::from_millis(1),
        clients: vec![ClientPlan { id: 0, skew: Skew { offset: 1 << 41, drift } }],
        callers: vec![caller],
        faults: Vec::new(),
    }
}

#[test]
fn a_clock_slower_than_the_margin_allows_breaks_i3() {
    assert!(run_plan(&holding_by_a_clock(-8_000), false).violation.is_none(), "0.8 % is within the margin of 1 %");
    let (_, broken) = run_plan(&holding_by_a_clock(-12_000), false).violation.unwrap();
    assert_eq!(broken.invariant, Invariant::Honest, "{broken:?}");
}

#[test]
fn a_failing_plan_is_shrunk_to_its_cause() {
    let mut plan = Plan::of_seed(5);
    // Slow enough also beside a store whose own clock is slow.
    let alone = holding_by_a_clock(-20_000);
    let (name, client, caller) = (plan.names.len(), 1_000, 1_000);
    plan.names.push(1);
    plan.clients.push(ClientPlan { id: client, ..alone.clients[0].clone() });
    plan.callers.push(CallerPlan { id: caller, client, wants: vec![(name, 1)], ..alone.callers[0].clone() });
    let outcome = run_plan(&plan, false);
    let (_, broken) = outcome.violation.as_ref().unwrap();
    assert_eq!(broken.invariant, Invariant::Honest, "{broken:?}");
    let small = sim::shrink(&plan, Invariant::Honest);
    assert_eq!((small.clients.len(), small.callers.len(), small.faults.len()), (1, 1, 0), "{small}");
    assert_eq!((small.callers[0].id, small.callers[0].rounds), (caller, 1));
    let said = describe(&plan, &outcome);
    assert!(said.contains("I3 honest") && said.contains("caller 1000") && said.contains("<- Enter"), "{said}");
}
