//! `break`: compare, then break.

use crate::stage::Stage;

#[test]
fn the_claim_with_this_fence_is_broken_and_told_to_its_owner() {
    let stage = Stage::new();
    let token = stage.acquire("deploy");
    let fence = stage.fence("deploy").to_string();
    let broken = stage.run(&["break", "deploy", "--fence", &fence]);
    assert_eq!(broken.code, Some(0), "{broken:?}");
    for part in ["lockfast: broke the claim of ", "deploy", &fence, "by=", "at=20"] {
        assert!(broken.err.contains(part), "{part:?} is not in {broken:?}");
    }
    assert_eq!(stage.line("deploy")["holders"][0]["broken"], true, "it keeps its place until it has left");
    let lost = stage.run_with(&["renew"], &token);
    assert!(lost.code == Some(1) && lost.err.contains("an operator broke it"), "{lost:?}");
}

#[test]
fn broken_now_it_passes_on_at_once() {
    let stage = Stage::new();
    stage.acquire("deploy");
    let waits = stage.start(&["acquire", "deploy"]);
    stage.wait_for_waiters("deploy", 1);
    let fence = stage.fence("deploy").to_string();
    stage.run(&["break", "deploy", "--fence", &fence, "--now"]).yes();
    waits.end().yes();
    assert!(stage.fence("deploy").to_string() > fence);
}

#[test]
fn another_fence_breaks_nothing_and_is_told_what_is_there() {
    let stage = Stage::new();
    stage.acquire("deploy");
    let fence = stage.fence("deploy");
    let wrong = stage.run(&["break", "deploy", "--fence", "7"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.contains(&format!("fence {fence}")) && wrong.err.contains("held by"), "{wrong:?}");
    assert_eq!(stage.line("deploy")["holders"][0]["broken"], false);
    let free = stage.run(&["break", "other", "--fence", "7"]);
    assert!(free.code == Some(1) && free.err.contains("it is free"), "{free:?}");
    assert_eq!(stage.run(&["break", "deploy"]).code, Some(2), "never without a fence");
}
