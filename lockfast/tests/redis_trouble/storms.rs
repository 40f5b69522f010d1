//! Failures that reach all clients at once: flushed scripts, cut connections, a server that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lockfast::store::{Leaving, Store};
use lockfast::{Error, LostWhy};

use crate::fixture::{
    Admin, Waiters, assert_in_order, claim, connect, count_waiters, hold, millis, now, secs, soon, spawn_until_lost,
    until,
};
use crate::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_sent_again() {
    let server = servers::Redis::start();
    let url = server.url();
    let done = Arc::new(AtomicBool::new(false));
    let (stop, flusher) = (Arc::clone(&done), url.clone());
    let flushing = std::thread::spawn(move || {
        let (mut admin, mut flushed) = (Admin::of(&flusher), 0);
        while !stop.load(Ordering::Relaxed) {
            admin.run("SCRIPT FLUSH");
            flushed += 1;
            std::thread::sleep(millis(2));
        }
        flushed
    });
    let (inside, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (locks, inside, count) = (connect(&url, secs(10)).await, Arc::clone(&inside), Arc::clone(&count));
        tasks.push(tokio::spawn(async move {
            for _ in 0..50 {
                let guard = locks.mutex("a").lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst));
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let flushed = flushing.join().unwrap();
    assert!(flushed > 3 && count.load(Ordering::SeqCst) == 200, "{flushed} times");
    assert!(Admin::of(&url).calls("eval") > 3, "a script was missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_that_time_out_together_cost_the_server_little() {
    const WAITERS: u64 = 400;
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(30)).await, connect(&server.url(), secs(30)).await);
    let _guard = holders.mutex("a").lock().await.unwrap();
    let give_up = |_| {
        let mutex = waiters.mutex("a").local_handoff(false);
        tokio::spawn(async move { mutex.lock_within(secs(3)).await })
    };
    let timing_out: Vec<_> = (0..WAITERS).map(give_up).collect();
    until("all of them wait", async || waiters.stats().waiting == WAITERS).await;
    let before = admin.calls("pttl");
    for waiter in timing_out {
        let error = soon(waiter).await.unwrap().unwrap_err();
        let Error::Busy { position, .. } = &error else { panic!("{error}") };
        assert!(position.is_none_or(|position| position <= WAITERS as usize), "{error:?}");
    }
    // Each reads the front of the queue, however long the queue is.
    let looks = admin.calls("pttl") - before;
    assert!(looks < 40 * WAITERS, "{looks} leases were read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_keep_their_order_when_connections_are_cut() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(30)).await, connect(&server.url(), secs(30)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let queued = Waiters::join(&waiters, "a", 1_000).await;
    let order = Waiters::queue_order(&waiters, "a").await;
    let (requests, started_at) = (admin.requests(), now());
    admin.kill_connections();
    until("both clients are subscribed again", async || admin.push_channels().len() == 2).await;
    until("all are still there", async || count_waiters(&holders, "a").await == 1_000).await;
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    assert_in_order(&queued.wait_until_all_entered().await, order, fence);
    let (made, elapsed) = (admin.requests() - requests, now().since(started_at));
    // Each waiter leaves, and may poll five times a second; a part of a second counts as a whole one.
    let allowed = 1_000 + 5 * 1_000 * (elapsed.as_secs() + 1);
    assert!(made < allowed, "{made} requests in {elapsed:?}");
    assert!(made < 5_000, "{made} requests for a thousand waiters that enter and leave");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_that_were_passed_over_rejoin_in_order() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let proxy = Proxy::to(&server);
    let (holders, waiters) = (connect(&server.url(), secs(30)).await, connect(&proxy.url(), secs(30)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let queued = Waiters::join(&waiters, "a", 1_000).await;
    let order = Waiters::queue_order(&holders, "a").await;
    let fence = guard.fence().unwrap();
    proxy.disconnect();
    until("the waiters are not subscribed", async || admin.push_channels().len() == 1).await;
    let checks = admin.subscriber_checks();
    guard.release().await.unwrap();
    assert_eq!(count_waiters(&holders, "a").await, 0, "waiters without a subscription are passed over");
    assert_eq!(admin.subscriber_checks() - checks, 1, "each client is checked once");
    assert!(admin.text("GET lock:a").is_empty(), "and the lock is free");
    let (requests, started_at) = (admin.requests(), now());
    proxy.redirect(server.port());
    assert_in_order(&queued.wait_until_all_entered().await, order, fence);
    let (made, elapsed) = (admin.requests() - requests, now().since(started_at));
    assert!(made < 8_000, "{made} requests in {elapsed:?}: each polls, joins, and leaves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_shorter_than_half_a_lease_loses_nothing() {
    let server = servers::Redis::options().with_debug_commands().start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(3)).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(locks.mutex(name).lock().await.unwrap());
    }
    guards.push(locks.rwlock("d").read().await.unwrap());
    let before = now();
    // Each stall covers a renewal of every guard.
    for stall in ["CLIENT PAUSE 1300 ALL", "DEBUG SLEEP 1.3"] {
        let waited = tokio::task::spawn_blocking(move || {
            admin.run(stall);
            admin.run("SET touch 1");
            admin
        });
        admin = waited.await.unwrap();
    }
    assert!(now().since(before) > millis(2500), "it stood still");
    for guard in guards {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_loses_in_time_when_a_pause_outlasts_its_lease() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (ours, theirs) = (connect(&server.url(), secs(1)).await, connect(&server.url(), secs(1)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let (fence, next) = (guard.fence().unwrap(), theirs.mutex("a"));
    let entering = tokio::spawn(async move {
        let guard = next.lock().await.unwrap();
        (now(), guard.fence().unwrap(), guard)
    });
    until("it waits", async || count_waiters(&ours, "a").await == 1).await;
    let pausing = tokio::task::spawn_blocking(move || {
        admin.run("CLIENT PAUSE 2500 ALL");
        let paused = now();
        admin.run("SET touch 1");
        (paused, now())
    });
    let (deadline, lost) = (guard.valid_until(), spawn_until_lost(guard));
    let (why, at) = soon(lost).await.unwrap();
    assert_eq!(why, LostWhy::Expired);
    let (paused, resumed) = pausing.await.unwrap();
    assert!(resumed.since(paused) > secs(2), "it stood still");
    assert!(at < resumed && at.since(deadline) < millis(1500), "lost after {:?}", at.since(deadline));
    let (entered, later, _guard) = soon(entering).await.unwrap();
    assert!(entered > at && later > fence, "the next holder enters after the loss");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_gets_few_connection_attempts() {
    let mut server = servers::Redis::start();
    let locks = connect(&server.url(), secs(30)).await;
    let store = lockfast::Redis::open(&server.url()).await.unwrap();
    let before = claim("lock:a", secs(60));
    hold(&store, &before).await;
    let queued = Waiters::join(&locks, "a", 10).await;
    server.kill();
    // A listener on its port counts the connections, and closes them.
    let listener = std::net::TcpListener::bind(("127.0.0.1", server.port()));
    let Ok(listener) = listener else { panic!("the port of a dead server is free: {listener:?}") };
    listener.set_nonblocking(true).unwrap();
    let (started_at, mut came) = (now(), 0);
    while now().since(started_at) < secs(4) {
        while listener.accept().is_ok() {
            came += 1;
        }
        tokio::time::sleep(millis(10)).await;
    }
    drop(listener);
    assert!((1..=30).contains(&came), "{came} connections in four seconds, for ten waiters");
    server.start_again();
    let _ = soon(store.release(&[Leaving::Done(before)])).await;
    let entered = queued.wait_until_all_entered().await;
    assert_eq!(entered.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_among_many_costs_no_more_than_one_among_few() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(30)).await;
    let mut looks =
        |before: u64| ["get", "mget", "pttl", "zrange"].map(|name| admin.calls(name)).iter().sum::<u64>() - before;
    let mut guards = Vec::new();
    for readers in [3, 300] {
        while guards.len() < readers {
            guards.push(locks.rwlock("a").read().await.unwrap());
        }
        let before = looks(0);
        for _ in 0..10 {
            locks.rwlock("a").read().await.unwrap().release().await.unwrap();
        }
        let each = looks(before) / 10;
        assert!(each < 30, "{each} reads of keys for one reader among {readers}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspecting_a_queue_keeps_a_disconnected_waiter() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let proxy = Proxy::to(&server);
    let (holders, waiters) = (connect(&server.url(), secs(30)).await, connect(&proxy.url(), secs(30)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let queued = Waiters::join(&waiters, "a", 1).await;
    proxy.disconnect();
    until("the waiters are not subscribed", async || admin.push_channels().len() == 1).await;
    assert_eq!(count_waiters(&holders, "a").await, 1);
    proxy.redirect(server.port());
    guard.release().await.unwrap();
    queued.wait_until_all_entered().await;
}
