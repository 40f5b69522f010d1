//! A promise about real time, in a program of its own: nothing else of ours runs beside it.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use lockfast::Locks;

#[test]
#[expect(clippy::disallowed_methods, reason = "the promise is about real time")]
fn a_blocked_runtime_hears_of_the_loss_within_ten_milliseconds_on_the_keepers_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::in_memory();
        let (tell, told) = mpsc::channel();
        let mut guards = Vec::new();
        for number in 0..9 {
            let ttl = Duration::from_millis(500 + 37 * number);
            let guard = locks.mutex(number.to_string()).ttl(ttl).no_renewal().lock().await.unwrap();
            let deadline = Instant::now() + guard.remaining();
            let tell = tell.clone();
            guard.on_lost(move |_| {
                let name = std::thread::current().name().map(str::to_owned);
                tell.send((name, deadline, Instant::now())).unwrap();
            });
            guards.push(guard);
        }
        let mut polling = Context::from_waker(Waker::noop());
        for guard in &guards {
            assert!(pin!(guard.lost()).poll(&mut polling).is_pending());
        }
        // The runtime is blocked, as by careless code; the keeper is not.
        std::thread::sleep(Duration::from_millis(1000));
        let lateness = |(name, deadline, at): (Option<String>, Instant, Instant)| {
            assert_eq!(name.as_deref(), Some("lockfast-keeper"));
            at.saturating_duration_since(deadline)
        };
        let mut lateness: Vec<_> = told.try_iter().map(lateness).collect();
        lateness.sort();
        assert_eq!(lateness.len(), 9);
        // The one in the middle: a busy machine may keep a thread from running now and then, not most of the time.
        assert!(lateness[4] < Duration::from_millis(10), "{lateness:?}");
        for guard in &guards {
            assert!(pin!(guard.lost()).poll(&mut polling).is_ready());
        }
    });
}
