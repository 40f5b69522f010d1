//! Plain data as JSON, in the order of the tables: the same value is always the same text.

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{ClaimHash, ClaimId, ClientId, Demands, Ticket};
use crate::clock::Moment;
use crate::engine::{Key, ReleaseId, Span};
use crate::error::{Error, Result};
use crate::name::Name;

/// Can be written into a recording.
pub(super) trait Write {
    fn write(&self, out: &mut String);
}

/// `{"name":value,..}`
pub(super) fn object(fields: &[(&str, &dyn Write)], out: &mut String) {
    out.push('{');
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        quoted(name, out);
        out.push(':');
        value.write(out);
    }
    out.push('}');
}

/// `"Name"`, or `{"Name":{"part":value,..}}`
pub(super) fn variant(name: &str, parts: &[(&str, &dyn Write)], out: &mut String) {
    if parts.is_empty() {
        return quoted(name, out);
    }
    out.push('{');
    quoted(name, out);
    out.push(':');
    object(parts, out);
    out.push('}');
}

fn list<'a>(items: impl Iterator<Item = &'a dyn Write>, out: &mut String) {
    out.push('[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(',');
        }
        item.write(out);
    }
    out.push(']');
}

fn quoted(text: impl Display, out: &mut String) {
    out.push_str(&serde_json::Value::String(text.to_string()).to_string());
}

fn number(number: impl Display, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{number}");
}

macro_rules! write_as {
    ($($type:ty: $how:ident $(.$part:tt)?),* $(,)?) => {
        $(impl Write for $type {
            fn write(&self, out: &mut String) {
                $how(self$(.$part)?, out);
            }
        })*
    };
}

write_as! {
    bool: number,
    u8: number,
    u32: number,
    u64: number,
    usize: number,
    Ticket: number,
    ReleaseId: number.0,
    String: quoted,
    Name: quoted,
    Key: quoted,
    ClientId: quoted,
    ClaimHash: quoted,
}

/// Never the secret.
impl Write for ClaimId {
    fn write(&self, out: &mut String) {
        self.hash().write(out);
    }
}

/// A value that is sealed: its length only.
impl Write for Bytes {
    fn write(&self, out: &mut String) {
        self.len().write(out);
    }
}

/// The kind only: the text of a store's error may contain anything.
impl Write for Error {
    fn write(&self, out: &mut String) {
        let kind = match self {
            Self::Busy { .. } => "Busy",
            Self::Lost { .. } => "Lost",
            Self::Unavailable { .. } => "Unavailable",
            Self::Invalid(_) => "Invalid",
            Self::Unsupported(_) => "Unsupported",
            Self::Closed(_) => "Closed",
        };
        quoted(kind, out);
    }
}

impl Write for Moment {
    fn write(&self, out: &mut String) {
        self.as_nanos().write(out);
    }
}

/// In nanoseconds, 584 years at most: to a [`Moment`] no more can be added.
impl Write for Duration {
    fn write(&self, out: &mut String) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).write(out);
    }
}

impl Write for Span {
    fn write(&self, out: &mut String) {
        Duration::from(*self).write(out);
    }
}

impl Write for Demands {
    fn write(&self, out: &mut String) {
        list(self.iter().map(|demand| demand as &dyn Write), out);
    }
}

impl<T: Write> Write for Vec<T> {
    fn write(&self, out: &mut String) {
        list(self.iter().map(|item| item as &dyn Write), out);
    }
}

impl<A: Write, B: Write> Write for (A, B) {
    fn write(&self, out: &mut String) {
        list([&self.0 as &dyn Write, &self.1].into_iter(), out);
    }
}

impl<T: Write> Write for Arc<T> {
    fn write(&self, out: &mut String) {
        T::write(self, out);
    }
}

impl<T: Write> Write for Box<T> {
    fn write(&self, out: &mut String) {
        T::write(self, out);
    }
}

impl<T: Write> Write for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Write> Write for Result<T> {
    fn write(&self, out: &mut String) {
        match self {
            Ok(value) => object(&[("Ok", value)], out),
            Err(error) => object(&[("Err", error)], out),
        }
    }
}
