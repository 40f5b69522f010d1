//! `doctor`: what is fine, what is wrong, what is out of reach.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::stage::Stage;

#[test]
fn a_healthy_file_of_locks_is_fine_and_stays_as_it_was() {
    let stage = Stage::new();
    stage.acquire("nightly");
    let text = stage.run(&["doctor"]).yes();
    for part in
        ["locks.db", "lock and release in", "by a message", "first come, first served", "write-ahead log", "clock skew"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let found: Value = serde_json::from_str(&stage.run(&["doctor", "-o", "json"]).yes()).unwrap();
    assert_eq!(found["fine"], true);
    assert_eq!(stage.run(&["ls", "-o", "name"]).yes(), "nightly\n", "nothing of its own is left");
}

#[test]
fn a_directory_that_others_may_change_is_wrong() {
    let stage = Stage::new();
    let folder = stage.path("open");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let url = format!("sqlite:{}", folder.join("locks.db").display());
    let found = stage.run(&["doctor", "--store", &url]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.out.contains("WRONG  directory"), "{found:?}");
}

#[test]
fn a_store_out_of_reach_is_69_and_a_url_without_sense_is_78() {
    let stage = Stage::new();
    let missing = format!("sqlite:{}", stage.path("no/such/dir/locks.db").display());
    let found = stage.run(&["doctor", "--store", &missing]);
    assert!(found.code == Some(69) && found.out.contains("WRONG  store"), "{found:?}");
    let found = stage.run(&["doctor", "--store", "mysql://me:s3cret@db"]);
    assert_eq!(found.code, Some(78), "{found:?}");
    assert!(!format!("{found:?}").contains("s3cret") && found.out.contains("sqlite:"), "{found:?}");
}
