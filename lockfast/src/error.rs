//! What can go wrong, sorted by what the caller does next.

use std::fmt;
use std::time::Duration;

use crate::claim::Holder;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, sorted by what the caller does next. Names are those that the caller wrote, without the prefix.
///
/// ```
/// # use lockfast::{Error, Locks};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// match locks.mutex("account:123").lock_within(Duration::from_secs(5)).await {
///     Ok(guard) => guard.release().await?,
///     Err(Error::Busy { holder: Some(holder), .. }) => println!("held by {holder}, come back later"),
///     Err(Error::Unavailable { .. }) => println!("the store is down, try again"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another claim holds it, or waits for it: come back later, or show the holder to the user.
    #[error("{}", busy_message(name, holder.as_deref(), *held_for, *position, *waited, *attempts))]
    #[non_exhaustive]
    Busy {
        /// The requested names.
        name: String,
        /// The holder, if the store could name it.
        holder: Option<Box<Holder>>,
        /// How long the holder has held it.
        held_for: Option<Duration>,
        /// How many claims were ahead in the queue at the end of the wait; in a long queue, at most that many. `None` for a request
        /// that did not wait in the queue.
        position: Option<usize>,
        /// How long the request waited.
        waited: Duration,
        /// How many attempts it made.
        attempts: u32,
    },

    /// The lock was held and is not any more: stop the work that it protected.
    #[error("the lock on {name:?} was lost: {why}")]
    #[non_exhaustive]
    Lost {
        /// What was held.
        name: String,
        /// Why it was lost.
        why: LostWhy,
    },

    /// The store did not answer, although the client repeated the request for up to three seconds: try again later. Whether the
    /// request took effect is unknown.
    #[error("the store is unavailable while {doing}: {cause}")]
    #[non_exhaustive]
    Unavailable {
        /// What was being done, with the name it was done to.
        doing: String,
        /// What the store, or the connection to it, reported.
        cause: String,
    },

    /// The request cannot work as it is: change it. The message says what to write instead.
    #[error("{0}")]
    Invalid(String),

    /// This store cannot do that: use another store, or another method.
    #[error("{0}")]
    Unsupported(String),

    /// The client was shut down, or belongs to another process since a fork: connect again.
    #[error("the lock client is closed: {0}")]
    Closed(&'static str),
}

impl Error {
    /// Whether the same request, unchanged, may succeed later.
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

    /// An [`Error::Unsupported`]; `what` says why, and what to use instead.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(what.into())
    }

    /// An [`Error::Unavailable`], for authors of stores: the outcome of the verb is unknown.
    pub fn unavailable(doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Unavailable { doing: doing.into(), cause: cause.to_string() }
    }
}

/// Why a lock was lost.
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
    /// A holder with a higher fencing token has written meanwhile.
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
            Self::Overtaken => "a holder with a higher fencing token has written meanwhile",
        })
    }
}

fn busy_message(
    name: &str,
    holder: Option<&Holder>,
    held_for: Option<Duration>,
    position: Option<usize>,
    waited: Duration,
    attempts: u32,
) -> String {
    let mut text = match holder {
        Some(holder) => format!("{name:?} is held by {holder}"),
        None => format!("{name:?} is already held"),
    };
    if let Some(held_for) = held_for {
        text += &format!(" for {}", format_span(held_for));
    }
    if waited >= Duration::from_millis(1) {
        text += &format!("; gave up after {}", format_span(waited));
    }
    if attempts > 1 {
        text += &format!(" and {attempts} attempts");
    }
    if let Some(position) = position {
        text += &format!(" with {position} ahead in the queue");
    }
    text
}

/// Rounded down to milliseconds below ten seconds, to seconds above.
fn format_span(span: Duration) -> String {
    let rounded = if span < Duration::from_secs(10) {
        Duration::from_millis(span.as_millis() as u64)
    } else {
        Duration::from_secs(span.as_secs())
    };
    format!("{rounded:?}")
}
