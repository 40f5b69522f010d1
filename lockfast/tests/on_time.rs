//! A promise about real time, in a test program of its own, so that no other test runs beside it.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use lockfast::Locks;

#[test]
#[expect(clippy::disallowed_methods, reason = "the promise is about real time")]
fn on_lost_runs_within_ten_milliseconds_on_a_blocked_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::in_memory();
        let (sender, losses) = mpsc::channel();
        let mut guards = Vec::new();
        for number in 0..9 {
            // From the shortest lease of any store to 796 ms, so that the deadlines are spread over the sleep below.
            let ttl = Duration::from_millis(500 + 37 * number);
            let guard = locks.mutex(number.to_string()).ttl(ttl).no_renewal().lock().await.unwrap();
            let deadline = Instant::now() + guard.remaining();
            let sender = sender.clone();
            guard.on_lost(move |_| {
                let name = std::thread::current().name().map(str::to_owned);
                sender.send((name, deadline, Instant::now())).unwrap();
            });
            guards.push(guard);
        }
        let mut context = Context::from_waker(Waker::noop());
        for guard in &guards {
            assert!(pin!(guard.lost()).poll(&mut context).is_pending());
        }
        // The runtime is blocked; the keeper's thread is not, and runs the callbacks.
        std::thread::sleep(Duration::from_millis(1000));
        let lateness_of = |(name, deadline, at): (Option<String>, Instant, Instant)| {
            assert_eq!(name.as_deref(), Some("lockfast-keeper"));
            at.saturating_duration_since(deadline)
        };
        let mut lateness: Vec<_> = losses.try_iter().map(lateness_of).collect();
        lateness.sort();
        assert_eq!(lateness.len(), 9);
        // The median: a busy machine may delay a thread now and then, not most of the time.
        assert!(lateness[4] < Duration::from_millis(10), "{lateness:?}");
        for guard in &guards {
            assert!(pin!(guard.lost()).poll(&mut context).is_ready());
        }
    });
}
