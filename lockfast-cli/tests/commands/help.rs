//! `--help`, usage errors, `completions` and `man`.

use crate::processes::Fixture;

const COMMANDS: [&str; 14] = [
    "run",
    "elect",
    "ls",
    "inspect",
    "status",
    "acquire",
    "renew",
    "release",
    "break",
    "watch",
    "stats",
    "doctor",
    "completions",
    "man",
];

#[test]
fn the_help_of_every_command_teaches_by_example() {
    let fixture = Fixture::new();
    let all = fixture.run(&["--help"]).expect_success();
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command} is not in\n{all}");
        let help = fixture.run(&[command, "--help"]).expect_success();
        let examples = help.split("Examples:").nth(1).unwrap_or_else(|| panic!("{command} has no examples"));
        let shown = examples.lines().filter(|line| line.contains("lockfast")).count();
        assert!((3..=9).contains(&shown), "{command} has {shown} examples");
    }
}

#[test]
fn a_mistyped_command_or_flag_gets_a_suggestion() {
    let fixture = Fixture::new();
    let mistyped = fixture.run(&["inspcet", "a"]);
    assert!(mistyped.code == Some(2) && mistyped.stderr.contains("'inspect'"), "{mistyped:?}");
    let mistyped = fixture.run(&["ls", "--wtach"]);
    assert!(mistyped.code == Some(2) && mistyped.stderr.contains("'--watch'"), "{mistyped:?}");
    assert_eq!(fixture.run(&["run", "--nonblok", "a", "--", "true"]).code, Some(64), "a child may say 2 itself");
    assert_eq!(fixture.run(&["--version"]).expect_success(), format!("lockfast {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn pages_and_completions_name_every_command_and_nothing_else() {
    let fixture = Fixture::new();
    let script = fixture.run(&["completions", "bash"]).expect_success();
    let folder = fixture.path("man1");
    fixture.run(&["man", "--dir", folder.to_str().unwrap()]).expect_success();
    for command in COMMANDS {
        assert!(script.contains(&format!("lockfast,{command})")), "{command} is not completed");
        assert!(folder.join(format!("lockfast-{command}.1")).exists(), "{command} has no page");
    }
    let pages = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(pages, COMMANDS.len() + 1);
    assert!(fixture.run(&["man"]).expect_success().contains(".TH lockfast"));
    assert!(!script.contains("guardian"));
}
