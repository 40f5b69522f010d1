//! `cargo xtask soak`: the tests of `many_waiters` with their full numbers, one after the other, with their output.

use std::path::Path;

use anyhow::Result;

use crate::invocation::Invocation;

pub(crate) fn run(root: &Path) -> Result<()> {
    let tests = "cargo test --release -p lockfast-cli --test many_waiters -- --nocapture --test-threads=1";
    Invocation::new(tests).with_variable("LOCKFAST_SOAK", "all").run(root)
}
