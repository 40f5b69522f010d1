//! One leader at a time, however it ends, and every client can see it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::error::{Error, LostWhy};
use crate::primitives::{Election, Leadership};

use super::super::Time;
use super::super::executor::{sleep, spawn};
use super::super::fixture::{Fixture, expect_supported};
use super::user::{Request, User, elapsed_since, soon};

/// The end of a leader's lease is noticed within this time.
const NOTICED_WITHIN: Duration = Duration::from_millis(100);

/// Campaigns, and waits behind the leader.
async fn enqueue_campaign(user: &User, election: Election) -> Request<Leadership> {
    user.enqueue(async move { election.campaign().await }).await
}

/// Steps down, which must succeed; unless the reply got lost, or a repeated release found no claim.
async fn step_down(user: &User, leadership: Leadership) {
    match leadership.step_down().await {
        Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_reliable() => {}
        reply => expect_supported(reply),
    }
}

fn fence(leadership: &Leadership) -> u64 {
    expect_supported(leadership.fence())
}

/// One candidate leads and the others wait; when it steps down or is dropped, the next one leads, with a higher fence.
pub async fn one_leads_and_the_next_takes_over(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let first = expect_supported(one.election("a").campaign().await);
    let second = enqueue_campaign(&two, two.election("a")).await;
    let third = enqueue_campaign(&three, three.election("a")).await;
    assert!(!second.is_over() && !third.is_over());
    assert!(first.check().is_ok());
    let mut fences = vec![fence(&first)];
    step_down(&one, first).await;
    let second = second.expect_held().await;
    assert!(!third.is_over());
    fences.push(fence(&second));
    drop(second);
    let third = third.expect_held().await;
    fences.push(fence(&third));
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    step_down(&three, third).await;
}

/// Candidates of one client wait for each other like those of different clients: each leader's note is its own.
pub async fn candidates_of_one_client_take_turns(fixture: &Fixture) {
    let one = fixture.user().await;
    let first = expect_supported(one.election("a").note("first").campaign().await);
    let second = enqueue_campaign(&one, one.election("a").note("second")).await;
    let leader = || one.retry(async || one.election("a").leader().await);
    assert_eq!(leader().await.and_then(|it| it.note.text.clone()).as_deref(), Some("first"));
    let before = fence(&first);
    step_down(&one, first).await;
    let second = second.expect_held().await;
    assert_eq!(leader().await.and_then(|it| it.note.text.clone()).as_deref(), Some("second"));
    assert!(fence(&second) > before);
    step_down(&one, second).await;
}

/// A candidate that stops campaigning is passed over.
pub async fn a_candidate_that_stops_is_passed_over(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let first = expect_supported(one.election("a").campaign().await);
    let second = enqueue_campaign(&two, two.election("a")).await;
    let third = enqueue_campaign(&three, three.election("a")).await;
    second.cancel().await;
    step_down(&one, first).await;
    step_down(&three, third.expect_held().await).await;
}

/// Any client can read the leader's note, its fence, and for how long it has led.
pub async fn the_leader_can_be_seen(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let leader = || three.retry(async || three.election("a").leader().await);
    assert_eq!(leader().await, None);
    let first = expect_supported(one.election("a").note("10.0.0.5:8080").campaign().await);
    let waiter = enqueue_campaign(&two, two.election("a").note("10.0.0.6:8080")).await;
    fixture.advance_brief_ttls(0.1).await;
    let seen = leader().await.expect("the first leads");
    assert_eq!((seen.note.text.as_deref(), seen.fence), (Some("10.0.0.5:8080"), fence(&first)));
    assert!(seen.leads_for >= fixture.brief_ttl().mul_f64(0.09), "{:?}", seen.leads_for);
    step_down(&one, first).await;
    let second = waiter.expect_held().await;
    let seen = leader().await.expect("the second leads");
    assert_eq!((seen.note.text.as_deref(), seen.fence), (Some("10.0.0.6:8080"), fence(&second)));
    drop(second);
    soon(async { while leader().await.is_some() {} }).await;
}

/// A candidate that has stepped down does not lead, even while its claim lingers.
pub async fn a_lingering_candidate_does_not_lead(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let first = expect_supported(one.election("a").hold_at_least(fixture.brief_ttl()).campaign().await);
    step_down(&one, first).await;
    if fixture.is_reliable() {
        assert!(
            expect_supported(two.mutex("a").info().await).is_some_and(|it| it.queue[0].lingers),
            "the claim lingers"
        );
        assert_eq!(expect_supported(two.election("a").leader().await), None);
    }
    fixture.advance_brief_ttls(1.1).await;
    step_down(&two, expect_supported(soon(two.election("a").campaign()).await)).await;
}

/// An observer receives the present leader, then every change of it, and nothing else: not the candidates that come,
/// wait and go.
pub async fn observers_receive_changes_of_the_leader_only(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let mut leaders = expect_supported(three.election("a").observe());
    let mut next_leader = async || soon(leaders.next()).await.expect("the observer's client lives");
    assert_eq!(next_leader().await, None);
    // Its name has the observed name as a prefix.
    let other = expect_supported(two.election("ab").campaign().await);
    let first = expect_supported(one.election("a").note("first").campaign().await);
    let seen = next_leader().await.expect("the first leads");
    assert_eq!((seen.note.text.as_deref(), seen.fence), (Some("first"), fence(&first)));
    enqueue_campaign(&two, two.election("a")).await.cancel().await;
    // Until it has left: a waiter at the wrong moment leads, if only to hand off.
    soon(async { while fixture.inspect(&fixture.name("a")).await.is_none_or(|it| it.queue.len() != 1) {} }).await;
    let second = enqueue_campaign(&two, two.election("a").note("second")).await;
    step_down(&two, other).await;
    step_down(&one, first).await;
    let seen = next_leader().await.expect("the second leads");
    assert_eq!(seen.note.text.as_deref(), Some("second"));
    let second = second.expect_held().await;
    assert_eq!(seen.fence, fence(&second));
    step_down(&two, second).await;
    assert_eq!(next_leader().await, None);
}

/// An observer is woken by a change, not by its next poll.
pub async fn observers_are_pushed_to(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let [one, _, three] = fixture.three_users().await;
    let mut leaders = expect_supported(three.election("a").observe());
    assert_eq!(soon(leaders.next()).await, Some(None));
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Clock::boot().now();
        let first = expect_supported(one.election("a").campaign().await);
        assert!(soon(leaders.next()).await.is_some_and(|leader| leader.is_some()));
        step_down(&one, first).await;
        assert_eq!(soon(leaders.next()).await, Some(None));
        took.push(elapsed_since(begun));
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] <= Duration::from_millis(500), "{took:?}");
    assert!(leaders.next().now_or_never().is_none(), "nothing has changed since");
}

/// An observation ends with the observer's client.
pub async fn an_observation_ends_with_its_client(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let first = expect_supported(one.election("a").campaign().await);
    let mut leaders = expect_supported(two.election("a").observe());
    assert!(soon(leaders.next()).await.is_some_and(|leader| leader.is_some()));
    let end = spawn(async move { leaders.next().await });
    expect_supported(soon(two.shutdown(fixture.brief_ttl() * 20)).await);
    assert_eq!(soon(end.join()).await, None);
    assert!(expect_supported(two.election("a").observe()).next().now_or_never().flatten().is_none());
    step_down(&one, first).await;
}

/// `on_elected` is called once for each election and `on_lost` once for each loss; stepping down is not a loss.
pub async fn callbacks_are_called_once_each(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let elected: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (lost, mut received) = mpsc::unbounded_channel();
    let noted = Arc::clone(&elected);
    let election = one
        .election("a")
        .on_elected(move |fence| noted.lock().unwrap_or_else(PoisonError::into_inner).push(fence))
        .on_lost(move |why| lost.send(why).expect("the case receives"));
    let fences = || elected.lock().unwrap_or_else(PoisonError::into_inner).clone();

    let first = expect_supported(election.campaign().await);
    assert_eq!(fences(), [fence(&first)]);
    step_down(&one, first).await;
    let second = expect_supported(soon(election.campaign()).await);
    assert_eq!(fences().last(), Some(&fence(&second)));
    let broken = two.retry(async || two.break_lock("a", fence(&second)).await).await;
    assert!(broken || !fixture.is_reliable());
    assert_eq!(soon(second.lost()).await, LostWhy::Broken);
    assert_eq!(soon(received.recv()).await, Some(LostWhy::Broken));
    drop(second);
    let third = expect_supported(soon(election.campaign()).await);
    step_down(&one, third).await;
    assert_eq!(fences().len(), 3);
    // All callbacks have been called before the client is gone.
    expect_supported(soon(one.shutdown(fixture.brief_ttl() * 20)).await);
    assert!(received.try_recv().is_err(), "called without a loss");
}

/// What a leader's work did.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WorkEvent {
    Began,
    Stopped,
}

/// Sends [`WorkEvent::Stopped`] when it is dropped: with the future that owns it.
#[derive(Debug)]
struct SendOnDrop(mpsc::UnboundedSender<WorkEvent>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(WorkEvent::Stopped);
    }
}

/// Work is stopped when leadership is lost, and starts again when it is regained; when the work returns, its leader
/// steps down.
pub async fn work_stops_with_its_leadership_and_starts_again(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let (elected, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts_elected, counts_lost) = (Arc::clone(&elected), Arc::clone(&lost));
    let election = one
        .election("a")
        .on_elected(move |_| _ = counts_elected.fetch_add(1, Ordering::SeqCst))
        .on_lost(move |_| _ = counts_lost.fetch_add(1, Ordering::SeqCst));
    let fences: Arc<Mutex<Vec<u64>>> = Arc::default();
    let noted = Arc::clone(&fences);
    let leading = one.request(async move {
        let mut terms = 0;
        election
            .lead(async move |leadership| {
                terms += 1;
                let _sends_stopped = SendOnDrop(sender.clone());
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(fence(leadership));
                sender.send(WorkEvent::Began).expect("the case receives");
                if terms < 3 {
                    std::future::pending::<()>().await;
                }
                terms
            })
            .await
    });
    for _ in 0..2 {
        assert_eq!(soon(received.recv()).await, Some(WorkEvent::Began));
        let fence = *fences.lock().unwrap_or_else(PoisonError::into_inner).last().expect("it leads");
        let broken = two.retry(async || two.break_lock("a", fence).await).await;
        assert!(broken || !fixture.is_reliable());
        assert_eq!(soon(received.recv()).await, Some(WorkEvent::Stopped));
    }
    assert_eq!(
        (soon(received.recv()).await, soon(received.recv()).await),
        (Some(WorkEvent::Began), Some(WorkEvent::Stopped))
    );
    assert_eq!(leading.expect_held().await, 3);
    let fences = fences.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    step_down(&two, expect_supported(soon(two.election("a").campaign()).await)).await;
    expect_supported(soon(one.shutdown(fixture.brief_ttl() * 20)).await);
    assert_eq!((elected.load(Ordering::SeqCst), lost.load(Ordering::SeqCst)), (3, 2));
}

/// A client that is shut down no longer leads, and does not campaign again.
pub async fn leading_ends_with_its_client(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let election = one.election("a");
    let leading = one.request(async move {
        let work = election.lead(async move |_| {
            let _sends_stopped = SendOnDrop(sender.clone());
            sender.send(WorkEvent::Began).expect("the case receives");
            std::future::pending::<()>().await;
        });
        work.await
    });
    assert_eq!(soon(received.recv()).await, Some(WorkEvent::Began));
    let waiter = enqueue_campaign(&two, two.election("a")).await;
    expect_supported(soon(one.shutdown(fixture.brief_ttl() * 20)).await);
    assert_eq!(soon(received.recv()).await, Some(WorkEvent::Stopped));
    assert!(matches!(leading.result().await, Err(Error::Closed(_))));
    step_down(&two, waiter.expect_held().await).await;
}

/// Work of a leader stops before its successor leads: while one leadership says that it is held, no other one begins.
pub async fn work_ends_before_the_successor_begins(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    // The order of events, on a counter that all tasks share: it needs no clock.
    let counter = Arc::new(AtomicU64::new(0));
    let last_seen_leading = Arc::new(AtomicU64::new(0));
    let (sender, mut received) = mpsc::unbounded_channel();
    let (counter_of_task, last_seen_of_task, election) =
        (Arc::clone(&counter), Arc::clone(&last_seen_leading), one.election("a").ttl(fixture.brief_ttl()));
    let leading = spawn(async move {
        let work = election.lead(async move |leadership| {
            let _sends_stopped = SendOnDrop(sender.clone());
            sender.send(WorkEvent::Began).expect("the case receives");
            loop {
                // Order matters: a leadership that is held after the number was drawn was held when it was drawn.
                let number = counter_of_task.fetch_add(1, Ordering::SeqCst);
                match leadership.check() {
                    Ok(()) => last_seen_of_task.store(number, Ordering::SeqCst),
                    Err(_) => std::future::pending().await,
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        work.await.map(|never: std::convert::Infallible| match never {})
    });
    assert_eq!(soon(received.recv()).await, Some(WorkEvent::Began));
    let (counter_of_task, election) = (Arc::clone(&counter), two.election("a"));
    let successor = two.enqueue(async move {
        let leadership = election.campaign().await?;
        Ok((leadership, counter_of_task.fetch_add(1, Ordering::SeqCst)))
    });
    let successor = successor.await;
    one.die();
    if fixture.time() == Time::Set {
        // Between the end of the lease by the leader's clock and its end in the store no client leads.
        fixture.advance_brief_ttls(0.995).await;
        assert_eq!(soon(received.recv()).await, Some(WorkEvent::Stopped));
        assert!(!successor.is_over());
    }
    let successor = fixture.ended_within(1.5, successor).await;
    let (leadership, successor_began) = successor.expect_held().await;
    assert!(last_seen_leading.load(Ordering::SeqCst) < successor_began, "two led at once");
    if fixture.time() == Time::Real {
        assert_eq!(soon(received.recv()).await, Some(WorkEvent::Stopped));
    }
    step_down(&two, leadership).await;
    leading.stop();
}

/// When leader after leader is cut off, no successor leads before the lease of the one before is over by its own clock,
/// and one leads soon after it has ended in the store.
pub async fn dead_leaders_are_followed_and_never_met(fixture: &Fixture) {
    let brief = if fixture.is_reliable() { Duration::from_millis(500) } else { fixture.ttl() };
    let ttl = fixture.guarantees().min_ttl.max(brief);
    let deaths = match fixture.time() {
        Time::Set => 100,
        Time::Real if fixture.is_reliable() => 7,
        Time::Real => 3,
    };
    let candidate = async || {
        let user = fixture.user().await;
        let election = user.election("a").ttl(ttl);
        (user, election)
    };
    let (mut leader, election) = candidate().await;
    let mut leadership = expect_supported(election.campaign().await);
    let mut took = Vec::new();
    for _ in 0..deaths {
        let (next, election) = candidate().await;
        let successor = enqueue_campaign(&next, election).await;
        assert!(leadership.check().is_ok());
        leader.die();
        let died = Clock::boot().now();
        if fixture.time() == Time::Set {
            let kept = fixture.inspect(&fixture.name("a")).await.expect("it is led").queue[0].expires_in;
            let believed = leadership.remaining();
            assert!(believed < kept, "{believed:?} is not before {kept:?}");
            // The candidate's own lease must be renewed meanwhile.
            for _ in 0..4 {
                fixture.advance((believed - Duration::from_micros(1)) / 4).await;
                fixture.let_clients_settle().await;
            }
            assert!(leadership.check().is_ok() && !successor.is_over());
            fixture.advance(kept - believed).await;
            fixture.let_clients_settle().await;
            assert!(leadership.check().is_err() && !successor.is_over());
            fixture.advance(NOTICED_WITHIN).await;
        }
        let followed = successor.expect_held().await;
        took.push(elapsed_since(died));
        assert!(leadership.check().is_err(), "two led at once");
        assert!(fence(&followed) > fence(&leadership));
        (leader, leadership) = (next, followed);
    }
    if fixture.time() == Time::Real && fixture.is_reliable() {
        // The median is compared, since machines are busy.
        took.sort_unstable();
        assert!(took[took.len() / 2] <= ttl + NOTICED_WITHIN, "{took:?}");
    }
    step_down(&leader, leadership).await;
}
