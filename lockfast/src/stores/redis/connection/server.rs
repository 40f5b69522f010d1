//! The server of a URL, and the handshake of a connection to it: it has to be a primary, and its ticket counter is seeded.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisError, RedisResult};

use crate::error::{Error, Result};

use super::super::failure::explain;
use super::super::keys::{IDENTITY_KEY, TICKET_COUNTER_KEY};
use super::super::scripts::{self, Call};
use super::Multiplexer;
use super::multiplexer::OnPush;
use super::options::RedisOptions;
use super::settings::Settings;
use super::stream::open_multiplexer;
use super::timing::Timing;
use super::tls::Tls;

/// A server, from a URL: `redis://user:password@host:port/database?prefix=lock:&replicas=1`.
pub(crate) struct Server {
    address: ConnectionInfo,
    tls: Tls,
    /// The address for errors and `Debug`; without user and password.
    label: String,
    pub(crate) timing: Timing,
    /// How many replicas must have a claim before it counts.
    pub(crate) replicas: u32,
    /// The prefix of names, if the URL has one.
    pub(crate) prefix: Option<String>,
    #[cfg(feature = "bench-crate-connection")]
    uses_crate_connection: bool,
}

impl Server {
    pub(crate) fn of_url(url: &str) -> Result<Self> {
        Self::of(url, RedisOptions::default())
    }

    /// As [`of_url`](Self::of_url), with options. Parameters of the URL win over them.
    pub(crate) fn of(url: &str, options: RedisOptions) -> Result<Self> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let settings = Settings::of_query(query)?;
        let options = settings.options.over(options);
        let timing = options.timing()?;
        let unreadable = |_: RedisError| {
            Error::invalid(
                "the URL is not understood; write redis://user:password@host:port/database, or rediss:// for TLS",
            )
        };
        let address = address.into_connection_info().map_err(unreadable)?;
        match address.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(Error::invalid("#insecure is not supported; name the certificates to trust with ca=FILE"));
            }
            ConnectionAddr::TcpTls { .. } => {}
            _ => {
                if let Some(setting) = options.files.first_set() {
                    return Err(Error::invalid(format!(
                        "{setting} is for rediss://, which encrypts; redis:// does not"
                    )));
                }
            }
        }
        let label = format!("{}/{}", address.addr(), address.redis_settings().db());
        Ok(Self {
            address,
            tls: Tls::new(&options.files)?,
            label,
            timing,
            replicas: options.replicas.unwrap_or_default(),
            prefix: settings.prefix,
            #[cfg(feature = "bench-crate-connection")]
            uses_crate_connection: settings.uses_crate_connection,
        })
    }

    /// Opens a connection without a check of the server, which may be a replica.
    pub(crate) async fn open(&self, on_push: OnPush) -> RedisResult<Multiplexer> {
        #[cfg(feature = "bench-crate-connection")]
        if self.uses_crate_connection {
            return Multiplexer::open_crate(&self.address, &self.timing, &self.tls, on_push).await;
        }
        open_multiplexer(&self.address, &self.timing, &self.tls, on_push).await
    }

    /// Opens a connection to a primary; `on_push` gets its pushes. If the ticket counter was last used on another server, the
    /// counter is raised to this server's clock.
    pub(crate) async fn connect(&self, on_push: OnPush) -> Result<NewConnection> {
        let doing = format!("connecting to Redis at {}", self.label);
        let limit = self.timing.connect_timeout;
        let late = |_| Error::unavailable(&doing, format!("no reply within {limit:?}"));
        tokio::time::timeout(limit, self.handshake(&doing, on_push)).await.map_err(late)?
    }

    async fn handshake(&self, doing: &str, on_push: OnPush) -> Result<NewConnection> {
        let failed = |error: RedisError| explain(doing, &error);
        let mut multiplexer = self.open(on_push).await.map_err(failed)?;
        let mut info = redis::pipe();
        info.cmd("INFO").arg("server").cmd("INFO").arg("replication");
        let (server, replication): (String, String) = info.query_async(&mut multiplexer).await.map_err(failed)?;
        if info_field(&replication, "role") == Some("slave") {
            return Err(Error::unavailable(doing, "this server is a replica; locks are taken at its primary"));
        }
        let mut seed = Call::of(&scripts::SEED, 2);
        // The identity is the process and its replication history: the data of another server may have been loaded meanwhile.
        let field = |info, name| info_field(info, name).unwrap_or("unknown");
        let run_id = field(&server, "run_id");
        seed.text(TICKET_COUNTER_KEY)
            .text(IDENTITY_KEY)
            .text(&format!("{run_id} {}", field(&replication, "master_replid")));
        let seeded = seed.run(&multiplexer).await.map_err(failed)?;
        match String::from_redis_value(seeded.clone()).ok().and_then(|text| text.parse().ok()) {
            Some(server_time) => Ok(NewConnection { multiplexer, run_id: run_id.to_owned(), server_time }),
            None => Err(super::super::decode::unexpected(&seeded)),
        }
    }
}

/// A connection after its handshake.
pub(crate) struct NewConnection {
    pub(crate) multiplexer: Multiplexer,
    /// The id of the server process at the other end: every start of a server has another id.
    pub(crate) run_id: String,
    /// The server's time in milliseconds.
    pub(crate) server_time: u64,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// A field of a reply to INFO.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn settings_follow_the_question_mark() {
        let server = Server::of_url("redis://me:s3cret@db:7000/2?prefix=&replicas=2").unwrap();
        assert_eq!((server.prefix.as_deref(), server.replicas), (Some(""), 2));
        assert_eq!(format!("{server:?}"), "db:7000/2");
        assert_eq!(Server::of_url("redis://db?prefix=a%3A%25").unwrap().prefix.as_deref(), Some("a:%"));
    }

    #[test]
    fn limits_have_defaults_and_parameters() {
        assert_eq!(Server::of_url("redis://db").unwrap().timing, Timing::default());
        let all = "connect_timeout=1s&response_timeout=250ms&heartbeat=2s&keepalive=1m&reconnect_cap=0.5s";
        let expected = Timing {
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(250),
            heartbeat: Duration::from_secs(2),
            keepalive: Duration::from_secs(60),
            reconnect_cap: Duration::from_millis(500),
        };
        assert_eq!(Server::of_url(&format!("redis://db?{all}")).unwrap().timing, expected);
        let built = RedisOptions::new()
            .connect_timeout(expected.connect_timeout)
            .response_timeout(expected.response_timeout)
            .heartbeat(expected.heartbeat)
            .keepalive(expected.keepalive)
            .reconnect_cap(expected.reconnect_cap);
        assert_eq!(Server::of("redis://db", built).unwrap().timing, expected);
    }

    #[test]
    fn parameters_of_the_url_win_over_options() {
        let options = RedisOptions::new().connect_timeout(Duration::from_secs(1)).replicas(2);
        let server = Server::of("redis://db?connect_timeout=2s", options.clone()).unwrap();
        assert_eq!((server.timing.connect_timeout, server.replicas), (Duration::from_secs(2), 2));
        assert_eq!(Server::of("redis://db?replicas=0", options).unwrap().replicas, 0);
        // A certificate of the one with the key of the other would never match.
        let pair = RedisOptions::new().cert("/missing/ours.pem").key("/missing/ours.key");
        let half = Server::of("rediss://db?cert=/missing/theirs.pem", pair.clone()).unwrap_err();
        assert!(half.to_string().contains("belong together"), "{half}");
        let ours = Server::of("rediss://db", pair).unwrap_err();
        assert!(ours.to_string().contains("cert=/missing/ours.pem"), "{ours}");
        let plain = Server::of("redis://db", RedisOptions::new().ca("/missing/ca.pem")).unwrap_err();
        assert!(plain.to_string().contains("ca= is for rediss://"), "{plain}");
    }

    #[test]
    fn limits_out_of_their_range_are_refused() {
        let ranges = [
            ("connect_timeout", "50ms", "60s"),
            ("response_timeout", "100ms", "5s"),
            ("heartbeat", "100ms", "1h"),
            ("keepalive", "1s", "2h"),
            ("reconnect_cap", "50ms", "60s"),
        ];
        let outside = [["49ms", "60.1s"], ["99ms", "5.001s"], ["99ms", "61m"], ["999ms", "121m"], ["49ms", "61s"]];
        for ((name, least, most), outside) in ranges.into_iter().zip(outside) {
            let with = |value: &str| Server::of_url(&format!("redis://:s3cret@db?{name}={value}"));
            assert!(with(least).is_ok() && with(most).is_ok(), "{name}");
            for value in outside.into_iter().chain(["0", "0ms", "", "soon", "-1s"]) {
                let refused = with(value).unwrap_err();
                let says = matches!(&refused, Error::Invalid(text) if text.starts_with(name));
                assert!(says && !refused.to_string().contains("s3cret"), "{name}={value}: {refused:?}");
            }
        }
        let built = RedisOptions::new().response_timeout(Duration::from_secs(6));
        let refused = Server::of("redis://db", built).unwrap_err();
        assert_eq!(refused.to_string(), "response_timeout is 6s; it may be from 100ms to 5s");
    }

    #[test]
    fn the_connection_of_the_crate_is_for_benchmarks_alone() {
        let server = Server::of_url("redis://db?connection=crate");
        assert_eq!(server.is_ok(), cfg!(feature = "bench-crate-connection"), "{server:?}");
        assert!(matches!(Server::of_url("redis://db?connection=own"), Err(Error::Invalid(_))));
    }

    #[test]
    fn errors_of_urls_do_not_show_the_password() {
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
