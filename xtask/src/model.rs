//! `cargo xtask model`: the long search of the model, always in release mode; a debug build would take ten times as long.

use std::path::Path;

use anyhow::Result;

use crate::invocation::Invocation;

pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    invocation(words).run(root)
}

fn invocation(words: &[&str]) -> Invocation {
    Invocation::new("cargo run --release -p model --").with_args(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_is_named_in_one_word_for_the_model() {
        let command = invocation(&["lost answers"]).to_string();
        assert_eq!(command, "cargo run --release -p model -- 'lost answers'");
    }
}
