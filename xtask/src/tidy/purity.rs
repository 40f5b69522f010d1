//! The engine is a pure state machine: no clock, no I/O, no threads, no wakers, no mutex. The layers say which modules it may name;
//! this says which words of the language and of other crates it may not.

use super::Finding;
use super::source::{tokens, without_comments_and_strings, without_tests};

const ENGINE: &str = "lockfast/src/engine/";

/// Words that the engine may not use, and what each would bring in.
const IMPURE_WORDS: &[(&str, &str)] = &[
    ("async", "futures"),
    ("await", "futures"),
    ("Future", "futures"),
    ("futures", "futures"),
    ("Waker", "wakers"),
    ("Clock", "a clock"),
    ("Timer", "a clock"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("Mutex", "a mutex"),
    ("RwLock", "a mutex"),
    ("Condvar", "a mutex"),
    ("RefCell", "shared state"),
    ("OnceLock", "shared state"),
    ("thread_local", "shared state"),
    ("tokio", "I/O"),
    ("tracing", "I/O"),
    ("getrandom", "I/O"),
    ("thread", "threads"),
    ("fs", "I/O"),
    ("net", "I/O"),
    ("env", "I/O"),
];

/// The one file that may use atomics. It has the deadline that a guard compares with the clock: the deadline is the client's, and
/// the engine carries it along without reading it.
const ATOMICS_ALLOWED_IN: &str = "lockfast/src/engine/lease.rs";

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    if !path.starts_with(ENGINE) || is_test {
        return Vec::new();
    }
    let blanked = without_comments_and_strings(text);
    let mut findings = Vec::new();
    for token in without_tests(&tokens(&blanked)) {
        let brings = IMPURE_WORDS.iter().find(|(word, _)| *word == token.text).map(|(_, brings)| *brings);
        let brings =
            brings.or((token.text.starts_with("Atomic") && path != ATOMICS_ALLOWED_IN).then_some("shared state"));
        if let Some(brings) = brings {
            let what = format!(
                "`{}` brings {brings} into the engine, which is a pure state machine: make it an input or an effect",
                token.text
            );
            findings.push(Finding::new(path, token.line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_engine_has_no_clock_no_mutex_and_no_waker() {
        let text =
            "use std::sync::Arc;\nuse std::sync::Mutex;\nuse std::task::Waker;\nfn f(now: Moment) { clock.now() }\n";
        assert_eq!(lines("lockfast/src/engine/renew.rs", text), [2, 3]);
        assert_eq!(lines("lockfast/src/engine/renew.rs", "async fn f() { g().await }"), [1, 1]);
        assert_eq!(lines("lockfast/src/engine/renew.rs", "use std::sync::atomic::AtomicU64;"), [1]);
    }

    #[test]
    fn other_layers_comments_and_tests_are_free() {
        assert_eq!(lines("lockfast/src/client/keeper.rs", "use std::sync::Mutex;"), [0; 0]);
        assert_eq!(lines("lockfast/src/engine/renew.rs", "// no Mutex here\nlet text = \"Waker\";"), [0; 0]);
        assert_eq!(lines("lockfast/src/engine/tests.rs", "use std::sync::Mutex;"), [0; 0]);
        assert_eq!(lines(ATOMICS_ALLOWED_IN, "use std::sync::atomic::AtomicU64;"), [0; 0]);
    }
}
