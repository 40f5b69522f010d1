//! One source of settings: the flags, the environment, or one file. Settings that it does not have come from the next source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockfast::Retry;
use serde::{Deserialize, Deserializer};

use crate::args::{Globals, LogFormat, parse_label};
use crate::duration;

/// Where to find the store's URL.
#[derive(Clone, PartialEq)]
pub(super) enum UrlSource {
    Url(String),
    /// The first line of this file.
    File(PathBuf),
    /// The first line of standard input.
    Stdin,
}

impl UrlSource {
    pub(super) fn read(self, stdin: &mut dyn FnMut() -> std::io::Result<String>) -> Result<String, String> {
        let (text, origin) = match self {
            Self::Url(url) => return Ok(url),
            Self::File(file) => {
                let origin = format!("the file {}", file.display());
                (std::fs::read_to_string(file), origin)
            }
            Self::Stdin => (stdin(), "standard input".to_owned()),
        };
        let text = text.map_err(|error| format!("reading the store's URL from {origin}: {error}"))?;
        match text.lines().next().map(str::trim) {
            Some(line) if !line.is_empty() => Ok(line.to_owned()),
            _ => Err(format!("reading the store's URL from {origin}: its first line is empty; write the URL there")),
        }
    }
}

/// The settings of one source; `None` where it has none.
#[derive(Clone, Default)]
pub(super) struct Source {
    pub(super) store: Option<UrlSource>,
    pub(super) prefix: Option<String>,
    pub(super) ttl: Option<Duration>,
    pub(super) renew_every: Option<Duration>,
    pub(super) name: Option<String>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) retry: Option<Retry>,
    pub(super) log_format: Option<LogFormat>,
    /// Parameters for the URL of a Redis server, where it does not have them itself.
    pub(super) redis: BTreeMap<&'static str, String>,
}

impl Source {
    /// The settings of `self`, and those of `below` where `self` has none.
    pub(super) fn over(self, below: Self) -> Self {
        let mut redis = below.redis;
        redis.extend(self.redis);
        Self {
            store: self.store.or(below.store),
            prefix: self.prefix.or(below.prefix),
            ttl: self.ttl.or(below.ttl),
            renew_every: self.renew_every.or(below.renew_every),
            name: self.name.or(below.name),
            labels: self.labels.or(below.labels),
            retry: self.retry.or(below.retry),
            log_format: self.log_format.or(below.log_format),
            redis,
        }
    }

    pub(super) fn of_flags(globals: &Globals) -> Self {
        let source = |url: &String| if url == "-" { UrlSource::Stdin } else { UrlSource::Url(url.clone()) };
        Self {
            store: globals.store.as_ref().map(source),
            prefix: globals.prefix.clone(),
            log_format: globals.log_format,
            ..Self::default()
        }
    }

    pub(super) fn of_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let span = |key: &str| match env(key) {
            Some(text) => duration::parse(&text).map(Some).map_err(|message| format!("reading {key}: {message}")),
            None => Ok(None),
        };
        let labels = |text: String| text.split(',').map(parse_label).collect::<Result<_, _>>();
        let log_format = |text: String| match text.as_str() {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("reading LOCKFAST_LOG_FORMAT: {text:?} is not one of: text, json")),
        };
        Ok(Self {
            store: env("LOCKFAST_URL")
                .map(UrlSource::Url)
                .or_else(|| env("LOCKFAST_URL_FILE").map(|file| UrlSource::File(file.into()))),
            prefix: env("LOCKFAST_PREFIX"),
            ttl: span("LOCKFAST_TTL")?,
            renew_every: span("LOCKFAST_RENEW_EVERY")?,
            name: env("LOCKFAST_NAME"),
            labels: env("LOCKFAST_LABELS")
                .map(labels)
                .transpose()
                .map_err(|message| format!("reading LOCKFAST_LABELS: {message}, and commas between several"))?,
            retry: None,
            log_format: env("LOCKFAST_LOG_FORMAT").map(log_format).transpose()?,
            redis: BTreeMap::new(),
        })
    }

    /// `None` when there is no such file.
    pub(super) fn of_file(file: &Path) -> Result<Option<Self>, String> {
        match std::fs::read_to_string(file) {
            Ok(text) => Self::of_text(&text, file).map(Some),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(format!("reading the config file {}: {error}", file.display())),
        }
    }

    pub(super) fn of_text(text: &str, file: &Path) -> Result<Self, String> {
        let config: ConfigFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
            format!("{}:{line}: {}", file.display(), error.message().replace('\n', " "))
        })?;
        let beside = |path: PathBuf| file.parent().map_or(path.clone(), |dir| dir.join(&path));
        let store = match (config.store, config.store_file) {
            (Some(_), Some(_)) => {
                return Err(format!("{}: both store and store_file are set; keep one of them", file.display()));
            }
            (url, path) => url.map(UrlSource::Url).or(path.map(&beside).map(UrlSource::File)),
        };
        Ok(Self {
            store,
            prefix: config.prefix,
            ttl: config.ttl.map(|span| span.0),
            renew_every: config.renew_every.map(|span| span.0),
            name: config.name,
            labels: config.labels,
            retry: config.retry.map(Retry::from),
            log_format: config.log_format,
            redis: config.redis.map(|redis| redis.parameters(&beside)).unwrap_or_default(),
        })
    }
}

/// A config file, as parsed. Every key is in `lockfast.example.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    store: Option<String>,
    store_file: Option<PathBuf>,
    prefix: Option<String>,
    ttl: Option<Span>,
    renew_every: Option<Span>,
    name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    retry: Option<RetryTable>,
    log_format: Option<LogFormat>,
    redis: Option<RedisTable>,
}

/// The table `[redis]`: parameters that the URL of a Redis server may have too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisTable {
    replicas: Option<u32>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    connect_timeout: Option<Span>,
    response_timeout: Option<Span>,
    heartbeat: Option<Span>,
    keepalive: Option<Span>,
    reconnect_cap: Option<Span>,
}

impl RedisTable {
    /// The parameters in the form of a URL. A command under a lock gets that URL and may have another working directory, so
    /// paths are absolute.
    fn parameters(self, beside: &dyn Fn(PathBuf) -> PathBuf) -> BTreeMap<&'static str, String> {
        let file = |path: Option<PathBuf>| {
            let path = beside(path?);
            Some(std::path::absolute(&path).unwrap_or(path).display().to_string())
        };
        let span = |span: Option<Span>| Some(format!("{}ms", span?.0.as_millis()));
        [
            ("replicas", self.replicas.map(|count| count.to_string())),
            ("ca", file(self.ca)),
            ("cert", file(self.cert)),
            ("key", file(self.key)),
            ("connect_timeout", span(self.connect_timeout)),
            ("response_timeout", span(self.response_timeout)),
            ("heartbeat", span(self.heartbeat)),
            ("keepalive", span(self.keepalive)),
            ("reconnect_cap", span(self.reconnect_cap)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
    }
}

/// The table `[retry]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryTable {
    count: Option<usize>,
    base: Option<Span>,
    max: Option<Span>,
    jitter: Option<bool>,
}

impl From<RetryTable> for Retry {
    /// Without a count, it retries for ever.
    fn from(table: RetryTable) -> Self {
        let default = Self::default();
        Self {
            count: table.count,
            base: table.base.map_or(default.base, |span| span.0),
            max: table.max.map_or(default.max, |span| span.0),
            jitter: table.jitter.unwrap_or(default.jitter),
        }
    }
}

/// `"1m30s"`, or a number of seconds.
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a duration: seconds, or text like \"1m30s\"")]
        enum Either {
            Text(String),
            Integer(u32),
            Float(f64),
        }
        let text = match Either::deserialize(deserializer)? {
            Either::Text(text) => text,
            Either::Integer(seconds) => seconds.to_string(),
            Either::Float(seconds) => seconds.to_string(),
        };
        duration::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}
