//! Connections: which runtime has them, which server they lead to, what closes them, and what stays on the server.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};

use futures::StreamExt;
use lockfast::store::ClientId;
use lockfast::store::{Admission, Busy, Scope, Store};
use lockfast::{Error, Locks, Redis};

use crate::fixture::{Admin, Pair, claim, claim_of_client, hold, millis, now, secs, soon, until};
use crate::proxy::Proxy;

/// Runs `first` on a new runtime, then blocks that runtime until the returned function is called.
fn run_then_block<T: Send + 'static>(first: impl Future<Output = T> + Send + 'static) -> (T, impl FnOnce()) {
    let ((send, output), (unblock, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        send.send(runtime.block_on(first)).unwrap();
        let _ = wait.recv();
    });
    let end = move || {
        drop(unblock);
        thread.join().unwrap();
    };
    (output.recv().unwrap(), end)
}

#[tokio::test]
async fn replicas_of_another_server_do_not_confirm_a_lock() {
    let old = servers::Redis::start();
    let pair = Pair::start().await;
    let proxy = Proxy::to(&old);
    let store = Redis::open(&format!("{}?replicas=1", proxy.url())).await.unwrap();
    // Open connections stay at the old primary; new ones lead to the new primary.
    proxy.redirect(pair.primary.port());
    let admission = store.acquire(&claim("lock:a", secs(30)), Busy::Wait).await;
    assert!(matches!(admission, Err(Error::Unavailable { .. })), "{admission:?}");
    hold(&store, &claim("lock:a", secs(30))).await;
    assert_eq!(Admin::of(&pair.primary.url()).number("EXISTS lock:a"), 1, "from then on the new one is used");
}

#[tokio::test]
async fn a_blocked_runtime_does_not_keep_others_from_their_replicas() {
    let pair = Pair::start().await;
    let store = Redis::open(&pair.url()).await.unwrap();
    let theirs = Arc::clone(&store);
    let (_, unblock) = run_then_block(async move { hold(&theirs, &claim("lock:a", secs(30))).await });
    hold(&store, &claim("lock:b", secs(30))).await;
    unblock();
}

#[tokio::test]
async fn all_waiters_for_replicas_fail_together_if_no_server_answers() {
    let (server, silent) = (servers::Redis::start(), TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let proxy = Proxy::to(&server);
    let store = Redis::open(&format!("{}?replicas=1", proxy.url())).await.unwrap();
    proxy.redirect(silent.local_addr().unwrap().port());
    let (started_at, names) = (now(), ["lock:a", "lock:b", "lock:c", "lock:d", "lock:e"]);
    let calls = names.map(|name| {
        let (store, claim) = (&store, claim(name, secs(60)));
        async move { store.acquire(&claim, Busy::Wait).await }
    });
    let admissions = futures::future::join_all(calls).await;
    assert!(admissions.iter().all(Result::is_err), "{admissions:?}");
    // An attempt to connect is given up after three seconds: once for the first caller, and once for all other callers.
    let elapsed = now().since(started_at);
    assert!(elapsed < secs(9), "they waited for each other: {elapsed:?}");
}

#[tokio::test]
async fn tickets_rise_when_a_server_got_the_data_of_another() {
    let (server, other) = (servers::Redis::start(), servers::Redis::start());
    let (mut admin, mut others) = (Admin::of(&server.url()), Admin::of(&other.url()));
    let before = hold(&Redis::open(&server.url()).await.unwrap(), &claim("lock:a", secs(30))).await;
    // The other server has been a replica of the first, and its data is older.
    others.run_words(&["SET", "lockfast:identity", &admin.text("GET lockfast:identity")]);
    others.run("SET lockfast:tickets 2000000");
    admin.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    until("the other's data", async || admin.text("GET lockfast:tickets") == "2000000").await;
    admin.run("REPLICAOF NO ONE");
    let after = hold(&Redis::open(&server.url()).await.unwrap(), &claim("lock:a", secs(30))).await;
    assert!(after > before, "{after} is not above {before}");
}

#[tokio::test]
async fn a_watch_polled_elsewhere_ends_with_the_runtime_that_began_it() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let theirs = Arc::clone(&store);
    let (mut watch, unblock) = run_then_block(async move { theirs.watch(Scope::Client(ClientId(7))) });
    assert!(futures::poll!(watch.next()).is_pending());
    let next_change = tokio::spawn(async move { watch.next().await });
    tokio::task::yield_now().await;
    tokio::task::spawn_blocking(unblock).await.unwrap();
    assert_eq!(soon(next_change).await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_dropped_while_it_subscribes_leaves_no_subscription() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    admin.run("CLIENT PAUSE 400 ALL");
    let watch = store.watch(Scope::Client(ClientId(7)));
    // The paused server reads nothing, so that its administrator cannot see what the watch sends meanwhile.
    tokio::time::sleep(millis(100)).await;
    drop(watch);
    until("no client is subscribed", async || admin.list("PUBSUB CHANNELS *").is_empty()).await;
}

#[tokio::test]
async fn a_connection_that_opens_after_its_store_was_dropped_is_closed() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let proxy = Proxy::to(&server);
    let store = Redis::open(&proxy.url()).await.unwrap();
    let _watch = store.watch(Scope::Client(ClientId(7)));
    until("it is subscribed", async || !admin.list("PUBSUB CHANNELS *").is_empty()).await;
    admin.run("CLIENT PAUSE 400 ALL");
    proxy.cut();
    until("it reconnects", async || proxy.open_connections() > 0).await;
    drop(store);
    until("only the administrator is connected", async || admin.text("CLIENT LIST").lines().count() == 1).await;
}

#[tokio::test]
async fn a_prefix_in_the_url_of_a_bare_store_is_refused() {
    let server = servers::Redis::start();
    // A bare store takes full names, and would ignore the prefix.
    let url = format!("{}?prefix=app:", server.url());
    let refused = Redis::open(&url).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(text) if text.contains("Locks::connect")), "{refused}");
    let locks = Locks::connect(&url).await.unwrap();
    let _guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(Admin::of(&server.url()).number("EXISTS app:a"), 1);
    let store = Redis::open(&server.url()).await.unwrap();
    let admission = store.acquire(&claim("app:a", secs(30)), Busy::Refuse).await.unwrap();
    assert!(matches!(admission, Admission::Refused(_)), "{admission:?}");
}

#[test]
fn a_plain_thread_opens_one_connection_and_leaves_none() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = futures::executor::block_on(Redis::open(&server.url())).unwrap();
    let mut changes = store.watch(Scope::Client(ClientId(7)));
    let one = claim_of_client(7, "lock:a", secs(30));
    futures::executor::block_on(store.acquire(&one, Busy::Wait)).unwrap();
    let clients = |admin: &mut Admin| admin.text("CLIENT LIST").lines().count();
    for _ in 0..1_000 {
        if !admin.list("PUBSUB CHANNELS *").is_empty() {
            break;
        }
        std::thread::sleep(millis(5));
    }
    assert_eq!(admin.list("PUBSUB CHANNELS *").len(), 1);
    assert_eq!(clients(&mut admin), 2, "the administrator's and the I/O thread's");
    drop(store);
    assert_eq!(futures::executor::block_on(changes.next()), None);
    for _ in 0..1_000 {
        if clients(&mut admin) == 1 {
            return;
        }
        std::thread::sleep(millis(5));
    }
    panic!("the connection of the I/O thread stays");
}
