//! The scripts, one for each verb. Those that decide about lines share the rule.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, RedisWrite, ServerErrorKind, Value};
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
pub(super) static ACQUIRE_ALONE: Script = script!("acquire_alone" "kept" "listing" "rule" "acquire");
pub(super) static ACQUIRE: Script = script!("words" "acquire_several" "kept" "listing" "rule" "acquire");
pub(super) static RENEW: Script = script!("renew" "words" "kept" "listing" "rule" "renew_each");
pub(super) static RELEASE_ALONE: Script = script!("release_alone" "kept" "listing" "rule" "release");
pub(super) static RELEASE: Script = script!("words" "release_several" "kept" "listing" "rule" "release");
pub(super) static LOOK: Script = script!("look" "kept" "listing" "rule" "look_at_each");
pub(super) static RECORD: Script = script!("listing" "record");
pub(super) static LIST: Script = script!("listing" "list");
pub(super) static FENCED_SET: Script = script!("fenced_set");
pub(super) static SEED: Script = script!("seed");

fn digest(body: &str) -> String {
    Sha1::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One call of a script, with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    /// A call with so many keys, which come before the arguments.
    pub(super) fn of(script: &'static Script, keys: usize) -> Self {
        let mut command = Cmd::with_capacity(16 + 8 * keys, 256 + 128 * keys);
        command.arg("EVALSHA").arg(&*script.digest).arg(keys);
        Self { script, command }
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.command.write_arg(bytes);
        self
    }

    pub(super) fn number(&mut self, number: impl Into<u64>) -> &mut Self {
        self.command.arg(number.into());
        self
    }

    /// Runs it. A script that the server does not know, because it began anew or somebody flushed it, was not run; so it is
    /// sent whole. Nothing else is ever repeated here.
    pub(super) async fn run(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self.command.query_async(connection).await {
            Err(error) if is_unknown_script(&error) => self.whole().query_async(connection).await,
            answered => answered,
        }
    }

    /// The same with the script itself.
    fn whole(&self) -> Cmd {
        let mut whole = redis::cmd("EVAL");
        whole.arg(self.script.body);
        for arg in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = arg {
                whole.write_arg(bytes);
            }
        }
        whole
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}
