//! Appends the engine's inputs to a file, for bug reports. `engine/record.rs` decides what is written of them.
//!
//! 1. Each line is one write to a file that was opened for appending: lines of several clients and processes never mix.
//! 2. An input is written with a digest of its effects, also if it caused a panic.
//! 3. A write that fails ends the recording, since the file would lack a step. It fails no lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use crate::claim::ClientId;
use crate::clock::Moment;
use crate::engine::record::{Header, InputRecord, PANICKED, digest};
use crate::engine::{Effects, Engine, Input, Next};
use crate::error::{Error, Result};

/// The recording of one client.
#[derive(Debug)]
pub(super) struct Recorder {
    file: File,
    path: PathBuf,
    client: ClientId,
    step: u64,
}

/// A recording that ended before its client.
#[derive(Debug)]
pub(super) struct EndedRecording {
    path: PathBuf,
    error: io::Error,
}

impl EndedRecording {
    /// Runs code of the `tracing` subscriber: not to be called under the engine's mutex.
    pub(super) fn warn(&self) {
        let Self { path, error } = self;
        tracing::warn!(file = %path.display(), %error, "the recording ends: its file cannot be written any more");
    }
}

impl Recorder {
    pub(super) fn start(path: PathBuf, client: ClientId, seed: u64, now: Moment) -> Result<Self> {
        let begin = || {
            let mut file = open(&path)?;
            let lockfast = env!("CARGO_PKG_VERSION").to_owned();
            append(&mut file, &Header { lockfast, client, seed, start: now }.line())?;
            Ok(file)
        };
        match begin() {
            Ok(file) => Ok(Self { file, path, client, step: 0 }),
            Err::<_, io::Error>(error) => Err(Error::invalid(format!(
                "cannot record to {}: {error}; name a file that can be written (record_to, LOCKFAST_RECORD)",
                path.display()
            ))),
        }
    }

    /// Gives the engine an input and records it; [`EndedRecording`] if the write failed.
    pub(super) fn handle(
        &mut self,
        engine: &mut Engine,
        input: Input,
        now: Moment,
        effects: &mut Effects,
    ) -> (Next, Option<EndedRecording>) {
        // Effects of earlier inputs may not have been carried out yet.
        let (earlier, wakes_keeper) = (effects.list.len(), std::mem::take(&mut effects.wakes_keeper));
        let recorded = InputRecord::new(&input);
        let next = catch_unwind(AssertUnwindSafe(|| engine.handle(input, now, effects)));
        let led = match &next {
            Ok(next) => digest(next, &effects.list[earlier..], effects.wakes_keeper),
            Err(_) => PANICKED.to_owned(),
        };
        effects.wakes_keeper |= wakes_keeper;
        self.step += 1;
        let line = recorded.line(self.client, self.step, now, engine.event_rank(), &led);
        let written = append(&mut self.file, &line);
        match next {
            Ok(next) => (next, written.err().map(|error| EndedRecording { path: self.path.clone(), error })),
            Err(panic) => resume_unwind(panic),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    // Names of locks are not to be read by other users of the machine.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// By 1, in one write.
fn append(file: &mut File, line: &str) -> io::Result<()> {
    loop {
        match file.write(line.as_bytes()) {
            Ok(written) if written == line.len() => return Ok(()),
            Ok(written) => return Err(io::Error::other(format!("{written} of {} bytes were written", line.len()))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_makes_the_engine_panic_is_recorded() {
        let name = format!("lockfast-panic-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let path = std::env::temp_dir().join(name);
        let mut recorder = Recorder::start(path.clone(), ClientId(7), 1, Moment::START).unwrap();
        let (mut engine, mut effects) = (Engine::new(ClientId(7), 1), Effects::default());
        let mut tell = |input| recorder.handle(&mut engine, input, Moment::START, &mut effects);
        tell(Input::ReportNow);
        // No request ever had this key.
        let key = "4294967295.0".parse().unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| tell(Input::Polled(key)))).is_err(), "it is passed on");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let last = text.lines().last().unwrap();
        assert!(last.contains("\"step\":2,") && last.ends_with("\"led\":\"panicked\"}"), "{text}");
        assert!(last.contains("{\"Polled\":{\"key\":\"4294967295.0\"}}"), "{text}");
    }
}
