//! The whole suite as a user with the rights that locks need and no others.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lockfast::Redis;
use lockfast::conformance::{Subject, Time};
use lockfast::store::Store;

use crate::fixture::Admin;
use crate::minimal::{COMMANDS, create_user};

/// The whole suite as that user. The cases' names begin with random digits, or with such digits in braces.
struct AsUser(String);

impl AsUser {
    async fn new() -> Self {
        Self(format!("redis://app:pw@127.0.0.1:{}", Self::server().port()))
    }

    fn server() -> &'static servers::Redis {
        static SERVER: OnceLock<servers::Redis> = OnceLock::new();
        SERVER.get_or_init(|| {
            let server = servers::Redis::start();
            create_user(&mut Admin::of(&server.url()), "app", "~lock:* ~[0-9a-f]* ~{*", COMMANDS);
            server
        })
    }
}

#[async_trait]
impl Subject for AsUser {
    async fn open(&self) -> Arc<dyn Store> {
        Redis::open(&self.0).await.expect("the server was just started")
    }

    async fn advance(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

impl Drop for AsUser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_nothing_was_denied(&mut Admin::of(&Self::server().url()));
        }
    }
}

fn assert_nothing_was_denied(admin: &mut Admin) {
    let log = admin.run("ACL LOG");
    assert_eq!(log, redis::Value::Array(Vec::new()), "denied");
}

lockfast::conformance!(suite, AsUser::new());
