//! `cargo xtask model`: searches the worlds of the model and prints what was found in each. Fails when a law was broken or
//! a milestone not reached.

#![expect(clippy::print_stdout, reason = "printing what was found is what this program is for")]

use std::process::ExitCode;

use model::{search, setups};

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let only = std::env::args().nth(1);
    let (mut states, mut unique, mut is_good) = (0, 0, true);
    for setup in setups::large() {
        if only.as_ref().is_some_and(|only| !setup.name.contains(only.as_str())) {
            continue;
        }
        let found = search::search(&setup, threads);
        println!("{found}");
        states += found.states;
        unique += found.unique;
        is_good &= found.is_good();
    }
    println!("{states} states in all, {unique} unique");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
