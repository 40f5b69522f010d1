//! `lockfast watch`: what happens to lines, as JSON lines. Lines are compared with what they were: what came and went
//! between two looks is not seen, and whoever left by itself looks the same as whoever's lease ended.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use lockfast::{Clock, Entry, Locks, Resource};
use serde::Serialize;

use crate::cmd::ls::list;
use crate::exit::{Exit, Failure, conclude};
use crate::interrupt::interrupted;
use crate::out::put_next;
use crate::pattern::Pattern;
use crate::settings::Settings;
use crate::show::json;

const EXAMPLES: &str = "\
Examples:
  lockfast watch                                   everything that happens, one JSON object a line, until Ctrl-C
  lockfast watch 'cron:*'                          only to keys that match
  lockfast watch | jq -r 'select(.event == \"held\") | \"\\(.at) \\(.key) \\(.host)\"'
  lockfast watch | jq 'select(.event == \"broken\")'

Events: watching (the first line: from here on nothing is missed), joined (stands in line), held, left (gave it back, gave
up, or its lease ended), broken (by an operator), sealed (done once and for all), unsealed.
Exits 0 when interrupted, 69 when the store cannot be reached.";

/// Print what happens to locks, as JSON lines, until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// Only keys that begin with this, or match it if it has a `*` (any text) or `?` (one letter)
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
}

/// How often all lines are looked at, whatever was heard: nobody tells of a lease that ends.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: WatchArgs, settings: Settings) -> Exit {
    conclude(answer(&args, &settings).await)
}

async fn answer(args: &WatchArgs, settings: &Settings) -> Result<Exit, Failure> {
    let pattern = Pattern::new(args.pattern.as_deref());
    let follow = async { Err(follow(&settings.locks().await?, &pattern).await) };
    tokio::select! {
        failed = follow => failed,
        _ = interrupted() => Ok(Exit::Yes),
    }
}

/// Lines as they were when last looked at.
type Known = BTreeMap<String, Resource>;

async fn follow(locks: &Locks, pattern: &Pattern) -> Failure {
    // Order matters: listening begins before the first look, so nothing falls between the two.
    let mut changes = locks.changes(pattern.beginning());
    let mut known: Option<Known> = None;
    loop {
        // By the names that were heard of; or everything, when there is no knowing.
        let heard = match &known {
            Some(_) => tokio::time::timeout(LOOK_AGAIN, changes.next()).await.ok().flatten().flatten(),
            None => None,
        };
        let seen = match &heard {
            Some(name) if !pattern.matches(name.as_str()) => continue,
            Some(name) => match locks.mutex(name.as_str()).info().await {
                Ok(resource) => BTreeMap::from([(name.to_string(), resource)]),
                Err(error) => return Failure::while_("watching locks", &error),
            },
            None => match list(locks, pattern).await {
                Ok(resources) => {
                    let gone = known.iter().flat_map(|known| known.keys().map(|name| (name.clone(), None)));
                    let there = resources.into_iter().map(|resource| (resource.name.to_string(), Some(resource)));
                    gone.chain(there).collect()
                }
                Err(failure) => return failure,
            },
        };
        let now = Clock::boot().wall();
        let first = known.is_none();
        let known = known.get_or_insert_default();
        let mut text = String::new();
        for (name, after) in seen {
            let before = match &after {
                Some(resource) => known.insert(name.clone(), resource.clone()),
                None => known.remove(&name),
            };
            if !first {
                text.extend(events(&name, before.as_ref(), after.as_ref(), now).iter().map(json::line));
            }
        }
        if first {
            text = json::line(&Watching { at: json::time(now), event: "watching", lines: known.len() });
        }
        if let Err(failure) = put_next(text).await {
            return failure;
        }
    }
}

/// The first line.
#[derive(Serialize)]
struct Watching {
    at: String,
    event: &'static str,
    /// How many lines there are already.
    lines: usize,
}

/// Something that happened to a line.
#[derive(Serialize)]
struct Happened<'a> {
    at: String,
    event: &'static str,
    key: &'a str,
    #[serde(flatten)]
    claim: Option<json::Place<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed_for_seconds: Option<f64>,
}

/// What has happened to a line that was as `before` and is as `after`: first who left, then who came.
fn events<'a>(
    key: &'a str,
    before: Option<&'a Resource>,
    after: Option<&'a Resource>,
    now: SystemTime,
) -> Vec<Happened<'a>> {
    let line = |resource: Option<&'a Resource>| resource.map_or(&[][..], |resource| &resource.queue);
    let find = |line: &'a [Entry], entry: &Entry| line.iter().find(|other| other.owner == entry.owner);
    let event = |event, entry: &'a Entry| {
        let claim = Some(json::Place::of(entry, None, now));
        Happened { at: json::time(now), event, key, claim, sealed_for_seconds: None }
    };
    let mut happened = Vec::new();
    for entry in line(before).iter().filter(|entry| find(line(after), entry).is_none()) {
        happened.push(event("left", entry));
    }
    for entry in line(after) {
        let was = find(line(before), entry);
        if was.is_none() {
            happened.push(event("joined", entry));
        }
        if entry.holds && was.is_none_or(|was| !was.holds) {
            happened.push(event("held", entry));
        }
        if entry.broken && was.is_none_or(|was| !was.broken) {
            happened.push(event("broken", entry));
        }
    }
    let sealed = |resource: Option<&Resource>| resource.and_then(|resource| resource.sealed_for);
    let name = match (sealed(before), sealed(after)) {
        (None, Some(_)) => "sealed",
        (Some(_), None) => "unsealed",
        _ => return happened,
    };
    let sealed_for_seconds = sealed(after).map(json::seconds);
    happened.push(Happened { at: json::time(now), event: name, key, claim: None, sealed_for_seconds });
    happened
}

#[cfg(test)]
mod tests {
    use crate::show::tests::{entry, resource};

    use super::*;

    fn told(before: Option<&Resource>, after: Option<&Resource>) -> Vec<(&'static str, Option<u64>)> {
        let fence = |it: &Happened<'_>| serde_json::to_value(it).unwrap()["fence"].as_u64();
        events("a", before, after, SystemTime::UNIX_EPOCH).iter().map(|it| (it.event, fence(it))).collect()
    }

    #[test]
    fn who_comes_holds_and_leaves_is_told_once() {
        let alone = resource("a", vec![entry(1, true)]);
        let both = resource("a", vec![entry(1, true), entry(2, false)]);
        let next = resource("a", vec![entry(2, true)]);
        assert_eq!(told(None, Some(&alone)), [("joined", Some(41)), ("held", Some(41))]);
        assert_eq!(told(Some(&alone), Some(&both)), [("joined", Some(42))]);
        assert_eq!(told(Some(&both), Some(&both)), []);
        assert_eq!(told(Some(&both), Some(&next)), [("left", Some(41)), ("held", Some(42))]);
        assert_eq!(told(Some(&next), None), [("left", Some(42))]);
    }

    #[test]
    fn what_is_broken_and_what_is_sealed_is_told() {
        let held = resource("a", vec![entry(1, true)]);
        let broken = resource("a", vec![Entry { broken: true, ..entry(1, true) }]);
        assert_eq!(told(Some(&held), Some(&broken)), [("broken", Some(41))]);
        let sealed = Resource { sealed_for: Some(Duration::from_secs(5)), ..resource("a", vec![]) };
        assert_eq!(told(Some(&held), Some(&sealed)), [("left", Some(41)), ("sealed", None)]);
        assert_eq!(told(Some(&sealed), None), [("unsealed", None)]);
    }
}
