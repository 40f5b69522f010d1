//! Somebody else touches the keys: deletes them, or puts something of another kind in their place.

use lockfast::store::{Busy, Lease, Leaving, Standing, Store, Why};
use lockfast::store::{Demand, Demands, Name};
use lockfast::{Error, LostWhy, Redis};

use crate::stage::{
    Admin, Crowd, assert_in_order, claim, claim_of, connect, hold, millis, now, queue, secs, soon, until, waiting,
    watch_over,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_deleted_by_hand_is_reported_and_the_line_goes_on() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(3)).await, connect(&server.url(), secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let crowd = Crowd::gather(&waiters, "a", 3).await;
    assert_eq!(admin.number("DEL lock:a"), 1);
    assert!(holders.mutex("a").try_lock().await.unwrap().is_none(), "an absent holder is not a free lock");
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    assert_in_order(&crowd.all_in().await, 0..3, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_deleted_by_hand_forms_again() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(3)).await, connect(&server.url(), secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let crowd = Crowd::gather(&waiters, "a", 3).await;
    let line = admin.line_of("lock:a").unwrap();
    assert_eq!(admin.number(&format!("DEL {line}")), 1);
    until("all are back", async || waiting(&holders, "a").await == 3).await;
    guard.release().await.unwrap();
    assert_in_order(&crowd.all_in().await, 0..3, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharers_whose_line_was_deleted_have_lost() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(1)).await;
    let reader = locks.rwlock("a").read().await.unwrap();
    let permit = locks.semaphore("b", 2).acquire().await.unwrap();
    for key in ["lock:a", "lock:b"] {
        let line = admin.line_of(key).unwrap();
        admin.run(&format!("DEL {line}"));
    }
    for guard in [reader, permit] {
        assert_eq!(soon(watch_over(guard)).await.unwrap().0, LostWhy::Evicted);
    }
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_a_multis_keys_deleted_loses_it_all_and_frees_the_rest() {
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
async fn what_is_no_lock_is_refused_and_left_as_it_is() {
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
async fn one_key_of_another_kind_does_not_hurt_the_others_of_its_batch() {
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
    // A line of another kind, for one that waits in it.
    let waits = claim("lock:10", secs(5));
    queue(&store, &waits).await;
    let line = admin.line_of("lock:10").unwrap();
    admin.run(&format!("DEL {line}"));
    admin.run(&format!("HSET {line} field value"));
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
async fn a_multi_leaves_its_other_names_when_one_became_of_another_kind() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let exclusive = |text: &str| Demand::exclusive(Name::new(text).unwrap());
    let demands = || Demands::of(vec![exclusive("lock:a"), exclusive("lock:b"), exclusive("lock:c")]).unwrap();
    for renews_first in [false, true] {
        let several = claim_of(demands(), secs(30));
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
async fn another_programs_lock_in_the_middle_of_a_line_is_waited_for() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(2)).await, connect(&server.url(), secs(2)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let crowd = Crowd::gather(&waiters, "a", 3).await;
    // An administrator deletes it, and another program is quicker than those in line.
    admin.run("MULTI");
    admin.run("DEL lock:a");
    admin.run("SET lock:a foreign NX PX 3000");
    admin.run("EXEC");
    let taken = now();
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    drop(guard);
    until("somebody got in", async || !crowd.entered.lock().unwrap().is_empty()).await;
    assert!(now().since(taken) > millis(2_990), "the other program had it until then");
    assert_in_order(&crowd.all_in().await, 0..3, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_at_the_front_takes_all_or_nothing_whoever_comes_meanwhile() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (ours, theirs) = (connect(&server.url(), secs(5)).await, connect(&server.url(), secs(5)).await);
    let guard = theirs.mutex("b").lock().await.unwrap();
    let several = ours.multi(["a", "b"]);
    let entering = tokio::spawn(async move { several.lock().await.unwrap() });
    until("it waits", async || waiting(&theirs, "a").await == 1).await;
    assert!(theirs.mutex("a").try_lock().await.unwrap().is_none(), "it stands in that line too");
    assert_eq!(admin.number("EXISTS lock:a"), 0, "but has not taken it");
    assert_eq!(admin.text("SET lock:a foreign NX PX 60000"), "OK");
    guard.release().await.unwrap();
    tokio::time::sleep(millis(700)).await;
    assert!(!entering.is_finished() && admin.text("GET lock:a") == "foreign");
    assert_eq!(admin.number("EXISTS lock:b"), 0, "nothing is taken before all can be");
    admin.run("DEL lock:a");
    soon(entering).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_question_about_a_lock_whose_end_was_taken_away_does_not_end_it() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (alone, other) = (claim("lock:a", secs(20)), claim("lock:b", secs(20)));
    hold(&store, &alone).await;
    hold(&store, &other).await;
    for key in ["lock:a", "lock:b"] {
        assert_eq!(admin.number(&format!("PERSIST {key}")), 1);
    }
    // Together with one of another span, so that both ways of renewing are gone.
    let lease = |claim: &std::sync::Arc<lockfast::store::Claim>, ttl| Lease { claim: claim.clone(), ttl };
    let standings = store.renew(&[lease(&other, secs(20)), lease(&alone, secs(0))]).await.unwrap();
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Held(_))), "{standings:?}");
    let standings = store.renew(&[lease(&alone, secs(0))]).await.unwrap();
    assert!(matches!(standings[..], [Standing::Held(_)]), "{standings:?}");
    assert_eq!(admin.number("EXISTS lock:a"), 1, "it was only asked about");
    assert!(admin.number("PTTL lock:b") > 0, "a lease has an end again");
}

#[tokio::test]
async fn a_record_that_cannot_be_read_hurts_only_its_own_claim() {
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
async fn a_lock_is_given_back_whatever_stands_in_the_place_of_its_line() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (holder, waiter) = (claim("lock:a", secs(20)), claim("lock:a", secs(20)));
    hold(&store, &holder).await;
    queue(&store, &waiter).await;
    let line = admin.line_of("lock:a").unwrap();
    admin.run(&format!("DEL {line}"));
    admin.run(&format!("SET {line} something"));
    let _ = store.release(&[Leaving::Done(holder)]).await;
    assert_eq!(admin.number("EXISTS lock:a"), 0);
}
