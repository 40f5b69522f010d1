//! Errors show names as the caller wrote them, without the prefix of the key in Redis.

use futures::FutureExt;
use futures::future::BoxFuture;
use lockfast::{Error, Locks, Retry};

use crate::fixture::{Admin, millis, secs};
use crate::proxy::Proxy;

const PREFIX: &str = "pre:fix:";

async fn connect(url: &str) -> Locks {
    Locks::builder().prefix(PREFIX).ttl(secs(30)).connect(url).await.unwrap()
}

/// An error of every method, each with the name that it has to show.
async fn every_verb(locks: &Locks, break_all: impl FnOnce()) -> Vec<(&'static str, String, Error)> {
    let guard = locks.mutex("held \"it\"").lock().await.unwrap();
    let released = locks.mutex("released").lock().await.unwrap();
    let lingers = locks.mutex("lingers").hold_at_least(secs(60)).lock().await.unwrap();
    let detached = locks.mutex("detached").detached().lock().await.unwrap();
    let token = locks.mutex("token").detached().lock().await.unwrap().into_token().await.unwrap();
    let lockfast::OnceState::Ours(once_guard) = locks.once("sealed").begin().await.unwrap() else {
        panic!("it is new")
    };
    break_all();
    let once = Retry { count: Some(1), base: millis(1), ..Retry::default() };
    let (mutex, multi) = (locks.mutex("name"), locks.multi(["one of two", "the other"]));
    let (retried, read, permit) = (mutex.clone().retry(once), locks.rwlock("name"), locks.semaphore("name", 3));
    let (run, election) = (locks.once("name"), locks.election("name"));
    // All at once: each takes a while to fail.
    let calls: Vec<(&str, &str, BoxFuture<'_, Option<Error>>)> = vec![
        ("try_lock", "name", async { mutex.try_lock().await.err() }.boxed()),
        ("lock_within", "name", async { mutex.lock_within(millis(100)).await.err() }.boxed()),
        ("retry", "name", async { retried.lock().await.err() }.boxed()),
        ("multi", "one of two", async { multi.try_lock().await.err() }.boxed()),
        ("multi", "the other", async { multi.try_lock().await.err() }.boxed()),
        ("read", "name", async { read.try_read().await.err() }.boxed()),
        ("permit", "name", async { permit.try_acquire().await.err() }.boxed()),
        ("once", "name", async { run.begin_within(millis(100)).await.err() }.boxed()),
        ("extend", "held \"it\"", async { guard.extend(secs(40)).await.err() }.boxed()),
        ("release", "released", async { released.release().await.err() }.boxed()),
        ("linger", "lingers", async { lingers.release().await.err() }.boxed()),
        ("seal", "sealed", async { once_guard.done("done").await.err() }.boxed()),
        ("detach", "detached", async { detached.into_token().await.err() }.boxed()),
        ("renew_token", "token", async { locks.renew_token(&token, secs(30)).await.err() }.boxed()),
        ("release_token", "token", async { locks.release_token(&token).await.err() }.boxed()),
        ("break", "name", async { locks.break_lock("name", 7).await.err() }.boxed()),
        ("is_locked", "name", async { mutex.is_locked().await.err() }.boxed()),
        ("info", "name", async { mutex.info().await.err() }.boxed()),
        ("leader", "name", async { election.leader().await.err() }.boxed()),
        ("inspect", "name", async { locks.inspect("name").await.err() }.boxed()),
    ];
    let errors = calls.into_iter().map(async |(verb, name, call)| {
        let error = call.await.unwrap_or_else(|| panic!("{verb} was to fail"));
        (verb, name.escape_debug().to_string(), error)
    });
    futures::future::join_all(errors).await
}

fn assert_named(errors: Vec<(&'static str, String, Error)>) {
    for (verb, name, error) in errors {
        let text = error.to_string();
        assert!(text.contains(&name), "{verb} does not name {name}: {text}");
        assert!(!text.contains(PREFIX), "{verb} shows the prefix: {text}");
        assert!(!format!("{error:?}").contains(PREFIX), "{verb} shows the prefix: {error:?}");
    }
}

#[tokio::test]
async fn errors_of_a_server_that_is_gone_show_names_as_written() {
    let mut server = servers::Redis::start();
    let locks = connect(&server.url()).await;
    assert_named(every_verb(&locks, || server.kill()).await);
}

#[tokio::test]
async fn errors_of_closed_connections_show_names_as_written() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let locks = connect(&proxy.url()).await;
    let closes = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = closes.local_addr().unwrap().port();
    std::thread::spawn(move || closes.incoming().for_each(drop));
    let errors = every_verb(&locks, || {
        proxy.redirect(port);
        proxy.cut();
    });
    assert_named(errors.await);
}

#[tokio::test]
async fn refusals_of_a_server_show_names_as_written() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    admin.run("ACL SETUSER some on >pw ~* &* +@all");
    let locks = connect(&format!("redis://some:pw@127.0.0.1:{}", server.port())).await;
    // The connection stays open, and its user loses all rights to commands.
    let mut errors = every_verb(&locks, || drop(admin.run("ACL SETUSER some -@all +hello +info +ping"))).await;
    // A listing is refused for all names, so that its error shows none.
    errors.retain(|(verb, ..)| *verb != "inspect");
    assert_named(errors);
}

#[tokio::test]
async fn errors_of_invalid_calls_show_names_as_written() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    admin.run(&format!("LPUSH {PREFIX}odd x"));
    let locks = connect(&server.url()).await;
    let _one = locks.semaphore("few", 3).acquire().await.unwrap();
    let ours = Locks::builder().prefix("lockfast:").connect(&server.url()).await.unwrap();
    let errors = vec![
        ("odd", "\"odd\"".to_owned(), locks.mutex("odd").try_lock().await.unwrap_err()),
        ("odd", "\"odd\"".to_owned(), locks.mutex("odd").lock().await.unwrap_err()),
        ("capacity", "\"few\"".to_owned(), locks.semaphore("few", 4).try_acquire().await.unwrap_err()),
        ("ours", "\"name\"".to_owned(), ours.mutex("name").lock().await.unwrap_err()),
        ("ours", "\"name\"".to_owned(), ours.mutex("name").is_locked().await.unwrap_err()),
    ];
    assert_named(errors);
}
