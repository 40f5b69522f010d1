//! The Redis store, beside bare commands and other libraries: `cargo xtask bench redis`.
//!
//! Every section starts a server of its own. Contenders take turns within each round, and a figure is the median of its
//! rounds, so that a machine that slows down slows all contenders down.

mod clients;
mod compare;
mod contended;
mod contest;
mod figures;
mod handoff;
mod held;
mod many;
mod names;
mod profile;
mod queue;
mod resp;
mod server;
mod turns;
mod uncontended;
mod waiting;

use std::time::Duration;

use serde_json::json;

use figures::{Figure, as_json, print_markdown, print_table};

const HELP: &str = "\
usage: bench redis [SECTION..] [--quick] [--json FILE] [--markdown]

    --quick       fewer and shorter rounds: for a look, not for figures to quote
    --json FILE   write the figures there too
    --markdown    print them as a Markdown table instead

sections, all of them unless some are named:";

/// A section: its name, a description, and the function that measures it.
type Section = (&'static str, &'static str, fn(&Plan) -> Vec<Figure>);

const SECTIONS: &[Section] = &[
    ("uncontended", "one task, one name: lock and release, beside bare commands and other libraries", uncontended::run),
    ("many", "64 and 512 tasks, each with a name of its own", many::run),
    ("contended", "32 tasks on one name: hand-off beside BLPOP, fairness, commands", contended::run),
    ("waiting", "commands a second while 1,000 wait", waiting::run),
    ("turns", "two processes in turn, each holding it for 30 ms", turns::run),
    ("handoff", "32 tasks on one name with hand-off inside the process", handoff::run),
    ("names", "10 names at once, beside one by one", names::run),
    ("line", "10,000 waiters on one name", queue::run),
    ("held", "100,000 held locks, renewed", held::run),
];

/// The number of short rounds in the time of one round.
const SHORT_ROUNDS: u32 = 5;

/// How many rounds are measured, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) is_quick: bool,
}

impl Plan {
    pub(crate) fn rounds(&self) -> usize {
        if self.is_quick { 3 } else { 7 }
    }

    /// How long one contender is measured in one round.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_millis(if self.is_quick { 100 } else { 300 })
    }

    /// The number and the length of short rounds, which take the same time in all. They are for work of less than a
    /// millisecond: the speed of a shared machine changes within a second, and contenders are compared within a round.
    pub(crate) fn short_rounds(&self) -> (usize, Duration) {
        (self.rounds() * SHORT_ROUNDS as usize, self.slice() / SHORT_ROUNDS)
    }

    /// The full count, or a tenth of it with `--quick`.
    pub(crate) fn scaled(&self, full: usize) -> usize {
        if self.is_quick { full / 10 } else { full }
    }
}

pub(crate) fn run(args: impl Iterator<Item = String>) {
    let (mut sections, mut plan, mut json_path, mut as_markdown) = (Vec::new(), Plan { is_quick: false }, None, false);
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => {
                print_help();
                return;
            }
            "--quick" => plan.is_quick = true,
            "--markdown" => as_markdown = true,
            "--json" => {
                json_path = Some(args.next().unwrap_or_else(|| exit_with_help("--json needs the name of a file")))
            }
            name => match SECTIONS.iter().find(|section| section.0 == name) {
                Some(section) => sections.push(section),
                None => exit_with_help(&format!("{name:?} is no section")),
            },
        }
    }
    if sections.is_empty() {
        sections = SECTIONS.iter().collect();
    }
    let (machine, load) = (server::machine(), server::load());
    println!("{machine}");
    if load > 0.5 {
        println!("This machine is busy (load {load}): what follows is a look, not a measurement.");
    }
    let mut figures = Vec::new();
    for (number, (name, what, measure)) in sections.iter().enumerate() {
        println!("[{}/{}] {name}: {what}", number + 1, sections.len());
        figures.extend(measure(&plan));
    }
    match as_markdown {
        true => print_markdown(&machine, &figures),
        false => print_table(&figures),
    }
    if let Some(path) = json_path {
        let all = json!({ "machine": machine, "load": load, "quick": plan.is_quick, "figures": as_json(&figures) });
        let text = format!("{all:#}\n");
        std::fs::write(&path, text)
            .unwrap_or_else(|error| exit_with_help(&format!("{path} cannot be written: {error}")));
    }
}

fn exit_with_help(message: &str) -> ! {
    println!("{message}\n");
    print_help();
    std::process::exit(2);
}

fn print_help() {
    println!("{HELP}");
    for (name, what, _) in SECTIONS {
        println!("    {name:<12} {what}");
    }
}

pub(crate) use compare::run as compare;
pub(crate) use profile::run as profile;

/// Another process of a benchmark: `redis-child MODE PORT ..`.
pub(crate) fn child(args: impl Iterator<Item = String>) {
    let args: Vec<String> = args.collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u32>().expect("only this program starts itself so");
    match words.as_slice() {
        ["turns", port, contender, side, count] => turns::child(number(port) as u16, contender, side, number(count)),
        ["handoff", port, count] => handoff::child(number(port) as u16, number(count)),
        ["held", port, count, seconds, connection] => {
            held::child(number(port) as u16, number(count), number(seconds), *connection == "crate");
        }
        ["queue", port, count] => queue::child(number(port) as u16, number(count)),
        _ => panic!("only this program starts itself so, not with {words:?}"),
    }
}
