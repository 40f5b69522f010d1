//! The server is there and refuses: loading, busy, unable to save, a replica. Each is said by its name, and passes.

use lockfast::{Error, Locks, LostWhy};

use crate::stage::{Admin, Way, connect, millis, now, secs, soon, until, watch_over};

/// It is the server that cannot, and the error says why.
fn assert_unavailable(error: &Error, word: &str) {
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains(word), "{word}: {error}");
    assert!(error.is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let settings = ["key-load-delay 1500", "loading-process-events-interval-bytes 1024"];
    let mut server =
        settings.into_iter().fold(servers::Redis::options(), |options, line| options.setting(line)).start();
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
    // Who waits gets it when that is done.
    let guard = soon(locks.mutex("a").lock_within(secs(25))).await.unwrap();
    let _server = starting.join().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_runs_somebodys_script_is_busy_and_loses_nothing() {
    let server = servers::Redis::options().setting("lua-time-limit 20").start();
    let url = server.url();
    let locks = connect(&url, secs(6)).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    let mut admin = Admin::of(&url);
    let looping = std::thread::spawn({
        let mut other = Admin::of(&url);
        move || other.run_words_to_an_error(&["EVAL", "while true do end", "0"])
    });
    until("it is busy", async || admin.ask("GET a").is_err_and(|error| error.to_string().contains("BUSY"))).await;
    let began = now();
    assert_unavailable(&locks.mutex("a").try_lock().await.unwrap_err(), "BUSY");
    let waiter = locks.mutex("a");
    let entering = tokio::spawn(async move { waiter.lock().await });
    tokio::time::sleep(millis(2_500)).await;
    assert!(now().since(began) > secs(2) && !entering.is_finished(), "over a renewal");
    admin.run("SCRIPT KILL");
    looping.join().unwrap();
    drop(soon(entering).await.unwrap().unwrap());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_save_refuses_and_what_is_held_is_lost_in_time() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(2)).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    std::fs::remove_dir_all(server.folder()).unwrap();
    admin.run_words(&["CONFIG", "SET", "save", "3600 1000000"]);
    admin.run("CONFIG SET stop-writes-on-bgsave-error yes");
    admin.run("BGSAVE");
    until("it refuses", async || admin.ask("SET a 1").is_err_and(|error| error.to_string().contains("MISCONF"))).await;
    assert_unavailable(&locks.mutex("a").try_lock().await.unwrap_err(), "MISCONF");
    let (why, _) = soon(watch_over(guard)).await.unwrap();
    assert_eq!(why, LostWhy::Expired);
    admin.run("CONFIG SET stop-writes-on-bgsave-error no");
    drop(soon(locks.mutex("held").lock()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_became_a_replica_is_left_and_used_again_when_it_is_none() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(10)).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    admin.run("REPLICAOF 127.0.0.1 1");
    // Repeated on a new connection, which is refused for the same reason; that is what happened last.
    assert_unavailable(&locks.mutex("a").try_lock().await.unwrap_err(), "replica");
    assert_unavailable(&Locks::connect(&server.url()).await.unwrap_err(), "replica");
    admin.run("REPLICAOF NO ONE");
    drop(soon(locks.mutex("a").lock_within(secs(8))).await.unwrap());
    guard.release().await.unwrap();
}

/// One address, behind which another server takes over while the old one goes on answering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_follow_the_address_when_its_server_became_a_replica() {
    let (old, new) = (servers::Redis::start(), servers::Redis::start());
    let (mut before, mut after) = (Admin::of(&old.url()), Admin::of(&new.url()));
    let way = Way::to(&old);
    let locks = connect(&way.url(), secs(3)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let reader = locks.rwlock("b").read().await.unwrap();
    after.run(&format!("REPLICAOF 127.0.0.1 {}", old.port()));
    until("it has everything", async || after.number("EXISTS lock:a lock:b") == 2).await;
    after.run("REPLICAOF NO ONE");
    way.lead_to(new.port());
    before.run(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    tokio::time::sleep(secs(6)).await;
    guard.check().unwrap();
    reader.check().unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    assert_eq!(after.number("EXISTS lock:a"), 0, "given back where it is now");
    assert!(locks.mutex("a").lock().await.unwrap().fence().unwrap() > fence);
}
