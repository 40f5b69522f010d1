//! Standard output, and what may be shown there.

use std::io::{ErrorKind, Write};

use crate::exit::{Exit, Failure};

/// Writes to standard output. When whoever reads it has left, as in `lockfast ls | head -1`, the program ends quietly.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::quiet(Exit::Yes)),
        Err(error) => Err(Failure::new(Exit::No, format!("writing to standard output: {error}"))),
    }
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
