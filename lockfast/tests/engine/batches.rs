//! Many locks at once: how many calls the store gets, and in which order.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::poll;
use lockfast::store::{Admission, Counters, Why};
use lockfast::{Guard, Locks};

use crate::counting::Counting;
use crate::fixture::{TTL, hold, stop_keeper};
use crate::script::Director;
use crate::steps::{entered, millis, secs, soon, until_waiting, wants};

#[tokio::test]
async fn a_hundred_thousand_locks_are_renewed_in_a_few_hundred_calls() {
    const COUNT: usize = 100_000;
    let (store, locks, manual_clock) = Counting::new();
    let mut guards = Vec::with_capacity(COUNT);
    for nth in 0..COUNT {
        guards.push(locks.mutex(format!("lock {nth}")).ttl(secs(30)).lock().await.unwrap());
    }
    let mut renewals = store.renewals.subscribe();
    for _period in 0..3 {
        store.renewals.send_modify(Vec::clear);
        manual_clock.advance(secs(10));
        let calls = soon(renewals.wait_for(|calls| calls.iter().sum::<usize>() >= COUNT)).await.unwrap();
        assert_eq!(calls.iter().sum::<usize>(), COUNT, "each is renewed once");
        assert!(calls.iter().all(|leases| *leases <= 282), "{calls:?}");
        assert!(calls.len() <= 450, "{} calls", calls.len());
    }
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    assert_eq!((locks.stats().held, locks.stats().lost), (COUNT as u64, 0));
    drop(guards);
    soon(locks.shutdown(secs(10))).await.unwrap();
    let releases = store.releases.lock().unwrap();
    assert!(releases.iter().all(|leaving| *leaving <= 282));
    assert_eq!(releases.iter().sum::<usize>(), COUNT);
}

#[tokio::test]
async fn ten_thousand_waiters_of_one_process_are_served_in_order() {
    const COUNT: u64 = 10_000;
    let locks = Locks::in_memory();
    let held = locks.mutex("a").lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let served = |nth| {
        let (mutex, order) = (locks.mutex("a").local_handoff(false), order.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().unwrap().push((nth, guard.fence().unwrap()));
            guard.release().await.unwrap();
        })
    };
    // Tasks on one thread begin in the order in which they are spawned, and the in-process store answers at once.
    let tasks: Vec<_> = (0..COUNT).map(served).collect();
    until_waiting(&locks, COUNT).await;
    held.release().await.unwrap();
    for task in tasks {
        soon(task).await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert!(order.iter().map(|(nth, _)| *nth).eq(0..COUNT));
    assert!(order.windows(2).all(|two| two[0].1 < two[1].1), "fences strictly rise");

    let stats = locks.stats();
    assert_eq!((stats.acquired, stats.released, stats.contended), (COUNT + 1, COUNT + 1, COUNT));
    assert_eq!((stats.held, stats.waiting, stats.lost), (0, 0, 0));
    for spans in [stats.wait, stats.hold] {
        assert!(!spans.p50.is_zero() && spans.p50 <= spans.p90 && spans.p90 <= spans.p99 && spans.p99 <= spans.max);
    }
    assert!(locks.inspect("").await.unwrap().is_empty());
}

#[tokio::test]
async fn reports_are_sent_once_a_second_and_list_claims_a_second_old() {
    let (store, locks, manual_clock) = Counting::new();
    let mut reports = store.reports.subscribe();
    let held = locks.mutex("long").ttl(secs(60)).lock().await.unwrap();
    let waiter = wants(locks.mutex("long").ttl(secs(60)).local_handoff(false));
    until_waiting(&locks, 1).await;
    let owner = held.owner();
    const BUSY: u64 = 40;
    let mut young: Option<Guard> = None;
    for tenth in 1..=BUSY {
        // Held at the time of a report, and not for a second yet; released before the next report.
        if tenth % 10 == 6 {
            young = Some(locks.mutex("young").lock().await.unwrap());
        } else if let Some(young) = young.take_if(|_| tenth % 10 == 4) {
            young.release().await.unwrap();
        }
        for nth in 0..5 {
            locks.mutex(format!("short {nth}")).lock().await.unwrap().release().await.unwrap();
        }
        manual_clock.advance(millis(100));
        // A report that is due is sent before the clock moves on, or the store would get it late.
        soon(reports.wait_for(|all| all.len() as u64 >= tenth / 10)).await.unwrap();
    }
    let all = store.reports.borrow().clone();
    assert_eq!(all.len(), 4);
    assert!(all.windows(2).all(|two| two[1].0.since(two[0].0) >= millis(999)), "{all:?}");

    let entered_once: Vec<_> = all.iter().flat_map(|(_, report)| &report.entered).collect();
    assert_eq!(entered_once.len(), 2, "the two that are a second old, each once: {entered_once:?}");
    assert!(entered_once.iter().any(|(listed, _)| *listed == owner));
    let reported = all.iter().fold(Counters::default(), |sum, (_, report)| Counters {
        acquired: sum.acquired + report.counters.acquired,
        released: sum.released + report.counters.released,
        contended: sum.contended + report.counters.contended,
        lost: sum.lost + report.counters.lost,
    });
    assert_eq!(
        (reported.acquired, reported.released, reported.contended, reported.lost),
        (5 + 5 * BUSY, 3 + 5 * BUSY, 1, 0)
    );

    held.release().await.unwrap();
    drop(entered(waiter).await);
    manual_clock.advance(secs(2));
    soon(reports.wait_for(|all| all.iter().any(|(_, report)| report.left.contains(&owner)))).await.unwrap();
}

#[tokio::test]
async fn the_fleets_figures_are_the_sum_of_its_clients() {
    let store = Arc::new(lockfast::Memory::new());
    let clients = [Locks::new(store.clone()).unwrap(), Locks::new(store).unwrap()];
    for (nth, locks) in clients.iter().enumerate() {
        for _ in 0..=nth {
            locks.mutex("a").lock().await.unwrap().release().await.unwrap();
        }
        let held = locks.mutex("a").lock().await.unwrap();
        assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
        held.release().await.unwrap();
        locks.fleet_stats().await.unwrap();
    }
    let fleet = clients[0].fleet_stats().await.unwrap();
    assert_eq!((fleet.acquired, fleet.released, fleet.contended, fleet.lost), (5, 5, 2, 0));
    // Asking twice counts nothing twice.
    assert_eq!(clients[1].fleet_stats().await.unwrap(), fleet);
}

#[tokio::test]
async fn renewals_are_sent_before_the_acquires_that_are_due_with_them() {
    let mut store = Director::new();
    let mutexes = ["a", "b"].map(|name| store.locks.mutex(name).ttl(TTL));
    let (_held, claim) = hold(&mut store, &mutexes[0], 7).await;
    let stopped = stop_keeper(&mut store).await;
    store.manual_clock.advance(TTL / 3);
    let mut asks = pin!(mutexes[1].lock());
    assert!(poll!(asks.as_mut()).is_pending());
    store.acquire().await.2.give(Admission::Gone(Why::Unknown));
    assert!(poll!(asks.as_mut()).is_pending(), "the keeper asks with a new claim");
    let _stop = stopped.go_on();
    let (leases, _unanswered) = store.renew().await;
    assert!(matches!(&leases[..], [lease] if lease.claim.id.hash() == claim.id.hash()), "{leases:?}");
    let (asked, ..) = store.acquire().await;
    assert_eq!(asked.demands[0].name.as_str(), "lock:b");
}
