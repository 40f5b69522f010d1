//! Turns errors of Redis and of the connection into [`Error`]s, sorted by what the caller does next.

use redis::{ErrorKind, RedisError, Value};

use crate::error::{Error, Result};

use super::connection;

/// The error for the caller; `doing` is what failed. It never contains the user or password of a URL.
pub(super) fn explain(doing: &str, error: &RedisError) -> Error {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => explain_text(doing, &text_of_reply(error)),
        ErrorKind::AuthenticationFailed => wrong_password(),
        ErrorKind::RESP3NotSupported => too_old(),
        _ if error.is_timeout() => Error::unavailable(doing, "Redis has not answered in time"),
        _ => explain_connection_error(doing, &text_without_address(error)),
    }
}

/// An error of the network or of TLS.
fn explain_connection_error(doing: &str, text: &str) -> Error {
    match connection::certificate_refusal(text) {
        Some(sentence) => Error::invalid(sentence),
        // Before TLS 1.3, a server sends this alert if it demands a certificate, and for other reasons.
        None if text.contains("received fatal alert: HandshakeFailure") => Error::unavailable(
            doing,
            format!("{text}; a server that demands a certificate wants cert=FILE and key=FILE"),
        ),
        None => Error::unavailable(doing, text),
    }
}

/// The text of an error reply, with its code.
fn text_of_reply(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (code, Some(detail)) => format!("{} {detail}", code.unwrap_or_default()),
        // The first error of a pipeline.
        (_, None) => error.to_string(),
    }
}

/// The error for the text of an error reply, or of an error that a script passes on. Before Redis 7 an error inside a script is
/// wrapped in another, so its code may be anywhere in the text.
pub(super) fn explain_text(doing: &str, text: &str) -> Error {
    let says = |word: &str| text.contains(word);
    let retry_later = |sentence: &str| Error::unavailable(doing, sentence);
    if says("WRONGTYPE") {
        Error::invalid(format!(
            "a key in Redis that a lock would use has a value that is no lock ({doing}); use another name or prefix"
        ))
    } else if says("LOCKFAST-NEWER") {
        Error::unsupported("the locks in Redis were written by a newer version of lockfast; use that version")
    } else if says("NOAUTH") || says("WRONGPASS") || says("invalid username-password") {
        wrong_password()
    } else if says("NOPERM") || says("no permissions") || says("user executing the script") {
        Error::unsupported(format!(
            "Redis does not let this user {} while {doing}; docs/stores/redis.md has the line that it needs",
            denied_action(text)
        ))
    } else if says("nknown command") || says("Unknown Redis command") || says("not allowed from script") {
        // The text is never shown: it repeats the arguments, which may contain a password.
        match text.split(['\'', '`']).nth(1).map(str::to_uppercase).as_deref() {
            Some("HELLO") => too_old(),
            Some(command) if command.len() < 30 => Error::unsupported(format!(
                "this server does not know {command}, which locks need; use Redis 6.2 or later, or Valkey, with that command"
            )),
            _ => Error::unsupported(
                "this server does not know a command that locks need; use Redis 6.2 or later, or Valkey",
            ),
        }
    } else if says("CROSSSLOT") || says("CLUSTERDOWN") || says("TRYAGAIN") || says("cluster node") || is_redirect(text)
    {
        Error::unsupported("this server is part of a Redis Cluster, which redis: does not speak to; use one server")
    } else if says("DB index is out of range") {
        Error::invalid("this Redis has no database with that number; write a smaller one at the end of the URL")
    } else if says("DENIED") {
        Error::unsupported(
            "Redis is in its protected mode and serves only its own machine (DENIED); give it a password, or an address to bind to",
        )
    } else if says("OOM") {
        retry_later("Redis has reached its maxmemory (OOM); locks need room and the policy noeviction")
    } else if says("BUSY") {
        retry_later(
            "Redis is busy with a script (BUSY); it answers when the script ends, or is killed with SCRIPT KILL",
        )
    } else if says("MISCONF") {
        retry_later("Redis cannot save to its disk and refuses to write (MISCONF); its log says why")
    } else if says("NOREPLICAS") {
        retry_later(
            "Redis has fewer replicas than its min-replicas-to-write asks for (NOREPLICAS); it writes when they are back",
        )
    } else if says("READONLY") {
        retry_later("this server is a replica now (READONLY); reconnecting to find the primary")
    } else if says("MASTERDOWN") {
        retry_later("this server is a replica without its primary (MASTERDOWN); reconnecting to find another")
    } else if says("LOADING") {
        retry_later("Redis is loading its data after a start (LOADING); it answers when that is done")
    } else if says("max number of clients") {
        retry_later("Redis has as many connections as its maxclients allows; raise it, or end some of them")
    } else {
        Error::unavailable(doing, format!("Redis said: {}", text.trim().chars().take(200).collect::<String>()))
    }
}

fn is_redirect(text: &str) -> bool {
    text.starts_with("MOVED ") || text.starts_with("ASK ")
}

/// The denied action: newer servers name it after the user, which is not shown.
fn denied_action(text: &str) -> &str {
    let what = text.split_once("no permissions to ").map_or("do it", |(_, what)| what);
    what.split(" script: ").next().unwrap_or(what).trim_end_matches('.')
}

fn too_old() -> Error {
    Error::unsupported(
        "this server does not know HELLO, like all before Redis 6; use Redis 6.2 or later, or Valkey, with that command",
    )
}

fn wrong_password() -> Error {
    Error::invalid("Redis does not accept the user or password of the URL; write redis://user:password@host")
}

/// The text of an error of the connection, without the address, which may contain secrets of a URL.
fn text_without_address(error: &RedisError) -> String {
    match error.detail() {
        // An error of this client: its detail is a full sentence.
        Some(detail) if error.kind() == ErrorKind::Client => detail.to_owned(),
        Some(detail) => format!("{} ({detail})", error.category()),
        None => error.to_string(),
    }
}

/// Whether another connection may succeed, so that this one is to be retired.
pub(super) fn retires_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_timeout()
        || ["READONLY", "MASTERDOWN"].iter().any(|word| text_of_reply(error).contains(word))
}

/// Whether the server is a replica now: an error of the whole script, or of one of its claims, says READONLY.
pub(super) fn is_of_a_replica(reply: &Result<Value>) -> bool {
    let says = |text: &[u8]| text.windows(8).any(|word| word == b"READONLY");
    let has_failed =
        |word: &Value| matches!(word, Value::BulkString(text) if text.starts_with(b"failed ") && says(text));
    match reply {
        Ok(Value::Array(words)) => words.iter().any(has_failed),
        Err(Error::Unavailable { cause, .. }) => says(cause.as_bytes()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as a server sends it.
    fn server_error(line: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        reply.extract_error().unwrap_err()
    }

    /// The error as the reply to a command, to a script since Redis 7, and to a script before that.
    fn in_all_styles(line: &str) -> [RedisError; 3] {
        [
            server_error(line),
            server_error(&format!("{line} script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:12.")),
            server_error(&format!(
                "ERR Error running script (call to f_6b1bf486): @user_script:12: @user_script: 12: -{line}"
            )),
        ]
    }

    #[test]
    fn errors_are_recognised_in_commands_and_in_scripts() {
        let temporary = [
            ("OOM command not allowed when used memory > 'maxmemory'.", "noeviction"),
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "SCRIPT KILL"),
            ("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.", "disk"),
            ("NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
            ("READONLY You can't write against a read only replica.", "primary"),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "primary"),
            ("LOADING Redis is loading the dataset in memory", "when that is done"),
            ("ERR max number of clients reached", "maxclients"),
            ("ERR something new", "Redis said: "),
        ];
        for (line, word) in temporary {
            for error in in_all_styles(line) {
                let explained = explain("renewing", &error);
                assert!(matches!(&explained, Error::Unavailable { cause, .. } if cause.contains(word)), "{explained}");
            }
        }
        let permanent = [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "another name or prefix"),
            ("NOAUTH Authentication required.", "redis://user:password@host"),
            ("WRONGPASS invalid username-password pair or user is disabled.", "redis://user:password@host"),
            ("NOPERM this user has no permissions to run the 'publish' command", "run the 'publish' command while"),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                "access one of the keys",
            ),
            ("ERR The user executing the script can't run this command or subcommand", "docs/stores/redis.md"),
            ("ERR The user executing the script can't access at least one of the keys", "docs/stores/redis.md"),
            ("ERR unknown command 'evalsha', with args beginning with: '1' ", "EVALSHA"),
            ("ERR unknown command `HELLO`, with args beginning with: `3`", "HELLO"),
            ("ERR Unknown Redis command called from script", "Valkey"),
            ("ERR DB index is out of range", "database"),
            ("DENIED Redis is running in protected mode because protected mode is enabled", "its own machine"),
            ("MOVED 3999 127.0.0.1:6381", "Cluster"),
            ("CROSSSLOT Keys in request don't hash to the same slot", "Cluster"),
            ("CLUSTERDOWN Hash slot not served", "Cluster"),
            ("ERR Script attempted to access a non local key in a cluster node", "Cluster"),
        ];
        for (line, word) in permanent {
            // A server redirects commands, never the commands inside a script.
            let styles = if is_redirect(line) { 1 } else { 3 };
            for error in in_all_styles(line).into_iter().take(styles) {
                let explained = explain("renewing", &error);
                assert!(!explained.is_retryable() && explained.to_string().contains(word), "{line}: {explained}");
            }
        }
    }

    #[test]
    fn a_connection_to_a_replica_is_retired() {
        for line in ["READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down"] {
            assert!(in_all_styles(line).iter().all(retires_connection), "{line}");
        }
        assert!(!in_all_styles("OOM command not allowed").iter().any(retires_connection));
        let replica =
            server_error("ERR Error running script (call to f_1): @user_script: 5: -READONLY You can't write");
        assert!(is_of_a_replica(&Err(explain("renewing", &replica))));
    }

    #[test]
    fn errors_show_neither_user_nor_password() {
        let lines = [
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'us3r' 's3cret' ",
            "ERR unknown command 'AUTH', with args beginning with: 'us3r' 's3cret' ",
            "ERR unknown command `AUTH`, with args beginning with: `us3r`, `s3cret`, ",
            "ERR unknown command AUTH us3r s3cret",
            "NOPERM User us3r has no permissions to run the 'publish' command",
            "NOPERM ACL failure in script: User us3r has no permissions to run the 'publish' command",
        ];
        for error in lines.into_iter().flat_map(in_all_styles) {
            let explained = explain("connecting", &error);
            let shown = format!("{explained} {explained:?}");
            assert!(!shown.contains("s3cret") && !shown.contains("us3r"), "{shown}");
        }
    }
}
