//! Byte encodings: notes and lists of names in the file, messages in datagrams. Every text is preceded by its length.

use std::sync::Arc;

use crate::claim::{ClaimHash, Note};
use crate::name::Name;

/// Appends fields to bytes.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    pub(super) fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    pub(super) fn hash(&mut self, hash: ClaimHash) -> &mut Self {
        self.0.extend(hash.0);
        self
    }
}

/// Takes fields off bytes. A missing field is `None`: the writer is not trusted.
#[derive(Debug)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(super) fn hash(&mut self) -> Option<ClaimHash> {
        self.take().map(ClaimHash)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(u32::from_le_bytes(self.take()?)).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

pub(super) fn encode_note(note: &Note) -> Vec<u8> {
    let mut bytes = Encoder::default();
    bytes.text(&note.host).number(note.pid.into()).text(&note.program);
    match &note.text {
        Some(text) => bytes.byte(1).text(text),
        None => bytes.byte(0),
    };
    for (key, value) in &note.labels {
        bytes.text(key).text(value);
    }
    bytes.0
}

/// The note, as far as it can be decoded: it is for people, and no rule depends on it.
pub(super) fn decode_note(bytes: &[u8]) -> Arc<Note> {
    let mut bytes = Decoder(bytes);
    let mut note = Note::default();
    let mut decode_fields = || {
        note.host = bytes.text()?.to_owned();
        note.pid = u32::try_from(bytes.number()?).ok()?;
        note.program = bytes.text()?.to_owned();
        if bytes.byte()? == 1 {
            note.text = Some(bytes.text()?.to_owned());
        }
        while !bytes.is_empty() {
            note.labels.push((bytes.text()?.to_owned(), bytes.text()?.to_owned()));
        }
        Some(())
    };
    // Fields behind an undecodable one stay empty.
    decode_fields();
    Arc::new(note)
}

pub(super) fn encode_names<'a>(names: impl Iterator<Item = &'a Name>) -> Vec<u8> {
    let mut bytes = Encoder::default();
    names.for_each(|name| {
        bytes.text(name.as_str());
    });
    bytes.0
}

pub(super) fn decode_names(bytes: &[u8]) -> Option<Vec<Name>> {
    let mut bytes = Decoder(bytes);
    let mut names = Vec::new();
    while !bytes.is_empty() {
        names.push(Name::stored(bytes.text()?));
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_encoding() {
        let full = Note {
            host: "web-2".into(),
            pid: 812,
            program: "payments".into(),
            text: Some("10.0.0.7:80".into()),
            labels: vec![("team".into(), "billing \u{1F512}".into()), (String::new(), String::new())],
        };
        for note in [full, Note::default()] {
            assert_eq!(*decode_note(&encode_note(&note)), note);
        }
    }

    #[test]
    fn truncated_bytes_are_no_names() {
        let names: Vec<_> = ["a", "b}\0c"].iter().map(|text| Name::new(text).unwrap()).collect();
        let bytes = encode_names(names.iter());
        assert_eq!(decode_names(&bytes), Some(names));
        assert_eq!(decode_names(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode_names(&[255, 255, 255, 255, 1]), None);
    }
}
