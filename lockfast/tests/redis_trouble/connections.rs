//! Connections: whose they are, where they lead, what they leave behind, and what closes them.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};

use futures::StreamExt;
use lockfast::store::ClientId;
use lockfast::store::{Admission, Busy, Scope, Store};
use lockfast::{Error, Locks, Redis};

use crate::stage::{Admin, Way, claim, claim_by, hold, millis, now, secs, soon, until};

/// A primary whose one replica is connected.
async fn primary_and_replica() -> (servers::Redis, servers::Redis) {
    let primary = servers::Redis::start();
    let replica = servers::Redis::options().setting(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    let mut admin = Admin::of(&primary.url());
    until("the replica", async || admin.text("INFO replication").contains("state=online")).await;
    (primary, replica)
}

/// A runtime of its own that does one thing, and nothing more until it is let go.
fn blocked_after<T: Send + 'static>(first: impl Future<Output = T> + Send + 'static) -> (T, impl FnOnce()) {
    let ((say, said), (let_go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        say.send(runtime.block_on(first)).unwrap();
        let _ = wait.recv();
    });
    let end = move || {
        drop(let_go);
        thread.join().unwrap();
    };
    (said.recv().unwrap(), end)
}

#[tokio::test]
async fn replicas_of_another_server_do_not_confirm_a_lock() {
    let old = servers::Redis::start();
    let (new, _replica) = primary_and_replica().await;
    let way = Way::to(&old);
    let store = Redis::open(&format!("{}?replicas=1", way.url())).await.unwrap();
    // Who is connected stays at the old primary; who connects gets to the new one.
    way.lead_to(new.port());
    let admission = store.acquire(&claim("lock:a", secs(30)), Busy::Wait).await;
    assert!(matches!(admission, Err(Error::Unavailable { .. })), "{admission:?}");
    hold(&store, &claim("lock:a", secs(30))).await;
    assert_eq!(Admin::of(&new.url()).number("EXISTS lock:a"), 1, "from then on the new one is used");
}

#[tokio::test]
async fn a_blocked_runtime_does_not_keep_others_from_their_replicas() {
    let (primary, _replica) = primary_and_replica().await;
    let store = Redis::open(&format!("{}?replicas=1", primary.url())).await.unwrap();
    let theirs = Arc::clone(&store);
    let (_, let_go) = blocked_after(async move { hold(&theirs, &claim("lock:a", secs(30))).await });
    hold(&store, &claim("lock:b", secs(30))).await;
    let_go();
}

#[tokio::test]
async fn all_who_wait_for_replicas_learn_at_once_that_there_is_no_way_to_them() {
    let (server, deaf) = (servers::Redis::start(), TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let way = Way::to(&server);
    let store = Redis::open(&format!("{}?replicas=1", way.url())).await.unwrap();
    way.lead_to(deaf.local_addr().unwrap().port());
    let (began, names) = (now(), ["lock:a", "lock:b", "lock:c", "lock:d", "lock:e"]);
    let asked = names.map(|name| {
        let (store, claim) = (&store, claim(name, secs(60)));
        async move { store.acquire(&claim, Busy::Wait).await }
    });
    let admissions = futures::future::join_all(asked).await;
    assert!(admissions.iter().all(Result::is_err), "{admissions:?}");
    // Nobody who connects is given up before three seconds are over: once for the first, once for all the others.
    let took = now().since(began);
    assert!(took < secs(9), "they waited for each other: {took:?}");
}

#[tokio::test]
async fn tickets_rise_when_a_server_got_the_data_of_another() {
    let (server, other) = (servers::Redis::start(), servers::Redis::start());
    let (mut admin, mut others) = (Admin::of(&server.url()), Admin::of(&other.url()));
    let before = hold(&Redis::open(&server.url()).await.unwrap(), &claim("lock:a", secs(30))).await;
    // The other has been its replica, and has fallen behind.
    others.run_words(&["SET", "lockfast:identity", &admin.text("GET lockfast:identity")]);
    others.run("SET lockfast:tickets 2000000");
    admin.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    until("the other's data", async || admin.text("GET lockfast:tickets") == "2000000").await;
    admin.run("REPLICAOF NO ONE");
    let after = hold(&Redis::open(&server.url()).await.unwrap(), &claim("lock:a", secs(30))).await;
    assert!(after > before, "{after} is not above {before}");
}

#[tokio::test]
async fn a_watch_ends_with_the_runtime_that_tends_it_also_for_who_waits_elsewhere() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let theirs = Arc::clone(&store);
    let (mut watch, let_go) = blocked_after(async move { theirs.watch(Scope::Client(ClientId(7))) });
    assert!(futures::poll!(watch.next()).is_pending());
    let waiting = tokio::spawn(async move { watch.next().await });
    tokio::task::yield_now().await;
    tokio::task::spawn_blocking(let_go).await.unwrap();
    assert_eq!(soon(waiting).await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_given_up_while_it_subscribes_is_not_taken_for_a_living_client() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    admin.run("CLIENT PAUSE 400 ALL");
    let watch = store.watch(Scope::Client(ClientId(7)));
    // What it sends meanwhile cannot be seen from outside: the server reads nothing yet.
    tokio::time::sleep(millis(100)).await;
    drop(watch);
    until("nobody listens", async || admin.list("PUBSUB CHANNELS *").is_empty()).await;
}

#[tokio::test]
async fn a_connection_that_comes_about_when_the_store_is_gone_is_closed() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let way = Way::to(&server);
    let store = Redis::open(&way.url()).await.unwrap();
    let _watch = store.watch(Scope::Client(ClientId(7)));
    until("it listens", async || !admin.list("PUBSUB CHANNELS *").is_empty()).await;
    admin.run("CLIENT PAUSE 400 ALL");
    way.cut();
    until("it connects anew", async || way.came() > 0).await;
    drop(store);
    until("all but the administrator are gone", async || admin.text("CLIENT LIST").lines().count() == 1).await;
}

#[tokio::test]
async fn a_prefix_in_the_url_of_a_bare_store_is_refused_since_nobody_would_heed_it() {
    let server = servers::Redis::start();
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
fn a_plain_thread_has_one_connection_for_claims_and_pushes_and_leaves_none() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = futures::executor::block_on(Redis::open(&server.url())).unwrap();
    let mut changes = store.watch(Scope::Client(ClientId(7)));
    let one = claim_by(7, "lock:a", secs(30));
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
