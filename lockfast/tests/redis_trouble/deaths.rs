//! Who held it is dead. The next in line takes over when the lease is over, and nobody else stirs.

use lockfast::Redis;
use lockfast::store::{Leaving, Store};

use crate::stage::{Admin, claim, connect, hold, median, millis, now, queue, secs, soon, until, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_front_of_the_line_takes_over_when_the_lease_is_over_and_nobody_else_stirs() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (front, others) = (connect(&server.url(), secs(30)).await, connect(&server.url(), secs(30)).await);
    let mut late = Vec::new();
    for round in 0..5 {
        let name = format!("{round}");
        let dead = claim(&format!("lock:{name}"), secs(1));
        let asked = now();
        hold(&store, &dead).await;
        let over = now() + secs(1);
        let first = front.mutex(&name);
        let entering = tokio::spawn(async move {
            let guard = first.lock().await.unwrap();
            (now(), guard)
        });
        until("the first waits", async || waiting(&front, &name).await == 1).await;
        let mut behind = Vec::new();
        for _ in 0..20 {
            let mutex = others.mutex(&name);
            behind.push(tokio::spawn(async move { mutex.lock().await }));
        }
        until("all wait", async || waiting(&front, &name).await == 21).await;
        let requests = admin.requests();
        let (entered, guard) = soon(entering).await.unwrap();
        // The one that takes over, and what each client reports about once a second.
        let asked_for = admin.requests() - requests;
        assert!(asked_for <= 8, "{asked_for} requests while one lease ended");
        assert!(entered > asked + secs(1), "not before the lease is over");
        late.push(entered.since(over));
        behind.iter().for_each(tokio::task::JoinHandle::abort);
        drop(guard);
    }
    assert!(median(late.clone()) <= millis(20), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_takes_over_when_holder_and_front_die_together() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let locks = connect(&server.url(), secs(30)).await;
    let mut late = Vec::new();
    for round in 0..3 {
        let name = format!("{round}");
        let (holder, front) = (claim(&format!("lock:{name}"), secs(1)), claim(&format!("lock:{name}"), millis(1_200)));
        hold(&store, &holder).await;
        queue(&store, &front).await;
        let over = now() + millis(1_200);
        let second = locks.mutex(&name);
        let guard = soon(second.lock()).await.unwrap();
        late.push(now().since(over));
        guard.release().await.unwrap();
    }
    // The front is handed the lock when the holder's lease is over, and keeps it until its own is.
    assert!(median(late.clone()) <= millis(30), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_whose_dead_are_many_is_passed() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    // Its place is renewed later than anybody waits for this test: what is not done at once is not done.
    let locks = connect(&server.url(), secs(120)).await;
    let holder = claim("lock:a", secs(120));
    hold(&store, &holder).await;
    for _ in 0..1_500 {
        queue(&store, &claim("lock:a", secs(1))).await;
    }
    let mutex = locks.mutex("a");
    let last = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let mut admin = Admin::of(&server.url());
    until("they are dead", async || admin.list("KEYS lockfast:*:claim:*").len() <= 1).await;
    store.release(&[Leaving::Done(holder)]).await.unwrap();
    soon(last).await.unwrap().release().await.unwrap();
}
