//! `cargo xtask soak`: the tests that come in large numbers, all of them, one after the other, saying what they did.

use std::path::Path;

use anyhow::Result;

use crate::invocation::Invocation;

pub(crate) fn run(root: &Path) -> Result<()> {
    let tests = "cargo test --release -p lockfast-cli --test many_waiters -- --nocapture --test-threads=1";
    Invocation::new(tests).with_variable("LOCKFAST_SOAK", "all").run(root)
}
