//! Requests as a connection sends them, and the pushes that confirm some of them.

use redis::{Arg, Cmd, PushKind, Value};

use super::super::parser::push_kind;

/// A push that confirms a subscription, or its end.
pub(crate) struct Confirmation {
    pub(super) kind: PushKind,
    /// Any channel, if the request names none.
    pub(super) channel: Option<Value>,
}

/// One request, as a connection sends it.
pub(crate) trait Request {
    /// Appends the request, encoded for the protocol.
    fn write(&self, bytes: &mut Vec<u8>);

    /// The push that arrives instead of a reply: for requests that subscribe or unsubscribe.
    fn confirmation(&self) -> Option<Box<Confirmation>>;

    /// The request as the connection of the `redis` crate takes it.
    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> Cmd;
}

impl Request for Cmd {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_packed_command(bytes);
    }

    fn confirmation(&self) -> Option<Box<Confirmation>> {
        let mut words = self.args_iter().filter_map(|word| match word {
            Arg::Simple(word) => Some(word),
            _ => None,
        });
        let kind = String::from_utf8_lossy(words.next()?).to_ascii_lowercase();
        let channel = words.next().map(|channel| Value::BulkString(channel.to_vec()));
        kind.ends_with("subscribe").then(|| Box::new(Confirmation { kind: push_kind(kind), channel }))
    }

    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> Cmd {
        self.clone()
    }
}
