//! Everything that CI does, runnable by hand: `cargo xtask help`.
//!
//! Owns the order of the checks and the rules that neither the compiler nor clippy checks. Builds with the standard
//! library and `anyhow` alone, so that the first `cargo xtask` on a fresh machine is quick. Never edits a source.

#![expect(clippy::print_stdout, reason = "this program reports its steps on standard output")]

mod bench;
mod budgets;
mod features;
mod fuzz;
mod invocation;
mod model;
mod peers;
mod redis;
mod replay;
mod setup;
mod sim;
mod soak;
mod test;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

use redis::Server;

const HELP: &str = "\
Everything that CI does, runnable by hand.

    cargo xtask test           check everything: what CI runs, and what to run before a commit
      --redis PROGRAM          .. with another Redis or Valkey server than the `redis-server` on PATH
    cargo xtask tidy           check the repository's own rules, which the compiler does not know; takes about a second
    cargo xtask setup          install the programs that the checks need; does nothing when they are installed
    cargo xtask bench [NAME]   run a benchmark in release mode; without a name, list the benchmarks
    cargo xtask model [WORLD]  search the model of the protocol in full, or one world of it; takes two minutes
    cargo xtask sim            simulate many engines against one table in virtual time, with every fault; a minute
      --seconds N --seed S     .. for N seconds, beginning with the world of seed S (--seeds COUNT: COUNT worlds)
    cargo xtask fuzz           compare our parser of Redis replies with the redis crate's on random streams; a minute
      --seconds N --seed S     .. for N seconds, beginning with the stream of seed S
    cargo xtask soak           test `lockfast run` with hundreds of kills, breaks, stops and waiters; takes minutes
    cargo xtask replay FILE    step through a recording of a client (LOCKFAST_RECORD), and compare
      --client ID --from N --to M  .. only this client; print these steps
    cargo xtask help           print this text

`test` runs setup, then fmt, clippy, doc, tidy, the tests, and the library with each of its features alone. It stops at
the first step that fails and prints the command that repeats just that step. It prints how long each test binary took,
and fails when one took longer than its budget.

`tidy` reports file:line and what to do about it:
    layers        which module of the library may name which (the table is in xtask/src/tidy/layers.rs)
    purity        the engine has no clock, no I/O, no wakers, no mutex (the words are in xtask/src/tidy/purity.rs)
    sizes         no source file over 400 lines
    documents     paths, links and tests that the documents name exist
    dependencies  no second TLS stack: rustls with ring, or none
    leftovers     no unfinished code, no skipped tests, no paths out of the repository
    words         no retired phrases and pictures; `line` and `mark` in names only where xtask/src/tidy/words.rs lists them
    lengths       no function name over 64 characters
    map           every module is named in ARCHITECTURE.md or in its parent's header

`model` prints its findings for each world, and fails when a law was broken or a milestone was not reached. `test`
searches smaller worlds, and shows that each rule of the protocol is needed.

`sim` prints how much virtual time passed and which faults had an effect. When an invariant breaks, it prints the seed, a
small plan in which the same invariant breaks, and the last steps, and fails. `test` runs the worlds of a few seeds.

`replay` prints each input, the phases it changed and its effects, and fails when they differ from the recording or the
engine panics; `cargo xtask replay --help` has the details.

Arguments after the name of a benchmark go to the benchmark: cargo xtask bench core --help
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args, &root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("       because {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String], root: &Path) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "-h" | "--help"] => print!("{HELP}"),
        ["setup"] => setup::run(root)?,
        ["test"] => test::run(root, &Server::from_env()?)?,
        ["test", "--redis", program] => test::run(root, &Server::at(program)?)?,
        ["test", "--redis"] => bail!("`--redis` needs the path of a server program; see `cargo xtask help`"),
        ["tidy"] => tidy::run(root)?,
        ["bench", rest @ ..] => bench::run(root, rest)?,
        ["model", rest @ ..] => model::run(root, rest)?,
        ["sim", rest @ ..] => sim::run(root, rest)?,
        ["fuzz", rest @ ..] => fuzz::run(root, rest)?,
        ["replay", rest @ ..] => replay::run(root, rest)?,
        ["soak"] => soak::run(root)?,
        ["test", extra @ ..] => {
            bail!("`test` takes `--redis PROGRAM` or nothing, but was given {extra:?}; see `cargo xtask help`")
        }
        [known @ ("setup" | "tidy" | "soak" | "help"), extra, ..] => {
            bail!("`{known}` takes no arguments, but was given {extra:?}; see `cargo xtask help`")
        }
        [unknown, ..] => bail!("there is no task {unknown:?}; see `cargo xtask help`"),
    }
    Ok(())
}

/// The root of the repository, whatever the working directory is.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        dispatch(&args, Path::new("nowhere")).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_task_is_refused_by_name() {
        assert!(refusal(&["tets"]).contains("\"tets\""));
    }

    #[test]
    fn an_argument_that_would_be_ignored_is_refused() {
        assert!(refusal(&["test", "--fast"]).contains("--fast"));
        assert!(refusal(&["test", "--redis", "redis-server", "--fast"]).contains("--fast"));
        assert!(refusal(&["tidy", "--fast"]).contains("--fast"));
    }

    #[test]
    fn another_server_has_to_be_named() {
        assert!(refusal(&["test", "--redis"]).contains("path of a server"));
        assert!(refusal(&["test", "--redis", "/no/such/server"]).contains("/no/such/server"));
    }

    #[test]
    fn the_help_names_every_task() {
        for task in ["setup", "test", "tidy", "bench", "model", "sim", "fuzz", "replay", "help"] {
            assert!(HELP.contains(&format!("cargo xtask {task}")), "{task}");
        }
    }
}
