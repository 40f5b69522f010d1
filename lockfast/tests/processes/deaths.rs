//! Processes that are killed, with the store in one file. The clocks stand still, so no lease ever ends: whatever moves on,
//! moves on because a death was seen.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use lockfast::store::{Admission, Busy, BusyWith, Change, Lease, Leaving, Names, Query, Scope, Standing, Store, Why};
use lockfast::store::{Claim, ClientId, Demand, Demands, Name};
use rustix::process::Signal;
use tokio::sync::RwLock;

use crate::in_time;
use crate::remote::{Process, Remote, Site};

/// A process with one handle open, and what is told to its only client.
pub struct Party {
    pub process: Arc<Process>,
    pub store: Remote,
    client: ClientId,
    told: BoxStream<'static, Change>,
}

impl Party {
    pub async fn at(site: &Site) -> Self {
        let process = Process::start(site);
        let store = Remote::open(&process, &Arc::<RwLock<()>>::default()).await;
        let client = ClientId(fastrand::u64(..));
        let told = store.watch(Scope::Client(client));
        // Requests are taken in order, so by this answer the watch has begun.
        nobody_on(&store, "nothing").await;
        Self { process, store, client, told }
    }

    pub fn claim(&self, demands: impl Into<Demands>) -> Arc<Claim> {
        let claim = Claim::new(demands.into(), Duration::from_secs(30)).unwrap();
        Arc::new(Claim { client: self.client, ..claim })
    }

    async fn holds(&self, demand: Demand) -> Arc<Claim> {
        let claim = self.claim(demand);
        let answer = self.store.acquire(&claim, Busy::Wait).await.unwrap();
        assert!(matches!(answer, Admission::Held(_)), "{answer:?}");
        claim
    }

    async fn waits(&self, demand: Demand) -> Arc<Claim> {
        let claim = self.claim(demand);
        let answer = self.store.acquire(&claim, Busy::Wait).await.unwrap();
        assert!(matches!(answer, Admission::Queued { .. }), "{answer:?}");
        claim
    }

    async fn is_refused(&self, demand: Demand) -> BusyWith {
        match self.store.acquire(&self.claim(demand), Busy::Refuse).await.unwrap() {
            Admission::Refused(busy) => busy,
            other => panic!("{other:?}"),
        }
    }

    /// Comes back when this claim is told that it holds.
    async fn is_handed(&mut self, claim: &Claim) {
        loop {
            match self.told.next().await.expect("the watch goes on") {
                Change::Held(owner, _) if owner == claim.id.hash() => return,
                Change::Resync => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn nobody_on(store: &Remote, name: &str) -> bool {
    let query = Query { names: Names::One(Name::new(name).unwrap()), after: None, limit: 1, entries: usize::MAX };
    store.inspect(&query).await.unwrap().resources.is_empty()
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn all() -> Demand {
    Demand::exclusive(name("a"))
}

fn one_of_two() -> Demand {
    Demand::permits(name("s"), 1, 2).unwrap()
}

#[test]
fn who_waits_for_a_process_that_is_killed_is_handed_the_lock_at_once() {
    in_time(async {
        let site = Site::file();
        let (holder, mut waiter) = (Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        let waiting = waiter.waits(all()).await;
        holder.process.kill();
        waiter.is_handed(&waiting).await;
    });
}

#[test]
fn nobody_is_refused_or_shown_what_the_dead_held() {
    in_time(async {
        let site = Site::file();
        let (first, second, third) = (Party::at(&site).await, Party::at(&site).await, Party::at(&site).await);
        first.holds(all()).await;
        first.process.kill();
        assert!(nobody_on(&third.store, "a").await);
        second.holds(all()).await;
        second.process.kill();
        let answer = third.store.acquire(&third.claim(all()), Busy::Refuse).await.unwrap();
        assert!(matches!(answer, Admission::Held(_)), "{answer:?}");
    });
}

#[test]
fn who_comes_after_a_death_that_nobody_saw_finds_the_lock_free() {
    in_time(async {
        let site = Site::file();
        let before = Party::at(&site).await;
        before.holds(all()).await;
        before.process.kill();
        // Two of them: what the first one finds out when it moves in is known to the second.
        let (first, second) = (Party::at(&site).await, Party::at(&site).await);
        second.holds(all()).await;
        drop(first);
    });
}

#[test]
fn when_the_holder_and_the_next_die_together_the_one_after_is_handed_the_lock() {
    in_time(async {
        let site = Site::file();
        let (holder, next, mut last) = (Party::at(&site).await, Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        next.waits(all()).await;
        let waiting = last.waits(all()).await;
        // Stopped, neither of them can see the other die.
        next.process.signal(Signal::STOP);
        holder.process.kill();
        next.process.kill();
        last.is_handed(&waiting).await;
    });
}

#[test]
fn who_stood_behind_one_that_gave_up_sees_the_holder_die() {
    in_time(async {
        let site = Site::file();
        let (holder, next, mut last) = (Party::at(&site).await, Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        let impatient = next.waits(all()).await;
        let waiting = last.waits(all()).await;
        let left = next.store.release(&[Leaving::Done(impatient)]).await.unwrap();
        assert_eq!(left, [Standing::Gone(Why::Left)]);
        holder.process.kill();
        last.is_handed(&waiting).await;
    });
}

#[test]
fn a_waiter_whose_front_neighbour_left_watches_the_holder_itself() {
    in_time(async {
        let site = Site::file();
        let (holder, next, mut last) = (Party::at(&site).await, Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        let impatient = next.waits(all()).await;
        let waiting = last.waits(all()).await;
        let left = next.store.release(&[Leaving::Done(impatient)]).await.unwrap();
        assert_eq!(left, [Standing::Gone(Why::Left)]);
        // Stopped, the process that left can neither see the holder's death nor be seen dead: only the last waiter's own
        // liveness pipe to the holder is left.
        next.process.stop();
        holder.process.kill();
        last.is_handed(&waiting).await;
    });
}

#[test]
fn the_death_of_any_holder_of_a_semaphore_is_seen_by_the_first_who_waits() {
    in_time(async {
        let site = Site::file();
        let (one, two) = (Party::at(&site).await, Party::at(&site).await);
        let (mut three, mut four) = (Party::at(&site).await, Party::at(&site).await);
        one.holds(one_of_two()).await;
        two.holds(one_of_two()).await;
        let third = three.waits(one_of_two()).await;
        let fourth = four.waits(one_of_two()).await;
        one.process.kill();
        three.is_handed(&third).await;
        // The fourth looked out for the third only, until that one got in.
        two.process.kill();
        four.is_handed(&fourth).await;
    });
}

#[test]
fn a_multi_is_handed_what_the_dead_held_on_either_name() {
    in_time(async {
        let site = Site::file();
        let (on_a, on_b, mut both) = (Party::at(&site).await, Party::at(&site).await, Party::at(&site).await);
        on_a.holds(all()).await;
        on_b.holds(Demand::exclusive(name("b"))).await;
        let claim = both.claim(Demands::of(vec![all(), Demand::exclusive(name("b"))]).unwrap());
        both.store.acquire(&claim, Busy::Wait).await.unwrap();
        on_b.process.kill();
        on_a.process.kill();
        both.is_handed(&claim).await;
    });
}

#[test]
fn what_is_left_to_its_lease_outlives_its_process() {
    in_time(async {
        let site = Site::file();
        let (first, other) = (Party::at(&site).await, Party::at(&site).await);
        let detached = Arc::new(Claim { detached: true, ..(*first.claim(all())).clone() });
        first.store.acquire(&detached, Busy::Wait).await.unwrap();
        first.store.renew(&[Lease { ttl: detached.ttl, claim: detached }]).await.unwrap();
        let lingering = first.holds(Demand::exclusive(name("b"))).await;
        first.store.release(&[Leaving::Linger(lingering, Duration::from_secs(20))]).await.unwrap();
        first.holds(Demand::exclusive(name("c"))).await;
        first.process.kill();
        other.is_refused(all()).await;
        other.is_refused(Demand::exclusive(name("b"))).await;
        other.holds(Demand::exclusive(name("c"))).await;
        other.process.pass(Duration::from_secs(31)).await;
        other.holds(all()).await;
        other.holds(Demand::exclusive(name("b"))).await;
    });
}

#[test]
fn a_claim_that_will_be_detached_ends_with_its_process_until_it_is() {
    in_time(async {
        let site = Site::file();
        let (holder, mut last) = (Party::at(&site).await, Party::at(&site).await);
        let (waits, holds) = (Party::at(&site).await, Party::at(&site).await);
        let detached = |party: &Party, demand| Arc::new(Claim { detached: true, ..(*party.claim(demand)).clone() });
        let held = holder.holds(all()).await;
        waits.store.acquire(&detached(&waits, all()), Busy::Wait).await.unwrap();
        let waiting = last.waits(all()).await;
        waits.process.kill();
        holder.store.release(&[Leaving::Done(held)]).await.unwrap();
        last.is_handed(&waiting).await;
        holds.store.acquire(&detached(&holds, Demand::exclusive(name("b"))), Busy::Wait).await.unwrap();
        holds.process.kill();
        last.holds(Demand::exclusive(name("b"))).await;
    });
}

#[test]
fn a_process_that_is_stopped_is_not_dead_however_many_letters_it_does_not_read() {
    in_time(async {
        let site = Site::file();
        let (stopped, other) = (Party::at(&site).await, Party::at(&site).await);
        let names: Vec<_> = (0..40).map(|number| name(&format!("n{number}"))).collect();
        let mut held = Vec::new();
        for name in &names {
            held.push(other.holds(Demand::exclusive(name.clone())).await);
            stopped.waits(Demand::exclusive(name.clone())).await;
        }
        stopped.process.signal(Signal::STOP);
        for claim in held {
            // One letter each: the queue of its socket is full long before the last.
            other.store.release(&[Leaving::Done(claim)]).await.unwrap();
        }
        for name in &names {
            other.is_refused(Demand::exclusive(name.clone())).await;
        }
        stopped.process.signal(Signal::CONT);
        let told: Vec<_> = stopped.told.take(names.len()).collect().await;
        assert!(told.iter().all(|change| matches!(change, Change::Held(..))), "{told:?}");
    });
}

#[test]
fn a_pipe_that_is_missing_or_something_else_is_no_death() {
    in_time(async {
        let site = Site::file();
        let (holder, other) = (Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        let street = site.folder().join("locks.db.live");
        for entry in std::fs::read_dir(&street).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        other.is_refused(all()).await;
        holder.process.kill();
        // It is dead, but nobody can know that any more: the lease decides.
        let busy = other.is_refused(all()).await;
        assert!(busy.holder.is_some());
        other.process.pass(Duration::from_secs(30)).await;
        other.holds(all()).await;
    });
}

#[test]
fn who_waits_for_the_dead_is_answered_also_when_nothing_can_be_taken_out() {
    in_time(async {
        let site = Site::file();
        let (holder, waiter) = (Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        let waiting = waiter.waits(all()).await;
        let refuse = "CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'kept'); END";
        rusqlite::Connection::open(site.folder().join("locks.db")).unwrap().execute_batch(refuse).unwrap();
        holder.process.kill();
        let lease = Lease { claim: Arc::clone(&waiting), ttl: waiting.ttl };
        let standing = waiter.store.renew(&[lease]).await.unwrap();
        assert!(matches!(standing[..], [Standing::Waiting { .. }]), "{standing:?}");
    });
}

#[test]
fn the_dead_leave_no_files_behind() {
    in_time(async {
        let site = Site::file();
        for _ in 0..5 {
            Party::at(&site).await.process.kill();
        }
        let last = Party::at(&site).await;
        let kept = std::fs::read_dir(site.folder().join("locks.db.live")).unwrap().count();
        assert_eq!(kept, 2, "a socket and a pipe for the one that lives");
        drop(last);
    });
}

#[test]
fn who_waits_for_a_process_that_ends_by_itself_is_handed_the_lock_at_once() {
    in_time(async {
        let site = Site::file();
        let (holder, mut waiter) = (Party::at(&site).await, Party::at(&site).await);
        holder.holds(all()).await;
        let waiting = waiter.waits(all()).await;
        holder.process.hang_up();
        waiter.is_handed(&waiting).await;
    });
}

#[test]
fn who_could_not_be_seen_at_first_is_looked_at_again() {
    in_time(async {
        let site = Site::file();
        let holder = Party::at(&site).await;
        holder.holds(all()).await;
        let street = site.folder().join("locks.db.live");
        let mut entries = std::fs::read_dir(&street).unwrap().map(|entry| entry.unwrap().path());
        let pipe = entries.find(|path| path.extension().is_some_and(|kind| kind == "life")).unwrap();
        let mut waiter = Party::at(&site).await;
        let hidden = pipe.with_extension("hidden");
        std::fs::rename(&pipe, &hidden).unwrap();
        let waiting = waiter.waits(all()).await;
        std::fs::rename(&hidden, &pipe).unwrap();
        let lease = Lease { claim: Arc::clone(&waiting), ttl: waiting.ttl };
        waiter.store.renew(&[lease]).await.unwrap();
        holder.process.kill();
        waiter.is_handed(&waiting).await;
    });
}

#[test]
fn the_dead_have_no_say_in_the_capacity() {
    in_time(async {
        let site = Site::file();
        let (dead, other) = (Party::at(&site).await, Party::at(&site).await);
        dead.holds(one_of_two()).await;
        dead.process.kill();
        other.holds(Demand::permits(name("s"), 1, 3).unwrap()).await;
    });
}

#[test]
fn a_line_of_many_who_die_at_once_is_passed_by_the_one_behind_them() {
    in_time(async {
        let site = Site::file();
        let (many, mut last) = (Party::at(&site).await, Party::at(&site).await);
        many.holds(all()).await;
        let mut handles = Vec::new();
        for _ in 0..90 {
            let handle = Remote::open(&many.process, &Arc::<RwLock<()>>::default()).await;
            handle.acquire(&many.claim(all()), Busy::Wait).await.unwrap();
            handles.push(handle);
        }
        let waiting = last.waits(all()).await;
        many.process.kill();
        last.is_handed(&waiting).await;
    });
}
