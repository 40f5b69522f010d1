//! `cargo xtask model`: searches the worlds of the model and prints the result of each. Fails when a law was broken or a
//! milestone not reached. A word on the command line chooses the worlds with that word in their name.

#![expect(clippy::print_stdout, reason = "printing what was found is what this program is for")]

use std::process::ExitCode;

use model::{search, setups};

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let word = std::env::args().nth(1).unwrap_or_default();
    let chosen: Vec<_> = setups::large().into_iter().filter(|setup| setup.name.contains(&word)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = setups::large().iter().map(|setup| setup.name).collect();
        println!("there is no world called {word:?}; there are: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let (mut states, mut unique, mut failed) = (0, 0, Vec::new());
    for setup in chosen {
        let result = search::search(&setup, threads);
        println!("{result}");
        states += result.states;
        unique += result.unique;
        if !result.is_good() {
            failed.push(result.setup);
        }
    }
    println!("{states} states in all, {unique} unique");
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
