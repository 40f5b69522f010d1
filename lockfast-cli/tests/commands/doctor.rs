//! `doctor`: stores that are fine, wrong, or unreachable.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::processes::Fixture;

#[test]
fn a_healthy_file_of_locks_is_fine_and_stays_as_it_was() {
    let fixture = Fixture::new();
    fixture.acquire("nightly");
    let text = fixture.run(&["doctor"]).expect_success();
    for part in [
        "locks.db",
        "lock and release in",
        "by a notification",
        "first come, first served",
        "write-ahead log",
        "clock skew",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let found: Value = serde_json::from_str(&fixture.run(&["doctor", "-o", "json"]).expect_success()).unwrap();
    assert_eq!(found["fine"], true);
    assert_eq!(fixture.run(&["ls", "-o", "name"]).expect_success(), "nightly\n", "nothing of its own is left");
}

#[test]
fn a_directory_that_others_may_change_is_wrong() {
    let fixture = Fixture::new();
    let folder = fixture.path("open");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let url = format!("sqlite:{}", folder.join("locks.db").display());
    let found = fixture.run(&["doctor", "--store", &url]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stdout.contains("WRONG  directory"), "{found:?}");
}

#[test]
fn an_unreachable_store_is_69_and_an_invalid_url_78() {
    let fixture = Fixture::new();
    let missing = format!("sqlite:{}", fixture.path("no/such/dir/locks.db").display());
    let found = fixture.run(&["doctor", "--store", &missing]);
    assert!(found.code == Some(69) && found.stdout.contains("WRONG  store"), "{found:?}");
    let found = fixture.run(&["doctor", "--store", "mysql://me:s3cret@db"]);
    assert_eq!(found.code, Some(78), "{found:?}");
    assert!(!format!("{found:?}").contains("s3cret") && found.stdout.contains("sqlite:"), "{found:?}");
}
