//! Handing over, seen from the server: who lives is asked first, one is chosen and written down, and only that one is told.

use lockfast::Redis;
use lockfast::store::ClientId;
use lockfast::store::{Change, Lease, Leaving, Scope, Standing, Store};

use crate::stage::{Admin, Monitor, claim_by, connect, hold, millis, now, queue, secs, soon, until, waiting};
use futures::StreamExt;

/// A client that can be told, and is.
async fn listener(url: &str, id: u64) -> (std::sync::Arc<Redis>, futures::stream::BoxStream<'static, Change>) {
    let store = Redis::open(url).await.unwrap();
    let pushes = store.watch(Scope::Client(ClientId(id)));
    (store, pushes)
}

fn channel(id: u64) -> String {
    format!("lockfast:push:{}", ClientId(id))
}

async fn is_heard(admin: &mut Admin, id: u64, wanted: bool) {
    until("the subscription", async || admin.list("PUBSUB CHANNELS lockfast:push:*").contains(&channel(id)) == wanted)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lives_is_asked_before_the_write_and_only_the_chosen_one_is_told() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let (second, mut pushes) = listener(&server.url(), 2).await;
    let (third, mut others) = listener(&server.url(), 3).await;
    let claims = [1, 2, 3].map(|id| claim_by(id, "lock:a", secs(20)));
    hold(&holder, &claims[0]).await;
    let ticket = queue(&second, &claims[1]).await;
    queue(&third, &claims[2]).await;
    is_heard(&mut admin, 2, true).await;
    is_heard(&mut admin, 3, true).await;
    let mut monitor = Monitor::of(&server.url());
    holder.release(&[Leaving::Done(claims[0].clone())]).await.unwrap();
    let told = soon(pushes.next()).await.unwrap();
    assert_eq!(told, Change::Held(claims[1].id.hash(), lockfast::store::Ticket(ticket)));
    let seen = monitor.until_marked(&mut admin);
    let place =
        |word: &str| seen.iter().position(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {seen:#?}"));
    let (asked, written, said) = (place("\"NUMSUB\""), place("\"RENAME\""), place("\"PUBLISH\""));
    assert!(asked < written && written < said, "{seen:#?}");
    let publishes: Vec<_> = seen.iter().filter(|line| line.contains("\"PUBLISH\"")).collect();
    assert!(publishes.len() == 1 && publishes[0].contains(&channel(2)), "{publishes:?}");
    assert!(futures::poll!(others.next()).is_pending(), "nobody else is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_client_is_gone_is_passed_over_and_removed() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let (gone, pushes) = listener(&server.url(), 2).await;
    let (there, mut told) = listener(&server.url(), 3).await;
    is_heard(&mut admin, 2, true).await;
    is_heard(&mut admin, 3, true).await;
    let first = claim_by(1, "lock:a", secs(20));
    hold(&holder, &first).await;
    let dead = [2, 2, 2].map(|id| claim_by(id, "lock:a", secs(20)));
    for claim in &dead {
        queue(&gone, claim).await;
    }
    let next = claim_by(3, "lock:a", secs(20));
    queue(&there, &next).await;
    drop((pushes, gone));
    is_heard(&mut admin, 2, false).await;
    let asked = admin.asked_who_listens();
    holder.release(&[Leaving::Done(first)]).await.unwrap();
    let change = soon(told.next()).await.unwrap();
    assert!(matches!(change, Change::Held(owner, _) if owner == next.id.hash()), "{change:?}");
    assert_eq!(admin.asked_who_listens() - asked, 2, "once for each client");
    assert!(admin.line_of("lock:a").is_none(), "who was passed over is not in line any more");
    let lease = |claim: &std::sync::Arc<lockfast::store::Claim>| Lease { claim: claim.clone(), ttl: secs(20) };
    let standings = holder.renew(&[lease(&dead[0]), lease(&dead[2])]).await.unwrap();
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Gone(_))), "{standings:?}");
}

/// The server's clock goes on while a script runs, so that a mark and the lease it stands for may end at different moments.
#[tokio::test]
async fn the_last_reader_takes_the_mark_along_however_long_it_would_last() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(20)).await;
    let (one, two) = (locks.rwlock("a").read().await.unwrap(), locks.rwlock("a").read().await.unwrap());
    admin.run("PEXPIRE lock:a 60000");
    one.release().await.unwrap();
    assert_eq!(admin.number("EXISTS lock:a"), 1, "somebody reads");
    two.release().await.unwrap();
    assert_eq!(admin.number("EXISTS lock:a"), 0);
    let mutex = locks.mutex("a");
    let reader = locks.rwlock("a").read().await.unwrap();
    admin.run("PEXPIRE lock:a 60000");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || waiting(&locks, "a").await == 1).await;
    reader.release().await.unwrap();
    drop(soon(entering).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_was_lost_is_found_out_by_renewing() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let first = claim_by(1, "lock:a", secs(60));
    hold(&holder, &first).await;
    let locks = connect(&server.url(), secs(2)).await;
    let mutex = locks.mutex("a");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || waiting(&locks, "a").await == 1).await;
    // Published to nobody: the default user, as whom the holder is connected, loses the right.
    admin.run("ACL SETUSER default -publish");
    holder.release(&[Leaving::Done(first)]).await.unwrap();
    assert!(admin.text("GET lock:a").starts_with("lockfast1 x "), "it is handed over");
    assert!(!entering.is_finished());
    let guard = soon(entering).await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_with_another_ticket_is_not_believed() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let first = claim_by(1, "lock:a", secs(60));
    let fence = hold(&holder, &first).await;
    let locks = connect(&server.url(), secs(20)).await;
    let mutex = locks.mutex("a");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || waiting(&locks, "a").await == 1).await;
    let line = admin.line_of("lock:a").unwrap();
    let entry = admin.list(&format!("ZRANGE {line} 0 -1")).remove(0);
    let words: Vec<_> = entry.split(' ').collect();
    let letter = format!("held {} {fence}", words[0]);
    let channel = format!("lockfast:push:{}", words[1]);
    let heard: i64 = redis::from_redis_value(admin.run_words(&["PUBLISH", &channel, &letter])).unwrap();
    assert_eq!(heard, 1);
    // Nonsense does no harm either.
    for letter in ["held", "held x y", "gone", "\u{0}\u{1}", "held 00000000000000000000000000000000 1"] {
        admin.run_words(&["PUBLISH", &channel, letter]);
    }
    let began = now();
    while now().since(began) < millis(300) {
        assert!(!entering.is_finished(), "somebody else holds it");
        tokio::time::sleep(millis(10)).await;
    }
    holder.release(&[Leaving::Done(first)]).await.unwrap();
    drop(soon(entering).await.unwrap());
}
