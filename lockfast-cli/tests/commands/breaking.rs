//! `break`: compare, then break.

use crate::processes::Fixture;

#[test]
fn a_break_by_fence_is_reported_to_its_owner() {
    let fixture = Fixture::new();
    let token = fixture.acquire("deploy");
    let fence = fixture.fence("deploy").to_string();
    let broken = fixture.run(&["break", "deploy", "--fence", &fence]);
    assert_eq!(broken.code, Some(0), "{broken:?}");
    for part in ["lockfast: broke the claim of ", "deploy", &fence, "by=", "at=20"] {
        assert!(broken.stderr.contains(part), "{part:?} is not in {broken:?}");
    }
    assert_eq!(fixture.queue("deploy")["holders"][0]["broken"], true, "it stays in the queue until it has left");
    let lost = fixture.run_with_input(&["renew"], &token);
    assert!(lost.code == Some(1) && lost.stderr.contains("an operator broke it"), "{lost:?}");
}

#[test]
fn break_now_hands_the_lock_off_at_once() {
    let fixture = Fixture::new();
    fixture.acquire("deploy");
    let waiter = fixture.start(&["acquire", "deploy"]);
    fixture.wait_for_waiters("deploy", 1);
    let fence = fixture.fence("deploy").to_string();
    fixture.run(&["break", "deploy", "--fence", &fence, "--now"]).expect_success();
    waiter.end().expect_success();
    assert!(fixture.fence("deploy").to_string() > fence);
}

#[test]
fn a_wrong_fence_breaks_nothing_and_shows_the_holder() {
    let fixture = Fixture::new();
    fixture.acquire("deploy");
    let fence = fixture.fence("deploy");
    let wrong = fixture.run(&["break", "deploy", "--fence", "7"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains(&format!("fence {fence}")) && wrong.stderr.contains("held by"), "{wrong:?}");
    assert_eq!(fixture.queue("deploy")["holders"][0]["broken"], false);
    let free = fixture.run(&["break", "other", "--fence", "7"]);
    assert!(free.code == Some(1) && free.stderr.contains("it is free"), "{free:?}");
    assert_eq!(fixture.run(&["break", "deploy"]).code, Some(2), "never without a fence");
}
