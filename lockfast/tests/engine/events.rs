//! What people are told about one acquisition carries the trace that it was asked for with.

use futures::StreamExt;
use lockfast::{Event, Events, Happening, LostWhy, TraceId};

use crate::counting::Counting;
use crate::steps::{entered, millis, secs, soon, until_waiting, wants};

/// The next event of this trace.
async fn next(events: &mut Events, trace: TraceId) -> Event {
    soon(async {
        loop {
            let event = events.next().await.expect("the client lives");
            if event.trace == trace {
                return event;
            }
        }
    })
    .await
}

#[tokio::test]
async fn events_carry_the_trace_from_waiting_to_release() {
    let (store, locks, hand) = Counting::new();
    let mut events = locks.events();
    let (first, second) = (TraceId(0xF1), TraceId(0x5EC));
    for handover in [true, false] {
        let mutex = |trace| locks.mutex("a").ttl(secs(30)).trace_id(trace).local_handover(handover);
        let held = mutex(first).lock().await.unwrap();
        let acquired = next(&mut events, first).await;
        assert_eq!(acquired.what, Happening::Acquired { waited: secs(0) });
        assert_eq!((acquired.fence.map(|fence| fence.0), acquired.owner), (held.fence().ok(), Some(held.owner())));
        let waiter = wants(mutex(second));
        until_waiting(&locks, 1).await;
        assert_eq!(next(&mut events, second).await.what, Happening::Waiting);
        hand.advance(secs(2));
        held.release().await.unwrap();
        assert_eq!(next(&mut events, first).await.what, Happening::Released { held: secs(2) });

        let held = entered(waiter).await;
        let acquired = next(&mut events, second).await;
        assert_eq!(acquired.what, Happening::Acquired { waited: secs(2) });
        assert_eq!(acquired.fence.map(|fence| fence.0), held.fence().ok());
        let mut renewals = store.renewals.subscribe();
        renewals.mark_unchanged();
        hand.advance(secs(11));
        soon(renewals.changed()).await.unwrap();
        assert!(matches!(next(&mut events, second).await.what, Happening::Renewed { .. }));
        assert!(locks.break_lock_now("a", held.fence().unwrap()).await.unwrap());
        assert_eq!(next(&mut events, second).await.what, Happening::Lost { why: LostWhy::Broken });
        drop(held);
    }
}

#[tokio::test]
async fn who_gives_up_and_who_is_cancelled_are_told_apart() {
    let (_store, locks, hand) = Counting::new();
    let mut events = locks.events();
    let _held = locks.mutex("a").lock().await.unwrap();
    let mutex = locks.mutex("a").trace_id(TraceId(1));
    let impatient = tokio::spawn(async move { mutex.lock_within(secs(1)).await });
    let cancelled = wants(locks.mutex("a").trace_id(TraceId(2)));
    until_waiting(&locks, 2).await;
    hand.advance(millis(1001));
    soon(impatient).await.unwrap().unwrap_err();
    cancelled.abort();
    assert_eq!(next(&mut events, TraceId(1)).await.what, Happening::Waiting);
    assert_eq!(next(&mut events, TraceId(1)).await.what, Happening::TimedOut { waited: millis(1001) });
    soon(cancelled).await.unwrap_err();
    let last = soon(events.next()).await.unwrap();
    assert_eq!((last.trace, last.what), (TraceId(2), Happening::Cancelled), "each is told once how it ended");
}
