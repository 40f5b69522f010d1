//! What can go wrong, sorted by what the caller does next.

use std::fmt;
use std::time::Duration;

use crate::claim::Holder;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, sorted by what the caller does next. Names are those the caller wrote, without the prefix.
///
/// ```
/// # use lockfast::{Error, Locks};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// match locks.mutex("account:123").lock_within(Duration::from_secs(5)).await {
///     Ok(guard) => guard.release().await?,
///     Err(Error::Busy { holder: Some(holder), .. }) => println!("{holder} is at it, come back later"),
///     Err(Error::Unavailable { .. }) => println!("the store is down, try again"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has it: come back later, or tell the user who it is.
    #[error("{}", busy(name, holder.as_deref(), *held_for, *position, *waited, *attempts))]
    #[non_exhaustive]
    Busy {
        /// What was asked for.
        name: String,
        /// Who holds it, when the store could tell.
        holder: Option<Box<Holder>>,
        /// For how long already.
        held_for: Option<Duration>,
        /// How many were ahead in the line when we gave up; in a long one, at most. `None` when not in line.
        position: Option<usize>,
        /// How long we waited.
        waited: Duration,
        /// How often we asked.
        attempts: u32,
    },

    /// The lock was held and is not any more: stop what it protected.
    #[error("the lock on {name:?} was lost: {why}")]
    #[non_exhaustive]
    Lost {
        /// What was held.
        name: String,
        /// How it was lost.
        why: LostWhy,
    },

    /// The store did not answer, nor when the client repeated the request for up to three seconds: try again later. Whether
    /// anything happened there is unknown.
    #[error("the store is unavailable while {doing}: {cause}")]
    #[non_exhaustive]
    Unavailable {
        /// What was being done, with the name it was done to.
        doing: String,
        /// What the store, or the way to it, said.
        cause: String,
    },

    /// The request makes no sense as it is: change it. The sentence says what to write instead.
    #[error("{0}")]
    Invalid(String),

    /// This store cannot do that: use another store or another way.
    #[error("{0}")]
    Unsupported(String),

    /// The client was shut down, or belongs to another process since a fork: connect again.
    #[error("the lock client is closed: {0}")]
    Closed(&'static str),
}

impl Error {
    /// Whether the same request may well succeed later, without any change to it.
    ///
    /// ```
    /// # use lockfast::store::Name;
    /// # use lockfast::Error;
    /// assert!(!Name::new("").unwrap_err().is_retryable());
    /// assert!(Error::unavailable("acquiring \"a\"", "connection refused").is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Unavailable { .. } | Self::Lost { .. })
    }

    /// An [`Error::Invalid`]; `what` says what is wrong and what to write instead.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// An [`Error::Unsupported`]; `what` says why and what would do.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(what.into())
    }

    /// An [`Error::Unavailable`], for authors of stores: the outcome of the verb is unknown.
    pub fn unavailable(doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Unavailable { doing: doing.into(), cause: cause.to_string() }
    }
}

/// How a lock was lost.
///
/// ```
/// # use lockfast::LostWhy;
/// assert_eq!(LostWhy::Broken.to_string(), "an operator broke it");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostWhy {
    /// The lease could not be renewed in time.
    Expired,
    /// The store does not have the claim any more: its data was deleted, evicted or lost.
    Evicted,
    /// An operator broke it.
    Broken,
    /// It was held for as long as `hold_at_most` allows.
    HeldAtMost,
    /// The client was shut down.
    Shutdown,
    /// Somebody with a later fence has been there.
    Overtaken,
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out before it could be renewed",
            Self::Evicted => "the store does not have it any more",
            Self::Broken => "an operator broke it",
            Self::HeldAtMost => "it was held for as long as hold_at_most allows",
            Self::Shutdown => "the client was shut down",
            Self::Overtaken => "somebody with a later fence has been there",
        })
    }
}

fn busy(
    name: &str,
    holder: Option<&Holder>,
    held_for: Option<Duration>,
    position: Option<usize>,
    waited: Duration,
    attempts: u32,
) -> String {
    let mut text = match holder {
        Some(holder) => format!("{name:?} is held by {holder}"),
        None => format!("{name:?} is held by somebody else"),
    };
    if let Some(held_for) = held_for {
        text += &format!(" for {}", seconds(held_for));
    }
    if waited >= Duration::from_millis(1) {
        text += &format!("; gave up after {}", seconds(waited));
    }
    if attempts > 1 {
        text += &format!(" and {attempts} attempts");
    }
    if let Some(position) = position {
        text += &format!(" with {position} ahead in line");
    }
    text
}

/// To the millisecond below ten seconds, to the second above.
fn seconds(span: Duration) -> String {
    let rough = if span < Duration::from_secs(10) {
        Duration::from_millis(span.as_millis() as u64)
    } else {
        Duration::from_secs(span.as_secs())
    };
    format!("{rough:?}")
}
