//! Which server, and how a connection to it begins.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult, Value};

use crate::error::{Error, Result};

use super::super::failure::explain;
use super::super::keys::{IDENTITY, TICKETS};
use super::super::scripts::{self, Call};
use super::Multiplexer;
use super::multiplexer::OnPush;
use super::stream::dial;
use super::timing::Timing;
use super::tls::{Files, Tls};

/// A server, from a URL: `redis://user:password@host:port/database?prefix=lock:&replicas=1`.
pub(crate) struct Server {
    address: ConnectionInfo,
    tls: Tls,
    /// For people; without user and password.
    label: String,
    pub(crate) timing: Timing,
    /// How many replicas have to have a claim before it counts.
    pub(crate) replicas: u32,
    /// What the URL says names begin with.
    pub(crate) prefix: Option<String>,
    #[cfg(feature = "bench-crate-connection")]
    is_on_crate: bool,
}

impl Server {
    pub(crate) fn of_url(url: &str) -> Result<Self> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut settings = Settings::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            settings.read(pair)?;
        }
        let unreadable = |_: RedisError| {
            Error::invalid(
                "the URL is not understood; write redis://user:password@host:port/database, or rediss:// for TLS",
            )
        };
        let address = address.into_connection_info().map_err(unreadable)?;
        match address.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(Error::invalid("#insecure is not done here; name the certificates to trust with ca=FILE"));
            }
            ConnectionAddr::TcpTls { .. } => {}
            _ => {
                if let Some(setting) = settings.files.any() {
                    return Err(Error::invalid(format!(
                        "{setting} is for rediss://, which encrypts; redis:// does not"
                    )));
                }
            }
        }
        let label = format!("{}/{}", address.addr(), address.redis_settings().db());
        Ok(Self {
            address,
            tls: Tls::new(&settings.files)?,
            label,
            timing: Timing::default(),
            replicas: settings.replicas,
            prefix: settings.prefix,
            #[cfg(feature = "bench-crate-connection")]
            is_on_crate: settings.is_on_crate,
        })
    }

    /// A new connection, whatever the server is like.
    pub(crate) async fn reach(&self, on_push: OnPush) -> RedisResult<Multiplexer> {
        #[cfg(feature = "bench-crate-connection")]
        if self.is_on_crate {
            return Multiplexer::on_crate(&self.address, &self.tls, on_push).await;
        }
        dial(&self.address, &self.tls, on_push).await
    }

    /// A new connection that locks can be asked for on, of which `on_push` gets the pushes. Tickets go on from the clock if the
    /// server is another one than before.
    pub(crate) async fn connect(&self, on_push: OnPush) -> Result<Connected> {
        let doing = format!("connecting to Redis at {}", self.label);
        let begin = async {
            let mut multiplexer = self.reach(on_push).await?;
            let mut both = redis::pipe();
            both.cmd("INFO").arg("server").cmd("INFO").arg("replication");
            let (server, replication): (String, String) = both.query_async(&mut multiplexer).await?;
            Ok((multiplexer, server, replication))
        };
        let late = || Error::unavailable(&doing, format!("no answer within {:?}", self.timing.connect_timeout));
        let begun = tokio::time::timeout(self.timing.connect_timeout, begin).await.map_err(|_| late())?;
        let (multiplexer, server, replication) = begun.map_err(|error: RedisError| explain(&doing, &error))?;
        if field(&replication, "role") == Some("slave") {
            return Err(Error::unavailable(&doing, "this server is a replica; locks are taken at its primary"));
        }
        let mut seed = Call::of(&scripts::SEED, 2);
        // The process, and the history of what it keeps: another's data may have been put in its place meanwhile.
        let word = |info, name| field(info, name).unwrap_or("unknown");
        let run_id = word(&server, "run_id");
        seed.text(TICKETS).text(IDENTITY).text(&format!("{run_id} {}", word(&replication, "master_replid")));
        let seeded =
            tokio::time::timeout(self.timing.connect_timeout, seed.run(&multiplexer)).await.map_err(|_| late())?;
        match seeded {
            Ok(Value::BulkString(millis)) => {
                let millis = std::str::from_utf8(&millis).ok().and_then(|text| text.parse().ok());
                Ok(Connected { multiplexer, run_id: run_id.to_owned(), millis: millis.ok_or_else(late)? })
            }
            Ok(other) => Err(super::super::answers::odd(&other)),
            Err(error) => Err(explain(&doing, &error)),
        }
    }
}

/// A connection that has just begun.
pub(crate) struct Connected {
    pub(crate) multiplexer: Multiplexer,
    /// Which server it leads to: another each time one is started.
    pub(crate) run_id: String,
    /// The server's time in milliseconds.
    pub(crate) millis: u64,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// What may follow the question mark.
#[derive(Default)]
struct Settings {
    prefix: Option<String>,
    replicas: u32,
    files: Files,
    #[cfg(feature = "bench-crate-connection")]
    is_on_crate: bool,
}

impl Settings {
    fn read(&mut self, pair: &str) -> Result<()> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "prefix" => self.prefix = Some(plain(value)),
            "replicas" => {
                self.replicas = value.parse().map_err(|_| {
                    Error::invalid("replicas= takes the number of replicas that must have a lock, like replicas=1")
                })?;
            }
            "ca" => self.files.ca = Some(plain(value).into()),
            "cert" => self.files.cert = Some(plain(value).into()),
            "key" => self.files.key = Some(plain(value).into()),
            #[cfg(feature = "bench-crate-connection")]
            "connection" if value == "crate" => self.is_on_crate = true,
            _ if pair.contains('@') => {
                // What looks like a setting is the rest of a password.
                return Err(Error::invalid("a ? in the user or password of a URL is written %3F"));
            }
            _ => {
                let key: String = key.chars().take(20).collect();
                return Err(Error::invalid(format!(
                    "{key:?} is not a setting of redis:; there are prefix=, replicas=, ca=, cert= and key="
                )));
            }
        }
        Ok(())
    }
}

/// Without percent signs, as in any URL.
fn plain(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let code = match (first, after) {
            (b'%', [high, low, ..]) => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok())
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_question_mark() {
        let server = Server::of_url("redis://me:s3cret@db:7000/2?prefix=&replicas=2").unwrap();
        assert_eq!((server.prefix.as_deref(), server.replicas), (Some(""), 2));
        assert_eq!(format!("{server:?}"), "db:7000/2");
        assert_eq!(Server::of_url("redis://db?prefix=a%3A%25").unwrap().prefix.as_deref(), Some("a:%"));
    }

    #[test]
    fn the_connection_of_the_crate_is_for_benchmarks_alone() {
        let asked = Server::of_url("redis://db?connection=crate");
        assert_eq!(asked.is_ok(), cfg!(feature = "bench-crate-connection"), "{asked:?}");
        assert!(matches!(Server::of_url("redis://db?connection=own"), Err(Error::Invalid(_))));
    }

    #[test]
    fn what_is_not_understood_is_said_without_the_password() {
        let urls = [
            "redis://me:s3cret@",
            "redis://me:s3cret@db/none",
            "redis://:s3cret@db?timeout=3",
            "redis://x:s3cret@db?replicas=all",
        ];
        for url in urls {
            let refused = Server::of_url(url).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{url}: {refused}");
            assert!(!format!("{refused} {refused:?}").contains("s3cret"), "{refused}");
        }
    }
}
