//! A server without memory: it evicts locks, or refuses new ones. Locks that exist can be renewed and released.

use std::sync::Arc;

use lockfast::store::{Busy, Lease, Leaving, Standing, Store, Why};
use lockfast::store::{Claim, Demand, Demands, Name};
use lockfast::{Error, Guard, Locks, Redis};

use crate::fixture::{
    Admin, PATIENCE, claim, claim_with_demands, connect, count_waiters, hold, millis, queue, secs, soon, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_locks_are_reported_lost() {
    for policy in ["allkeys-lru", "allkeys-random"] {
        let server = servers::Redis::start();
        let mut admin = Admin::of(&server.url());
        let locks = connect(&server.url(), secs(2)).await;
        let mut guards: Vec<(String, Guard)> = Vec::new();
        for index in 0..20 {
            let name = format!("{index}");
            guards.push((format!("lock:{name}"), locks.mutex(name).lock().await.unwrap()));
        }
        let used: u64 = field(&admin.text("INFO memory"), "used_memory:").parse().unwrap();
        admin.run(&format!("CONFIG SET maxmemory-policy {policy}"));
        admin.run(&format!("CONFIG SET maxmemory {}", used + 200_000));
        let mut filler = Admin::of(&server.url());
        let missing =
            |admin: &mut Admin| guards.iter().filter(|(key, _)| admin.number(&format!("EXISTS {key}")) == 0).count();
        let mut written = 0;
        while missing(&mut admin) == 0 {
            for _ in 0..50 {
                filler.run(&format!("SET filler:{written} {}", "x".repeat(1_000)));
                written += 1;
            }
            assert!(written < 200_000, "our keys never went");
        }
        admin.run("CONFIG SET maxmemory 0");
        // A holder whose key is gone learns of it at its next renewal; the others keep their locks.
        until("every loss is known", async || {
            guards.iter().all(|(key, guard)| guard.check().is_ok() == (admin.number(&format!("EXISTS {key}")) == 1))
        })
        .await;
        let lost = guards.iter().filter(|(_, guard)| guard.check().is_err()).count();
        assert!(lost > 0 && lost as u64 == locks.stats().lost, "{policy}: {lost}");
    }
}

fn field<'a>(info: &'a str, name: &str) -> &'a str {
    info.lines().find_map(|line| line.strip_prefix(name)).unwrap()
}

/// Sets a limit below what the server itself needs.
fn fill_up(admin: &mut Admin) {
    admin.run("CONFIG SET maxmemory-policy noeviction");
    admin.run("CONFIG SET maxmemory 1000");
    assert!(admin.try_run("SET filler 1").unwrap_err().to_string().contains("maxmemory"), "it is full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_new_locks_and_says_so() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(3)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    fill_up(&mut admin);
    let refused = [
        locks.mutex("b").try_lock().await.unwrap_err(),
        locks.mutex("b").lock_within(millis(500)).await.unwrap_err(),
        locks.rwlock("b").try_read().await.unwrap_err(),
        locks.semaphore("c", 3).try_acquire().await.unwrap_err(),
        locks.multi(["d", "e"]).try_lock().await.unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("OOM"), "{error}");
    }
    guard.check().unwrap();
    // A new client can still connect and look at locks.
    let other = connect(&server.url(), secs(3)).await;
    assert!(other.mutex("a").is_locked().await.unwrap());
    admin.run("CONFIG SET maxmemory 0");
    drop(soon(locks.mutex("b").lock()).await.unwrap());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_kept_and_given_back_on_a_full_server() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(2)).await;
    let guards = one_of_each(&locks).await;
    let lingering = locks.mutex("linger").hold_at_least(secs(60)).lock().await.unwrap();
    fill_up(&mut admin);
    tokio::time::sleep(secs(4)).await;
    for guard in guards {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    lingering.release().await.unwrap();
    assert!(admin.number("PTTL lock:linger") > 30_000, "it lingers");
    assert_eq!(admin.number("EXISTS lock:mutex lock:read lock:m1 lock:m2"), 0);
}

async fn one_of_each(locks: &Locks) -> [Guard; 4] {
    [
        locks.mutex("mutex").lock().await.unwrap(),
        locks.rwlock("read").read().await.unwrap(),
        locks.semaphore("permit", 3).acquire().await.unwrap(),
        locks.multi(["m1", "m2"]).lock().await.unwrap(),
    ]
}

fn demands(kind: &str) -> Demands {
    let name = |text: &str| Name::new(&format!("lock:{kind}:{text}")).unwrap();
    match kind {
        "mutex" => Demand::exclusive(name("a")).into(),
        "read" => Demand::shared(name("a")).into(),
        "permit" => Demand::permits(name("a"), 1, 3).unwrap().into(),
        _ => Demands::of(vec![Demand::exclusive(name("a")), Demand::shared(name("b"))]).unwrap(),
    }
}

const KINDS: [&str; 4] = ["mutex", "read", "permit", "multi"];

#[tokio::test]
async fn every_way_to_leave_works_on_a_full_server() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    type Leave = fn(Arc<Claim>) -> Leaving;
    let ways: [(&str, Leave); 6] = [
        ("done", Leaving::Done),
        ("unknown", Leaving::Unknown),
        ("linger", |claim| Leaving::Linger(claim, secs(30))),
        ("unless alone", |claim| Leaving::UnlessAlone {
            claim,
            block: 3,
            floor: lockfast::store::Ticket(u64::MAX / 4096),
        }),
        ("seal", |claim| Leaving::Seal { claim, value: "done".into(), keep: secs(1) }),
        ("break", |claim| Leaving::Break {
            name: claim.demands[0].name.clone(),
            ticket: lockfast::store::Ticket(0),
            at_once: false,
        }),
    ];
    for kind in KINDS {
        for (way, leave) in ways {
            admin.run("CONFIG SET maxmemory 0");
            admin.run("DEL lock:mutex:a lock:read:a lock:multi:a lock:multi:b");
            for key in admin.list("KEYS lockfast:{*") {
                admin.run(&format!("DEL {key}"));
            }
            let claim = claim_with_demands(demands(kind), secs(5));
            let ticket = hold(&store, &claim).await;
            fill_up(&mut admin);
            let leaving = match leave(claim.clone()) {
                Leaving::UnlessAlone { claim, block, .. } => {
                    Leaving::UnlessAlone { claim, block, floor: lockfast::store::Ticket(ticket) }
                }
                Leaving::Break { name, at_once, .. } => {
                    Leaving::Break { name, ticket: lockfast::store::Ticket(ticket), at_once }
                }
                other => other,
            };
            let standings = store.release(&[leaving]).await.unwrap_or_else(|error| panic!("{kind} {way}: {error}"));
            match (way, &standings[0]) {
                ("unless alone", Standing::Held(tickets)) => assert!(tickets.count == 3 && tickets.first.0 > ticket),
                ("break", Standing::Gone(Why::Broken)) | (_, Standing::Gone(Why::Left)) => {}
                other => panic!("{kind}: {other:?}"),
            }
            if way == "unknown" {
                let late = store.acquire(&claim, Busy::Wait).await.unwrap();
                assert!(matches!(late, lockfast::store::Admission::Gone(Why::Left)), "{kind}: {late:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_full_server_keeps_an_unknown_claim_out_that_never_arrived() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    let late = claim("lock:a", secs(30));
    fill_up(&mut admin);
    assert_eq!(store.release(&[Leaving::Unknown(late.clone())]).await.unwrap(), [Standing::Gone(Why::Unknown)]);
    admin.run("CONFIG SET maxmemory 0");
    let answer = store.acquire(&late, Busy::Wait).await.unwrap();
    assert!(matches!(answer, lockfast::store::Admission::Gone(_)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_hands_locks_to_the_next_waiter() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(2)).await;
    let store = Redis::open(&server.url()).await.unwrap();
    for kind in KINDS {
        admin.run("CONFIG SET maxmemory 0");
        let name = format!("{kind}:a");
        // The first releases, the second dies, the third enters.
        let first = claim(&format!("lock:{name}"), secs(20));
        hold(&store, &first).await;
        let second = claim(&format!("lock:{name}"), secs(1));
        queue(&store, &second).await;
        let client = locks.clone();
        let third = tokio::spawn(async move {
            match kind {
                "mutex" => client.mutex("mutex:a").lock().await,
                "read" => client.rwlock("read:a").read().await,
                "permit" => client.rwlock("permit:a").write().await,
                _ => client.multi(["multi:a", "multi:b"]).lock().await,
            }
        });
        until("it waits", async || count_waiters(&locks, &name).await == 2).await;
        fill_up(&mut admin);
        store.release(&[Leaving::Done(first)]).await.unwrap();
        let guard = tokio::time::timeout(PATIENCE, third).await.unwrap_or_else(|_| panic!("{kind}: never")).unwrap();
        soon(guard.unwrap().release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_on_a_full_server_takes_over_and_spoils_no_other() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    for kind in KINDS {
        admin.run("CONFIG SET maxmemory 0");
        let name = Name::new(&format!("lock:{kind}:a")).unwrap();
        let blocking = match kind {
            "permit" => Demand::permits(name, 3, 3).unwrap(),
            _ => Demand::exclusive(name),
        };
        let (dead, next) =
            (claim_with_demands(blocking.into(), millis(500)), claim_with_demands(demands(kind), secs(20)));
        let beside = claim(&format!("lock:{kind}:beside"), secs(20));
        hold(&store, &dead).await;
        let record = admin.list("KEYS *:claim:*");
        queue(&store, &next).await;
        hold(&store, &beside).await;
        fill_up(&mut admin);
        let trace = record.first().cloned().unwrap_or_else(|| format!("lock:{kind}:a"));
        until("its lease is over", async || admin.number(&format!("EXISTS {trace}")) == 0).await;
        let leases = [next, beside].map(|claim| Lease { claim, ttl: secs(20) });
        let standings = store.renew(&leases).await.unwrap();
        assert!(matches!(standings[..], [Standing::Held(_), Standing::Held(_)]), "{kind}: {standings:?}");
        let leaving = leases.map(|lease| Leaving::Done(lease.claim));
        store.release(&leaving).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_full_refuses_locks_and_says_so() {
    let server = servers::Redis::options().setting("maxmemory 1000").start();
    let locks = Locks::connect(&server.url()).await.unwrap();
    let refused = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }) && refused.to_string().contains("OOM"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_given_back_after_a_restart_of_a_full_server() {
    let mut server = servers::Redis::options().durable().setting("maxmemory 3mb").start();
    let locks = connect(&server.url(), secs(20)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let mut admin = Admin::of(&server.url());
    admin.run("CONFIG SET maxmemory 0");
    for index in 0..40 {
        admin.run(&format!("SET filler:{index} {}", "x".repeat(100_000)));
    }
    server.kill();
    server.start_again();
    let mut admin = Admin::of(&server.url());
    until("the client is back", async || !admin.push_channels().is_empty()).await;
    assert!(admin.try_run("SET filler:last xxxxxxxxxxxxxxxxxxxx").is_err(), "it is full");
    guard.release().await.unwrap();
    assert_eq!(admin.number("EXISTS lock:a"), 0);
}
