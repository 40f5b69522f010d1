//! Standard output, and the escaping of text that is shown there.

use std::io::{ErrorKind, Write};

use crate::exit::{Exit, Failure};

/// Writes a result to standard output. A reader that has left, as in `lockfast ls | head -1`, does not change the exit code:
/// that is a result too.
pub(crate) fn print_result(text: &str) -> Result<(), Failure> {
    match write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(stdout_failure(&error)),
        _ => Ok(()),
    }
}

/// Writes one of many results to standard output. When the reader has left, the program ends without a message.
///
/// # Cancel safety
///
/// The text may be written all the same, as long as the process lives. A command that handles signals has to write with this
/// function: a reader that does not read must not delay a signal.
pub(crate) async fn print_next(text: String) -> Result<(), Failure> {
    let written = tokio::task::spawn_blocking(move || write(&text)).await;
    match written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::quiet(Exit::Yes)),
        written => written.map_err(|error| stdout_failure(&error)),
    }
}

fn write(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

fn stdout_failure(error: &std::io::Error) -> Failure {
    Failure::new(Exit::No, format!("writing to standard output: {error}"))
}

/// Escapes the characters that would move the cursor, change the colours or turn the direction of reading. Names, notes and
/// labels come from other processes, which must not control an operator's terminal.
pub(crate) fn escape_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            character if is_unsafe(character) => escaped.extend(character.escape_default()),
            character => escaped.push(character),
        }
    }
    escaped
}

/// The same for encoded JSON, where such characters occur only inside strings.
pub(crate) fn escape_controls_in_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            character if is_unsafe(character) && character != '\n' => {
                escaped += &format!("\\u{:04x}", u32::from(character))
            }
            character => escaped.push(character),
        }
    }
    escaped
}

fn is_unsafe(character: char) -> bool {
    let changes_direction =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || changes_direction || matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_controls("a\u{1b}[2Jb\r\n\u{9b}31m\u{202e}x"), "a\\u{1b}[2Jb\\r\\n\\u{9b}31m\\u{202e}x");
        assert_eq!(escape_controls("ключ 🔒 a}b"), "ключ 🔒 a}b");
    }

    #[test]
    fn escaped_json_decodes_to_the_same_text() {
        let text = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}";
        let json = escape_controls_in_json(&serde_json::to_string(text).unwrap());
        assert!(json.is_ascii() && !json.contains('\u{1b}'), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
