//! The server forgets: it is flushed, or restarts empty or from an old copy of its data.

use lockfast::store::{Leaving, Store};
use lockfast::{LostWhy, Redis};

use crate::fixture::{
    Admin, Waiters, assert_fences_rise, assert_in_order, claim, connect, count_waiters, hold, queue, secs, soon,
    spawn_until_lost, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_flush_the_holder_has_lost_and_waiters_rejoin_in_order() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let (holders, waiters) = (connect(&server.url(), secs(3)).await, connect(&server.url(), secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 5).await;
    admin.run("FLUSHALL");
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    assert!(guard.release().await.is_err(), "it was lost");
    assert_in_order(&queued.wait_until_all_entered().await, 0..5, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_empty_restart_waiters_rejoin_in_order() {
    let mut server = servers::Redis::start();
    let (holders, waiters) = (connect(&server.url(), secs(3)).await, connect(&server.url(), secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 5).await;
    server.kill();
    server.start_again();
    soon(guard.lost()).await;
    assert_in_order(&queued.wait_until_all_entered().await, 0..5, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_on_a_durable_server_survive_its_restart() {
    let mut server = servers::Redis::options().durable().start();
    let (holders, waiters) = (connect(&server.url(), secs(20)).await, connect(&server.url(), secs(20)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 5).await;
    server.kill();
    server.start_again();
    let mut admin = Admin::of(&server.url());
    until("both clients are back", async || admin.number("PUBSUB NUMPAT") == 0 && admin.push_channels().len() == 2)
        .await;
    soon(guard.extend(secs(20))).await.unwrap();
    guard.release().await.unwrap();
    assert_in_order(&queued.wait_until_all_entered().await, 0..5, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_copy_of_the_data_gives_no_fence_twice() {
    let mut server = servers::Redis::start();
    let locks = connect(&server.url(), secs(10)).await;
    let first = locks.mutex("a").lock().await.unwrap();
    let mut fences = vec![first.fence().unwrap()];
    first.release().await.unwrap();
    Admin::of(&server.url()).run("SAVE");
    for _ in 0..50 {
        let guard = locks.mutex("a").lock().await.unwrap();
        fences.push(guard.fence().unwrap());
        guard.release().await.unwrap();
    }
    server.kill();
    server.start_again();
    // First a client that has seen none of the fences.
    let stranger = Redis::open(&server.url()).await.unwrap();
    let theirs = claim("lock:a", secs(10));
    fences.push(hold(&stranger, &theirs).await);
    stranger.release(&[Leaving::Done(theirs)]).await.unwrap();
    fences.push(soon(locks.mutex("a").lock()).await.unwrap().fence().unwrap());
    assert_fences_rise(fences);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_waits_in_the_restored_copy_has_lost() {
    let mut server = servers::Redis::start();
    let locks = connect(&server.url(), secs(9)).await;
    let store = Redis::open(&server.url()).await.unwrap();
    let before = claim("lock:a", secs(60));
    hold(&store, &before).await;
    let (mutex, asker) = (locks.mutex("a"), locks.clone());
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || count_waiters(&asker, "a").await == 1).await;
    Admin::of(&server.url()).run("SAVE");
    store.release(&[Leaving::Done(before)]).await.unwrap();
    let guard = soon(entering).await.unwrap();
    server.kill();
    server.start_again();
    assert_eq!(soon(spawn_until_lost(guard)).await.unwrap().0, LostWhy::Evicted, "the server names another holder");
}

#[tokio::test]
async fn a_counter_that_was_deleted_or_set_back_gives_no_fence_twice() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(10)).await;
    let stranger = Redis::open(&server.url()).await.unwrap();
    let mut fences = Vec::new();
    let set_back = [
        "DEL lockfast:tickets",
        "SET lockfast:tickets 7",
        "SET lockfast:tickets 1000500",
        "SET lockfast:tickets 1000000000000000",
        "DEL lockfast:identity",
    ];
    for (index, meddle) in set_back.into_iter().enumerate() {
        for name in ["a", "b"] {
            let guard = locks.mutex(name).lock().await.unwrap();
            fences.push(guard.fence().unwrap());
            let value = admin.text(&format!("GET lock:{name}"));
            assert!(value.contains(&format!(" {} ", fences.last().unwrap())), "{value}");
            guard.release().await.unwrap();
        }
        let counter = admin.text("GET lockfast:tickets");
        assert!(counter.bytes().all(|byte| byte.is_ascii_digit()), "{counter} after {index}");
        admin.run(meddle);
    }
    // Without a counter, tickets continue from the server's clock, which is above all of them. So also a client that has seen
    // no ticket draws a higher one.
    admin.run("DEL lockfast:tickets");
    fences.push(hold(&stranger, &claim("lock:c", secs(10))).await);
    admin.run("DEL lockfast:tickets");
    queue(&stranger, &claim("lock:c", secs(10))).await;
    fences.push(hold(&stranger, &claim("lock:d", secs(10))).await);
    // The counter is below any ticket, and the new client has seen none.
    let newcomer = connect(&server.url(), secs(10)).await;
    admin.run("SET lockfast:tickets -99999999");
    fences.push(newcomer.mutex("e").lock().await.unwrap().fence().unwrap());
    assert_fences_rise(fences);
}

#[tokio::test]
async fn the_largest_ticket_a_client_has_seen_is_the_floor_of_its_next() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(10)).await;
    let far = 9_000_000_000_000_000_u64 - 1_000;
    admin.run(&format!("SET lockfast:tickets {far}"));
    let mut fences = vec![locks.mutex("a").lock().await.unwrap().fence().unwrap()];
    assert!(fences[0] > far);
    for (name, counter) in [("b", 2_000_000), ("bb", 1_000_000_000_000_000_u64)] {
        admin.run(&format!("SET lockfast:tickets {counter}"));
        fences.push(locks.mutex(name).lock().await.unwrap().fence().unwrap());
    }
    admin.run("SET lockfast:tickets 2000000");
    fences.push(locks.rwlock("c").read().await.unwrap().fence().unwrap());
    admin.run("SET lockfast:tickets 2000000");
    fences.push(locks.multi(["d", "e"]).lock().await.unwrap().fence().unwrap());
    assert_fences_rise(fences);
}

/// The server's clock goes on while a script runs, and the machine may stop it for a while.
#[tokio::test]
async fn a_renewal_that_takes_long_shortens_no_lease() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    hold(&store, &claim("lock:a", secs(10))).await;
    let (before, after) = include_str!("../../src/stores/redis/lua/renew.lua").split_once("  replies = call(").unwrap();
    let slow_script = format!("{before} for i = 1, 30000000 do end replies = call({after}");
    let begins = admin.text("GETRANGE lock:a 0 67");
    let ends = "local time = redis.call('TIME') return time[1] * 1000 + time[2] / 1000 + redis.call('PTTL', 'lock:a')";
    let ends = |admin: &mut Admin| -> u64 { redis::from_redis_value(admin.run_words(&["EVAL", ends, "0"])).unwrap() };
    // Slightly longer than the renewal's TTL.
    admin.run("PEXPIRE lock:a 30050");
    let then = ends(&mut admin);
    admin.run_words(&["EVAL", &slow_script, "1", "lock:a", "0", "30000", "1", &begins]);
    let now = ends(&mut admin);
    assert!(now + 2 >= then, "shortened by {} ms", then - now);
}
