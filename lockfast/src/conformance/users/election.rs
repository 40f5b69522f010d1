//! One leader at a time, whatever becomes of it, and everybody can see who.

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
use super::super::place::{Place, promised};
use super::user::{Asking, User, soon, spent};

/// How soon after its end a leader's lease is noticed.
const NOTICED_IN: Duration = Duration::from_millis(100);

/// Campaigns, and is in line behind who leads.
async fn waits(user: &User, election: Election) -> Asking<Leadership> {
    user.in_line(async move { election.campaign().await }).await
}

/// Steps down, and hears that it led to the end; unless the answer got lost, or a repeated departure found nothing.
async fn steps_down(user: &User, leadership: Leadership) {
    match leadership.step_down().await {
        Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_exact() => {}
        answer => promised(answer),
    }
}

fn fence(leadership: &Leadership) -> u64 {
    promised(leadership.fence())
}

/// One leads, the others stand in line; the next one leads when it steps down, or is dropped, with a higher fence.
pub async fn one_leads_and_the_next_takes_over(place: &Place) {
    let [one, two, three] = place.three().await;
    let first = promised(one.election("a").campaign().await);
    let second = waits(&two, two.election("a")).await;
    let third = waits(&three, three.election("a")).await;
    assert!(!second.is_over() && !third.is_over());
    assert!(first.check().is_ok());
    let mut fences = vec![fence(&first)];
    steps_down(&one, first).await;
    let second = second.held().await;
    assert!(!third.is_over());
    fences.push(fence(&second));
    drop(second);
    let third = third.held().await;
    fences.push(fence(&third));
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    steps_down(&three, third).await;
}

/// Candidates of one client stand in line like all others: each leader's note is its own.
pub async fn candidates_of_one_client_take_turns(place: &Place) {
    let one = place.user().await;
    let first = promised(one.election("a").note("first").campaign().await);
    let second = waits(&one, one.election("a").note("second")).await;
    let leader = || one.surely(async || one.election("a").leader().await);
    assert_eq!(leader().await.and_then(|it| it.note.text.clone()).as_deref(), Some("first"));
    let before = fence(&first);
    steps_down(&one, first).await;
    let second = second.held().await;
    assert_eq!(leader().await.and_then(|it| it.note.text.clone()).as_deref(), Some("second"));
    assert!(fence(&second) > before);
    steps_down(&one, second).await;
}

/// Who stops campaigning is passed over.
pub async fn who_stops_campaigning_is_passed_over(place: &Place) {
    let [one, two, three] = place.three().await;
    let first = promised(one.election("a").campaign().await);
    let second = waits(&two, two.election("a")).await;
    let third = waits(&three, three.election("a")).await;
    second.cancel().await;
    steps_down(&one, first).await;
    steps_down(&three, third.held().await).await;
}

/// Anybody can ask who leads, and gets its note, its fence and for how long it has led.
pub async fn the_leader_can_be_seen(place: &Place) {
    let [one, two, three] = place.three().await;
    let leader = || three.surely(async || three.election("a").leader().await);
    assert_eq!(leader().await, None);
    let first = promised(one.election("a").note("10.0.0.5:8080").campaign().await);
    let waiter = waits(&two, two.election("a").note("10.0.0.6:8080")).await;
    place.pass(0.1).await;
    let seen = leader().await.expect("somebody leads");
    assert_eq!((seen.note.text.as_deref(), seen.fence), (Some("10.0.0.5:8080"), fence(&first)));
    assert!(seen.leads_for >= place.brief().mul_f64(0.09), "{:?}", seen.leads_for);
    steps_down(&one, first).await;
    let second = waiter.held().await;
    let seen = leader().await.expect("somebody leads");
    assert_eq!((seen.note.text.as_deref(), seen.fence), (Some("10.0.0.6:8080"), fence(&second)));
    drop(second);
    soon(async { while leader().await.is_some() {} }).await;
}

/// Who has stepped down leads no more, even while its place is kept from others.
pub async fn who_lingers_does_not_lead(place: &Place) {
    let [one, two, _] = place.three().await;
    let first = promised(one.election("a").hold_at_least(place.brief()).campaign().await);
    steps_down(&one, first).await;
    if place.is_exact() {
        assert!(promised(two.mutex("a").info().await).is_some_and(|it| it.queue[0].lingers), "it is kept from others");
        assert_eq!(promised(two.election("a").leader().await), None);
    }
    place.pass(1.1).await;
    steps_down(&two, promised(soon(two.election("a").campaign()).await)).await;
}

/// An observer is told who leads, then of every change, and of nothing else: not of those who come, wait and go.
pub async fn observers_hear_of_changes_and_of_nothing_else(place: &Place) {
    let [one, two, three] = place.three().await;
    let mut leaders = promised(three.election("a").observe());
    let mut told = async || soon(leaders.next()).await.expect("the observer's client lives");
    assert_eq!(told().await, None);
    // Its name begins with the one that is observed.
    let other = promised(two.election("ab").campaign().await);
    let first = promised(one.election("a").note("first").campaign().await);
    let seen = told().await.expect("somebody leads");
    assert_eq!((seen.note.text.as_deref(), seen.fence), (Some("first"), fence(&first)));
    waits(&two, two.election("a")).await.cancel().await;
    // Until it has left: who is in line at the wrong moment leads, if only to pass it on.
    soon(async { while place.look(&place.name("a")).await.is_none_or(|it| it.queue.len() != 1) {} }).await;
    let second = waits(&two, two.election("a").note("second")).await;
    steps_down(&two, other).await;
    steps_down(&one, first).await;
    let seen = told().await.expect("somebody leads");
    assert_eq!(seen.note.text.as_deref(), Some("second"));
    let second = second.held().await;
    assert_eq!(seen.fence, fence(&second));
    steps_down(&two, second).await;
    assert_eq!(told().await, None);
}

/// An observer is woken by a change, not by the time at which it would look again.
pub async fn observers_are_told(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let [one, _, three] = place.three().await;
    let mut leaders = promised(three.election("a").observe());
    assert_eq!(soon(leaders.next()).await, Some(None));
    let mut took = Vec::new();
    for _ in 0..5 {
        let asked = Clock::boot().now();
        let first = promised(one.election("a").campaign().await);
        assert!(soon(leaders.next()).await.is_some_and(|leader| leader.is_some()));
        steps_down(&one, first).await;
        assert_eq!(soon(leaders.next()).await, Some(None));
        took.push(spent(asked));
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] <= Duration::from_millis(500), "{took:?}");
    assert!(leaders.next().now_or_never().is_none(), "nothing has changed since");
}

/// The observation ends with the observer's client.
pub async fn an_observation_ends_with_its_client(place: &Place) {
    let [one, two, _] = place.three().await;
    let first = promised(one.election("a").campaign().await);
    let mut leaders = promised(two.election("a").observe());
    assert!(soon(leaders.next()).await.is_some_and(|leader| leader.is_some()));
    let end = spawn(async move { leaders.next().await });
    promised(soon(two.shutdown(place.brief() * 20)).await);
    assert_eq!(soon(end.join()).await, None);
    assert!(promised(two.election("a").observe()).next().now_or_never().flatten().is_none());
    steps_down(&one, first).await;
}

/// Whoever wants to know is called once for each time it leads, and once for each time it loses that; not when it steps down.
pub async fn callbacks_are_called_once_each(place: &Place) {
    let [one, two, _] = place.three().await;
    let elected: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (lost, mut hears) = mpsc::unbounded_channel();
    let noted = Arc::clone(&elected);
    let election = one
        .election("a")
        .on_elected(move |fence| noted.lock().unwrap_or_else(PoisonError::into_inner).push(fence))
        .on_lost(move |why| lost.send(why).expect("the case listens"));
    let fences = || elected.lock().unwrap_or_else(PoisonError::into_inner).clone();

    let first = promised(election.campaign().await);
    assert_eq!(fences(), [fence(&first)]);
    steps_down(&one, first).await;
    let second = promised(soon(election.campaign()).await);
    assert_eq!(fences().last(), Some(&fence(&second)));
    let broken = two.surely(async || two.break_lock("a", fence(&second)).await).await;
    assert!(broken || !place.is_exact());
    assert_eq!(soon(second.lost()).await, LostWhy::Broken);
    assert_eq!(soon(hears.recv()).await, Some(LostWhy::Broken));
    drop(second);
    let third = promised(soon(election.campaign()).await);
    steps_down(&one, third).await;
    assert_eq!(fences().len(), 3);
    // What was called would have been called before the client is gone.
    promised(soon(one.shutdown(place.brief() * 20)).await);
    assert!(hears.try_recv().is_err(), "called for what was not lost");
}

/// What a leader's work does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Begins,
    Stops,
}

/// Says when it is dropped: how the end of a future is seen.
#[derive(Debug)]
struct Stopped(mpsc::UnboundedSender<Work>);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.send(Work::Stops);
    }
}

/// Work is stopped when leadership is lost, and begins anew when it is back; when the work returns, its leader steps down.
pub async fn work_is_stopped_with_its_leadership_and_begins_again(place: &Place) {
    let [one, two, _] = place.three().await;
    let (says, mut hears) = mpsc::unbounded_channel();
    let (elected, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts_elected, counts_lost) = (Arc::clone(&elected), Arc::clone(&lost));
    let election = one
        .election("a")
        .on_elected(move |_| _ = counts_elected.fetch_add(1, Ordering::SeqCst))
        .on_lost(move |_| _ = counts_lost.fetch_add(1, Ordering::SeqCst));
    let fences: Arc<Mutex<Vec<u64>>> = Arc::default();
    let noted = Arc::clone(&fences);
    let leads = one.asking(async move {
        let mut terms = 0;
        election
            .lead(async move |leadership| {
                terms += 1;
                let _stopped = Stopped(says.clone());
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(fence(leadership));
                says.send(Work::Begins).expect("the case listens");
                if terms < 3 {
                    std::future::pending::<()>().await;
                }
                terms
            })
            .await
    });
    for _ in 0..2 {
        assert_eq!(soon(hears.recv()).await, Some(Work::Begins));
        let fence = *fences.lock().unwrap_or_else(PoisonError::into_inner).last().expect("it leads");
        let broken = two.surely(async || two.break_lock("a", fence).await).await;
        assert!(broken || !place.is_exact());
        assert_eq!(soon(hears.recv()).await, Some(Work::Stops));
    }
    assert_eq!((soon(hears.recv()).await, soon(hears.recv()).await), (Some(Work::Begins), Some(Work::Stops)));
    assert_eq!(leads.held().await, 3);
    let fences = fences.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    steps_down(&two, promised(soon(two.election("a").campaign()).await)).await;
    promised(soon(one.shutdown(place.brief() * 20)).await);
    assert_eq!((elected.load(Ordering::SeqCst), lost.load(Ordering::SeqCst)), (3, 2));
}

/// A client that is shut down leads no more, and does not campaign again.
pub async fn leading_ends_with_its_client(place: &Place) {
    let [one, two, _] = place.three().await;
    let (says, mut hears) = mpsc::unbounded_channel();
    let election = one.election("a");
    let leads = one.asking(async move {
        let work = election.lead(async move |_| {
            let _stopped = Stopped(says.clone());
            says.send(Work::Begins).expect("the case listens");
            std::future::pending::<()>().await;
        });
        work.await
    });
    assert_eq!(soon(hears.recv()).await, Some(Work::Begins));
    let waiter = waits(&two, two.election("a")).await;
    promised(soon(one.shutdown(place.brief() * 20)).await);
    assert_eq!(soon(hears.recv()).await, Some(Work::Stops));
    assert!(matches!(leads.ended().await, Err(Error::Closed(_))));
    steps_down(&two, waiter.held().await).await;
}

/// What a leader does stops before its successor leads: while its leadership says that it is held, nobody else begins.
pub async fn work_ends_before_the_successor_begins(place: &Place) {
    let [one, two, _] = place.three().await;
    // What happened, on a count that everybody shares: it orders without any clock.
    let count = Arc::new(AtomicU64::new(0));
    let sure_until = Arc::new(AtomicU64::new(0));
    let (says, mut hears) = mpsc::unbounded_channel();
    let (counts, notes, election) = (Arc::clone(&count), Arc::clone(&sure_until), one.election("a").ttl(place.brief()));
    let leads = spawn(async move {
        let work = election.lead(async move |leadership| {
            let _stopped = Stopped(says.clone());
            says.send(Work::Begins).expect("the case listens");
            loop {
                // Order matters: what is held after the number was drawn was held when it was drawn.
                let now = counts.fetch_add(1, Ordering::SeqCst);
                match leadership.check() {
                    Ok(()) => notes.store(now, Ordering::SeqCst),
                    Err(_) => std::future::pending().await,
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        work.await.map(|never: std::convert::Infallible| match never {})
    });
    assert_eq!(soon(hears.recv()).await, Some(Work::Begins));
    let (counts, election) = (Arc::clone(&count), two.election("a"));
    let successor = two.in_line(async move {
        let leadership = election.campaign().await?;
        Ok((leadership, counts.fetch_add(1, Ordering::SeqCst)))
    });
    let successor = successor.await;
    one.die();
    if place.time() == Time::Set {
        // Between the end that the leader believes in and the one that the store does: nobody leads.
        place.pass(0.995).await;
        assert_eq!(soon(hears.recv()).await, Some(Work::Stops));
        assert!(!successor.is_over());
    }
    let successor = place.over_within(1.5, successor).await;
    let (leadership, began) = successor.held().await;
    assert!(sure_until.load(Ordering::SeqCst) < began, "two led at once");
    if place.time() == Time::Real {
        assert_eq!(soon(hears.recv()).await, Some(Work::Stops));
    }
    steps_down(&two, leadership).await;
    leads.stop();
}

/// Leader after leader is cut off from the store. Nobody leads before the time of the one before is over, by its own clock;
/// and somebody does soon after its lease has ended, by the store's.
pub async fn dead_leaders_are_followed_and_never_met(place: &Place) {
    let brief = if place.is_exact() { Duration::from_millis(500) } else { place.ttl() };
    let ttl = place.guarantees().min_ttl.max(brief);
    let deaths = match place.time() {
        Time::Set => 100,
        Time::Real if place.is_exact() => 7,
        Time::Real => 3,
    };
    let candidate = async || {
        let user = place.user().await;
        let election = user.election("a").ttl(ttl);
        (user, election)
    };
    let (mut leader, election) = candidate().await;
    let mut leadership = promised(election.campaign().await);
    let mut took = Vec::new();
    for _ in 0..deaths {
        let (next, election) = candidate().await;
        let successor = waits(&next, election).await;
        assert!(leadership.check().is_ok());
        leader.die();
        let died = Clock::boot().now();
        if place.time() == Time::Set {
            let kept = place.look(&place.name("a")).await.expect("it is led").queue[0].expires_in;
            let believed = leadership.remaining();
            assert!(believed < kept, "{believed:?} is not before {kept:?}");
            // The candidate's own lease is renewed meanwhile.
            for _ in 0..4 {
                place.pass_time((believed - Duration::from_micros(1)) / 4).await;
                place.let_others_work().await;
            }
            assert!(leadership.check().is_ok() && !successor.is_over());
            place.pass_time(kept - believed).await;
            place.let_others_work().await;
            assert!(leadership.check().is_err() && !successor.is_over());
            place.pass_time(NOTICED_IN).await;
        }
        let followed = successor.held().await;
        took.push(spent(died));
        assert!(leadership.check().is_err(), "two led at once");
        assert!(fence(&followed) > fence(&leadership));
        (leader, leadership) = (next, followed);
    }
    if place.time() == Time::Real && place.is_exact() {
        // Judged by the middle one, since machines are busy.
        took.sort_unstable();
        assert!(took[took.len() / 2] <= ttl + NOTICED_IN, "{took:?}");
    }
    steps_down(&leader, leadership).await;
}
