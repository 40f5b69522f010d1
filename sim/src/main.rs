//! `sim --seconds N [--seed S] [--seeds COUNT]`: runs worlds of consecutive seeds on two threads, and prints their outcome.
//! The last line is the verdict; the exit code is 1 when an invariant broke.

#![expect(clippy::print_stdout, reason = "printing what was found is what this program is for")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sim::{Plan, Totals, describe, run_plan};

const THREADS: usize = 2;
/// How many failures are shrunk and printed in full; of later ones, the seed and the invariant are printed.
const MAX_DESCRIBED: usize = 3;

struct Args {
    /// How long worlds are begun, in real time.
    seconds: u64,
    /// The first seed.
    seed: u64,
    /// How many seeds at most.
    seeds: u64,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let args = match parse_args(&words) {
        Ok(args) => args,
        Err(what) => {
            println!("{what}; usage: sim --seconds N [--seed S] [--seeds COUNT]");
            return ExitCode::from(2);
        }
    };
    // A panic is a violation like any other; its text is in the report.
    std::panic::set_hook(Box::new(|_| {}));
    let totals = run(&args);
    println!("{totals}\nfaults that bit:\n{}", totals.bites);
    let missing: Vec<_> = totals.bites.missing().collect();
    if !missing.is_empty() {
        println!("never bit: {missing:?}");
    }
    println!("{}", totals.verdict());
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse_args(words: &[String]) -> Result<Args, String> {
    let mut args = Args { seconds: 60, seed: 1, seeds: u64::MAX };
    for pair in words.chunks(2) {
        let number = || pair.get(1).and_then(|text| text.parse().ok()).ok_or(format!("`{}` needs a number", pair[0]));
        match pair[0].as_str() {
            "--seconds" => args.seconds = number()?,
            "--seed" => args.seed = number()?,
            "--seeds" => args.seeds = number()?,
            other => return Err(format!("`{other}` is unknown")),
        }
    }
    Ok(args)
}

fn run(args: &Args) -> Totals {
    let begun = now();
    let until = begun + Duration::from_secs(args.seconds);
    let next = AtomicU64::new(0);
    let totals = Mutex::new((Totals::default(), begun));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= args.seeds || now() >= until {
                return;
            }
            let plan = Plan::of_seed(args.seed.wrapping_add(index));
            let outcome = run_plan(&plan, false);
            let failed = {
                let (totals, printed) = &mut *totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                totals.add(plan.seed, &outcome);
                if now().duration_since(*printed) >= Duration::from_secs(5) {
                    *printed = now();
                    println!("{:.0} s: {totals}", printed.duration_since(begun).as_secs_f64());
                }
                totals.failed.len()
            };
            match &outcome.violation {
                Some(_) if failed <= MAX_DESCRIBED => println!("{}", describe(&plan, &outcome)),
                Some((at, broken)) => println!("seed {}: {} is broken at {at:?}", plan.seed, broken.invariant),
                None => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    totals.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0
}

#[expect(clippy::disallowed_methods, reason = "how long the program may run is real time; worlds never see it")]
fn now() -> Instant {
    Instant::now()
}
