//! Encodes a claim's note as one line of text, so that `GET` on a lock is readable: host, pid, program, then `=text` and
//! `key=value`.

use std::cell::RefCell;
use std::sync::Arc;

use crate::claim::Note;

thread_local! {
    /// The note that was encoded last: most locks of a process have the same.
    static LAST_ENCODED: RefCell<Option<(Arc<Note>, String)>> = const { RefCell::new(None) };
}

/// Calls `work` with the encoded note.
pub(super) fn with_text<T>(note: &Arc<Note>, work: impl FnOnce(&str) -> T) -> T {
    LAST_ENCODED.with_borrow_mut(|last| match last {
        Some((known, line)) if Arc::ptr_eq(known, note) => work(line),
        _ => work(&last.insert((Arc::clone(note), encode(note))).1),
    })
}

fn encode(note: &Note) -> String {
    let mut line = format!("{} {} {}", escape(&note.host), note.pid, escape(&note.program));
    if let Some(text) = &note.text {
        line += &format!(" ={}", escape(text));
    }
    for (key, value) in &note.labels {
        // The plus sign tells a label with an empty key from the text.
        line += &format!(" {}={}", escape(&format!("+{key}")), escape(value));
    }
    line
}

pub(super) fn decode(line: &str) -> Note {
    let mut words = line.split(' ');
    let mut next = || words.next().map(unescape).unwrap_or_default();
    let mut note = Note { host: next(), pid: next().parse().unwrap_or(0), program: next(), ..Note::default() };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match unescape(key).strip_prefix('+') {
            Some(key) => note.labels.push((key.to_owned(), unescape(value))),
            None => note.text = Some(unescape(value)),
        }
    }
    note
}

/// Replaces blanks, control characters, `=` and `%` by `%` and two hexadecimal digits.
fn escape(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\0'..=' ' | '%' | '=' | '\x7f' => word += &format!("%{:02x}", character as u32),
            _ => word.push(character),
        }
    }
    word
}

/// Reverses [`escape`].
fn unescape(word: &str) -> String {
    let mut parts = word.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text += &part[2..];
            }
            None => text += part,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_as_it_was_written() {
        let plain = Note { host: "web-2".into(), pid: 812, program: "billing".into(), ..Note::default() };
        assert_eq!(encode(&plain), "web-2 812 billing");
        let labels = vec![(String::new(), "ключ=1".to_owned()), ("a b".to_owned(), "100 %\r\n\0".to_owned())];
        let odd = Note { text: Some("http://10.0.0.1/?a=b c".into()), labels, ..plain.clone() };
        for note in [plain, odd, Note::default(), Note { text: Some(String::new()), ..Note::default() }] {
            let line = encode(&note);
            assert!(!line.contains(['\n', '\0']), "{line:?}");
            assert_eq!(decode(&line), note, "{line:?}");
        }
    }

    #[test]
    fn a_damaged_note_is_decoded_as_far_as_possible() {
        for line in ["", "%", "a b c d=%zz", "host %ff", "% % % %=%"] {
            decode(line);
        }
    }
}
