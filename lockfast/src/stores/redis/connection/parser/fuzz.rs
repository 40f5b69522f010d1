//! Fuzzes our parser against the parser of the `redis` crate, on streams generated from seeds.
//! `streams.rs` generates them, `corpus.rs` keeps those that found faults, `compare.rs` compares.
//!
//! The tests compare a fixed range of seeds. `cargo xtask fuzz` runs longer, from a random seed. With `LOCKFAST_FUZZ_SEED`, or
//! `--seed`, the first stream compared is the one of that seed.

mod compare;
mod corpus;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fastrand::Rng;
use redis::Value;

use compare::{Difference, Reading, compare, ours, theirs};

use crate::clock::Clock;

/// How many streams every run of the tests compares.
const STREAMS: u64 = 4_000;

#[derive(Default)]
struct Report {
    streams: u64,
    valid: u64,
    differences: BTreeMap<Difference, u64>,
    kinds: BTreeMap<&'static str, u64>,
    violations: u64,
}

impl Report {
    fn count_kinds(&mut self, value: &Value) {
        let kind = match value {
            Value::Nil => "nil",
            Value::Int(_) => "integer",
            Value::BulkString(_) => "bulk string",
            Value::SimpleString(_) => "simple string",
            Value::Okay => "ok",
            Value::Double(_) => "double",
            Value::Boolean(_) => "boolean",
            Value::VerbatimString { .. } => "verbatim string",
            Value::BigNumber(_) => "big number",
            Value::ServerError(_) => "error",
            Value::Array(_) => "array",
            Value::Set(_) => "set",
            Value::Map(_) => "map",
            Value::Push { .. } => "push",
            _ => "another",
        };
        *self.kinds.entry(kind).or_default() += 1;
        match value {
            Value::Array(values) | Value::Set(values) | Value::Push { data: values, .. } => {
                values.iter().for_each(|value| self.count_kinds(value));
            }
            Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
                self.count_kinds(key);
                self.count_kinds(value);
            }),
            _ => {}
        }
    }

    /// Compares the stream of a seed. Fails with a description of the violation.
    fn compare_stream(&mut self, seed: u64) -> Result<(), String> {
        let stream = streams::of_seed(seed);
        self.streams += 1;
        let compared = catch_unwind(AssertUnwindSafe(|| read_both(&stream.bytes, seed)));
        let (reading, difference) =
            compared.unwrap_or_else(|_| Err("a parser panicked".to_owned())).map_err(|what| {
                self.violations += 1;
                format!("seed {seed}: {what}\n    in {:.2000}", stream.bytes.escape_ascii().to_string())
            })?;
        reading.values.iter().for_each(|value| self.count_kinds(value));
        difference.into_iter().for_each(|difference| *self.differences.entry(difference).or_default() += 1);
        let Some(replies) = stream.replies else { return Ok(()) };
        self.valid += 1;
        if reading.is_whole() && reading.values.len() == replies && difference.is_none() {
            return Ok(());
        }
        self.violations += 1;
        let read = reading.values.len();
        Err(format!("seed {seed}: {read} of {replies} valid replies are read, with {difference:?}"))
    }
}

/// Our reading of the bytes, which must be the same in one piece and in several; and how it differs from the crate's.
fn read_both(bytes: &[u8], seed: u64) -> Result<(Reading, Option<Difference>), String> {
    let whole = ours([bytes])?;
    let (rng, mut cuts, mut at) = (&mut Rng::with_seed(!seed), vec![0], 0);
    while at < bytes.len() {
        let longest = [2, 8, 64, 20_000][rng.usize(..4)];
        at = (at + rng.usize(1..=longest)).min(bytes.len());
        cuts.push(at);
    }
    let in_pieces = ours(cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]))?;
    if !in_pieces.is_the_same_as(&whole) {
        return Err(format!("in pieces, cut at {cuts:?}, it is read as something else than in one"));
    }
    let difference = compare(bytes, &whole, &theirs(bytes))?;
    Ok((whole, difference))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
#[expect(clippy::print_stdout, reason = "`cargo xtask fuzz` shows the report")]
fn the_parser_reads_what_the_crate_reads() {
    let seconds = variable("LOCKFAST_FUZZ_SECONDS");
    // A timed run begins at a random seed, the run of the tests always at the same one.
    let usual = if seconds.is_some() { fastrand::u64(..) } else { 0 };
    let first_seed = variable("LOCKFAST_FUZZ_SEED").unwrap_or(usual);
    let (clock, mut report) = (Clock::boot(), Report::default());
    let started = clock.now();
    let is_over = |streams| match seconds {
        Some(seconds) => clock.now().since(started) >= Duration::from_secs(seconds),
        None => streams == STREAMS,
    };
    while !is_over(report.streams) {
        let seed = first_seed.wrapping_add(report.streams);
        if let Err(what) = report.compare_stream(seed)
            && report.violations <= 5
        {
            println!("{what}\n    repeat it with: cargo xtask fuzz --seconds 1 --seed {seed}");
        }
    }
    let Report { streams, valid, differences, kinds, violations } = &report;
    println!("streams: {streams} from seed {first_seed}, {valid} of them valid");
    println!("values: {kinds:?}");
    println!("accepted differences: {differences:?}");
    println!("violations: {violations}");
    assert_eq!(*violations, 0, "the first of them are above");
    assert!(seconds.is_some() || kinds.len() == 14 && *valid > streams / 4, "the streams have become too simple");
}

#[test]
fn the_corpus_is_read_as_it_says() {
    let mut seen = BTreeSet::new();
    for (text, expected) in corpus::ENTRIES {
        let said = format!("{:.100}", text.escape_ascii().to_string());
        let (_, difference) = read_both(text, 0).unwrap_or_else(|what| panic!("{said}: {what}"));
        assert_eq!(difference, *expected, "{said}");
        seen.extend(difference);
    }
    assert_eq!(seen.len(), 7, "each difference has its example: {seen:?}");
}
