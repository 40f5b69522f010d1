//! `lockfast watch`: events of queues, as JSON lines. The events are the differences between two listings: a claim that joined
//! and left in between is not seen, and a release looks the same as an expired lease.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use lockfast::{Clock, Entry, Locks, Resource};
use serde::Serialize;

use crate::cmd::ls::list;
use crate::exit::{Exit, Failure, conclude};
use crate::interrupt::interruption;
use crate::out::print_next;
use crate::pattern::Pattern;
use crate::settings::Settings;
use crate::show::json;

const EXAMPLES: &str = "\
Examples:
  lockfast watch                                   all events, one JSON object per line, until Ctrl-C
  lockfast watch 'cron:*'                          only the events of keys that match
  lockfast watch | jq -r 'select(.event == \"held\") | \"\\(.at) \\(.key) \\(.host)\"'
  lockfast watch | jq 'select(.event == \"broken\")'

Events: watching (the first line: from here on nothing is missed), joined (is in the queue), held, left (released, gave up,
or its lease ended), broken (by an operator), sealed (done once and for all), unsealed.
Exits 0 when interrupted, 69 when the store cannot be reached.";

/// Print the events of locks, as JSON lines, until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// Only keys that begin with this, or match it if it has a `*` (any text) or `?` (one character)
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
}

/// How often all queues are listed even without a notification: the end of a lease sends none.
const LIST_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: WatchArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &WatchArgs, settings: &Settings) -> Result<Exit, Failure> {
    let pattern = Pattern::new(args.pattern.as_deref());
    let follow = async { Err(follow(&settings.locks().await?, &pattern).await) };
    tokio::select! {
        failed = follow => failed,
        _ = interruption() => Ok(Exit::Yes),
    }
}

/// The queues by name, as they were last seen.
type Queues = BTreeMap<String, Resource>;

async fn follow(locks: &Locks, pattern: &Pattern) -> Failure {
    // Order matters: subscribe before the first listing, so that no change falls between the two.
    let mut changes = locks.changes(pattern.prefix());
    let mut known: Option<Queues> = None;
    loop {
        // The name that a notification carries; `None` lists all names.
        let changed = match &known {
            Some(_) => tokio::time::timeout(LIST_EVERY, changes.next()).await.ok().flatten().flatten(),
            None => None,
        };
        // Each name with its queue, or with `None` if the queue is empty now.
        let seen: BTreeMap<String, Option<Resource>> = match &changed {
            Some(name) if !pattern.matches(name.as_str()) => continue,
            Some(name) => match locks.mutex(name.as_str()).info().await {
                Ok(resource) => BTreeMap::from([(name.to_string(), resource)]),
                Err(error) => return Failure::from_error("watching locks", &error),
            },
            None => match list(locks, pattern).await {
                Ok(resources) => {
                    // Of two values for a name the second stays, so `None` is left for the queues that are gone.
                    let all_gone = known.iter().flat_map(|known| known.keys().map(|name| (name.clone(), None)));
                    let listed = resources.into_iter().map(|resource| (resource.name.to_string(), Some(resource)));
                    all_gone.chain(listed).collect()
                }
                Err(failure) => return failure,
            },
        };
        let now = Clock::boot().wall();
        let is_first = known.is_none();
        let known = known.get_or_insert_default();
        let mut text = String::new();
        for (name, after) in seen {
            let before = match &after {
                Some(resource) => known.insert(name.clone(), resource.clone()),
                None => known.remove(&name),
            };
            if !is_first {
                text.extend(events(&name, before.as_ref(), after.as_ref(), now).iter().map(json::line));
            }
        }
        if is_first {
            text = json::line(&FirstEvent { at: json::time(now), event: "watching", queues: known.len() });
        }
        if let Err(failure) = print_next(text).await {
            return failure;
        }
    }
}

/// The first line of the output.
#[derive(Serialize)]
struct FirstEvent {
    at: String,
    event: &'static str,
    /// How many queues there are already.
    queues: usize,
}

/// A change of a queue.
#[derive(Serialize)]
struct Event<'a> {
    at: String,
    event: &'static str,
    key: &'a str,
    #[serde(flatten)]
    claim: Option<json::Claim<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed_for_seconds: Option<f64>,
}

/// The events between the states `before` and `after` of a queue: first the claims that left, then those that joined.
fn events<'a>(
    key: &'a str,
    before: Option<&'a Resource>,
    after: Option<&'a Resource>,
    now: SystemTime,
) -> Vec<Event<'a>> {
    let queue = |resource: Option<&'a Resource>| resource.map_or(&[][..], |resource| &resource.queue);
    let find = |queue: &'a [Entry], entry: &Entry| queue.iter().find(|other| other.owner == entry.owner);
    let event = |event, entry: &'a Entry| {
        let claim = Some(json::Claim::of(entry, None, now));
        Event { at: json::time(now), event, key, claim, sealed_for_seconds: None }
    };
    let mut events = Vec::new();
    for entry in queue(before).iter().filter(|entry| find(queue(after), entry).is_none()) {
        events.push(event("left", entry));
    }
    for entry in queue(after) {
        let earlier = find(queue(before), entry);
        if earlier.is_none() {
            events.push(event("joined", entry));
        }
        if entry.holds && earlier.is_none_or(|earlier| !earlier.holds) {
            events.push(event("held", entry));
        }
        if entry.broken && earlier.is_none_or(|earlier| !earlier.broken) {
            events.push(event("broken", entry));
        }
    }
    let sealed = |resource: Option<&Resource>| resource.and_then(|resource| resource.sealed_for);
    let name = match (sealed(before), sealed(after)) {
        (None, Some(_)) => "sealed",
        (Some(_), None) => "unsealed",
        _ => return events,
    };
    let sealed_for_seconds = sealed(after).map(json::seconds);
    events.push(Event { at: json::time(now), event: name, key, claim: None, sealed_for_seconds });
    events
}

#[cfg(test)]
mod tests {
    use crate::show::tests::{holder, resource, waiter};

    use super::*;

    fn events_between(before: Option<&Resource>, after: Option<&Resource>) -> Vec<(&'static str, Option<u64>)> {
        let fence = |it: &Event<'_>| serde_json::to_value(it).unwrap()["fence"].as_u64();
        events("a", before, after, SystemTime::UNIX_EPOCH).iter().map(|it| (it.event, fence(it))).collect()
    }

    #[test]
    fn each_join_hold_and_leave_is_one_event() {
        let alone = resource("a", vec![holder(1)]);
        let both = resource("a", vec![holder(1), waiter(2)]);
        let next = resource("a", vec![holder(2)]);
        assert_eq!(events_between(None, Some(&alone)), [("joined", Some(41)), ("held", Some(41))]);
        assert_eq!(events_between(Some(&alone), Some(&both)), [("joined", Some(42))]);
        assert_eq!(events_between(Some(&both), Some(&both)), []);
        assert_eq!(events_between(Some(&both), Some(&next)), [("left", Some(41)), ("held", Some(42))]);
        assert_eq!(events_between(Some(&next), None), [("left", Some(42))]);
    }

    #[test]
    fn a_break_and_a_seal_are_events() {
        let held = resource("a", vec![holder(1)]);
        let broken = resource("a", vec![Entry { broken: true, ..holder(1) }]);
        assert_eq!(events_between(Some(&held), Some(&broken)), [("broken", Some(41))]);
        let sealed = Resource { sealed_for: Some(Duration::from_secs(5)), ..resource("a", vec![]) };
        assert_eq!(events_between(Some(&held), Some(&sealed)), [("left", Some(41)), ("sealed", None)]);
        assert_eq!(events_between(Some(&sealed), None), [("unsealed", None)]);
    }
}
