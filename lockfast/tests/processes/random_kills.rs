//! Processes at random moments: several create the file at once, or each is killed in the middle of a verb.

use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Admission, Busy, Leaving, Store};
use lockfast::store::{Claim, Demand, Demands};

use crate::deaths::{Peer, name};
use crate::in_time;
use crate::remote::{Process, Remote, Site};

#[test]
fn several_processes_may_create_the_file_at_once() {
    in_time(async {
        for _ in 0..15 {
            let site = Site::file();
            let processes: Vec<_> = (0..4).map(|_| Process::start(&site)).collect();
            let opened = futures::future::join_all(processes.iter().map(Remote::try_open)).await;
            assert!(opened.iter().all(Option::is_some), "one process could not open the file");
        }
    });
}

/// Each process is killed at a random moment: while it opens the file, while it waits, or in the middle of a verb.
#[test]
fn processes_killed_at_any_moment_leave_a_valid_file() {
    let kills = 200;
    let site = Site::file();
    let fences = in_time(async {
        let survivor = Peer::at(&site).await;
        let mut fences = Vec::new();
        for _ in 0..kills {
            let process = Process::start(&site);
            let victim = {
                let process = Arc::clone(&process);
                tokio::spawn(async move { work_until_killed(&process).await })
            };
            tokio::time::sleep(Duration::from_micros(fastrand::u64(..30_000))).await;
            process.kill();
            fences.extend(victim.await.unwrap());
            for text in ["a", "b", "s"] {
                let claim = survivor.claim(Demand::exclusive(name(text)));
                match survivor.store.acquire(&claim, Busy::Refuse).await.unwrap() {
                    Admission::Held(tickets) => fences.push(tickets.first.0),
                    other => panic!("{text} is stuck: {other:?}"),
                }
                survivor.store.release(&[Leaving::Done(claim)]).await.unwrap();
            }
        }
        fences
    });
    assert!(fences.is_sorted_by(|before, after| before < after), "fences only rise: {fences:?}");
    assert!(fences.len() > kills * 4, "too few processes were killed within a verb; {} fences", fences.len());
    let file = rusqlite::Connection::open(site.folder().join("locks.db")).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let entries: i64 = file.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(entries, 0);
}

/// The fences that the process got, in order.
async fn work_until_killed(process: &Arc<Process>) -> Vec<u64> {
    let Some(store) = Remote::try_open(process).await else { return Vec::new() };
    let mut fences = Vec::new();
    loop {
        let demands = match fastrand::u8(..3) {
            0 => Demand::exclusive(name("a")).into(),
            1 => Demands::of(vec![Demand::exclusive(name("a")), Demand::exclusive(name("b"))]).unwrap(),
            _ => Demand::shared(name("s")).into(),
        };
        let claim = Arc::new(Claim::new(demands, Duration::from_secs(30)).unwrap());
        match store.acquire(&claim, Busy::Refuse).await {
            Ok(Admission::Held(tickets)) => fences.push(tickets.first.0),
            // It holds that lock already, since it did not release it.
            Ok(_) => continue,
            Err(_) => return fences,
        }
        if fastrand::u8(..20) > 0 && store.release(&[Leaving::Done(claim)]).await.is_err() {
            return fences;
        }
    }
}
