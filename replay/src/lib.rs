//! Steps through a recording: a new engine gets the inputs of the recorded one, at the same moments, and has to return the same
//! effects. Inputs, phases and effects are printed for people.

mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lockfast::engine::record::{Header, Line, PANICKED, digest};
use lockfast::engine::{Effects, Engine, Input, Key, Next};
use lockfast::store::{ClientId, Moment};

use text::Text;

/// How a line begins: no text inside a line begins like this, since quotes in a text are escaped.
const BEGINNINGS: [&[u8]; 2] = [b"{\"step\":", b"{\"lockfast\":"];

/// Which clients and steps are replayed, and which are printed.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Only clients whose id begins with this.
    pub client: String,
    /// The first step to print.
    pub from: u64,
    /// The last step to replay.
    pub to: u64,
}

impl Default for Selection {
    fn default() -> Self {
        Self { client: String::new(), from: 0, to: u64::MAX }
    }
}

/// The result of a replay. Shown as its last line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Steps that were replayed.
    pub steps: u64,
    /// Requests that entered.
    pub requests: u64,
    /// Steps whose effects differ from the recorded ones.
    pub differences: u64,
    /// Steps at which the engine panicked.
    pub panics: u64,
    /// Lines that cannot be read, and clients with a step missing.
    pub gaps: u64,
    /// Where the first of these is.
    pub first: Option<String>,
}

impl Summary {
    /// Whether all steps had the recorded effects, without a panic.
    pub fn is_same(&self) -> bool {
        self.first.is_none()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, requests, differences, panics, gaps, first } = self;
        write!(f, "{steps} steps, {requests} requests, {differences} differences")?;
        for (count, what) in [(*panics, "panics"), (*gaps, "gaps")].into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        first.iter().try_for_each(|first| write!(f, "; the first at {first}"))
    }
}

/// One client of the recording.
struct Player {
    engine: Engine,
    last: u64,
    has_gap: bool,
}

struct Replay<'a, W> {
    selection: &'a Selection,
    out: W,
    players: BTreeMap<u64, Player>,
    text: Option<Text>,
    summary: Summary,
}

/// Replays a recording and prints it.
pub fn replay(mut recording: impl BufRead, selection: &Selection, out: impl Write) -> io::Result<Summary> {
    let mut replay = Replay { selection, out, players: BTreeMap::new(), text: None, summary: Summary::default() };
    let (mut line, mut number) = (Vec::new(), 0);
    while recording.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        replay.read_line(&line, number)?;
        line.clear();
    }
    if replay.players.is_empty() && !selection.client.is_empty() {
        replay.report_gap(format!("client {}", selection.client), "is not in this recording")?;
    }
    writeln!(replay.out, "{}", replay.summary)?;
    Ok(replay.summary)
}

impl<W: Write> Replay<'_, W> {
    fn read_line(&mut self, line: &[u8], number: u64) -> io::Result<()> {
        let wrong = match Line::parse(line) {
            Ok(parsed) => return self.replay_line(parsed),
            Err(wrong) => wrong,
        };
        if !line.ends_with(b"\n") {
            return writeln!(
                self.out,
                "line {number}, the last one, is cut off: its process ended while it was written"
            );
        }
        // A line of another process may follow the cut-off line of a killed one.
        let is_beginning = |at: &usize| BEGINNINGS.iter().any(|beginning| line[*at..].starts_with(beginning));
        let rest = (1..line.len()).rev().find(is_beginning).and_then(|at| Line::parse(&line[at..]).ok());
        if let Some(parsed) = rest {
            writeln!(
                self.out,
                "line {number} begins with one that is cut off: its process ended while it was written"
            )?;
            return self.replay_line(parsed);
        }
        self.report_gap(format!("line {number}"), &format!("cannot be read: {wrong}"))
    }

    fn replay_line(&mut self, line: Line) -> io::Result<()> {
        match line {
            Line::Header(header) if self.is_selected(header.client) => self.begin_client(&header),
            Line::Step { client, step, now, event_rank, input, led }
                if self.is_selected(client) && step <= self.selection.to =>
            {
                self.replay_step(client, step, now, event_rank, *input, &led)
            }
            _ => Ok(()),
        }
    }

    fn is_selected(&self, client: ClientId) -> bool {
        client.to_string().starts_with(&self.selection.client)
    }

    fn begin_client(&mut self, header: &Header) -> io::Result<()> {
        let Header { lockfast, client, seed, start } = header;
        let text = self.text.get_or_insert_with(|| Text::starting_at(*start));
        let (begins, ours) = (text.moment(*start), env!("CARGO_PKG_VERSION"));
        writeln!(self.out, "client {client} begins at {begins}, recorded by {lockfast}, replayed by {ours}")?;
        let player = Player { engine: Engine::new(*client, *seed), last: 0, has_gap: false };
        self.players.insert(client.0, player);
        Ok(())
    }

    fn replay_step(
        &mut self,
        client: ClientId,
        step: u64,
        now: Moment,
        event_rank: u8,
        input: Input,
        recorded: &str,
    ) -> io::Result<()> {
        let location = format!("step {step} of client {client}");
        let missing = match self.players.get(&client.0) {
            Some(player) if player.has_gap => return Ok(()),
            Some(player) if player.last + 1 == step => None,
            Some(player) => Some(player.last + 1),
            None => Some(0),
        };
        if let Some(missing) = missing {
            let engine = Engine::new(client, 0);
            self.players.insert(client.0, Player { engine, last: 0, has_gap: true });
            let what = if missing == 0 { "the first line".to_owned() } else { format!("step {missing}") };
            return self.report_gap(
                location,
                &format!("comes, and {what} is missing: this client cannot be replayed any further"),
            );
        }
        let player = self.players.get_mut(&client.0).expect("it was found above");
        let text = self.text.as_ref().expect("a client has begun");
        player.last = step;
        let engine = &mut player.engine;
        let is_shown = step >= self.selection.from;
        let before = if is_shown { phases(engine, text) } else { BTreeMap::new() };
        if is_shown {
            writeln!(self.out, "{} {client} #{step} {}", text.moment(now), text.input(&input))?;
        }
        let mut effects = Effects::default();
        engine.set_event_rank(event_rank);
        let next = catch_unwind(AssertUnwindSafe(|| engine.handle(input, now, &mut effects)));
        self.summary.steps += 1;
        self.summary.requests += u64::from(matches!(next, Ok(Next::Entered(_))));
        if is_shown {
            for change in changes(&before, &phases(engine, text)) {
                writeln!(self.out, "    request {change}")?;
            }
        }
        let replayed = match &next {
            Ok(next) => {
                if is_shown {
                    writeln!(self.out, "    next    {}", text.next(next))?;
                    for effect in &effects.list {
                        writeln!(self.out, "    effect  {}", text.effect(effect))?;
                    }
                    if effects.wakes_keeper {
                        writeln!(self.out, "    effect  wakes the keeper")?;
                    }
                }
                digest(next, &effects.list, effects.wakes_keeper)
            }
            Err(panic) => {
                self.summary.panics += 1;
                writeln!(self.out, "PANIC at {location}: {}", message(panic.as_ref()))?;
                self.summary.first.get_or_insert_with(|| location.clone());
                PANICKED.to_owned()
            }
        };
        if replayed != recorded {
            self.summary.differences += 1;
            writeln!(self.out, "DIFFERENCE at {location}:\n    recorded {recorded}\n    replayed {replayed}")?;
            self.summary.first.get_or_insert(location);
        }
        Ok(())
    }

    fn report_gap(&mut self, location: String, what: &str) -> io::Result<()> {
        self.summary.gaps += 1;
        writeln!(self.out, "GAP: {location} {what}")?;
        self.summary.first.get_or_insert(location);
        Ok(())
    }
}

fn phases(engine: &Engine, text: &Text) -> BTreeMap<Key, String> {
    engine.keys().filter_map(|key| Some((key, text.phase(&engine.phase(key)?)))).collect()
}

/// The requests whose phase is another one.
fn changes(before: &BTreeMap<Key, String>, after: &BTreeMap<Key, String>) -> Vec<String> {
    let all: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let phase = |of: &BTreeMap<Key, String>, key| of.get(key).map_or("none", String::as_str).to_owned();
    let changed = all.into_iter().map(|key| (key, phase(before, key), phase(after, key)));
    changed.filter(|(_, old, new)| old != new).map(|(key, old, new)| format!("{key}: {old} -> {new}")).collect()
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
