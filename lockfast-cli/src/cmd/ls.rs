//! `lockfast ls`: lists locks with their holders and waiters.

use std::io::IsTerminal;
use std::time::Duration;

use clap::ValueEnum;
use futures::StreamExt;
use lockfast::store::ClaimHash;
use lockfast::{Clock, Entry, Locks, Resource};

use crate::exit::{Exit, Failure, conclude};
use crate::interrupt::interrupted;
use crate::out::{plain, put, put_next};
use crate::pattern::Pattern;
use crate::settings::Settings;
use crate::show::{self, json, table};

const EXAMPLES: &str = "\
Examples:
  lockfast ls                               every lock that has a holder or a waiter
  lockfast ls account:                      the locks whose key begins with account:
  lockfast ls '*:daily' -o wide             the locks whose key ends in :daily, with program, labels and owner
  lockfast ls --watch                       show them again when they change
  lockfast ls -o jsonl | jq -r 'select(.waiters | length > 3) | .key'
  lockfast ls -o name | xargs -n1 lockfast status

Exits 0, also when there is nothing to list; 69 when the store cannot be reached.";

/// List locks: the holder, since when, the fencing token (fence), and the number of waiters
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LsArgs {
    /// Only keys that begin with this, or match it if it has a `*` (any text) or `?` (one character)
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Keep running, and show them again when they change
    #[arg(long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// KEY MODE HOLDER HELD TTL FENCE WAITERS
    Table,
    /// The same with PROGRAM LABELS OWNER
    Wide,
    /// One array of objects
    Json,
    /// One object per line
    Jsonl,
    /// The keys alone
    Name,
}

pub(crate) async fn run(args: LsArgs, settings: Settings) -> Exit {
    conclude(answer(&args, &settings).await)
}

async fn answer(args: &LsArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let pattern = Pattern::new(args.pattern.as_deref());
    if !args.watch {
        let resources = list(&locks, &pattern).await?;
        put(&render(&resources, args.output))?;
        return Ok(Exit::Yes);
    }
    let stop = interrupted();
    tokio::select! {
        failure = follow(&locks, &pattern, args.output) => Err(failure),
        _ = stop => Ok(Exit::Yes),
    }
}

/// Every resource with a queue whose key matches.
pub(crate) async fn list(locks: &Locks, pattern: &Pattern) -> Result<Vec<Resource>, Failure> {
    let found = locks.inspect(pattern.prefix()).await;
    let mut resources = found.map_err(|error| Failure::while_("listing locks", &error))?;
    resources.retain(|resource| pattern.matches(resource.name.as_str()));
    Ok(resources)
}

/// Shows them again and again, until something fails. At most once a second, to limit the load on the store.
async fn follow(locks: &Locks, pattern: &Pattern, output: Format) -> Failure {
    let mut changes = locks.changes(pattern.prefix());
    let draws = std::io::stdout().is_terminal() && matches!(output, Format::Table | Format::Wide);
    let mut last = None;
    loop {
        let resources = match list(locks, pattern).await {
            Ok(resources) => resources,
            Err(failure) => return failure,
        };
        let shape = shape(&resources);
        if draws || last.as_ref() != Some(&shape) {
            let clear = if draws { "\u{1b}[H\u{1b}[2J" } else { "" };
            if let Err(failure) = put_next(clear.to_owned() + &render(&resources, output)).await {
                return failure;
            }
        }
        last = Some(shape);
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !draws {
            // A table on a terminal is redrawn for its times; elsewhere only changes are printed.
            changes.next().await;
        }
    }
}

/// What has to differ for a queue to have changed: its entries and their states, not their times.
#[derive(Debug, PartialEq)]
struct Shape {
    key: String,
    is_sealed: bool,
    entries: Vec<(ClaimHash, [bool; 3])>,
}

fn shape(resources: &[Resource]) -> Vec<Shape> {
    let entry = |entry: &Entry| (entry.owner, [entry.holds, entry.lingers, entry.broken]);
    let of = |resource: &Resource| Shape {
        key: resource.name.to_string(),
        is_sealed: resource.sealed_for.is_some(),
        entries: resource.queue.iter().map(entry).collect(),
    };
    resources.iter().map(of).collect()
}

fn render(resources: &[Resource], output: Format) -> String {
    let now = Clock::boot().wall();
    let objects = || resources.iter().map(|resource| json::Queue::of(resource, now));
    match output {
        Format::Table => table::queues(resources, false, show::colours()),
        Format::Wide => table::queues(resources, true, show::colours()),
        Format::Json => json::pretty(&objects().collect::<Vec<_>>()),
        Format::Jsonl => objects().map(|object| json::line(&object)).collect(),
        Format::Name => resources.iter().map(|resource| plain(resource.name.as_str()) + "\n").collect(),
    }
}

#[cfg(test)]
mod tests {
    use crate::show::tests::{entry, resource};

    use super::*;

    #[test]
    fn every_output_format_shows_all_locks() {
        let resources = [resource("a", vec![entry(1, true)]), resource("b\n", vec![entry(2, true)])];
        assert_eq!(render(&resources, Format::Name), "a\nb\\n\n");
        assert_eq!(render(&resources, Format::Jsonl).lines().count(), 2);
        let array: Vec<serde_json::Value> = serde_json::from_str(&render(&resources, Format::Json)).unwrap();
        assert_eq!(array[1]["key"], "b\n");
        assert!(render(&resources, Format::Wide).contains("OWNER"));
        assert_eq!(render(&[], Format::Json), "[]\n");
    }

    #[test]
    fn a_listing_changes_with_its_entries_not_with_time() {
        let before = resource("a", vec![entry(1, true), entry(2, false)]);
        let mut later = before.clone();
        later.queue[0].since += Duration::from_secs(5);
        assert_eq!(shape(std::slice::from_ref(&before)), shape(std::slice::from_ref(&later)));
        later.queue[1].holds = true;
        assert_ne!(shape(&[before]), shape(&[later]));
    }
}
