//! Merges flags, environment and config files into one set of settings: flag > environment > `./lockfast.toml` > the user's
//! config > `/etc/lockfast/config.toml`, key by key.
//!
//! Never shows a password: a URL leaves this module only as [`Settings::store`], for connecting, and as
//! [`redacted_url`], for people.

mod source;
mod url;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lockfast::{Builder, Error, Locks, Retry};

use crate::args::{Globals, LogFormat};
use crate::exit::{Exit, Failure};

use source::Source;
pub(crate) use url::redacted_url;

/// The settings of all sources, merged.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The store's URL; may contain a password.
    pub(crate) store: String,
    pub(crate) prefix: Option<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew_every: Option<Duration>,
    pub(crate) name: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) retry: Option<Retry>,
    pub(crate) log_format: LogFormat,
}

/// The store when no source names one.
const DEFAULT_STORE: &str = "sqlite:";
/// The lease when no source sets one: that of the library.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The process's inputs from which the sources are read; tests bring their own.
pub(crate) struct Inputs<'a> {
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    /// The config files that may exist, the most important first.
    pub(crate) files: Vec<PathBuf>,
    /// Reads the first line of standard input.
    pub(crate) stdin: &'a mut dyn FnMut() -> std::io::Result<String>,
}

impl Settings {
    /// Reads all sources. A wrong setting ends the program with [`Exit::Config`].
    pub(crate) fn load(globals: &Globals) -> Result<Self, Failure> {
        // Order matters: checked first, because a variable that cannot be read would count as unset, and another store would
        // be used.
        if let Some(key) = unreadable_variable(std::env::vars_os()) {
            return Err(Failure::new(Exit::Config, format!("reading {key}: it is not UTF-8; write it in UTF-8")));
        }
        // An empty variable counts as unset, except for the prefix, which may be empty.
        let env = |key: &str| std::env::var(key).ok().filter(|value| !value.is_empty() || key == "LOCKFAST_PREFIX");
        if let Some(file) = env("LOCKFAST_RECORD") {
            check_recording(&file)?;
        }
        let mut stdin = first_line_of_stdin;
        Self::resolve(globals, Inputs { env: &env, files: default_files(&env), stdin: &mut stdin })
    }

    pub(crate) fn resolve(globals: &Globals, inputs: Inputs<'_>) -> Result<Self, Failure> {
        Self::merge(globals, inputs).map_err(|message| Failure::new(Exit::Config, message))
    }

    fn merge(globals: &Globals, inputs: Inputs<'_>) -> Result<Self, String> {
        let mut sources = vec![Source::of_flags(globals), Source::of_env(inputs.env)?];
        let named_file = globals.config.clone().or_else(|| (inputs.env)("LOCKFAST_CONFIG").map(PathBuf::from));
        match named_file {
            Some(file) => sources.push(Source::of_file(&file)?.ok_or_else(|| {
                format!("reading the config file {}: there is no such file; check --config", file.display())
            })?),
            None => {
                for file in &inputs.files {
                    sources.extend(Source::of_file(file)?);
                }
            }
        }
        let merged = sources.into_iter().reduce(Source::over).unwrap_or_default();
        let store = match merged.store {
            Some(source) => source.read(inputs.stdin)?,
            None => DEFAULT_STORE.to_owned(),
        };
        Ok(Self {
            store: url::with_parameters(store, &merged.redis),
            prefix: merged.prefix,
            ttl: merged.ttl,
            renew_every: merged.renew_every,
            name: merged.name,
            labels: merged.labels.unwrap_or_default().into_iter().collect(),
            retry: merged.retry,
            log_format: merged.log_format.unwrap_or_default(),
        })
    }

    /// The lease of a command with this `--ttl`.
    pub(crate) fn ttl_with_flag(&self, flag: Option<Duration>) -> Duration {
        flag.or(self.ttl).unwrap_or(DEFAULT_TTL)
    }

    /// A builder of clients with these settings.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Locks::builder();
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        if let Some(ttl) = self.ttl {
            builder = builder.ttl(ttl);
        }
        if let Some(span) = self.renew_every {
            builder = builder.renew_every(span);
        }
        if let Some(name) = &self.name {
            builder = builder.note(name);
        }
        if let Some(retry) = self.retry {
            builder = builder.retry(retry);
        }
        // A broken header from the caller's environment must not prevent locking.
        if let Some(trace) = std::env::var("TRACEPARENT").ok().and_then(|header| header.parse().ok()) {
            builder = builder.trace_id(trace);
        }
        self.labels.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
    }

    /// A client of the store.
    pub(crate) async fn locks(&self) -> Result<Locks, Failure> {
        self.connect(self.builder()).await
    }

    /// A client of the store, made by `builder`.
    pub(crate) async fn connect(&self, builder: Builder) -> Result<Locks, Failure> {
        builder.connect(&self.store).await.map_err(|error| self.connect_failure(&error))
    }

    /// The failure when the store cannot be opened.
    fn connect_failure(&self, error: &Error) -> Failure {
        let doing = format!("opening the store {}", redacted_url(&self.store));
        match error {
            Error::Invalid(_) | Error::Unsupported(_) => Failure::new(
                Exit::Config,
                format!("{doing}: {error} (--store, LOCKFAST_URL or a config file say which)"),
            ),
            _ => Failure::from_error(doing, error),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { prefix, ttl, .. } = self;
        f.debug_struct("Settings")
            .field("store", &redacted_url(&self.store))
            .field("prefix", prefix)
            .field("ttl", ttl)
            .finish_non_exhaustive()
    }
}

/// Checks the recording before the store is opened, so that its error is not taken for one of the store.
fn check_recording(file: &str) -> Result<(), Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    // The same mode as in the library, which opens the file again.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(file) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Failure::new(Exit::Config, format!("reading LOCKFAST_RECORD: cannot write to {file}: {error}")))
        }
    }
}

/// The name of a `LOCKFAST_` variable whose value is not UTF-8, if there is one.
fn unreadable_variable(mut variables: impl Iterator<Item = (OsString, OsString)>) -> Option<String> {
    variables.find_map(|(key, value)| {
        let key = key.into_string().ok().filter(|key| key.starts_with("LOCKFAST_"))?;
        value.to_str().is_none().then_some(key)
    })
}

/// The config files in their usual places, the most important first.
fn default_files(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let home = || env("HOME").map(|home| PathBuf::from(home).join(".config"));
    let user = env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).or_else(home);
    let user = user.map(|dir| dir.join("lockfast/config.toml"));
    [Some("lockfast.toml".into()), user, Some("/etc/lockfast/config.toml".into())].into_iter().flatten().collect()
}

/// Reads one line and not a byte more: the rest belongs to the child.
fn first_line_of_stdin() -> std::io::Result<String> {
    use std::io::Read;
    let mut stdin = unbuffered_stdin()?;
    let mut line = Vec::new();
    let mut byte = [0];
    while stdin.read(&mut byte)? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).map_err(|_| std::io::Error::other("it is not UTF-8"))
}

#[cfg(unix)]
fn unbuffered_stdin() -> std::io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    Ok(std::io::stdin().as_fd().try_clone_to_owned()?.into())
}

#[cfg(not(unix))]
fn unbuffered_stdin() -> std::io::Result<std::io::Stdin> {
    Ok(std::io::stdin())
}

#[cfg(test)]
mod tests;
