//! `lockfast ls`: lists locks with their holders and waiters.

use std::io::IsTerminal;
use std::time::Duration;

use clap::ValueEnum;
use futures::StreamExt;
use lockfast::store::ClaimHash;
use lockfast::{Clock, Entry, Locks, Resource};

use crate::exit::{Exit, Failure, conclude};
use crate::interrupt::interruption;
use crate::out::{escape_controls, print_next, print_result};
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
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &LsArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let pattern = Pattern::new(args.pattern.as_deref());
    if !args.watch {
        let resources = list(&locks, &pattern).await?;
        print_result(&render(&resources, args.output))?;
        return Ok(Exit::Yes);
    }
    let interruption = interruption();
    tokio::select! {
        failure = follow(&locks, &pattern, args.output) => Err(failure),
        _ = interruption => Ok(Exit::Yes),
    }
}

/// Every resource with a queue whose key matches.
pub(crate) async fn list(locks: &Locks, pattern: &Pattern) -> Result<Vec<Resource>, Failure> {
    let found = locks.inspect(pattern.prefix()).await;
    let mut resources = found.map_err(|error| Failure::from_error("listing locks", &error))?;
    resources.retain(|resource| pattern.matches(resource.name.as_str()));
    Ok(resources)
}

/// The shortest time between two listings, to limit the load on the store.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// Moves the cursor to the top left and clears the terminal.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// Shows the locks again whenever they change, until something fails.
async fn follow(locks: &Locks, pattern: &Pattern, output: Format) -> Failure {
    let mut changes = locks.changes(pattern.prefix());
    let is_redrawn = std::io::stdout().is_terminal() && matches!(output, Format::Table | Format::Wide);
    let mut last_states = None;
    loop {
        let resources = match list(locks, pattern).await {
            Ok(resources) => resources,
            Err(failure) => return failure,
        };
        let states = states_of(&resources);
        if is_redrawn || last_states.as_ref() != Some(&states) {
            let clear = if is_redrawn { CLEAR_SCREEN } else { "" };
            if let Err(failure) = print_next(clear.to_owned() + &render(&resources, output)).await {
                return failure;
            }
        }
        last_states = Some(states);
        tokio::time::sleep(LIST_PAUSE).await;
        if !is_redrawn {
            // A table on a terminal is redrawn for its times; elsewhere only changes are printed.
            changes.next().await;
        }
    }
}

/// What has to differ for a queue to have changed: its entries and their states, not their times.
#[derive(Debug, PartialEq)]
struct QueueState {
    key: String,
    is_sealed: bool,
    /// The owner of each entry, and whether it holds, lingers, is broken.
    entries: Vec<(ClaimHash, [bool; 3])>,
}

fn states_of(resources: &[Resource]) -> Vec<QueueState> {
    let entry = |entry: &Entry| (entry.owner, [entry.holds, entry.lingers, entry.broken]);
    let state = |resource: &Resource| QueueState {
        key: resource.name.to_string(),
        is_sealed: resource.sealed_for.is_some(),
        entries: resource.queue.iter().map(entry).collect(),
    };
    resources.iter().map(state).collect()
}

fn render(resources: &[Resource], output: Format) -> String {
    let now = Clock::boot().wall();
    let objects = || resources.iter().map(|resource| json::Queue::of(resource, now));
    match output {
        Format::Table | Format::Wide => table::queues(resources, output == Format::Wide, show::wants_colours()),
        Format::Json => json::pretty(&objects().collect::<Vec<_>>()),
        Format::Jsonl => objects().map(|object| json::line(&object)).collect(),
        Format::Name => resources.iter().map(|resource| escape_controls(resource.name.as_str()) + "\n").collect(),
    }
}

#[cfg(test)]
mod tests {
    use crate::show::tests::{holder, resource, waiter};

    use super::*;

    #[test]
    fn every_output_format_shows_all_locks() {
        let resources = [resource("a", vec![holder(1)]), resource("b\n", vec![holder(2)])];
        assert_eq!(render(&resources, Format::Name), "a\nb\\n\n");
        assert_eq!(render(&resources, Format::Jsonl).lines().count(), 2);
        let array: Vec<serde_json::Value> = serde_json::from_str(&render(&resources, Format::Json)).unwrap();
        assert_eq!(array[1]["key"], "b\n");
        assert!(render(&resources, Format::Wide).contains("OWNER"));
        assert_eq!(render(&[], Format::Json), "[]\n");
    }

    #[test]
    fn a_listing_changes_with_its_entries_not_with_time() {
        let before = resource("a", vec![holder(1), waiter(2)]);
        let mut later = before.clone();
        later.queue[0].since += Duration::from_secs(5);
        assert_eq!(states_of(std::slice::from_ref(&before)), states_of(std::slice::from_ref(&later)));
        later.queue[1].holds = true;
        assert_ne!(states_of(&[before]), states_of(&[later]));
    }
}
