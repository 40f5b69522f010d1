//! Releases: from any context, without blocking, and of grants that are not picked up.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::poll;
use lockfast::store::{Change, Leaving, Standing};
use lockfast::store::{Claim, Ticket, Tickets};
use lockfast::{Guard, Locks, Memory, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::fixture::{GRAIN, NEVER, TTL, hold, must_not_block, push, renewed, settle, soon, stop_keeper, until};
use crate::script::Director;

const SECOND: Duration = Duration::from_secs(1);
/// How long a grant waits to be picked up.
const GRACE: Duration = Duration::from_secs(2);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn held_by(runtime: &Runtime, store: &mut Director) -> (Guard, Arc<Claim>) {
    let mutex = store.locks.mutex("a").ttl(TTL);
    runtime.block_on(hold(store, &mutex, 7))
}

async fn has_left(store: &mut Director, claim: &Claim) {
    let left = store.let_go().await;
    assert!(matches!(&left[..], [Leaving::Done(gone)] if gone.id.hash() == claim.id.hash()), "{left:?}");
}

#[test]
fn a_guard_dropped_outside_any_runtime_is_given_back() {
    let (runtime, mut store) = (runtime(), Director::new());
    let (guard, claim) = held_by(&runtime, &mut store);
    drop(guard);
    runtime.block_on(has_left(&mut store, &claim));
}

#[test]
fn a_guard_dropped_inside_a_runtime_is_given_back() {
    let (runtime, mut store) = (runtime(), Director::new());
    let (guard, claim) = held_by(&runtime, &mut store);
    runtime.block_on(async {
        drop(guard);
        has_left(&mut store, &claim).await;
    });
}

#[test]
fn a_guard_dropped_by_a_panic_is_given_back() {
    let (runtime, mut store) = (runtime(), Director::new());
    let (guard, claim) = held_by(&runtime, &mut store);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _held = guard;
        panic!("the work of a caller");
    }));
    assert!(panicked.is_err());
    runtime.block_on(has_left(&mut store, &claim));
}

#[test]
fn a_guard_dropped_after_its_runtime_is_given_back() {
    let (first, mut store) = (runtime(), Director::new());
    let (guard, claim) = held_by(&first, &mut store);
    drop(first);
    drop(guard);
    runtime().block_on(has_left(&mut store, &claim));
}

#[test]
fn dropping_waits_neither_for_the_store_nor_for_the_keeper() {
    must_not_block(async {
        let mut store = Director::new();
        let mut guards = Vec::new();
        for number in 0..3 {
            let mutex = store.locks.mutex(number.to_string()).ttl(TTL);
            guards.push(hold(&mut store, &mutex, 7 + number).await.0);
        }
        drop(guards.pop());
        let first = store.release().await;
        drop(guards.pop());
        let second = store.release().await;
        let stopped = stop_keeper(&mut store).await;
        drop(guards.pop());
        drop((first, second, stopped.go_on()));
    });
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_is_sent_again() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let releasing = tokio::spawn(guard.release());
    store.release().await.1.lose();
    // By the keeper, at once and then after a pause.
    store.release().await.1.lose();
    settle(&mut store).await;
    store.manual_clock.advance(SECOND);
    has_left(&mut store, &claim).await;
    soon(releasing).await.unwrap().unwrap();
}

/// Asks, and is dropped when it is woken for the last time, instead of being polled.
fn cut_off_when_woken(mutex: Mutex, polls: usize) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut waits = pin!(mutex.lock());
        let mut left = polls;
        poll_fn(|cx| match left {
            0 => Poll::Ready(()),
            _ => {
                left -= 1;
                waits.as_mut().poll(cx).map(|done| panic!("it had to wait: {done:?}"))
            }
        })
        .await;
    })
}

#[tokio::test]
async fn a_waiter_cancelled_as_it_is_granted_releases_the_lock() {
    let mut store = Director::new();
    let waiter = cut_off_when_woken(store.locks.mutex("a").ttl(TTL), 2);
    let claim = store.queue(7, NEVER).await;
    until(|| store.locks.stats().waiting == 1).await;
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    soon(waiter).await.unwrap();
    has_left(&mut store, &claim).await;
    assert_eq!(store.locks.stats().waiting, 0);
}

#[tokio::test]
async fn a_waiter_cancelled_as_it_is_granted_leaves_for_the_next() {
    let memory = Arc::new(Memory::new());
    let clients = [(); 3].map(|()| Locks::new(Arc::clone(&memory) as Arc<_>).unwrap());
    let [first, second, third] = clients.each_ref().map(|locks| locks.mutex("a").ttl(TTL));
    let guard = first.lock().await.unwrap();
    let waiter = cut_off_when_woken(second, 1);
    until(|| clients[1].stats().waiting == 1).await;
    let next = tokio::spawn(async move { third.lock().await });
    until(|| clients[2].stats().waiting == 1).await;
    guard.release().await.unwrap();
    soon(waiter).await.unwrap();
    soon(next).await.unwrap().unwrap().check().unwrap();
    assert_eq!(clients[1].stats().waiting, 0);
}

#[tokio::test]
async fn a_grant_to_a_future_that_is_not_polled_is_given_back() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let mut waits = pin!(mutex.lock());
    assert!(poll!(waits.as_mut()).is_pending());
    let first = store.queue(7, NEVER).await;
    assert!(poll!(waits.as_mut()).is_pending());
    push(&mut store, Change::Held(first.id.hash(), Ticket(7))).await;
    store.manual_clock.advance(GRACE + GRAIN);
    has_left(&mut store, &first).await;

    let (guard, second) = tokio::join!(waits, store.grant(8));
    assert_ne!(first.id.hash(), second.id.hash());
    guard.unwrap().check().unwrap();
}

/// A run of hand-offs ends, and goes on with a fresh ticket: no other claim waits.
async fn goes_on(store: &mut Director, ticket: u64) {
    let (leaving, answer) = store.release().await;
    assert!(matches!(&leaving[..], [Leaving::UnlessAlone { .. }]), "{leaving:?}");
    answer.give(vec![Standing::Held(Tickets::new(Ticket(ticket), 1))]);
}

#[tokio::test]
async fn a_hand_off_to_an_unpolled_future_goes_to_the_next_waiter() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let other = mutex.clone();
    let next = tokio::spawn(async move { other.lock().await });
    until(|| store.locks.stats().waiting == 2).await;
    drop(guard);
    goes_on(&mut store, 8).await;
    settle(&mut store).await;
    store.manual_clock.advance(GRACE + GRAIN);
    goes_on(&mut store, 9).await;
    let next = soon(next).await.unwrap().unwrap();
    assert_eq!(next.fence().unwrap(), 9);

    // No local waiter is left, so this time the claim leaves; and the idle future, polled at last, asks for itself.
    drop(next);
    has_left(&mut store, &claim).await;
    let (guard, second) = tokio::join!(idle, store.grant(10));
    assert_ne!(claim.id.hash(), second.id.hash());
    assert_eq!(guard.unwrap().fence().unwrap(), 10);
}

#[tokio::test]
async fn a_hand_off_to_the_only_unpolled_future_is_released() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    drop(guard);
    goes_on(&mut store, 8).await;
    settle(&mut store).await;
    store.manual_clock.advance(GRACE + GRAIN);
    has_left(&mut store, &claim).await;
}

#[tokio::test]
async fn a_hold_is_not_kept_for_a_local_waiter_that_gave_up() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    assert!(poll!(pin!(mutex.lock())).is_pending());
    drop(guard);
    has_left(&mut store, &claim).await;
}

#[tokio::test]
async fn an_unpolled_leader_blocks_no_local_waiter() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    drop(guard);
    // A claim of another client waited, so the lock went there, and the idle future leads the local queue.
    assert!(matches!(&store.let_go().await[..], [Leaving::UnlessAlone { .. }]));
    settle(&mut store).await;
    store.manual_clock.advance(GRACE + GRAIN);
    settle(&mut store).await;
    let (next, _) = hold(&mut store, &mutex, 9).await;
    next.check().unwrap();
}

#[tokio::test]
async fn a_guard_is_renewed_though_its_client_was_dropped() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    drop(mutex);
    drop(std::mem::replace(&mut store.locks, Locks::in_memory()));
    for _ in 0..5 {
        store.manual_clock.advance(10 * SECOND);
        renewed(&mut store, 7).await;
        until(|| guard.remaining() > 25 * SECOND).await;
    }
    drop(guard);
    has_left(&mut store, &claim).await;
}

#[tokio::test]
async fn a_release_is_sent_again_though_its_client_was_dropped() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    drop(mutex);
    drop(std::mem::replace(&mut store.locks, Locks::in_memory()));
    let releasing = tokio::spawn(guard.release());
    let (_, answer) = store.release().await;
    store.manual_clock.advance(2 * SECOND);
    // A keeper that wrongly takes itself for done has ended after this; the test does not depend on the sleep otherwise.
    std::thread::sleep(Duration::from_millis(20));
    answer.lose();
    has_left(&mut store, &claim).await;
    soon(releasing).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_release_is_tried_as_long_as_an_extended_lease_lasts() {
    let hour = 3600 * SECOND;
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let (extended, ()) = tokio::join!(guard.extend(hour), renewed(&mut store, 7));
    extended.unwrap();
    drop(guard);
    // Some minutes before the end, and some after it.
    for later in [TTL, TTL, hour - 5 * TTL, 10 * TTL] {
        let (left, answer) = store.release().await;
        assert!(matches!(&left[..], [Leaving::Done(left)] if left.id.hash() == claim.id.hash()), "{left:?}");
        answer.lose();
        assert!(settle(&mut store).await.is_empty(), "it is tried again, but not at once");
        store.manual_clock.advance(later);
    }
    // The last try was due when the lease had ended: it is made, and none after it.
    store.release().await.1.lose();
    assert!(settle(&mut store).await.is_empty());
    store.manual_clock.advance(hour);
    assert!(settle(&mut store).await.is_empty());
}
