//! Processes that are killed, with the store in one file. The clocks stand still, so that no lease ends: a lock passes on only
//! because a death was seen.

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

/// A process with one open handle, and the pushes to its only client.
pub struct Peer {
    pub process: Arc<Process>,
    pub store: Remote,
    client: ClientId,
    pushes: BoxStream<'static, Change>,
}

impl Peer {
    pub async fn at(site: &Site) -> Self {
        let process = Process::start(site);
        let store = Remote::open(&process, &Arc::<RwLock<()>>::default()).await;
        let client = ClientId(fastrand::u64(..));
        let pushes = store.watch(Scope::Client(client));
        // Requests run in order: when this one is answered, the watch has begun.
        is_free(&store, "nothing").await;
        Self { process, store, client, pushes }
    }

    pub fn claim(&self, demands: impl Into<Demands>) -> Arc<Claim> {
        let claim = Claim::new(demands.into(), Duration::from_secs(30)).unwrap();
        Arc::new(Claim { client: self.client, ..claim })
    }

    async fn hold(&self, demand: Demand) -> Arc<Claim> {
        let claim = self.claim(demand);
        let answer = self.store.acquire(&claim, Busy::Wait).await.unwrap();
        assert!(matches!(answer, Admission::Held(_)), "{answer:?}");
        claim
    }

    async fn queue(&self, demand: Demand) -> Arc<Claim> {
        let claim = self.claim(demand);
        let answer = self.store.acquire(&claim, Busy::Wait).await.unwrap();
        assert!(matches!(answer, Admission::Queued { .. }), "{answer:?}");
        claim
    }

    async fn expect_refusal(&self, demand: Demand) -> BusyWith {
        match self.store.acquire(&self.claim(demand), Busy::Refuse).await.unwrap() {
            Admission::Refused(busy) => busy,
            other => panic!("{other:?}"),
        }
    }

    /// Returns when a push says that this claim holds.
    async fn expect_grant(&mut self, claim: &Claim) {
        loop {
            match self.pushes.next().await.expect("the watch goes on") {
                Change::Held(owner, _) if owner == claim.id.hash() => return,
                Change::Resync => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn is_free(store: &Remote, name: &str) -> bool {
    let query = Query { names: Names::One(Name::new(name).unwrap()), after: None, limit: 1, entries: usize::MAX };
    store.inspect(&query).await.unwrap().resources.is_empty()
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn exclusive() -> Demand {
    Demand::exclusive(name("a"))
}

fn one_permit_of_two() -> Demand {
    Demand::permits(name("s"), 1, 2).unwrap()
}

#[test]
fn a_killed_holders_lock_is_granted_to_the_waiter_at_once() {
    in_time(async {
        let site = Site::file();
        let (holder, mut waiter) = (Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        let waiting = waiter.queue(exclusive()).await;
        holder.process.kill();
        waiter.expect_grant(&waiting).await;
    });
}

#[test]
fn locks_of_dead_processes_are_neither_shown_nor_refused() {
    in_time(async {
        let site = Site::file();
        let (first, second, third) = (Peer::at(&site).await, Peer::at(&site).await, Peer::at(&site).await);
        first.hold(exclusive()).await;
        first.process.kill();
        assert!(is_free(&third.store, "a").await);
        second.hold(exclusive()).await;
        second.process.kill();
        let answer = third.store.acquire(&third.claim(exclusive()), Busy::Refuse).await.unwrap();
        assert!(matches!(answer, Admission::Held(_)), "{answer:?}");
    });
}

#[test]
fn a_process_started_after_an_unseen_death_finds_the_lock_free() {
    in_time(async {
        let site = Site::file();
        let before = Peer::at(&site).await;
        before.hold(exclusive()).await;
        before.process.kill();
        // Two processes: the second relies on what the first one found out when it opened the store.
        let (first, second) = (Peer::at(&site).await, Peer::at(&site).await);
        second.hold(exclusive()).await;
        drop(first);
    });
}

#[test]
fn the_second_waiter_is_granted_when_holder_and_first_waiter_die() {
    in_time(async {
        let site = Site::file();
        let (holder, next, mut last) = (Peer::at(&site).await, Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        next.queue(exclusive()).await;
        let waiting = last.queue(exclusive()).await;
        // While it is stopped, neither process can see the other die.
        next.process.signal(Signal::STOP);
        holder.process.kill();
        next.process.kill();
        last.expect_grant(&waiting).await;
    });
}

#[test]
fn a_waiter_behind_one_that_gave_up_sees_the_holder_die() {
    in_time(async {
        let site = Site::file();
        let (holder, next, mut last) = (Peer::at(&site).await, Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        let impatient = next.queue(exclusive()).await;
        let waiting = last.queue(exclusive()).await;
        let left = next.store.release(&[Leaving::Done(impatient)]).await.unwrap();
        assert_eq!(left, [Standing::Gone(Why::Left)]);
        holder.process.kill();
        last.expect_grant(&waiting).await;
    });
}

#[test]
fn a_waiter_watches_the_holder_after_the_waiter_ahead_left() {
    in_time(async {
        let site = Site::file();
        let (holder, next, mut last) = (Peer::at(&site).await, Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        let impatient = next.queue(exclusive()).await;
        let waiting = last.queue(exclusive()).await;
        let left = next.store.release(&[Leaving::Done(impatient)]).await.unwrap();
        assert_eq!(left, [Standing::Gone(Why::Left)]);
        // While it is stopped, the process that left can neither see the holder die nor be seen dead. Only the last waiter's own
        // liveness pipe to the holder is left.
        next.process.stop();
        holder.process.kill();
        last.expect_grant(&waiting).await;
    });
}

#[test]
fn the_first_waiter_of_a_semaphore_sees_any_holder_die() {
    in_time(async {
        let site = Site::file();
        let (one, two) = (Peer::at(&site).await, Peer::at(&site).await);
        let (mut three, mut four) = (Peer::at(&site).await, Peer::at(&site).await);
        one.hold(one_permit_of_two()).await;
        two.hold(one_permit_of_two()).await;
        let third = three.queue(one_permit_of_two()).await;
        let fourth = four.queue(one_permit_of_two()).await;
        one.process.kill();
        three.expect_grant(&third).await;
        // The fourth watched only the third until that one entered.
        two.process.kill();
        four.expect_grant(&fourth).await;
    });
}

#[test]
fn a_multi_is_granted_names_of_dead_holders() {
    in_time(async {
        let site = Site::file();
        let (on_a, on_b, mut both) = (Peer::at(&site).await, Peer::at(&site).await, Peer::at(&site).await);
        on_a.hold(exclusive()).await;
        on_b.hold(Demand::exclusive(name("b"))).await;
        let claim = both.claim(Demands::of(vec![exclusive(), Demand::exclusive(name("b"))]).unwrap());
        both.store.acquire(&claim, Busy::Wait).await.unwrap();
        on_b.process.kill();
        on_a.process.kill();
        both.expect_grant(&claim).await;
    });
}

#[test]
fn detached_and_lingering_claims_outlive_their_process() {
    in_time(async {
        let site = Site::file();
        let (first, other) = (Peer::at(&site).await, Peer::at(&site).await);
        let detached = Arc::new(Claim { detached: true, ..(*first.claim(exclusive())).clone() });
        first.store.acquire(&detached, Busy::Wait).await.unwrap();
        first.store.renew(&[Lease { ttl: detached.ttl, claim: detached }]).await.unwrap();
        let lingering = first.hold(Demand::exclusive(name("b"))).await;
        first.store.release(&[Leaving::Linger(lingering, Duration::from_secs(20))]).await.unwrap();
        first.hold(Demand::exclusive(name("c"))).await;
        first.process.kill();
        other.expect_refusal(exclusive()).await;
        other.expect_refusal(Demand::exclusive(name("b"))).await;
        other.hold(Demand::exclusive(name("c"))).await;
        other.process.pass(Duration::from_secs(31)).await;
        other.hold(exclusive()).await;
        other.hold(Demand::exclusive(name("b"))).await;
    });
}

#[test]
fn a_claim_that_is_not_detached_yet_ends_with_its_process() {
    in_time(async {
        let site = Site::file();
        let (holder, mut last) = (Peer::at(&site).await, Peer::at(&site).await);
        let (waits, holds) = (Peer::at(&site).await, Peer::at(&site).await);
        let detached = |peer: &Peer, demand| Arc::new(Claim { detached: true, ..(*peer.claim(demand)).clone() });
        let held = holder.hold(exclusive()).await;
        waits.store.acquire(&detached(&waits, exclusive()), Busy::Wait).await.unwrap();
        let waiting = last.queue(exclusive()).await;
        waits.process.kill();
        holder.store.release(&[Leaving::Done(held)]).await.unwrap();
        last.expect_grant(&waiting).await;
        holds.store.acquire(&detached(&holds, Demand::exclusive(name("b"))), Busy::Wait).await.unwrap();
        holds.process.kill();
        last.hold(Demand::exclusive(name("b"))).await;
    });
}

#[test]
fn a_stopped_process_with_unread_datagrams_is_not_dead() {
    in_time(async {
        let site = Site::file();
        let (stopped, other) = (Peer::at(&site).await, Peer::at(&site).await);
        let names: Vec<_> = (0..40).map(|number| name(&format!("n{number}"))).collect();
        let mut held = Vec::new();
        for name in &names {
            held.push(other.hold(Demand::exclusive(name.clone())).await);
            stopped.queue(Demand::exclusive(name.clone())).await;
        }
        stopped.process.signal(Signal::STOP);
        for claim in held {
            // One datagram each: the buffer of its socket is full long before the last.
            other.store.release(&[Leaving::Done(claim)]).await.unwrap();
        }
        for name in &names {
            other.expect_refusal(Demand::exclusive(name.clone())).await;
        }
        stopped.process.signal(Signal::CONT);
        let pushes: Vec<_> = stopped.pushes.take(names.len()).collect().await;
        assert!(pushes.iter().all(|change| matches!(change, Change::Held(..))), "{pushes:?}");
    });
}

#[test]
fn a_missing_liveness_pipe_is_no_death() {
    in_time(async {
        let site = Site::file();
        let (holder, other) = (Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        let directory = site.folder().join("locks.db.live");
        for entry in std::fs::read_dir(&directory).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        other.expect_refusal(exclusive()).await;
        holder.process.kill();
        // It is dead, but without its pipe no process can see that: the lease decides.
        let busy = other.expect_refusal(exclusive()).await;
        assert!(busy.holder.is_some());
        other.process.pass(Duration::from_secs(30)).await;
        other.hold(exclusive()).await;
    });
}

#[test]
fn a_renewal_is_answered_when_dead_entries_cannot_be_removed() {
    in_time(async {
        let site = Site::file();
        let (holder, waiter) = (Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        let waiting = waiter.queue(exclusive()).await;
        let refuse = "CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'kept'); END";
        rusqlite::Connection::open(site.folder().join("locks.db")).unwrap().execute_batch(refuse).unwrap();
        holder.process.kill();
        let lease = Lease { claim: Arc::clone(&waiting), ttl: waiting.ttl };
        let standing = waiter.store.renew(&[lease]).await.unwrap();
        assert!(matches!(standing[..], [Standing::Waiting { .. }]), "{standing:?}");
    });
}

#[test]
fn dead_processes_leave_no_files() {
    in_time(async {
        let site = Site::file();
        for _ in 0..5 {
            Peer::at(&site).await.process.kill();
        }
        let last = Peer::at(&site).await;
        let kept = std::fs::read_dir(site.folder().join("locks.db.live")).unwrap().count();
        assert_eq!(kept, 2, "a socket and a pipe for the one that lives");
        drop(last);
    });
}

#[test]
fn a_lock_of_a_process_that_exits_is_granted_at_once() {
    in_time(async {
        let site = Site::file();
        let (holder, mut waiter) = (Peer::at(&site).await, Peer::at(&site).await);
        holder.hold(exclusive()).await;
        let waiting = waiter.queue(exclusive()).await;
        holder.process.hang_up();
        waiter.expect_grant(&waiting).await;
    });
}

#[test]
fn a_holder_whose_pipe_was_missing_is_looked_at_again() {
    in_time(async {
        let site = Site::file();
        let holder = Peer::at(&site).await;
        holder.hold(exclusive()).await;
        let directory = site.folder().join("locks.db.live");
        let mut entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let pipe = entries.find(|path| path.extension().is_some_and(|kind| kind == "life")).unwrap();
        let mut waiter = Peer::at(&site).await;
        let hidden = pipe.with_extension("hidden");
        std::fs::rename(&pipe, &hidden).unwrap();
        let waiting = waiter.queue(exclusive()).await;
        std::fs::rename(&hidden, &pipe).unwrap();
        let lease = Lease { claim: Arc::clone(&waiting), ttl: waiting.ttl };
        waiter.store.renew(&[lease]).await.unwrap();
        holder.process.kill();
        waiter.expect_grant(&waiting).await;
    });
}

#[test]
fn a_dead_claim_does_not_fix_the_capacity() {
    in_time(async {
        let site = Site::file();
        let (dead, other) = (Peer::at(&site).await, Peer::at(&site).await);
        dead.hold(one_permit_of_two()).await;
        dead.process.kill();
        other.hold(Demand::permits(name("s"), 1, 3).unwrap()).await;
    });
}

#[test]
fn a_waiter_passes_many_dead_waiters_ahead_of_it() {
    in_time(async {
        let site = Site::file();
        let (many, mut last) = (Peer::at(&site).await, Peer::at(&site).await);
        many.hold(exclusive()).await;
        let mut handles = Vec::new();
        for _ in 0..90 {
            let handle = Remote::open(&many.process, &Arc::<RwLock<()>>::default()).await;
            handle.acquire(&many.claim(exclusive()), Busy::Wait).await.unwrap();
            handles.push(handle);
        }
        let waiting = last.queue(exclusive()).await;
        many.process.kill();
        last.expect_grant(&waiting).await;
    });
}
