//! No key stays: a released lock leaves none, and every other key expires.

use std::time::Duration;

use lockfast::store::{Demand, Demands, Name};
use lockfast::store::{Leaving, Store};
use lockfast::{Locks, Redis};

use crate::fixture::{Admin, claim_with_demands, connect, hold, millis, secs, soon};

/// The keys that never expire: the ticket counter, the identity of its server, and the counters of all clients.
const PERMANENT_KEYS: [&str; 3] = ["lockfast:fleet", "lockfast:identity", "lockfast:tickets"];

fn keys_without_ttl(admin: &mut Admin) -> Vec<String> {
    let mut keys = admin.list("KEYS *");
    keys.retain(|key| admin.number(&format!("PTTL {key}")) == -1);
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_name_used_once_leaves_no_key() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let locks = connect(&server.url(), secs(30)).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    locks.rwlock("b").read().await.unwrap().release().await.unwrap();
    locks.rwlock("b").write().await.unwrap().release().await.unwrap();
    locks.semaphore("c", 3).acquire_many(2).await.unwrap().release().await.unwrap();
    locks.multi(["d", "e"]).lock().await.unwrap().release().await.unwrap();
    drop(locks.mutex("f").lock().await.unwrap());
    locks.shutdown(secs(5)).await.unwrap();
    let mut left = admin.list("KEYS *");
    left.retain(|key| !PERMANENT_KEYS.contains(&&**key));
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_expires_after_any_load_and_any_death() {
    let server = servers::Redis::start();
    let url = server.url();
    let seed = fastrand::u64(..);
    let mut tasks = Vec::new();
    for number in 0..6 {
        let locks = connect(&url, millis(700 + 100 * number)).await;
        let rng = fastrand::Rng::with_seed(seed ^ number);
        tasks.push(tokio::spawn(tokio::time::timeout(secs(4), lock_at_random(locks, rng))));
    }
    let mut admin = Admin::of(&url);
    let mut max_keys = 0;
    // Claims that die: they hold, wait, read, linger or seal, and are never renewed.
    let store = Redis::open(&url).await.unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    for number in 0..60 {
        let dead = claim_with_demands(random_demands(&mut rng), millis(rng.u64(500..2_000)));
        let _ = store.acquire(&dead, lockfast::store::Busy::Wait).await;
        let _ = match number % 5 {
            0 => store.release(&[Leaving::Linger(dead, millis(300))]).await.map(drop),
            1 => store.release(&[Leaving::Unknown(dead)]).await.map(drop),
            2 => store.release(&[Leaving::Seal { claim: dead, value: "x".into(), keep: millis(100) }]).await.map(drop),
            _ => Ok(()),
        };
        tokio::time::sleep(millis(20)).await;
        max_keys = max_keys.max(admin.number("DBSIZE"));
        assert_other_keys_expire(&mut admin, seed);
    }
    for task in tasks {
        let _ = soon(task).await;
    }
    assert_other_keys_expire(&mut admin, seed);
    assert!(max_keys > 10, "there were keys to look at");
}

fn assert_other_keys_expire(admin: &mut Admin, seed: u64) {
    let permanent = keys_without_ttl(admin);
    assert!(permanent.iter().all(|key| PERMANENT_KEYS.contains(&&**key)), "seed {seed}: {permanent:?}");
}

fn random_demands(rng: &mut fastrand::Rng) -> Demands {
    let name = |rng: &mut fastrand::Rng| Name::new(&format!("lock:{}", rng.u32(0..6))).unwrap();
    match rng.u32(0..4) {
        0 => Demand::exclusive(name(rng)).into(),
        1 => Demand::shared(name(rng)).into(),
        2 => Demand::permits(Name::new(&format!("lock:p{}", rng.u32(0..3))).unwrap(), 1, 2).unwrap().into(),
        _ => Demands::of((0..3).map(|index| Demand::exclusive(Name::new(&format!("lock:{index}")).unwrap())).collect())
            .unwrap(),
    }
}

async fn lock_at_random(locks: Locks, mut rng: fastrand::Rng) {
    let patience = millis(150);
    loop {
        let name = rng.u32(0..6).to_string();
        let guard = match rng.u32(0..8) {
            0 => locks.mutex(&name).lock_within(patience).await,
            1 => locks.rwlock(&name).read_within(patience).await,
            2 => locks.rwlock(&name).write_within(patience).await,
            3 => locks.semaphore(format!("p{}", rng.u32(0..3)), 2).acquire_within(patience).await,
            4 => locks.multi(["0", "1", "2"]).lock_within(patience).await,
            5 => locks.mutex(&name).hold_at_least(millis(50)).lock_within(patience).await,
            6 => {
                let once = locks.once(format!("once{}", rng.u32(..))).keep(millis(200));
                let _ = once.run(async |_| Ok::<_, lockfast::Error>("done")).await;
                continue;
            }
            // The caller cancels at a random moment.
            _ => {
                let _ = tokio::time::timeout(Duration::from_micros(rng.u64(0..3_000)), locks.mutex(&name).lock()).await;
                continue;
            }
        };
        let Ok(guard) = guard else { continue };
        tokio::time::sleep(millis(rng.u64(0..20))).await;
        match rng.u32(0..10) {
            0 => {
                // Held past the client's first report, so that the name is listed.
                tokio::time::sleep(millis(1_200)).await;
            }
            1 => drop(guard),
            _ => drop(guard.release().await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_dead_claims_expire_soon_after_their_leases() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let store = Redis::open(&server.url()).await.unwrap();
    for index in 0..4 {
        let exclusive = |text: &str| Demand::exclusive(Name::new(&format!("lock:{index}:{text}")).unwrap());
        let demands = || match index {
            0 => exclusive("a").into(),
            1 => Demand::shared(Name::new("lock:r").unwrap()).into(),
            2 => Demand::permits(Name::new("lock:p").unwrap(), 1, 2).unwrap().into(),
            _ => Demands::of(vec![exclusive("a"), exclusive("b")]).unwrap(),
        };
        hold(&store, &claim_with_demands(demands(), secs(1))).await;
        let _ = store.acquire(&claim_with_demands(demands(), secs(1)), lockfast::store::Busy::Wait).await.unwrap();
    }
    // A queue outlives its last lease by ten seconds, so that dead entries in it can still be noticed.
    let longest = admin.list("KEYS *").iter().map(|key| admin.number(&format!("PTTL {key}"))).max().unwrap();
    assert!(longest <= 11_000, "{longest} ms");
}
