//! The format of a recording: one line of JSON for each client, then one for each input of its engine.
//!
//! ```text
//! {"lockfast":"0.1.0","format":1,"client":"00c0ffee..","seed":7,"start":123}
//! {"step":1,"client":"00c0ffee..","now":124,"heard":2,"input":{"Polled":{"key":"0.0"}},"led":"Wait #a94a8fe5ccb19ba6"}
//! ```
//!
//! Several clients, also of several processes, may share a file. `heard` is the rank that
//! [`Engine::set_event_rank`](super::Engine::set_event_rank) was given, the one thing besides inputs that decides about effects
//! (whether events are made). `led` is a digest of the results of the input: the names of [`Next`] and the effects, and a hash
//! of all that they say.
//!
//! 1. Nothing is written that is not listed in `tables.rs`: a new field does not compile until it is listed there, or named as
//!    unwritten. Of an id its hash is written, of a sealed value its length, of an error its kind; notes, labels and trace ids
//!    are not.
//! 2. The digest covers only fields that would be written, so that a replay, which has no other fields, makes the same digest.
//! 3. An input that was read has the same effects as the recorded one: no unwritten field decides anything in the engine.

mod tables;
#[cfg(test)]
mod tests;
mod write;

#[cfg(feature = "engine")]
mod read;

use sha1::{Digest, Sha1};

use crate::claim::ClientId;
use crate::clock::Moment;

use super::{Effect, Input, Next};

use write::{Write, object};

#[cfg(feature = "engine")]
pub use read::Line;

/// The version of the format.
pub const FORMAT: u32 = 1;
/// The digest of an input that made the engine panic.
pub const PANICKED: &str = "panicked";

/// The first line of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of lockfast.
    pub lockfast: String,
    /// The client.
    pub client: ClientId,
    /// The seed of the engine's jitter.
    pub seed: u64,
    /// When the client was made.
    pub start: Moment,
}

impl Header {
    /// As a line, with its end.
    pub fn line(&self) -> String {
        let Self { lockfast, client, seed, start } = self;
        line(&[("lockfast", lockfast), ("format", &FORMAT), ("client", client), ("seed", seed), ("start", start)])
    }
}

/// An input, written before the engine has it.
#[derive(Debug)]
pub struct InputRecord(String);

impl InputRecord {
    /// Writes an input.
    pub fn new(input: &Input) -> Self {
        Self(text(input))
    }

    /// As a line, with its end.
    pub fn line(self, client: ClientId, step: u64, now: Moment, event_rank: u8, led: &str) -> String {
        let input = Raw(self.0);
        line(&[
            ("step", &step),
            ("client", &client),
            ("now", &now),
            ("heard", &event_rank),
            ("input", &input),
            ("led", &led.to_owned()),
        ])
    }
}

/// JSON already.
struct Raw(String);

impl Write for Raw {
    fn write(&self, out: &mut String) {
        out.push_str(&self.0);
    }
}

fn line(fields: &[(&str, &dyn Write)]) -> String {
    let mut out = String::new();
    object(fields, &mut out);
    out.push('\n');
    out
}

/// The results of an input, in short.
pub fn digest(next: &Next, effects: &[Effect], wakes_keeper: bool) -> String {
    let written: Vec<String> =
        [next as &dyn Write].into_iter().chain(effects.iter().map(as_written)).map(text).collect();
    let mut hash = Sha1::new_with_prefix([u8::from(wakes_keeper)]);
    written.iter().for_each(|part| hash.update(part));
    let mut short = String::new();
    for same in written.chunk_by(|one, other| name(one) == name(other)) {
        let (name, between) = (name(&same[0]), if short.is_empty() { "" } else { " +" });
        short += &if same.len() == 1 { format!("{between}{name}") } else { format!("{between}{name}*{}", same.len()) };
    }
    let keeper = if wakes_keeper { " +keeper" } else { "" };
    let hash = hash.finalize().iter().take(8).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("{short}{keeper} #{hash}")
}

fn as_written(effect: &Effect) -> &dyn Write {
    effect
}

fn text(part: &dyn Write) -> String {
    let mut out = String::new();
    part.write(&mut out);
    out
}

/// The name of a variant, from how it is written: `"Wait"` or `{"Ask":..`.
fn name(written: &str) -> &str {
    written.trim_start_matches(['{', '"']).split('"').next().unwrap_or_default()
}
