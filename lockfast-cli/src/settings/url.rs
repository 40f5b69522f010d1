//! A store's URL: completed with the parameters of config files, and without its secrets for messages.

use std::collections::BTreeMap;

/// Parameters after the `?` whose values may be shown. `key` is the path of a file, whose content is never read here.
const SHOWN_PARAMETERS: [&str; 10] = [
    "ca",
    "cert",
    "connect_timeout",
    "heartbeat",
    "keepalive",
    "key",
    "prefix",
    "reconnect_cap",
    "replicas",
    "response_timeout",
];

/// Adds these parameters to the URL of a Redis server, except those that the URL has already, and those for TLS if the URL is
/// without TLS.
/// Any other URL stays as it is.
pub(super) fn with_parameters(url: String, parameters: &BTreeMap<&'static str, String>) -> String {
    let is_encrypted = match url.split_once(':') {
        Some(("redis", _)) => false,
        Some(("rediss", _)) => true,
        _ => return url,
    };
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let has_parameter = |key: &str| query.split('&').any(|pair| pair.split('=').next() == Some(key));
    let is_added = |key: &str| match key {
        // A certificate and its key come from the same source, or they would not fit.
        "cert" | "key" => is_encrypted && !has_parameter("cert") && !has_parameter("key"),
        "ca" => is_encrypted && !has_parameter(key),
        _ => !has_parameter(key),
    };
    let mut completed = url.clone();
    for (key, value) in parameters.iter().filter(|(key, _)| is_added(key)) {
        completed += if completed.contains('?') { "&" } else { "?" };
        completed += &format!("{key}={}", percent_encoded(value));
    }
    completed
}

/// Percent-encodes every byte that has a meaning in a URL.
fn percent_encoded(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    value.bytes().map(one).collect()
}

/// The URL without its possible secrets: the password before the `@`, and most values after the `?`.
pub(crate) fn redacted_url(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let text = match scheme {
        // These have no password, and a path may contain an `@`.
        "memory" | "sqlite" => url.to_owned(),
        _ => match rest.strip_prefix("//") {
            Some(rest) => format!("{scheme}://{}", redact(rest)),
            None if rest.is_empty() => redact(scheme),
            None => format!("{scheme}:{}", redact(rest)),
        },
    };
    crate::out::escape_controls(&text)
}

fn redact(rest: &str) -> String {
    // The last `@` of all: a password may contain a slash, a `?` or an `@` that is not escaped.
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (format!("{}:***@", login.split_once(':').map_or(login, |(user, _)| user)), rest),
        None => (String::new(), rest),
    };
    let Some((address, query)) = rest.split_once('?') else { return login + rest };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if SHOWN_PARAMETERS.contains(&key) => pair.to_owned(),
        _ => format!("{}=***", pair.split('=').next().unwrap_or_default()),
    });
    format!("{login}{address}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        assert_eq!(redacted_url("sqlite:/var/lib/locks.db"), "sqlite:/var/lib/locks.db");
        assert_eq!(redacted_url("redis://db:6379/1"), "redis://db:6379/1");
        assert_eq!(redacted_url("redis://:s3cret@db/1"), "redis://:***@db/1");
        assert_eq!(
            redacted_url("postgres://me:s3cret@db/locks?password=t0p&sslmode=x"),
            "postgres://me:***@db/locks?password=***&sslmode=***"
        );
        assert_eq!(redacted_url("redis://me:s3/c@ret@db"), "redis://me:***@db");
        assert_eq!(redacted_url("redis://me:s3?c&r#et@db/1?replicas=1&x=y"), "redis://me:***@db/1?replicas=1&x=***");
        assert_eq!(redacted_url("redis:me:s3cret@db"), "redis:me:***@db");
        assert_eq!(redacted_url("rediss://db?ca=/etc/ca.pem&prefix="), "rediss://db?ca=/etc/ca.pem&prefix=");
        assert_eq!(redacted_url("sqlite:/home/ann@work/locks.db"), "sqlite:/home/ann@work/locks.db");
        assert_eq!(redacted_url("redis://a:s3cret@one,b:t0p@two"), "redis://a:***@two");
    }
}
