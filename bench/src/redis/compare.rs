//! Two trees in one run: `cargo xtask bench compare OTHER-TREE`. The machine's speed changes from minute to minute, so the
//! trees take turns, and a row counts as different only if it differs by more than the other tree differs from itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::measure::median;

/// The difference that is tolerated in any row.
const TOLERANCE: f64 = 0.03;
const ROUNDS: usize = 7;

const HELP: &str = "\
usage: bench redis-compare OTHER-BENCH [SECTION..] [--rounds N]

    OTHER-BENCH   the program `bench` of the tree to compare with
    SECTION       as in `bench redis --help`; without any, the sections of locks that are taken and handed off
    --rounds N    short runs of each tree, in turn; 7 unless told";

/// A row's figures, one for each round.
#[derive(Debug, Default)]
struct Row {
    other: Vec<f64>,
    this: Vec<f64>,
}

pub(crate) fn run(args: impl Iterator<Item = String>) {
    let (mut words, mut rounds, mut args) = (Vec::new(), ROUNDS, args);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => rounds = args.next().and_then(|count| count.parse().ok()).unwrap_or_else(|| refuse()),
            _ => words.push(arg),
        }
    }
    let Some((other, sections)) = words.split_first().filter(|_| rounds > 0) else { refuse() };
    let sections = match sections {
        [] => ["uncontended", "many", "contended", "handoff", "turns"].map(str::to_owned).to_vec(),
        some => some.to_vec(),
    };
    let this = std::env::current_exe().expect("the system knows which program this is");
    let mut rows: BTreeMap<(usize, String), Row> = BTreeMap::new();
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        // The order alternates, so that neither program always has the warmer machine.
        let mut programs = [(Path::new(other), false), (&*this, true)];
        programs.rotate_left(round % 2);
        for (program, is_this) in programs {
            for (row, value) in measure(program, &sections) {
                let row = rows.entry(row).or_default();
                if is_this { row.this.push(value) } else { row.other.push(value) }
            }
        }
    }
    let mut differ = 0;
    for ((_, name), row) in &rows {
        let Some((difference, spread)) = row.judge() else { continue };
        let verdict = if difference.abs() > TOLERANCE.max(spread) { "DIFFERS" } else { "" };
        differ += usize::from(!verdict.is_empty());
        println!(
            "{:+6.1} %  (the other from itself: {:5.1} %)  {verdict:7}  {name}",
            difference * 100.0,
            spread * 100.0
        );
    }
    println!("{differ} of {} rows differ by more than the other tree differs from itself", rows.len());
}

impl Row {
    /// The difference of this tree's median from the other's, and the spread of the other tree's own rounds, as parts of that median.
    fn judge(&self) -> Option<(f64, f64)> {
        if self.other.is_empty() || self.this.is_empty() {
            return None;
        }
        let (other, this) = (median(self.other.clone()), median(self.this.clone()));
        let least = self.other.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.other.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (other != 0.0).then(|| (this / other - 1.0, (most - least) / other))
    }
}

/// The figures of one short run, in the order in which they are printed.
fn measure(program: &Path, sections: &[String]) -> Vec<((usize, String), f64)> {
    let file = Figures::new();
    let mut command = Command::new(program);
    command.arg("redis").args(sections).arg("--quick").arg("--json").arg(&file.0).stdout(Stdio::null());
    let status = command.status().unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
    assert!(status.success(), "{} failed with {status}", program.display());
    let text = std::fs::read_to_string(&file.0).expect("it wrote its figures there");
    let all: Value = serde_json::from_str(&text).expect("figures are JSON");
    let rows = all["figures"].as_array().expect("figures are a list");
    let text_of = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let figure = |(at, row): (usize, &Value)| {
        let name = format!("{}: {} ({})", text_of(row, "section"), text_of(row, "what"), text_of(row, "unit"));
        Some(((at, name), row["value"].as_f64()?))
    };
    rows.iter().enumerate().filter_map(figure).collect()
}

/// The file for the figures of one run. It is removed when this is dropped.
struct Figures(PathBuf);

impl Figures {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("lockfast-figures-{}.json", std::process::id())))
    }
}

impl Drop for Figures {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn refuse() -> ! {
    println!("{HELP}");
    std::process::exit(2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_compared_by_medians_and_the_other_trees_spread() {
        let row = Row { other: vec![90.0, 100.0, 110.0], this: vec![200.0, 120.0, 100.0] };
        let (difference, spread) = row.judge().unwrap();
        assert!((difference - 0.2).abs() < 1e-9 && (spread - 0.2).abs() < 1e-9, "{difference} {spread}");
        assert_eq!(Row { other: vec![], this: vec![1.0] }.judge(), None, "a row that only one tree has");
        assert_eq!(Row { other: vec![0.0], this: vec![1.0] }.judge(), None);
    }
}
