//! Standard output, and what may be shown there.

use std::io::{ErrorKind, Write};

use crate::exit::{Exit, Failure};

/// Writes an answer to standard output. A reader that has left, as in `lockfast ls | head -1`, does not change the exit code:
/// that is an answer too.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    match write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

/// Writes to standard output, as one of many answers. Without a reader there is no reason for more: the program ends quietly.
///
/// # Cancel safety
///
/// The text may be written all the same, as long as the process lives. A command that listens to signals has to write like
/// this: a reader that does not read must not keep a signal waiting.
pub(crate) async fn put_next(text: String) -> Result<(), Failure> {
    let written = tokio::task::spawn_blocking(move || write(&text)).await;
    match written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::quiet(Exit::Yes)),
        written => written.map_err(|error| unwritten(&error)),
    }
}

fn write(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

fn unwritten(error: &std::io::Error) -> Failure {
    Failure::new(Exit::No, format!("writing to standard output: {error}"))
}

/// Text of others, safe to show: what would move the cursor, change the colours or turn the direction of reading is
/// written out. Names, notes and labels come from other processes, which must not write on an operator's terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if is_unsafe(letter) => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// The same for JSON that is already written: there, such letters are only inside of strings.
pub(crate) fn plain_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            letter if is_unsafe(letter) && letter != '\n' => shown += &format!("\\u{:04x}", u32::from(letter)),
            letter => shown.push(letter),
        }
    }
    shown
}

fn is_unsafe(letter: char) -> bool {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || turns || matches!(letter, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_on_a_terminal_is_written_out() {
        assert_eq!(plain("a\u{1b}[2Jb\r\n\u{9b}31m\u{202e}x"), "a\\u{1b}[2Jb\\r\\n\\u{9b}31m\\u{202e}x");
        assert_eq!(plain("ключ 🔒 a}b"), "ключ 🔒 a}b");
    }

    #[test]
    fn json_with_such_letters_means_the_same_and_acts_on_nothing() {
        let text = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}";
        let json = plain_json(&serde_json::to_string(text).unwrap());
        assert!(json.is_ascii() && !json.contains('\u{1b}'), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
