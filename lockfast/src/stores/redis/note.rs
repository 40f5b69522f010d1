//! A claim's note as one line of text, so that `GET` on a lock is readable: host, pid, program, then `=text` and `key=value`.

use std::cell::RefCell;
use std::sync::Arc;

use crate::claim::Note;

thread_local! {
    /// The last that was written: most locks of a process have the same.
    static LAST: RefCell<Option<(Arc<Note>, String)>> = const { RefCell::new(None) };
}

/// Does something with the line.
pub(super) fn with_text<T>(note: &Arc<Note>, work: impl FnOnce(&str) -> T) -> T {
    LAST.with_borrow_mut(|last| match last {
        Some((known, line)) if Arc::ptr_eq(known, note) => work(line),
        _ => work(&last.insert((Arc::clone(note), write(note))).1),
    })
}

fn write(note: &Note) -> String {
    let mut line = format!("{} {} {}", word(&note.host), note.pid, word(&note.program));
    if let Some(text) = &note.text {
        line += &format!(" ={}", word(text));
    }
    for (key, value) in &note.labels {
        // A key cannot be empty there: that is how the text is told apart.
        line += &format!(" {}={}", word(&format!("+{key}")), word(value));
    }
    line
}

pub(super) fn read(line: &str) -> Note {
    let mut words = line.split(' ');
    let mut next = || words.next().map(plain).unwrap_or_default();
    let mut note = Note { host: next(), pid: next().parse().unwrap_or(0), program: next(), ..Note::default() };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match plain(key).strip_prefix('+') {
            Some(key) => note.labels.push((key.to_owned(), plain(value))),
            None => note.text = Some(plain(value)),
        }
    }
    note
}

/// Without blanks, control characters, `=` and `%`, each of which becomes `%` and two digits.
fn word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\0'..=' ' | '%' | '=' | '\x7f' => word += &format!("%{:02x}", letter as u32),
            _ => word.push(letter),
        }
    }
    word
}

fn plain(word: &str) -> String {
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
        assert_eq!(write(&plain), "web-2 812 billing");
        let labels = vec![(String::new(), "ключ=1".to_owned()), ("a b".to_owned(), "100 %\r\n\0".to_owned())];
        let odd = Note { text: Some("http://10.0.0.1/?a=b c".into()), labels, ..plain.clone() };
        for note in [plain, odd, Note::default(), Note { text: Some(String::new()), ..Note::default() }] {
            let line = write(&note);
            assert!(!line.contains(['\n', '\0']), "{line:?}");
            assert_eq!(read(&line), note, "{line:?}");
        }
    }

    #[test]
    fn a_damaged_note_is_decoded_as_far_as_possible() {
        for line in ["", "%", "a b c d=%zz", "host %ff", "% % % %=%"] {
            read(line);
        }
    }
}
