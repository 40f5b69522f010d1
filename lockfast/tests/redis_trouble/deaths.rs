//! Dead holders. The next waiter takes over when the lease ends, and no other waiter makes a request.

use lockfast::Redis;
use lockfast::store::{Demand, Name};
use lockfast::store::{Lease, Leaving, Standing, Store};

use crate::fixture::{
    Admin, claim, claim_with_demands, connect, count_waiters, hold, median, millis, now, queue, secs, soon, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_next_waiter_asks_when_a_dead_holders_lease_ends() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let (front, others) = (connect(&server.url(), secs(30)).await, connect(&server.url(), secs(30)).await);
    let mut late = Vec::new();
    for round in 0..5 {
        let name = format!("{round}");
        let dead = claim(&format!("lock:{name}"), secs(1));
        let sent = now();
        hold(&store, &dead).await;
        let over = now() + secs(1);
        let first = front.mutex(&name);
        let entering = tokio::spawn(async move {
            let guard = first.lock().await.unwrap();
            (now(), guard)
        });
        until("the first waits", async || count_waiters(&front, &name).await == 1).await;
        let mut behind = Vec::new();
        for _ in 0..20 {
            let mutex = others.mutex(&name);
            behind.push(tokio::spawn(async move { mutex.lock().await }));
        }
        until("all wait", async || count_waiters(&front, &name).await == 21).await;
        let requests = admin.requests();
        let (entered, guard) = soon(entering).await.unwrap();
        // The request that takes over, and the report that each client makes about once a second.
        let made = admin.requests() - requests;
        assert!(made <= 8, "{made} requests while one lease ended");
        assert!(entered > sent + secs(1), "not before the lease is over");
        late.push(entered.since(over));
        behind.iter().for_each(tokio::task::JoinHandle::abort);
        drop(guard);
    }
    assert!(median(late.clone()) <= millis(20), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_waiter_enters_when_holder_and_first_waiter_die() {
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
    // The first waiter is granted the lock when the holder's lease ends, and holds it until its own lease ends.
    assert!(median(late.clone()) <= millis(30), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_many_dead_waiters_is_passed() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    // The waiter's entry is renewed only after this test would have failed: the release itself has to pass all dead entries.
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

#[tokio::test]
async fn a_writer_enters_after_the_last_reader_left_or_died() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let reader = || claim_with_demands(Demand::shared(Name::new("lock:a").unwrap()).into(), secs(2));
    for is_queued in [false, true] {
        let (dead, left, writer) = (reader(), reader(), claim("lock:a", secs(60)));
        hold(&store, &dead).await;
        until("half of its lease is over", async || admin.number("PTTL lock:a") < 1_000).await;
        hold(&store, &left).await;
        if is_queued {
            queue(&store, &writer).await;
        }
        store.release(&[Leaving::Done(left)]).await.unwrap();
        if is_queued {
            let standings = store.renew(&[Lease { claim: writer.clone(), ttl: writer.ttl }]).await.unwrap();
            let [Standing::Waiting { recheck_in, .. }] = standings[..] else { panic!("{standings:?}") };
            assert!(recheck_in <= secs(1), "it rechecks when the dead reader's lease ends: {recheck_in:?}");
        }
        // The record of the dead reader and, if it is queued, the writer's.
        let others = usize::from(is_queued);
        until("the first is dead", async || admin.list("KEYS lockfast:*:claim:*").len() == others).await;
        let lease = Lease { claim: writer.clone(), ttl: writer.ttl };
        match is_queued {
            false => drop(hold(&store, &writer).await),
            true => assert!(matches!(store.renew(&[lease]).await.unwrap()[..], [Standing::Held(_)])),
        }
        store.release(&[Leaving::Done(writer)]).await.unwrap();
    }
}

#[tokio::test]
async fn readers_whose_queue_was_deleted_block_writers_by_their_marker() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let reader = claim_with_demands(Demand::shared(Name::new("lock:a").unwrap()).into(), secs(60));
    hold(&store, &reader).await;
    let key = admin.queue_key("lock:a").unwrap();
    admin.run_words(&["DEL", &key]);
    let writer = claim("lock:a", secs(60));
    queue(&store, &writer).await;
    let standings = store.renew(&[Lease { claim: writer, ttl: secs(60) }]).await.unwrap();
    assert!(matches!(standings[..], [Standing::Waiting { .. }]), "{standings:?}");
    assert_eq!(admin.text("GET lock:a"), "lockfast1 s");
}
