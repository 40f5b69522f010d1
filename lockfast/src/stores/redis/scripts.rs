//! The scripts, one for each verb. Those that decide about lines share the rule.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use sha1::{Digest, Sha1};

/// A script, and what the server knows it by.
pub(super) struct Script {
    body: &'static str,
    digest: LazyLock<String>,
}

macro_rules! script {
    ($($file:literal)+) => {{
        const BODY: &str = concat!($(include_str!(concat!("lua/", $file, ".lua"))),+);
        Script { body: BODY, digest: LazyLock::new(|| digest(BODY)) }
    }};
}

// What most locks need comes first in its script, before the rule: functions that nobody calls cost time too.
pub(super) static ACQUIRE: Script = script!("acquire_at_once" "kept" "rule" "acquire");
pub(super) static RENEW: Script = script!("renew" "kept" "rule" "renew_each");
pub(super) static RELEASE: Script = script!("release_at_once" "kept" "rule" "release");
pub(super) static LOOK: Script = script!("look" "kept" "rule" "look_at_each");
pub(super) static RECORD: Script = script!("record");
pub(super) static LIST: Script = script!("list");
pub(super) static FENCED_SET: Script = script!("fenced_set");
pub(super) static SEED: Script = script!("seed");

fn digest(body: &str) -> String {
    Sha1::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One call of a script, with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    keys: usize,
    words: Vec<Word>,
}

enum Word {
    Text(String),
    Bytes(bytes::Bytes),
    Fixed(&'static str),
}

impl Call {
    pub(super) fn of(script: &'static Script) -> Self {
        Self { script, keys: 0, words: Vec::new() }
    }

    /// One more key; all keys come before the arguments.
    pub(super) fn key(&mut self, key: impl Into<String>) -> &mut Self {
        self.keys += 1;
        self.words.push(Word::Text(key.into()));
        self
    }

    pub(super) fn text(&mut self, text: impl Into<String>) -> &mut Self {
        self.words.push(Word::Text(text.into()));
        self
    }

    pub(super) fn fixed(&mut self, text: &'static str) -> &mut Self {
        self.words.push(Word::Fixed(text));
        self
    }

    pub(super) fn bytes(&mut self, bytes: bytes::Bytes) -> &mut Self {
        self.words.push(Word::Bytes(bytes));
        self
    }

    pub(super) fn number(&mut self, number: impl Into<u64>) -> &mut Self {
        self.text(number.into().to_string())
    }

    /// Runs it. A script that the server does not know, because it began anew or somebody flushed it, was not run; so it is
    /// sent whole. Nothing else is ever repeated here.
    pub(super) async fn run(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        let known = self.command("EVALSHA", &self.script.digest).query_async(connection).await;
        match known {
            Err(error) if is_unknown_script(&error) => {
                self.command("EVAL", self.script.body).query_async(connection).await
            }
            answered => answered,
        }
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys);
        for word in &self.words {
            match word {
                Word::Text(text) => command.arg(text),
                Word::Bytes(bytes) => command.arg(&bytes[..]),
                Word::Fixed(text) => command.arg(*text),
            };
        }
        command
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}
