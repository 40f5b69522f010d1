//! Who held it is dead. The next in line takes over when the lease is over, and nobody else stirs.

use lockfast::Redis;
use lockfast::store::{Demand, Name};
use lockfast::store::{Lease, Leaving, Standing, Store};

use crate::stage::{Admin, claim, claim_of, connect, hold, median, millis, now, queue, secs, soon, until, waiting};

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

#[tokio::test]
async fn a_reader_that_left_does_not_keep_a_writer_out_when_the_others_are_dead() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let reader = || claim_of(Demand::shared(Name::new("lock:a").unwrap()).into(), secs(2));
    for in_line in [false, true] {
        let (dead, left, writer) = (reader(), reader(), claim("lock:a", secs(60)));
        hold(&store, &dead).await;
        until("half of its lease is over", async || admin.number("PTTL lock:a") < 1_000).await;
        hold(&store, &left).await;
        if in_line {
            queue(&store, &writer).await;
        }
        store.release(&[Leaving::Done(left)]).await.unwrap();
        if in_line {
            let asked = store.renew(&[Lease { claim: writer.clone(), ttl: writer.ttl }]).await.unwrap();
            let [Standing::Waiting { recheck_in, .. }] = asked[..] else { panic!("{asked:?}") };
            assert!(recheck_in <= secs(1), "it asks when the other's lease is over: {recheck_in:?}");
        }
        // Its record and, in line, the writer's.
        let others = usize::from(in_line);
        until("the first is dead", async || admin.list("KEYS lockfast:*:claim:*").len() == others).await;
        let lease = Lease { claim: writer.clone(), ttl: writer.ttl };
        match in_line {
            false => drop(hold(&store, &writer).await),
            true => assert!(matches!(store.renew(&[lease]).await.unwrap()[..], [Standing::Held(_)])),
        }
        store.release(&[Leaving::Done(writer)]).await.unwrap();
    }
}

#[tokio::test]
async fn readers_whose_line_somebody_removed_keep_writers_out_as_long_as_their_mark() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let reader = claim_of(Demand::shared(Name::new("lock:a").unwrap()).into(), secs(60));
    hold(&store, &reader).await;
    let line = admin.line_of("lock:a").unwrap();
    admin.run_words(&["DEL", &line]);
    let writer = claim("lock:a", secs(60));
    queue(&store, &writer).await;
    let asked = store.renew(&[Lease { claim: writer, ttl: secs(60) }]).await.unwrap();
    assert!(matches!(asked[..], [Standing::Waiting { .. }]), "{asked:?}");
    assert_eq!(admin.text("GET lock:a"), "lockfast1 s");
}
