//! `cargo xtask replay FILE`: prints a recording step by step. Fails when the replay differs from it, or the engine panics.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use replay::Selection;

const USAGE: &str = "\
cargo xtask replay FILE [--client ID] [--from N] [--to M]

Steps through a recording (LOCKFAST_RECORD, Builder::record_to), and compares the engine's effects with the recorded ones.

    --client ID   only the client whose id begins with this
    --from N      print from this step on; the steps before are replayed all the same
    --to M        end after this step

The last line counts steps, requests and differences. Exit code 1 if there are differences, if the engine panicked, or
if the recording cannot be read. A last line that was cut off, by the end of its process, is no error.
";

fn main() -> ExitCode {
    let (file, selection) = match arguments(std::env::args_os().skip(1)) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(wrong) => return refuse(&format!("{wrong}\n\n{USAGE}")),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let opened = File::open(&file).map(BufReader::new);
    match opened.and_then(|recording| replay::replay(recording, &selection, &mut out)).and_then(|summary| {
        out.flush()?;
        Ok(summary)
    }) {
        Ok(summary) if summary.is_same() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        // A reader like `head` has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => refuse(&format!("reading {}: {error}\n", file.display())),
    }
}

fn refuse(why: &str) -> ExitCode {
    let _ = write!(io::stderr(), "replay: {why}");
    ExitCode::FAILURE
}

fn arguments(words: impl Iterator<Item = OsString>) -> Result<Option<(std::path::PathBuf, Selection)>, String> {
    let (mut words, mut file, mut selection) = (words, None, Selection::default());
    while let Some(word) = words.next() {
        let flag = word.to_str().unwrap_or_default().to_owned();
        let mut value = || {
            let value = words.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{flag} needs a value"))
        };
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is no number of a step"));
        match flag.as_str() {
            "-h" | "--help" => return Ok(None),
            "--client" => selection.client = value()?.to_lowercase(),
            "--from" => selection.from = number(value()?)?,
            "--to" => selection.to = number(value()?)?,
            unknown if unknown.starts_with('-') => return Err(format!("there is no option {unknown}")),
            _ if file.is_none() => file = Some(word.into()),
            _ => return Err(format!("one recording at a time, and not {} as well", word.display())),
        }
    }
    file.map(|file| Some((file, selection))).ok_or_else(|| "name a recording".to_owned())
}
