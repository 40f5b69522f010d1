//! What Redis, or the way to it, says when it refuses; sorted by what the caller does next.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::error::{Error, Result};

/// The error for the caller, who was `doing` something. Nothing in it comes from the URL.
pub(super) fn explain(doing: &str, error: &RedisError) -> Error {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension => {
            of_script(doing, &format!("{} {}", error.code().unwrap_or(""), error.detail().unwrap_or("")))
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => Error::unsupported(format!(
            "Redis does not let this user do it while {doing}: {}; docs/stores/redis.md has the line that it needs",
            error.detail().unwrap_or("no permission")
        )),
        ErrorKind::Server(ServerErrorKind::BusyLoading) => {
            Error::unavailable(doing, "Redis is loading its data after a start (LOADING); it answers when that is done")
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => {
            Error::unavailable(doing, "this server is a replica now (READONLY); connecting anew to find the primary")
        }
        ErrorKind::Server(ServerErrorKind::MasterDown) => {
            Error::unavailable(doing, "this server is a replica without its primary (MASTERDOWN)")
        }
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot) => {
            Error::unsupported("this server is part of a Redis Cluster, which redis: does not speak to; use one server")
        }
        ErrorKind::AuthenticationFailed => wrong_password(),
        ErrorKind::RESP3NotSupported => {
            Error::unsupported("this server is older than Redis 6, which is too old; use Redis 6.2 or later, or Valkey")
        }
        _ if error.is_timeout() => Error::unavailable(doing, "no answer in time"),
        _ => Error::unavailable(doing, plain(error)),
    }
}

/// The same for an error that a script hands on as text.
pub(super) fn of_script(doing: &str, text: &str) -> Error {
    let says = |word: &str| text.contains(word);
    if says("WRONGTYPE") {
        Error::invalid(format!(
            "something that is no lock stands in Redis where a lock would be kept ({doing}); use another name or prefix"
        ))
    } else if says("LOCKFAST-NEWER") {
        Error::unsupported("what is kept in Redis was written by a newer version of lockfast; use that version")
    } else if says("NOAUTH") || says("WRONGPASS") || says("invalid username-password") {
        wrong_password()
    } else if says("NOPERM") || says("no permissions") || says("can't run this command") {
        Error::unsupported(format!(
            "Redis does not let this user do it while {doing}; docs/stores/redis.md has the line that it needs"
        ))
    } else if says("DB index is out of range") {
        Error::invalid("this Redis has no database with that number; write a smaller one at the end of the URL")
    } else if says("OOM") {
        Error::unavailable(doing, "Redis has reached its maxmemory (OOM); locks need room and the policy noeviction")
    } else if says("BUSY") {
        Error::unavailable(doing, "Redis is busy with somebody's script (BUSY)")
    } else if says("MISCONF") {
        Error::unavailable(doing, "Redis cannot save to its disk and refuses to write (MISCONF)")
    } else if says("READONLY") {
        Error::unavailable(doing, "this server is a replica now (READONLY); connecting anew to find the primary")
    } else if says("LOADING") {
        Error::unavailable(doing, "Redis is loading its data after a start (LOADING); it answers when that is done")
    } else {
        Error::unavailable(doing, text.trim())
    }
}

fn wrong_password() -> Error {
    Error::invalid("Redis does not accept the user or password of the URL; write redis://user:password@host")
}

/// What an input or output error says, without addresses that a URL might have carried secrets in.
fn plain(error: &RedisError) -> String {
    match error.detail() {
        Some(detail) => format!("{} ({detail})", error.category()),
        None => error.to_string(),
    }
}

/// Whether another connection may do better.
pub(super) fn is_of_the_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_timeout()
        || matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
        || error.code() == Some("READONLY")
}

/// Whether the server says, of all or of one of the claims in a script, that it is a replica now.
pub(super) fn is_of_a_replica(answer: &Result<Value>) -> bool {
    let says = |text: &[u8]| text.windows(8).any(|word| word == b"READONLY");
    let is_told = |word: &Value| matches!(word, Value::BulkString(text) if text.starts_with(b"failed ") && says(text));
    match answer {
        Ok(Value::Array(words)) => words.iter().any(is_told),
        Err(Error::Unavailable { cause, .. }) => says(cause.as_bytes()),
        _ => false,
    }
}
