//! Names of resources. A [`Name`] is checked once, when it is made; a value of the type is always legal.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The name of a resource, as the store knows it: the client's prefix, then the text that the user wrote.
///
/// Any text of 1 to 512 bytes is a legal name; spaces, braces, slashes, control characters and every script included.
/// Cloning is cheap.
///
/// ```
/// # use lockfast::store::Name;
/// let name = Name::new("account:123")?;
/// assert_eq!(name.as_str(), "account:123");
/// assert!(Name::new("").unwrap_err().to_string().contains("empty"));
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name a user may write, in bytes.
    pub const LONGEST: usize = 512;
    /// The longest prefix a client may put before a name, in bytes.
    pub const LONGEST_PREFIX: usize = 64;

    /// Checks `text` and makes a name of it.
    pub fn new(text: &str) -> Result<Self> {
        Self::prefixed("", text)
    }

    /// Checks `text` and makes the name `prefix` + `text` of it.
    pub fn prefixed(prefix: &str, text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid(
                "the name of a lock is empty; write what is being locked, like \"account:123\"",
            ));
        }
        if text.len() > Self::LONGEST {
            return Err(Error::invalid(format!(
                "the name beginning {:?} has {} bytes; use at most {}, for instance a hash of the long part",
                text.chars().take(24).collect::<String>(),
                text.len(),
                Self::LONGEST,
            )));
        }
        if prefix.is_empty() {
            return Ok(Self(text.into()));
        }
        let mut whole = String::with_capacity(prefix.len() + text.len());
        whole.push_str(prefix);
        whole.push_str(text);
        Ok(Self(whole.into()))
    }

    /// A name that was checked before a store, or a recording, kept it.
    #[cfg(any(feature = "sqlite", feature = "redis", all(feature = "record", feature = "engine")))]
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The whole name, prefix included.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_512_bytes_is_legal_and_one_more_is_not() {
        assert!(Name::new(&"n".repeat(512)).is_ok());
        let refused = Name::new(&"n".repeat(513)).unwrap_err().to_string();
        assert!(refused.contains("513") && refused.contains("512"), "{refused}");
    }

    #[test]
    fn any_text_is_legal() {
        for text in ["a}b", "{}x", "a/b", " ", "\0", "\r\n", "ключ", "🔒"] {
            assert_eq!(Name::prefixed("lock:", text).unwrap().as_str(), format!("lock:{text}"));
        }
    }
}
