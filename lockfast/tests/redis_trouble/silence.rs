//! Silent cuts: connections on which no bytes arrive any more, without an error at either end.

use lockfast::{Locks, Redis};

use crate::fixture::{Admin, claim, connect, count_waiters, hold, millis, now, secs, soon, until};
use crate::proxy::Proxy;

/// After a silent cut, a free lock is acquired within two seconds.
async fn expect_recovery(proxy: &Proxy, locks: &Locks) {
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    proxy.silence();
    let started_at = now();
    let guard = locks.mutex("a").lock_within(secs(20)).await.unwrap();
    let elapsed = now().since(started_at);
    assert!(elapsed < secs(2), "it took {elapsed:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_free_lock_is_taken_within_two_seconds_after_a_silent_cut() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let locks = connect(&proxy.url(), secs(30)).await;
    expect_recovery(&proxy, &locks).await;
}

#[tokio::test]
async fn a_holder_with_a_short_lease_survives_a_silent_cut() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let locks = connect(&proxy.url(), secs(1)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    proxy.silence();
    let lost = tokio::time::timeout(secs(4), guard.lost()).await;
    assert!(lost.is_err(), "it was lost: {lost:?}");
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_subscription_on_an_idle_connection_survives_a_silent_cut() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let locks = connect(&format!("{}?heartbeat=200ms", proxy.url()), secs(60)).await;
    let others = connect(&server.url(), secs(60)).await;
    let guard = others.mutex("a").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    until("it waits", async || count_waiters(&others, "a").await == 1).await;
    let before = proxy.connection_attempts();
    proxy.silence();
    until("connections are replaced", async || proxy.connection_attempts() > before).await;
    guard.release().await.unwrap();
    soon(waiter).await.unwrap().unwrap().release().await.unwrap();
}

fn ids(admin: &mut Admin) -> Vec<String> {
    let list = admin.text("CLIENT LIST");
    list.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

#[tokio::test]
async fn a_cancelled_caller_retires_no_connection() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(60)).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let before = ids(&mut admin);
    assert_eq!(before.len(), 3, "the administrator's, the keeper's and this runtime's");
    admin.run("CLIENT PAUSE 700 ALL");
    assert!(tokio::time::timeout(millis(400), locks.mutex("a").lock()).await.is_err());
    assert!(tokio::time::timeout(millis(100), locks.mutex("b").is_locked()).await.is_err());
    // Answered when the pause is over, on the connection that the cancelled callers used.
    locks.mutex("c").lock().await.unwrap().release().await.unwrap();
    until("only these are left", async || ids(&mut admin) == before).await;
}

#[tokio::test]
async fn a_slow_network_is_not_taken_for_silence() {
    let server = servers::Redis::start();
    let proxy = Proxy::with_delay(&server, millis(160));
    let store = Redis::open(&proxy.url()).await.unwrap();
    for number in 0..6 {
        soon(hold(&store, &claim(&format!("lock:a{number}"), secs(60)))).await;
    }
    assert_eq!(
        proxy.connection_attempts(),
        1,
        "although each round trip takes longer than the shortest limit for silence"
    );
    drop(store);
}

#[tokio::test]
async fn a_server_that_is_busy_for_a_second_keeps_its_connections() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = Locks::connect(&server.url()).await.unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    let before = ids(&mut admin);
    let busy = "local begin = redis.call('TIME') repeat local now = redis.call('TIME') until \
                (now[1] - begin[1]) * 1000000 + now[2] - begin[2] > 1000000";
    let running = std::thread::spawn(move || admin.run_words(&["EVAL", busy, "0"]));
    assert!(locks.mutex("a").is_locked().await.unwrap());
    running.join().unwrap();
    guard.release().await.unwrap();
    let mut admin = Admin::of(&server.url());
    until("all connections are still there, and no other", async || {
        let now = ids(&mut admin);
        now.len() == before.len() && before[1..].iter().all(|id| now.contains(id))
    })
    .await;
}

#[tokio::test]
async fn a_slow_first_reply_does_not_delay_the_check_for_silence() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let mut admin = Admin::of(&server.url());
    admin.run("CLIENT PAUSE 2500 ALL");
    let locks = connect(&proxy.url(), secs(30)).await;
    expect_recovery(&proxy, &locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_blocked_for_600_ms_ends_no_connection() {
    let server = servers::Redis::start();
    let locks = connect(&server.url(), secs(30)).await;
    let mut admin = Admin::of(&server.url());
    let work = async move {
        locks.mutex("a").lock().await.unwrap().release().await.unwrap();
        let before = ids(&mut admin);
        for _ in 0..4 {
            let mutex = locks.mutex("a");
            // The worker that drives the connection is blocked; the other worker runs the check for silence.
            let (answer, ()) = futures::join!(mutex.is_locked(), async { std::thread::sleep(millis(600)) });
            answer.unwrap();
        }
        assert_eq!(ids(&mut admin), before);
    };
    tokio::spawn(work).await.unwrap();
}
