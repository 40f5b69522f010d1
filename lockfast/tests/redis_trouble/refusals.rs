//! The server answers and refuses: it loads its data, is busy, cannot save, or is a replica. The error names the reason, and
//! locks work again when the reason is gone.

use lockfast::{Error, Locks, LostWhy};

use crate::fixture::{Admin, connect, millis, now, secs, soon, spawn_until_lost, until};
use crate::proxy::Proxy;

/// The error is retryable, and names the server's reason.
fn assert_unavailable(error: &Error, word: &str) {
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains(word), "{word}: {error}");
    assert!(error.is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let settings = ["key-load-delay 1500", "loading-process-events-interval-bytes 1024"];
    let mut server = servers::Redis::options().settings(settings).start();
    let url = server.url();
    let locks = connect(&url, secs(10)).await;
    let mut admin = Admin::of(&url);
    admin.run_words(&["EVAL", "for i = 1, 2000 do redis.call('SET', 'filler:' .. i, string.rep('x', 100)) end", "0"]);
    admin.run("SAVE");
    server.kill();
    let starting = std::thread::spawn(move || {
        server.start_again();
        server
    });
    until("it loads", async || {
        let client = redis::Client::open(&*url).unwrap();
        let Ok(mut connection) = client.get_connection() else { return false };
        let answer = redis::cmd("GET").arg("a").query::<Option<String>>(&mut connection);
        answer.is_err_and(|error| error.to_string().contains("oading"))
    })
    .await;
    assert_unavailable(&Locks::connect(&url).await.unwrap_err(), "LOADING");
    let early = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(early, Error::Unavailable { .. }), "{early}");
    // A waiter gets the lock when the server has loaded.
    let guard = soon(locks.mutex("a").lock_within(secs(25))).await.unwrap();
    let _server = starting.join().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_another_script_loses_no_lock() {
    let server = servers::Redis::options().setting("lua-time-limit 20").start();
    let url = server.url();
    let locks = connect(&url, secs(6)).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    let mut admin = Admin::of(&url);
    let looping = std::thread::spawn({
        let mut other = Admin::of(&url);
        move || other.expect_error_of_words(&["EVAL", "while true do end", "0"])
    });
    until("it is busy", async || admin.try_run("GET a").is_err_and(|error| error.to_string().contains("BUSY"))).await;
    let started_at = now();
    assert_unavailable(&locks.mutex("a").try_lock().await.unwrap_err(), "BUSY");
    let waiter = locks.mutex("a");
    let entering = tokio::spawn(async move { waiter.lock().await });
    tokio::time::sleep(millis(2_500)).await;
    assert!(now().since(started_at) > secs(2) && !entering.is_finished(), "over a renewal");
    admin.run("SCRIPT KILL");
    looping.join().unwrap();
    drop(soon(entering).await.unwrap().unwrap());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_a_server_that_cannot_save_has_lost_in_time() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(2)).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    std::fs::remove_dir_all(server.folder()).unwrap();
    admin.run_words(&["CONFIG", "SET", "save", "3600 1000000"]);
    admin.run("CONFIG SET stop-writes-on-bgsave-error yes");
    admin.run("BGSAVE");
    until("it refuses", async || admin.try_run("SET a 1").is_err_and(|error| error.to_string().contains("MISCONF")))
        .await;
    assert_unavailable(&locks.mutex("a").try_lock().await.unwrap_err(), "MISCONF");
    let (why, _) = soon(spawn_until_lost(guard)).await.unwrap();
    assert_eq!(why, LostWhy::Expired);
    admin.run("CONFIG SET stop-writes-on-bgsave-error no");
    drop(soon(locks.mutex("held").lock()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_left_as_a_replica_and_used_again_as_a_primary() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(10)).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    admin.run("REPLICAOF 127.0.0.1 1");
    // The request is repeated on a new connection, which is refused for the same reason. The error says what failed last.
    assert_unavailable(&locks.mutex("a").try_lock().await.unwrap_err(), "replica");
    assert_unavailable(&Locks::connect(&server.url()).await.unwrap_err(), "replica");
    admin.run("REPLICAOF NO ONE");
    drop(soon(locks.mutex("a").lock_within(secs(8))).await.unwrap());
    guard.release().await.unwrap();
}

/// Another server takes over behind one address, while the old one goes on answering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_follow_the_address_when_its_server_became_a_replica() {
    let (old, new) = (servers::Redis::start(), servers::Redis::start());
    let (mut before, mut after) = (Admin::of(&old.url()), Admin::of(&new.url()));
    let proxy = Proxy::to(&old);
    let locks = connect(&proxy.url(), secs(3)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let reader = locks.rwlock("b").read().await.unwrap();
    after.run(&format!("REPLICAOF 127.0.0.1 {}", old.port()));
    until("it has everything", async || after.number("EXISTS lock:a lock:b") == 2).await;
    after.run("REPLICAOF NO ONE");
    proxy.redirect(new.port());
    before.run(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    tokio::time::sleep(secs(6)).await;
    guard.check().unwrap();
    reader.check().unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    assert_eq!(after.number("EXISTS lock:a"), 0, "released on the new primary");
    assert!(locks.mutex("a").lock().await.unwrap().fence().unwrap() > fence);
}
