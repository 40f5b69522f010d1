//! From a URL or the environment to a client: which scheme opens which store.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::primitives::{Builder, Locks};
use crate::store::Store;
use crate::stores::Memory;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
use crate::stores::{Sqlite, SqliteOptions};

/// The schemes of this build, for the error that lists them.
const SCHEMES: &str = match (cfg!(feature = "sqlite"), cfg!(feature = "redis")) {
    (true, true) => "memory: sqlite: redis: rediss:",
    (true, false) => "memory: sqlite:",
    (false, true) => "memory: redis: rediss:",
    (false, false) => "memory:",
};

/// The store behind a URL, and the prefix if the URL sets one. `count_children` is [`Builder::count_children`].
#[cfg_attr(not(feature = "sqlite"), expect(unused_variables, reason = "only sqlite: sees children"))]
async fn open(url: &str, count_children: bool) -> Result<(Arc<dyn Store>, Option<String>)> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" => Ok((Memory::named(rest.trim_start_matches('/')), None)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok((open_sqlite(rest, count_children).await?, None)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => {
            let (store, prefix) = crate::stores::Redis::open_with_prefix(url).await?;
            Ok((store, prefix))
        }
        // Only the scheme is shown: the rest of a URL may hold a password.
        _ => Err(Error::invalid(format!(
            "no store is called {:?}; begin the URL with one of: {SCHEMES}",
            scheme.chars().take(20).collect::<String>()
        ))),
    }
}

/// `sqlite:` alone is this user's own file; otherwise the path follows, with two more slashes or without.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
async fn open_sqlite(rest: &str, count_children: bool) -> Result<Arc<dyn Store>> {
    if rest.contains('?') || rest.starts_with(':') {
        return Err(Error::invalid(format!(
            "sqlite:{rest} is not understood; write sqlite: or sqlite:/path/to/locks.db"
        )));
    }
    let path = match rest.strip_prefix("//").unwrap_or(rest) {
        "" => Sqlite::default_path()?,
        path => path.into(),
    };
    let options = SqliteOptions::default().count_children(count_children);
    // On a thread of its own: if another process keeps the file locked, opening takes seconds, and would block the caller's runtime.
    let (sender, receiver) = futures::channel::oneshot::channel();
    std::thread::Builder::new()
        .name("lockfast-opening".to_owned())
        .spawn(move || drop(sender.send(options.open(path))))
        .map_err(|error| Error::unavailable("starting a thread", error))?;
    let store = receiver.await.map_err(|_| Error::unavailable("opening the file of locks", "the thread has ended"))?;
    Ok(store?)
}

#[cfg(all(feature = "sqlite", not(target_os = "linux")))]
async fn open_sqlite(_: &str, _: bool) -> Result<Arc<dyn Store>> {
    Err(Error::unsupported("sqlite: needs Linux so far; use another store here"))
}

impl Locks {
    /// A client of the store behind `url`, with default settings. `memory:` is a store inside this process, the same one for every
    /// client that connects to `memory:`; `memory:other` is another one. With the cargo feature `sqlite`, `sqlite:` is a file in the
    /// user's state directory, and `sqlite:/path/to/locks.db` a file of your choice: see `Sqlite`. With the feature `redis`,
    /// `redis://host` is a Redis or Valkey server: see `Redis`.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let locks = Locks::connect("memory:").await?;
    /// assert!(Locks::connect("memroy:").await.unwrap_err().to_string().contains("memory:"));
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A client with the settings of the environment: `LOCKFAST_URL` (`memory:` if not set), `LOCKFAST_PREFIX`, and the trace in
    /// `TRACEPARENT`.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let locks = Locks::from_env().await?;
    /// # Ok(()) }
    /// ```
    pub async fn from_env() -> Result<Self> {
        Self::from_variables(|key| std::env::var(key).ok()).await
    }

    async fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut builder = Self::builder();
        if let Some(prefix) = variable("LOCKFAST_PREFIX") {
            builder = builder.prefix(prefix);
        }
        // A malformed header comes from another program, and must not prevent locking.
        if let Some(trace) = variable("TRACEPARENT").and_then(|header| header.parse().ok()) {
            builder = builder.trace_id(trace);
        }
        builder.connect(variable("LOCKFAST_URL").as_deref().unwrap_or("memory:")).await
    }

    /// A client with a store of its own inside this process: for tests, and for programs that share locks with no other process.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let locks = Locks::in_memory();
    /// let guard = locks.mutex("account:123").lock().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// If the operating system cannot start a thread; [`Locks::new`] returns an error instead.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(Memory::new())).expect("the operating system has a thread left")
    }
}

impl Builder {
    /// A client of the store behind `url`, with these settings. See [`Locks::connect`].
    pub async fn connect(self, url: &str) -> Result<Locks> {
        let (store, prefix) = open(url, self.count_children).await?;
        self.prefix_if_unset(prefix).build(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn settings_come_from_the_environment() {
        let variable = |key: &str| match key {
            "LOCKFAST_URL" => Some("memory:from-env".to_owned()),
            "LOCKFAST_PREFIX" => Some("mine:".to_owned()),
            _ => None,
        };
        let locks = Locks::from_variables(variable).await.unwrap();
        let guard = locks.mutex("a").lock().await.unwrap();
        let unprefixed = Locks::builder().prefix("").connect("memory:from-env").await.unwrap();
        assert!(unprefixed.mutex("mine:a").is_locked().await.unwrap());
        drop(guard);
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_named_without_the_password_behind_it() {
        let refused = Locks::connect("mysql://root:s3cret@db").await.unwrap_err();
        let text = format!("{refused} {refused:?}");
        assert!(matches!(refused, Error::Invalid(_)) && text.contains("mysql") && text.contains("memory:"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
