//! Another program changes the keys: deletes them, or puts a value of another type in their place.

use lockfast::store::{Busy, Lease, Leaving, Standing, Store, Why};
use lockfast::store::{Demand, Demands, Name};
use lockfast::{Error, LostWhy, Redis};

use crate::fixture::{
    Admin, Waiters, assert_in_order, claim, claim_with_demands, connect, count_waiters, hold, millis, now, queue, secs,
    soon, spawn_until_lost, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_deleted_by_hand_is_reported_and_waiters_go_on() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(3)).await, connect(&server.url(), secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 3).await;
    assert_eq!(admin.number("DEL lock:a"), 1);
    assert!(holders.mutex("a").try_lock().await.unwrap().is_none(), "an absent holder is not a free lock");
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    assert_in_order(&queued.wait_until_all_entered().await, 0..3, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_rejoin_a_queue_deleted_by_hand() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(3)).await, connect(&server.url(), secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 3).await;
    let key = admin.queue_key("lock:a").unwrap();
    assert_eq!(admin.number(&format!("DEL {key}")), 1);
    until("all are back", async || count_waiters(&holders, "a").await == 3).await;
    guard.release().await.unwrap();
    assert_in_order(&queued.wait_until_all_entered().await, 0..3, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_whose_queue_was_deleted_have_lost() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(1)).await;
    let reader = locks.rwlock("a").read().await.unwrap();
    let permit = locks.semaphore("b", 2).acquire().await.unwrap();
    for key in ["lock:a", "lock:b"] {
        let key = admin.queue_key(key).unwrap();
        admin.run(&format!("DEL {key}"));
    }
    for guard in [reader, permit] {
        assert_eq!(soon(spawn_until_lost(guard)).await.unwrap().0, LostWhy::Evicted);
    }
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_that_lost_one_key_has_lost_all_and_frees_the_rest() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(2)).await;
    let guard = locks.multi(["a", "b", "c"]).lock().await.unwrap();
    admin.run("DEL lock:b");
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    drop(guard);
    until("nothing is left", async || admin.number("EXISTS lock:a lock:b lock:c") == 0).await;
    drop(locks.multi(["a", "b", "c"]).try_lock().await.unwrap().unwrap());
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_refused_and_left_as_it_is() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(3)).await;
    admin.run("HSET lock:hash field value");
    admin.run("RPUSH lock:list one two");
    admin.run("SADD lock:set one");
    for name in ["hash", "list", "set"] {
        let refused = [
            locks.mutex(name).lock().await.unwrap_err(),
            locks.mutex(name).try_lock().await.unwrap_err(),
            locks.rwlock(name).read().await.unwrap_err(),
            locks.multi([name, "other"]).lock().await.unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(&error, Error::Invalid(text) if text.contains("no lock")), "{error:?}");
        }
    }
    assert_eq!(admin.text("HGET lock:hash field"), "value");
    assert_eq!(admin.number("LLEN lock:list") + admin.number("SCARD lock:set"), 3);
    assert_eq!(admin.number("EXISTS lock:other"), 0);
    let left: Vec<_> =
        admin.list("KEYS *").into_iter().filter(|key| key.contains("line") || key.contains("claim")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn one_key_of_another_type_does_not_fail_its_whole_batch() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let mut claims = Vec::new();
    for index in 0..50 {
        claims.push(claim(&format!("lock:{index}"), secs(5)));
        hold(&store, &claims[index]).await;
    }
    admin.run("DEL lock:20 lock:30");
    admin.run("HSET lock:20 field value");
    admin.run_words(&["SET", "lock:30", "lockfast2 x written by a later version"]);
    // The key of a queue gets another type while a claim waits in it.
    let waits = claim("lock:10", secs(5));
    queue(&store, &waits).await;
    let key = admin.queue_key("lock:10").unwrap();
    admin.run(&format!("DEL {key}"));
    admin.run(&format!("HSET {key} field value"));
    claims.push(waits);
    let leases: Vec<_> = claims.iter().map(|claim| Lease { claim: claim.clone(), ttl: secs(60) }).collect();
    let standings = store.renew(&leases).await.unwrap();
    for (index, standing) in standings.iter().enumerate() {
        match index {
            20 | 30 | 50 => assert_eq!(*standing, Standing::Gone(Why::Unknown)),
            _ => assert!(matches!(standing, Standing::Held(_)), "{index}: {standing:?}"),
        }
    }
    assert!(admin.number("PTTL lock:49") > 50_000 && admin.number("PTTL lock:0") > 50_000);
    let leaving: Vec<_> = claims.into_iter().map(Leaving::Done).collect();
    let standings = store.release(&leaving).await.unwrap();
    for (index, standing) in standings.iter().enumerate() {
        let why = if matches!(index, 20 | 30 | 50) { Why::Unknown } else { Why::Left };
        assert_eq!(*standing, Standing::Gone(why), "{index}");
    }
    assert_eq!(admin.text("HGET lock:20 field"), "value");
    assert!(admin.text("GET lock:30").starts_with("lockfast2 "));
    assert_eq!(admin.list("KEYS lock:*").len(), 2);
    let newer = store.acquire(&claim("lock:30", secs(5)), Busy::Wait).await.unwrap_err();
    assert!(matches!(&newer, Error::Unsupported(text) if text.contains("newer")), "{newer:?}");
}

#[tokio::test]
async fn a_multi_releases_its_other_names_when_one_changed_type() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let exclusive = |text: &str| Demand::exclusive(Name::new(text).unwrap());
    let demands = || Demands::of(vec![exclusive("lock:a"), exclusive("lock:b"), exclusive("lock:c")]).unwrap();
    for renews_first in [false, true] {
        let several = claim_with_demands(demands(), secs(30));
        hold(&store, &several).await;
        admin.run("DEL lock:b");
        admin.run("HSET lock:b field value");
        if renews_first {
            let lease = Lease { claim: several.clone(), ttl: secs(30) };
            assert_eq!(store.renew(&[lease]).await.unwrap(), [Standing::Gone(Why::Unknown)]);
        }
        store.release(&[Leaving::Done(several)]).await.unwrap();
        assert_eq!(admin.number("EXISTS lock:a lock:c"), 0, "they are free");
        assert_eq!(admin.text("HGET lock:b field"), "value");
        admin.run("DEL lock:b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_programs_lock_in_front_of_a_queue_is_waited_for() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(2)).await, connect(&server.url(), secs(2)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 3).await;
    // An administrator deletes the key, and another program takes it before the waiters do.
    admin.run("MULTI");
    admin.run("DEL lock:a");
    admin.run("SET lock:a foreign NX PX 3000");
    admin.run("EXEC");
    let taken = now();
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    drop(guard);
    until("one waiter has entered", async || !queued.entered.lock().unwrap().is_empty()).await;
    assert!(now().since(taken) > millis(2_990), "the other program had it until then");
    assert_in_order(&queued.wait_until_all_entered().await, 0..3, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_at_the_front_takes_all_names_or_none() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (ours, theirs) = (connect(&server.url(), secs(5)).await, connect(&server.url(), secs(5)).await);
    let guard = theirs.mutex("b").lock().await.unwrap();
    let several = ours.multi(["a", "b"]);
    let entering = tokio::spawn(async move { several.lock().await.unwrap() });
    until("it waits", async || count_waiters(&theirs, "a").await == 1).await;
    assert!(theirs.mutex("a").try_lock().await.unwrap().is_none(), "it waits in that queue too");
    assert_eq!(admin.number("EXISTS lock:a"), 0, "but does not hold it");
    assert_eq!(admin.text("SET lock:a foreign NX PX 60000"), "OK");
    guard.release().await.unwrap();
    tokio::time::sleep(millis(700)).await;
    assert!(!entering.is_finished() && admin.text("GET lock:a") == "foreign");
    assert_eq!(admin.number("EXISTS lock:b"), 0, "nothing is taken before all can be");
    admin.run("DEL lock:a");
    soon(entering).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_renewal_by_zero_does_not_end_a_lock_without_a_ttl() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (alone, other) = (claim("lock:a", secs(20)), claim("lock:b", secs(20)));
    hold(&store, &alone).await;
    hold(&store, &other).await;
    for key in ["lock:a", "lock:b"] {
        assert_eq!(admin.number(&format!("PERSIST {key}")), 1);
    }
    // Together with a lease of another length, so that both ways of renewing are taken.
    let lease = |claim: &std::sync::Arc<lockfast::store::Claim>, ttl| Lease { claim: claim.clone(), ttl };
    let standings = store.renew(&[lease(&other, secs(20)), lease(&alone, secs(0))]).await.unwrap();
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Held(_))), "{standings:?}");
    let standings = store.renew(&[lease(&alone, secs(0))]).await.unwrap();
    assert!(matches!(standings[..], [Standing::Held(_)]), "{standings:?}");
    assert_eq!(admin.number("EXISTS lock:a"), 1, "a renewal by zero only asks");
    assert!(admin.number("PTTL lock:b") > 0, "a renewed lease has a TTL again");
}

#[tokio::test]
async fn a_record_that_cannot_be_decoded_fails_only_its_own_claim() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (holder, waiter, other) = (claim("lock:a", secs(20)), claim("lock:a", secs(20)), claim("lock:b", secs(20)));
    hold(&store, &holder).await;
    queue(&store, &waiter).await;
    hold(&store, &other).await;
    let record = admin.list("KEYS lockfast:*:claim:*").remove(0);
    for damage in ["hello", "\u{1}", "lockfast1 x"] {
        admin.run_words(&["SET", &record, damage, "KEEPTTL"]);
        let leases: Vec<_> = [&waiter, &other].map(|claim| Lease { claim: claim.clone(), ttl: secs(20) }).into();
        let standings = store.renew(&leases).await.unwrap();
        assert!(matches!(standings[..], [Standing::Gone(Why::Unknown), Standing::Held(_)]), "{damage}: {standings:?}");
    }
}

#[tokio::test]
async fn a_lock_is_released_whatever_is_at_the_key_of_its_queue() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (holder, waiter) = (claim("lock:a", secs(20)), claim("lock:a", secs(20)));
    hold(&store, &holder).await;
    queue(&store, &waiter).await;
    let key = admin.queue_key("lock:a").unwrap();
    admin.run(&format!("DEL {key}"));
    admin.run(&format!("SET {key} something"));
    let _ = store.release(&[Leaving::Done(holder)]).await;
    assert_eq!(admin.number("EXISTS lock:a"), 0);
}
