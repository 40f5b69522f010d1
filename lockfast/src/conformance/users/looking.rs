//! What can be seen from outside, what an operator can do, and what is refused.

use std::time::Duration;

use crate::error::{Error, LostWhy};
use crate::name::Name;
use crate::store::Resource;

use super::super::place::{Place, promised};
use super::user::{User, soon};

/// A listing, once the claims in it are old enough for it.
async fn listed(place: &Place, user: &User, beginning: &str, enough: usize) -> Vec<Resource> {
    for _ in 0..100 {
        let resources = user.surely(async || user.inspect(beginning).await).await;
        if resources.len() >= enough {
            return resources;
        }
        place.pass_time(Duration::from_millis(100)).await;
        place.let_others_work().await;
    }
    panic!("what is held for seconds is not listed");
}

/// Who holds, who waits, and since when, for everybody to see.
pub async fn a_line_can_be_looked_at(place: &Place) {
    let [one, two, three] = place.three().await;
    assert!(!three.surely(async || three.mutex("a").is_locked().await).await);
    assert_eq!(three.surely(async || three.mutex("a").info().await).await, None);
    let held = promised(one.mutex("a").label("job", "42").lock().await);
    let lock = two.mutex("a");
    let waiter = two.in_line(async move { lock.lock().await }).await;
    assert!(three.surely(async || three.mutex("a").is_locked().await).await);
    let seen = three.surely(async || three.mutex("a").info().await).await.expect("somebody is in line");
    assert_eq!(seen.name.as_str(), "a");
    let holder = seen.holders().next().expect("one holds");
    assert_eq!((holder.owner, holder.tickets.first.0), (held.owner(), promised(held.fence())));
    assert_eq!(holder.note.labels, [("job".to_owned(), "42".to_owned())]);
    assert_eq!((holder.note.pid, seen.waiters().count()), (std::process::id(), 1));
    one.let_go(held).await;
    let next = waiter.held().await;
    assert_eq!(listed(place, &three, "", 1).await[0].holders().next().map(|it| it.owner), Some(next.owner()));
    two.let_go(next).await;
}

/// Each prefix is a room of its own, and names are shown as they were written in it.
pub async fn prefixes_keep_names_apart(place: &Place) {
    let within = |room: &str| format!("{}{room}", place.beginning());
    let one = place.user_with(|builder| builder.prefix(within("one:"))).await;
    let two = place.user_with(|builder| builder.prefix(within("two:"))).await;
    let all = place.user().await;
    let (in_one, in_two) = (promised(one.mutex("a").lock().await), promised(two.mutex("a").lock().await));
    assert_eq!(in_one.names().collect::<Vec<_>>(), ["a"]);
    let shown = |resources: Vec<Resource>| resources.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(listed(place, &one, "", 1).await), ["a"]);
    assert_eq!(shown(listed(place, &all, "", 2).await), ["one:a", "two:a"]);
    assert_eq!(shown(listed(place, &all, "two", 1).await), ["two:a"]);
    assert!(all.surely(async || all.mutex("one:a").try_lock().await).await.is_none());
    one.let_go(in_one).await;
    let same = promised(soon(all.mutex("one:a").lock()).await);
    assert!(one.surely(async || one.mutex("a").is_locked().await).await);
    all.let_go(same).await;
    two.let_go(in_two).await;
}

/// Any text is a name.
pub async fn odd_names_are_locked_and_shown(place: &Place) {
    let [one, two, _] = place.three().await;
    let (long, wide) = ("n".repeat(Name::LONGEST), "🔒".repeat(Name::LONGEST / 4));
    let names = ["a}b", "{}x", "{a}", "a/b", "a/", "/", " ", "*", "'", "\\", "é", "钥匙", "\0", "\r\n", &long, &wide];
    let mut guards = Vec::new();
    for name in names {
        let guard = promised(soon(one.mutex(name).lock()).await);
        assert_eq!(guard.names().collect::<Vec<_>>(), [name]);
        guards.push(guard);
    }
    for (name, guard) in names.iter().zip(guards) {
        assert!(two.surely(async || two.mutex(name).try_lock().await).await.is_none());
        let seen = two.surely(async || two.mutex(name).info().await).await.expect("it is held");
        assert_eq!(seen.name.as_str(), *name);
        one.let_go(guard).await;
    }
    for name in ["", &"n".repeat(Name::LONGEST + 1)] {
        assert!(matches!(one.mutex(name).lock().await, Err(Error::Invalid(_))));
    }
}

/// A broken holder is told, and keeps its place until it has left.
pub async fn a_broken_lock_passes_on_when_its_holder_has_left(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let fence = promised(held.fence());
    let lock = two.mutex("a");
    let waiter = two.in_line(async move { lock.lock().await }).await;
    assert!(three.surely(async || three.break_lock("a", fence).await).await);
    assert_eq!(soon(held.lost()).await, LostWhy::Broken);
    assert!(matches!(held.check(), Err(Error::Lost { why: LostWhy::Broken, .. })));
    let seen = three.surely(async || three.mutex("a").info().await).await.expect("two are in line");
    let holder = seen.holders().next().expect("its place is kept");
    assert!(holder.broken && holder.tickets.first.0 == fence && !waiter.is_over(), "{seen:?}");
    drop(held);
    two.let_go(waiter.held().await).await;
}

/// Broken at once, it passes on while its holder still has it in hand.
pub async fn a_lock_broken_at_once_passes_on(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let fence = promised(held.fence());
    let lock = two.mutex("a");
    let waiter = two.in_line(async move { lock.lock().await }).await;
    let was_there = three.surely(async || three.break_lock_now("a", fence).await).await;
    // Repeated, it finds nothing any more.
    assert!(was_there || !place.is_exact());
    let next = waiter.held().await;
    assert!(promised(next.fence()) > fence);
    assert_eq!(soon(held.lost()).await, LostWhy::Broken);
    drop(held);
    assert!(next.check().is_ok());
    assert!(three.surely(async || three.mutex("a").try_lock().await).await.is_none());
    two.let_go(next).await;
}

/// With another fence than the holder's, nothing is broken.
pub async fn a_wrong_fence_breaks_nothing(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let fence = promised(held.fence());
    for wrong in [0, 1, fence - 1, fence + 1, u64::MAX] {
        assert!(!two.surely(async || two.break_lock("a", wrong).await).await);
        assert!(!two.surely(async || two.break_lock_now("a", wrong).await).await);
    }
    assert!(!two.surely(async || two.break_lock_now("b", fence).await).await);
    assert!(two.surely(async || two.mutex("a").is_locked().await).await);
    one.surely(async || held.extend(place.brief()).await).await;
    one.let_go(held).await;
}

/// Who disagrees about the number of permits is refused, and leaves nothing behind; when nobody is in line, it may change.
pub async fn disagreement_about_permits_is_refused(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.semaphore("a", 3).acquire().await);
    for permits in [1, 2, 4] {
        let refused = soon(two.semaphore("a", permits).acquire()).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert!(matches!(soon(two.mutex("a").lock()).await, Err(Error::Invalid(_))));
    assert!(matches!(two.semaphore("a", 3).acquire_many(4).await, Err(Error::Invalid(_))));
    let seen = two.surely(async || two.semaphore("a", 3).info().await).await.expect("one permit is taken");
    assert_eq!((seen.capacity, seen.queue.len()), (3, 1));
    one.let_go(held).await;
    // A release whose answer got lost may still be on its way.
    while !place.is_exact() && place.look(&place.name("a")).await.is_some() {
        tokio::task::yield_now().await;
    }
    let five = promised(soon(two.semaphore("a", 5).acquire_many(5)).await);
    two.let_go(five).await;
}
