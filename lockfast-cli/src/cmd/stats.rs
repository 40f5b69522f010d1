//! `lockfast stats`: the counters of all clients of the store, and the keys with the most waiters.

use lockfast::{Counters, Resource};
use serde::Serialize;

use crate::cmd::inspect::Format;
use crate::cmd::ls::list;
use crate::duration::brief;
use crate::exit::{Exit, Failure, conclude};
use crate::out::{escape_controls, print_result};
use crate::pattern::Pattern;
use crate::settings::Settings;
use crate::show::{self, json, table};

const EXAMPLES: &str = "\
Examples:
  lockfast stats                                  counters of the whole fleet, and the ten keys with the longest queues
  lockfast stats --top 3 'account:*'              the three longest queues among the keys that match
  lockfast stats -o json | jq .counters.lost      for a graph
  watch -n5 lockfast stats                        every five seconds

Counters are summed over all clients since the store began to count; each client reports about once a second.
Exits 0, or 69 when the store cannot be reached.";

/// Show counters of the whole fleet (acquired, released, contended, lost) and the hottest keys
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatsArgs {
    /// Only keys that begin with this, or match it; the counters always include all keys
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
    /// How many keys to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(crate) async fn run(args: StatsArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &StatsArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let resources = list(&locks, &Pattern::new(args.pattern.as_deref())).await?;
    let counters = locks.fleet_stats().await.map_err(|error| Failure::from_error("reading the counters", &error))?;
    let figures = Figures::of(&counters, &resources, args.top);
    print_result(&match args.output {
        Format::Text => figures.text(show::wants_colours()),
        Format::Json => json::pretty(&figures),
    })?;
    Ok(Exit::Yes)
}

#[derive(Serialize)]
struct Figures<'a> {
    counters: FleetCounters,
    now: CurrentTotals,
    hottest: Vec<HotKey<'a>>,
}

/// Counted over all clients since the store began to count.
#[derive(Serialize)]
struct FleetCounters {
    acquired: u64,
    released: u64,
    contended: u64,
    lost: u64,
}

/// Totals at this moment, among the keys that match.
#[derive(Serialize)]
struct CurrentTotals {
    queues: usize,
    holders: usize,
    waiters: usize,
}

/// A key with waiters.
#[derive(Serialize)]
struct HotKey<'a> {
    key: &'a str,
    holders: usize,
    waiters: usize,
    longest_wait_seconds: f64,
}

impl<'a> Figures<'a> {
    fn of(counters: &Counters, resources: &'a [Resource], top: usize) -> Self {
        let hot = |resource: &'a Resource| HotKey {
            key: resource.name.as_str(),
            holders: resource.holders().count(),
            waiters: resource.waiters().count(),
            longest_wait_seconds: resource.waiters().map(|entry| json::seconds(entry.since)).fold(0.0, f64::max),
        };
        let mut hottest: Vec<_> = resources.iter().map(hot).collect();
        let now = CurrentTotals {
            queues: hottest.len(),
            holders: hottest.iter().map(|it| it.holders).sum(),
            waiters: hottest.iter().map(|it| it.waiters).sum(),
        };
        hottest.retain(|it| it.waiters > 0);
        // The sort is stable, so that equal keys stay in name order.
        hottest
            .sort_by(|a, b| b.waiters.cmp(&a.waiters).then(b.longest_wait_seconds.total_cmp(&a.longest_wait_seconds)));
        hottest.truncate(top);
        let Counters { acquired, released, contended, lost } = *counters;
        Self { counters: FleetCounters { acquired, released, contended, lost }, now, hottest }
    }

    fn text(&self, with_colours: bool) -> String {
        let FleetCounters { acquired, released, contended, lost } = self.counters;
        let CurrentTotals { queues, holders, waiters } = self.now;
        let mut text = format!(
            "acquired {acquired}, released {released}, contended {contended}, lost {lost}\n\
             now: queues {queues}, holders {holders}, waiters {waiters}\n"
        );
        if !self.hottest.is_empty() {
            let row = |hot: &HotKey<'_>| {
                let longest = std::time::Duration::from_secs_f64(hot.longest_wait_seconds);
                vec![escape_controls(hot.key), hot.waiters.to_string(), brief(longest), hot.holders.to_string()]
            };
            let header = ["KEY", "WAITERS", "LONGEST WAIT", "HOLDERS"];
            text += &format!("\n{}", table::columns(&header, self.hottest.iter().map(row), with_colours));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::show::tests::{holder, resource, waiter};

    use super::*;

    #[test]
    fn the_hottest_keys_have_the_longest_queues() {
        let quiet = resource("quiet", vec![holder(1)]);
        let warm = resource("warm", vec![holder(1), waiter(2)]);
        let hot = resource("hot", vec![holder(1), waiter(2), waiter(3)]);
        let counters = Counters { acquired: 7, ..Counters::default() };
        let resources = [quiet, warm, hot];
        let figures = Figures::of(&counters, &resources, 10);
        let keys: Vec<_> = figures.hottest.iter().map(|it| it.key).collect();
        assert_eq!(keys, ["hot", "warm"], "a key without waiters is not hot");
        assert_eq!((figures.now.queues, figures.now.holders, figures.now.waiters), (3, 3, 3));
        let with_colours = false;
        let text = figures.text(with_colours);
        assert!(text.contains("acquired 7") && text.contains("now: queues 3, holders 3, waiters 3"), "{text}");
        assert_eq!(Figures::of(&counters, &resources, 1).hottest.len(), 1);
    }
}
