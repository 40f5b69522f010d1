//! Two trees in one run: `cargo xtask bench compare OTHER-TREE`. The machine's speed changes from minute to minute, so the
//! trees take turns, and a row counts as different only if it differs by more than the other tree differs from itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::measure::median;

/// A row whose medians differ by no more than this share does not count as different.
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
    other_tree: Vec<f64>,
    this_tree: Vec<f64>,
}

pub(crate) fn run(args: impl Iterator<Item = String>) {
    let (mut words, mut rounds, mut args) = (Vec::new(), ROUNDS, args);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => rounds = args.next().and_then(|count| count.parse().ok()).unwrap_or_else(|| exit_with_help()),
            _ => words.push(arg),
        }
    }
    let Some((other_program, sections)) = words.split_first().filter(|_| rounds > 0) else { exit_with_help() };
    let sections = match sections {
        [] => ["uncontended", "many", "contended", "handoff", "turns"].map(str::to_owned).to_vec(),
        some => some.to_vec(),
    };
    let this_program = std::env::current_exe().expect("the system knows which program this is");
    let mut rows: BTreeMap<(usize, String), Row> = BTreeMap::new();
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        // The order alternates, so that neither program always has the warmer machine.
        // With each program: whether it is the one of this tree.
        let mut programs = [(Path::new(other_program), false), (&*this_program, true)];
        programs.rotate_left(round % 2);
        for (program, is_this) in programs {
            for (row, value) in measure(program, &sections) {
                let row = rows.entry(row).or_default();
                if is_this { row.this_tree.push(value) } else { row.other_tree.push(value) }
            }
        }
    }
    let mut differing_rows = 0;
    for ((_, name), row) in &rows {
        let Some((difference, spread)) = row.difference_and_spread() else { continue };
        let verdict = if difference.abs() > TOLERANCE.max(spread) { "DIFFERS" } else { "" };
        differing_rows += usize::from(!verdict.is_empty());
        println!(
            "{:+6.1} %  (the other from itself: {:5.1} %)  {verdict:7}  {name}",
            difference * 100.0,
            spread * 100.0
        );
    }
    println!("{differing_rows} of {} rows differ by more than the other tree differs from itself", rows.len());
}

impl Row {
    /// How much this tree's median differs from the other tree's median, and the spread (maximum minus minimum) of the other
    /// tree's rounds. Both are shares of the other tree's median.
    fn difference_and_spread(&self) -> Option<(f64, f64)> {
        if self.other_tree.is_empty() || self.this_tree.is_empty() {
            return None;
        }
        let (other, this) = (median(self.other_tree.clone()), median(self.this_tree.clone()));
        let min = self.other_tree.iter().copied().fold(f64::INFINITY, f64::min);
        let max = self.other_tree.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (other != 0.0).then(|| (this / other - 1.0, (max - min) / other))
    }
}

/// The figures of one short run, in the order in which they are printed.
fn measure(program: &Path, sections: &[String]) -> Vec<((usize, String), f64)> {
    let file = FiguresFile::new();
    let mut command = Command::new(program);
    command.arg("redis").args(sections).arg("--quick").arg("--json").arg(&file.0).stdout(Stdio::null());
    let status = command.status().unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
    assert!(status.success(), "{} failed with {status}", program.display());
    let text = std::fs::read_to_string(&file.0).expect("the program wrote its figures to the file");
    let all: Value = serde_json::from_str(&text).expect("figures are JSON");
    let rows = all["figures"].as_array().expect("figures are a list");
    let text_of = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let figure = |(index, row): (usize, &Value)| {
        let name = format!("{}: {} ({})", text_of(row, "section"), text_of(row, "what"), text_of(row, "unit"));
        Some(((index, name), row["value"].as_f64()?))
    };
    rows.iter().enumerate().filter_map(figure).collect()
}

/// The file for the figures of one run. It is removed when this is dropped.
struct FiguresFile(PathBuf);

impl FiguresFile {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("lockfast-figures-{}.json", std::process::id())))
    }
}

impl Drop for FiguresFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn exit_with_help() -> ! {
    println!("{HELP}");
    std::process::exit(2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_compared_by_medians_and_the_other_trees_spread() {
        let row = Row { other_tree: vec![90.0, 100.0, 110.0], this_tree: vec![200.0, 120.0, 100.0] };
        let (difference, spread) = row.difference_and_spread().unwrap();
        assert!((difference - 0.2).abs() < 1e-9 && (spread - 0.2).abs() < 1e-9, "{difference} {spread}");
        assert_eq!(
            Row { other_tree: vec![], this_tree: vec![1.0] }.difference_and_spread(),
            None,
            "a row that only one tree has"
        );
        assert_eq!(Row { other_tree: vec![0.0], this_tree: vec![1.0] }.difference_and_spread(), None);
    }
}
