//! A server, or a proxy before it, closes connections on which nothing is in flight. The client learns of it from the next
//! request that it sends. The caller does not: the request is repeated on a new connection.
//!
//! The runtime of these tests has one thread, and the connections are closed by a call that blocks it. So the next request is
//! sent on a connection that the server has closed and that the client still takes for open.

use std::sync::mpsc;
use std::time::Duration;

use lockfast::{Error, Guard, Locks, LostWhy, OnceState, Outcome, Retry};

use crate::fixture::{Admin, connect, count_waiters, millis, now, secs, soon, until};

const TTL: Duration = secs(30);

struct Fixture {
    server: servers::Redis,
    admin: Admin,
    locks: Locks,
    /// The number of connections opened before the last [`Self::close_idle`].
    opened_before: i64,
}

impl Fixture {
    async fn new() -> Self {
        let server = servers::Redis::start();
        let (admin, locks) = (Admin::of(&server.url()), connect(&server.url(), TTL).await);
        Self { server, admin, locks, opened_before: 0 }
    }

    /// How many connections were opened so far.
    fn opened_connections(&mut self) -> i64 {
        let stats = self.admin.text("INFO stats");
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse().unwrap()
    }

    /// Closes every connection while nothing is in flight.
    fn close_idle(&mut self) {
        self.opened_before = self.opened_connections();
        self.admin.kill_connections();
    }

    /// Asserts that a connection was opened since [`Self::close_idle`]: otherwise the test has shown nothing.
    fn assert_reconnected(&mut self) {
        assert!(self.opened_connections() > self.opened_before, "no new connection was opened");
    }

    async fn lock(&self, name: &str) -> Guard {
        self.locks.mutex(name).lock().await.unwrap()
    }
}

#[tokio::test]
async fn a_try_on_a_closed_connection_gets_the_lock() {
    let mut fixture = Fixture::new().await;
    fixture.lock("warm").await.release().await.unwrap();
    fixture.close_idle();
    let guard = fixture.locks.mutex("a").try_lock().await.unwrap().expect("it is free");
    fixture.assert_reconnected();
    let holder = fixture.locks.mutex("a").info().await.unwrap().unwrap();
    assert_eq!(holder.queue.len(), 1, "one claim, not two: {holder:?}");
    assert_eq!(holder.queue[0].tickets.first.0, guard.fence().unwrap());
    fixture.close_idle();
    assert!(fixture.locks.mutex("a").try_lock().await.unwrap().is_none(), "a taken lock is taken");
    fixture.assert_reconnected();
    guard.release().await.unwrap();
    assert!(!fixture.locks.mutex("a").is_locked().await.unwrap());
}

#[tokio::test]
async fn every_try_on_a_closed_connection_gets_its_lock() {
    let mut fixture = Fixture::new().await;
    let locks = fixture.locks.clone();
    fixture.close_idle();
    drop(locks.rwlock("read").try_read().await.unwrap().unwrap());
    fixture.assert_reconnected();
    fixture.close_idle();
    drop(locks.rwlock("write").try_write().await.unwrap().unwrap());
    fixture.close_idle();
    drop(locks.semaphore("permits", 3).try_acquire().await.unwrap().unwrap());
    fixture.close_idle();
    drop(locks.multi(["one", "two"]).try_lock().await.unwrap().unwrap());
    for patience in [Duration::ZERO, Duration::from_nanos(1), millis(10)] {
        fixture.close_idle();
        let name = format!("{patience:?}");
        drop(locks.mutex(name).lock_within(patience).await.unwrap());
        fixture.assert_reconnected();
    }
    fixture.close_idle();
    let steady = Retry { count: Some(2), base: millis(20), ..Retry::default() };
    drop(locks.mutex("retry").retry(steady).lock().await.unwrap());
    fixture.assert_reconnected();
}

#[tokio::test]
async fn a_lock_on_a_closed_connection_takes_less_than_50_ms() {
    let mut fixture = Fixture::new().await;
    let mut spans = Vec::new();
    for round in 0..10 {
        fixture.close_idle();
        let started_at = now();
        let guard = fixture.locks.mutex(format!("{round}")).lock().await.unwrap();
        spans.push(now().since(started_at));
        fixture.assert_reconnected();
        guard.release().await.unwrap();
    }
    // A new connection takes some milliseconds. The keeper's pause before a second request is at least 50 ms.
    assert!(spans.iter().max().unwrap() < &millis(50), "{spans:?}");
}

#[tokio::test]
async fn a_release_on_a_closed_connection_gives_the_lock_back() {
    let mut fixture = Fixture::new().await;
    let guard = fixture.lock("a").await;
    fixture.close_idle();
    guard.release().await.unwrap();
    fixture.assert_reconnected();
    let other = connect(&fixture.server.url(), TTL).await;
    assert!(other.mutex("a").try_lock().await.unwrap().is_some(), "it is free when the release has returned");
    let guard = fixture.locks.mutex("b").hold_at_least(secs(60)).lock().await.unwrap();
    fixture.close_idle();
    guard.release().await.unwrap();
    fixture.assert_reconnected();
    assert!(other.mutex("b").is_locked().await.unwrap(), "it lingers");
}

#[tokio::test]
async fn a_release_on_a_closed_connection_wakes_the_next_local_task() {
    let server = servers::Redis::start();
    let locks = Locks::builder().ttl(TTL).connect(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    for _ in 0..5 {
        let guard = locks.mutex("a").lock().await.unwrap();
        let mutex = locks.mutex("a");
        let next = tokio::spawn(async move { mutex.lock().await });
        until("it waits", async || locks.stats().waiting == 1).await;
        admin.kill_connections();
        guard.release().await.unwrap();
        soon(next).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn an_extension_on_a_closed_connection_extends() {
    let mut fixture = Fixture::new().await;
    let guard = fixture.locks.mutex("a").no_renewal().lock().await.unwrap();
    fixture.close_idle();
    guard.extend(secs(60)).await.unwrap();
    fixture.assert_reconnected();
    assert!(guard.remaining() > secs(50), "{:?}", guard.remaining());
    assert!(fixture.admin.number("PTTL lock:a") > 50_000);
}

#[tokio::test]
async fn inspecting_locks_on_a_closed_connection_shows_them() {
    let mut fixture = Fixture::new().await;
    let guard = fixture.lock("a").await;
    fixture.close_idle();
    assert!(fixture.locks.mutex("a").is_locked().await.unwrap());
    fixture.assert_reconnected();
    fixture.close_idle();
    assert!(fixture.locks.mutex("a").info().await.unwrap().is_some());
    fixture.close_idle();
    fixture.locks.inspect("").await.unwrap();
    fixture.assert_reconnected();
    fixture.close_idle();
    fixture.locks.fleet_stats().await.unwrap();
    fixture.assert_reconnected();
    fixture.close_idle();
    assert!(fixture.locks.election("vacant").leader().await.unwrap().is_none());
    fixture.assert_reconnected();
    guard.check().unwrap();
}

#[tokio::test]
async fn a_timeout_on_a_closed_connection_still_names_the_holder() {
    let mut fixture = Fixture::new().await;
    let other = connect(&fixture.server.url(), TTL).await;
    let held = other.mutex("a").lock().await.unwrap();
    let mutex = fixture.locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.lock_within(secs(1)).await });
    until("it waits", async || count_waiters(&other, "a").await == 1).await;
    // Its patience ends while this thread is blocked, so that its last request is the first use of the closed connection.
    let patience_ends = now() + secs(1);
    while now() < patience_ends {
        std::thread::yield_now();
    }
    fixture.close_idle();
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Busy { holder: Some(holder), .. } if holder.owner == held.owner()), "{error}");
    fixture.assert_reconnected();
}

#[tokio::test]
async fn a_token_works_over_closed_connections() {
    let mut fixture = Fixture::new().await;
    let locks = fixture.locks.clone();
    let guard = locks.mutex("a").detached().lock().await.unwrap();
    fixture.close_idle();
    let token = guard.into_token().await.unwrap();
    fixture.assert_reconnected();
    fixture.close_idle();
    locks.renew_token(&token, secs(60)).await.unwrap();
    fixture.assert_reconnected();
    assert!(fixture.admin.number("PTTL lock:a") > 50_000);
    fixture.close_idle();
    locks.release_token(&token).await.unwrap();
    fixture.assert_reconnected();
    assert!(!locks.mutex("a").is_locked().await.unwrap());
}

#[tokio::test]
async fn a_break_on_a_closed_connection_breaks() {
    let mut fixture = Fixture::new().await;
    let locks = fixture.locks.clone();
    let guard = fixture.lock("a").await;
    let fence = guard.fence().unwrap();
    fixture.close_idle();
    assert!(locks.break_lock("a", fence).await.unwrap());
    fixture.assert_reconnected();
    assert_eq!(soon(guard.lost()).await, LostWhy::Broken);
    fixture.close_idle();
    assert!(!locks.break_lock("b", 7).await.unwrap(), "there is no such claim");
    fixture.assert_reconnected();
}

#[tokio::test]
async fn a_once_runs_once_over_closed_connections() {
    let mut fixture = Fixture::new().await;
    let locks = fixture.locks.clone();
    let mut runs = 0;
    for (method, is_first) in [("run", true), ("run", false), ("try", true), ("try", false)] {
        let once = locks.once(method);
        fixture.close_idle();
        let work = async |_: &Guard| {
            runs += 1;
            // Once more, between the grant and the seal.
            fixture.close_idle();
            Ok::<_, Error>("done")
        };
        let outcome = if method == "run" { once.run(work).await } else { once.try_run(work).await }.unwrap();
        let wanted = if is_first { Outcome::Ran("done".into()) } else { Outcome::AlreadyDone("done".into()) };
        assert_eq!(outcome, wanted, "{method}");
        fixture.assert_reconnected();
    }
    assert_eq!(runs, 2);
    fixture.close_idle();
    assert_eq!(locks.once("run").result().await.unwrap(), Some("done".into()));
    fixture.assert_reconnected();
    fixture.close_idle();
    let OnceState::Ours(guard) = locks.once("begin").begin().await.unwrap() else { panic!("it was not done before") };
    fixture.close_idle();
    guard.done("shipped").await.unwrap();
    fixture.assert_reconnected();
    assert_eq!(locks.once("begin").result().await.unwrap(), Some("shipped".into()));
}

#[tokio::test]
async fn a_cron_job_runs_over_closed_connections() {
    let mut fixture = Fixture::new().await;
    let cron = fixture.locks.cron("report").at_least(secs(60));
    for wanted in [Some("sent"), None] {
        fixture.close_idle();
        let ran = cron.run(async |_| Ok::<_, Error>("sent")).await.unwrap();
        assert_eq!(ran, wanted);
        fixture.assert_reconnected();
    }
    for wanted in [Outcome::Ran(()), Outcome::AlreadyDone(())] {
        fixture.close_idle();
        let ran = cron.run_for("02:00", async |_| Ok::<_, Error>(())).await.unwrap();
        assert_eq!(ran, wanted);
        fixture.assert_reconnected();
    }
}

#[tokio::test]
async fn leadership_begins_and_ends_over_closed_connections() {
    let mut fixture = Fixture::new().await;
    fixture.close_idle();
    let leadership = fixture.locks.election("scheduler").campaign().await.unwrap();
    fixture.assert_reconnected();
    fixture.close_idle();
    leadership.step_down().await.unwrap();
    fixture.assert_reconnected();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_blocking_api_works_over_closed_connections() {
    let server = servers::Redis::start();
    let locks = lockfast::blocking::Locks::from(connect(&server.url(), TTL).await);
    let mut admin = Admin::of(&server.url());
    let runtime = tokio::runtime::Handle::current();
    let mut close_idle = move || {
        // The one thread that reads the connections is blocked from before they are closed until well after the next request.
        let (send, sent) = mpsc::channel();
        runtime.spawn(async move {
            send.send(()).unwrap();
            std::thread::sleep(millis(50));
        });
        sent.recv().unwrap();
        admin.kill_connections();
    };
    let calls = move || {
        close_idle();
        let guard = locks.mutex("a").try_lock().unwrap().expect("it is free");
        close_idle();
        assert!(locks.mutex("a").is_locked().unwrap());
        close_idle();
        guard.extend(secs(60)).unwrap();
        close_idle();
        guard.release().unwrap();
        close_idle();
        let outcome = locks.once("b").try_run(|_| Ok::<_, Error>("done")).unwrap();
        assert_eq!(outcome, Outcome::Ran("done".into()));
    };
    tokio::task::spawn_blocking(calls).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_gone_is_reported_within_three_seconds() {
    let mut fixture = Fixture::new().await;
    let guard = fixture.lock("a").await;
    let token = fixture.locks.mutex("b").detached().lock().await.unwrap().into_token().await.unwrap();
    fixture.server.kill();
    let locks = &fixture.locks;
    let assert_unavailable_in_time = async |what: &str, error: Option<Error>, started_at: lockfast::store::Moment| {
        let (elapsed, error) = (now().since(started_at), error.expect("no server is there"));
        assert!(matches!(error, Error::Unavailable { .. }), "{what}: {error}");
        assert!(error.to_string().contains("efused"), "{what}: the error says what failed last: {error}");
        // Three seconds by the rule, and one more for a busy machine.
        assert!(elapsed < secs(4), "{what} took {elapsed:?}");
    };
    let started_at = now();
    assert_unavailable_in_time("try_lock", locks.mutex("c").try_lock().await.err(), started_at).await;
    let started_at = now();
    assert_unavailable_in_time("is_locked", locks.mutex("c").is_locked().await.err(), started_at).await;
    let started_at = now();
    assert_unavailable_in_time("extend", guard.extend(secs(40)).await.err(), started_at).await;
    let started_at = now();
    assert_unavailable_in_time("renew_token", locks.renew_token(&token, TTL).await.err(), started_at).await;
    let started_at = now();
    assert_unavailable_in_time("break", locks.break_lock("c", 7).await.err(), started_at).await;
    let started_at = now();
    assert_unavailable_in_time("release", guard.release().await.err(), started_at).await;
}
