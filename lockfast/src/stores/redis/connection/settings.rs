//! The parameters of a URL: what follows its question mark.

use std::time::Duration;

use crate::error::{Error, Result};

use super::options::RedisOptions;

/// The parameters of one URL, parsed.
#[derive(Default)]
pub(super) struct Settings {
    /// The prefix of names.
    pub(super) prefix: Option<String>,
    pub(super) options: RedisOptions,
    #[cfg(feature = "bench-crate-connection")]
    pub(super) uses_crate_connection: bool,
}

impl Settings {
    pub(super) fn of_query(query: &str) -> Result<Self> {
        let mut settings = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            settings.read_pair(pair)?;
        }
        Ok(settings)
    }

    /// Reads one `key=value`. Errors never show a value that cannot be decoded: it may be the rest of a password.
    fn read_pair(&mut self, pair: &str) -> Result<()> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let options = &mut self.options;
        match key {
            "prefix" => self.prefix = Some(percent_decoded(value)),
            "replicas" => {
                let count = value.parse().map_err(|_| {
                    Error::invalid("replicas= takes the number of replicas that must have a lock, like replicas=1")
                })?;
                options.replicas = Some(count);
            }
            "ca" => options.files.ca = Some(percent_decoded(value).into()),
            "cert" => options.files.cert = Some(percent_decoded(value).into()),
            "key" => options.files.key = Some(percent_decoded(value).into()),
            "connect_timeout" => options.connect_timeout = Some(parse_duration(key, value)?),
            "response_timeout" => options.response_timeout = Some(parse_duration(key, value)?),
            "heartbeat" => options.heartbeat = Some(parse_duration(key, value)?),
            "keepalive" => options.keepalive = Some(parse_duration(key, value)?),
            "reconnect_cap" => options.reconnect_cap = Some(parse_duration(key, value)?),
            #[cfg(feature = "bench-crate-connection")]
            "connection" if value == "crate" => self.uses_crate_connection = true,
            _ if pair.contains('@') => {
                // The text behind an unescaped question mark in a password looks like a setting.
                return Err(Error::invalid("a ? in the user or password of a URL is written %3F"));
            }
            _ => {
                let key: String = key.chars().take(20).collect();
                return Err(Error::invalid(format!(
                    "{key:?} is not a setting of redis:; there are prefix=, replicas=, ca=, cert=, key=, connect_timeout=, \
                     response_timeout=, heartbeat=, keepalive= and reconnect_cap="
                )));
            }
        }
        Ok(())
    }
}

/// Parses a number with a unit; without a unit it is in seconds, as on the command line.
fn parse_duration(key: &str, value: &str) -> Result<Duration> {
    let value = percent_decoded(value);
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let seconds_per_unit = match unit {
        "ms" => Some(0.001),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(seconds_per_unit).map(|(number, per_unit)| number * per_unit);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Error::invalid(format!("{key}= takes a time with its unit, like 250ms, 3s or 1m")))
}

/// Decodes percent-encoding.
fn percent_decoded(value: &str) -> String {
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
    fn a_time_is_a_number_with_a_unit() {
        let cases = [("250ms", 250), ("3s", 3000), ("3", 3000), ("1.5s", 1500), ("1m", 60_000), ("2h", 7_200_000)];
        for (text, millis) in cases {
            assert_eq!(parse_duration("heartbeat", text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "s", "-1s", "s3cret", "3 s", "3x", "1e3s", "1m30", "..", "NaN", "9999999999999999999999h"] {
            let refused = parse_duration("heartbeat", text).unwrap_err();
            assert!(matches!(&refused, Error::Invalid(said) if said.contains("heartbeat= ")), "{text}: {refused:?}");
            assert!(!refused.to_string().contains("s3cret"));
        }
    }
}
