//! Hand-offs, seen from the server: the script checks that the next waiter's client is subscribed, writes the grant, and then
//! publishes to that client only.

use lockfast::Redis;
use lockfast::store::ClientId;
use lockfast::store::{Change, Lease, Leaving, Scope, Standing, Store};

use crate::fixture::{
    Admin, Monitor, claim_of_client, connect, count_waiters, hold, millis, now, queue, secs, soon, until,
};
use futures::StreamExt;

/// A store whose client is subscribed to pushes.
async fn subscribed_client(url: &str, id: u64) -> (std::sync::Arc<Redis>, futures::stream::BoxStream<'static, Change>) {
    let store = Redis::open(url).await.unwrap();
    let pushes = store.watch(Scope::Client(ClientId(id)));
    (store, pushes)
}

fn channel(id: u64) -> String {
    format!("lockfast:push:{}", ClientId(id))
}

async fn until_subscribed(admin: &mut Admin, id: u64, wanted: bool) {
    until("the subscription", async || admin.push_channels().contains(&channel(id)) == wanted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_checks_the_subscriber_writes_and_then_publishes() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let (second, mut pushes) = subscribed_client(&server.url(), 2).await;
    let (third, mut others) = subscribed_client(&server.url(), 3).await;
    let claims = [1, 2, 3].map(|id| claim_of_client(id, "lock:a", secs(20)));
    hold(&holder, &claims[0]).await;
    let ticket = queue(&second, &claims[1]).await;
    queue(&third, &claims[2]).await;
    until_subscribed(&mut admin, 2, true).await;
    until_subscribed(&mut admin, 3, true).await;
    let mut monitor = Monitor::of(&server.url());
    holder.release(&[Leaving::Done(claims[0].clone())]).await.unwrap();
    let push = soon(pushes.next()).await.unwrap();
    assert_eq!(push, Change::Held(claims[1].id.hash(), lockfast::store::Ticket(ticket)));
    let seen = monitor.commands_so_far(&mut admin);
    let index =
        |word: &str| seen.iter().position(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {seen:#?}"));
    let (checked, written, published) = (index("\"NUMSUB\""), index("\"RENAME\""), index("\"PUBLISH\""));
    assert!(checked < written && written < published, "{seen:#?}");
    let publishes: Vec<_> = seen.iter().filter(|line| line.contains("\"PUBLISH\"")).collect();
    assert!(publishes.len() == 1 && publishes[0].contains(&channel(2)), "{publishes:?}");
    assert!(futures::poll!(others.next()).is_pending(), "no other client is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_without_a_subscription_is_passed_over_and_removed() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let (gone, pushes) = subscribed_client(&server.url(), 2).await;
    let (there, mut pushed) = subscribed_client(&server.url(), 3).await;
    until_subscribed(&mut admin, 2, true).await;
    until_subscribed(&mut admin, 3, true).await;
    let first = claim_of_client(1, "lock:a", secs(20));
    hold(&holder, &first).await;
    let dead = [2, 2, 2].map(|id| claim_of_client(id, "lock:a", secs(20)));
    for claim in &dead {
        queue(&gone, claim).await;
    }
    let next = claim_of_client(3, "lock:a", secs(20));
    queue(&there, &next).await;
    drop((pushes, gone));
    until_subscribed(&mut admin, 2, false).await;
    let checks = admin.subscriber_checks();
    holder.release(&[Leaving::Done(first)]).await.unwrap();
    let change = soon(pushed.next()).await.unwrap();
    assert!(matches!(change, Change::Held(owner, _) if owner == next.id.hash()), "{change:?}");
    assert_eq!(admin.subscriber_checks() - checks, 2, "once for each client");
    assert!(admin.queue_key("lock:a").is_none(), "the waiters that were passed over have no entry any more");
    let lease = |claim: &std::sync::Arc<lockfast::store::Claim>| Lease { claim: claim.clone(), ttl: secs(20) };
    let standings = holder.renew(&[lease(&dead[0]), lease(&dead[2])]).await.unwrap();
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Gone(_))), "{standings:?}");
}

/// The server's clock goes on while a script runs, so that a reader marker and its readers' leases may end at different times.
#[tokio::test]
async fn the_last_reader_removes_the_marker_however_long_its_ttl() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(20)).await;
    let (one, two) = (locks.rwlock("a").read().await.unwrap(), locks.rwlock("a").read().await.unwrap());
    admin.run("PEXPIRE lock:a 60000");
    one.release().await.unwrap();
    assert_eq!(admin.number("EXISTS lock:a"), 1, "one reader is left");
    two.release().await.unwrap();
    assert_eq!(admin.number("EXISTS lock:a"), 0);
    let mutex = locks.mutex("a");
    let reader = locks.rwlock("a").read().await.unwrap();
    admin.run("PEXPIRE lock:a 60000");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || count_waiters(&locks, "a").await == 1).await;
    reader.release().await.unwrap();
    drop(soon(entering).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_push_was_lost_enters_at_its_next_renewal() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let first = claim_of_client(1, "lock:a", secs(60));
    hold(&holder, &first).await;
    let locks = connect(&server.url(), secs(2)).await;
    let mutex = locks.mutex("a");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || count_waiters(&locks, "a").await == 1).await;
    // The holder is connected as the default user, which loses the right to publish: no client receives the push.
    admin.run("ACL SETUSER default -publish");
    holder.release(&[Leaving::Done(first)]).await.unwrap();
    assert!(admin.text("GET lock:a").starts_with("lockfast1 x "), "it is handed off");
    assert!(!entering.is_finished());
    let guard = soon(entering).await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_with_another_ticket_grants_nothing() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let holder = Redis::open(&server.url()).await.unwrap();
    let first = claim_of_client(1, "lock:a", secs(60));
    let fence = hold(&holder, &first).await;
    let locks = connect(&server.url(), secs(20)).await;
    let mutex = locks.mutex("a");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || count_waiters(&locks, "a").await == 1).await;
    let key = admin.queue_key("lock:a").unwrap();
    let entry = admin.list(&format!("ZRANGE {key} 0 -1")).remove(0);
    let words: Vec<_> = entry.split(' ').collect();
    let push = format!("held {} {fence}", words[0]);
    let channel = format!("lockfast:push:{}", words[1]);
    let receivers: i64 = redis::from_redis_value(admin.run_words(&["PUBLISH", &channel, &push])).unwrap();
    assert_eq!(receivers, 1);
    // A push that cannot be decoded is ignored.
    for push in ["held", "held x y", "gone", "\u{0}\u{1}", "held 00000000000000000000000000000000 1"] {
        admin.run_words(&["PUBLISH", &channel, push]);
    }
    let started_at = now();
    while now().since(started_at) < millis(300) {
        assert!(!entering.is_finished(), "the first claim holds it");
        tokio::time::sleep(millis(10)).await;
    }
    holder.release(&[Leaving::Done(first)]).await.unwrap();
    drop(soon(entering).await.unwrap());
}
