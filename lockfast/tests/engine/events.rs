//! All events of one acquisition carry the trace id of its request.

use futures::StreamExt;
use lockfast::store::{Admission, Standing};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Event, EventKind, Events, LostWhy, TraceId};

use crate::counting::Counting;
use crate::script::{Call, Director};
use crate::steps::{entered, gone, millis, secs, soon, until_waiting, waits, wants};

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
    let (store, locks, manual_clock) = Counting::new();
    let mut events = locks.events();
    let (first, second) = (TraceId(0xF1), TraceId(0x5EC));
    for handoff in [true, false] {
        let mutex = |trace| locks.mutex("a").ttl(secs(30)).trace_id(trace).local_handoff(handoff);
        let held = mutex(first).lock().await.unwrap();
        let acquired = next(&mut events, first).await;
        assert_eq!(acquired.kind, EventKind::Acquired { waited: secs(0) });
        assert_eq!((acquired.fence.map(|fence| fence.0), acquired.owner), (held.fence().ok(), Some(held.owner())));
        let waiter = wants(mutex(second));
        until_waiting(&locks, 1).await;
        assert_eq!(next(&mut events, second).await.kind, EventKind::Waiting);
        manual_clock.advance(secs(2));
        held.release().await.unwrap();
        assert_eq!(next(&mut events, first).await.kind, EventKind::Released { held: secs(2) });

        let held = entered(waiter).await;
        let acquired = next(&mut events, second).await;
        assert_eq!(acquired.kind, EventKind::Acquired { waited: secs(2) });
        assert_eq!(acquired.fence.map(|fence| fence.0), held.fence().ok());
        let mut renewals = store.renewals.subscribe();
        renewals.mark_unchanged();
        manual_clock.advance(secs(11));
        soon(renewals.changed()).await.unwrap();
        assert!(matches!(next(&mut events, second).await.kind, EventKind::Renewed { .. }));
        assert!(locks.break_lock_now("a", held.fence().unwrap()).await.unwrap());
        assert_eq!(next(&mut events, second).await.kind, EventKind::Lost { why: LostWhy::Broken });
        drop(held);
    }
}

#[tokio::test]
async fn a_timed_out_and_a_cancelled_request_have_different_events() {
    let (_store, locks, manual_clock) = Counting::new();
    let mut events = locks.events();
    let _held = locks.mutex("a").lock().await.unwrap();
    let mutex = locks.mutex("a").trace_id(TraceId(1));
    let impatient = tokio::spawn(async move { mutex.lock_within(secs(1)).await });
    let cancelled = wants(locks.mutex("a").trace_id(TraceId(2)));
    until_waiting(&locks, 2).await;
    manual_clock.advance(millis(1001));
    soon(impatient).await.unwrap().unwrap_err();
    cancelled.abort();
    assert_eq!(next(&mut events, TraceId(1)).await.kind, EventKind::Waiting);
    assert_eq!(next(&mut events, TraceId(1)).await.kind, EventKind::TimedOut { waited: millis(1001) });
    soon(cancelled).await.unwrap_err();
    let last = soon(events.next()).await.unwrap();
    assert_eq!((last.trace, last.kind), (TraceId(2), EventKind::Cancelled), "each ends with one event");
}

/// The waiter's next call to the store. Before a repeat it pauses, by a clock that only moves here.
async fn asked(store: &mut Director) -> Call {
    soon(async {
        loop {
            match store.call_now() {
                // An id whose first acquire was lost is withdrawn.
                Some(Call::Release { leaving, answer }) => answer.give(gone(leaving.len())),
                Some(call) => return call,
                None => {}
            }
            store.manual_clock.advance(millis(100));
            tokio::time::sleep(millis(1)).await;
        }
    })
    .await
}

fn lose(call: Call) {
    match call {
        Call::Acquire { answer, .. } => answer.lose(),
        Call::Renew { answer, .. } | Call::Release { answer, .. } => answer.lose(),
    }
}

#[tokio::test]
async fn a_silent_store_and_its_return_are_one_event_each() {
    let mut store = Director::new();
    let mut events = store.locks.events();
    let trace = TraceId(1);
    let waiter = wants(store.locks.mutex("a").trace_id(trace));
    // Before it is in the queue, its caller gets the error, and no event is made.
    lose(asked(&mut store).await);
    let Call::Acquire { answer, .. } = asked(&mut store).await else { panic!("it joins") };
    answer.give(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: secs(3600) });
    assert_eq!(next(&mut events, trace).await.kind, EventKind::Waiting);
    for is_gone in [false, true] {
        for _ in 0..3 {
            lose(asked(&mut store).await);
        }
        let Call::Renew { answer, .. } = asked(&mut store).await else { panic!("it is in the queue") };
        if is_gone {
            answer.give(gone(1));
            lose(asked(&mut store).await);
            let Call::Acquire { answer, .. } = asked(&mut store).await else { panic!("it joins anew") };
            answer.give(Admission::Queued { ticket: Ticket(8), position: 1, recheck_in: secs(3600) });
        } else {
            answer.give(vec![waits(7, secs(3600))]);
        }
        let silent = next(&mut events, trace).await.kind;
        assert!(matches!(&silent, EventKind::Unanswered { cause } if cause.contains("lost")), "{silent:?}");
        assert_eq!(next(&mut events, trace).await.kind, EventKind::Answered);
    }
    let Call::Renew { answer, .. } = asked(&mut store).await else { panic!("it is in the queue") };
    answer.give(vec![Standing::Held(Tickets::new(Ticket(8), 1))]);
    let _guard = entered(waiter).await;
    assert!(matches!(next(&mut events, trace).await.kind, EventKind::Acquired { .. }));
}
