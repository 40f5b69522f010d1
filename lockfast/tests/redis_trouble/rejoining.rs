//! Many waiters that have to send a request at once, over a slow network: they do not wait for each other's replies.

use std::time::Duration;

use lockfast::{Error, Outcome};
use tokio::sync::oneshot;

use crate::fixture::{connect, count_waiters, millis, now, secs, soon, until};
use crate::proxy::Proxy;

/// The delay in each direction.
const DELAY: Duration = millis(5);
/// Long enough that no renewal is due within a test.
const TTL: Duration = secs(120);
/// The waiters. Their round trips one after the other would take four seconds.
const WAITERS: usize = 400;
/// All waiters have their replies within this time, if they do not wait for each other.
const MAX_WAIT: Duration = millis(2_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_of_a_sealed_name_learn_of_it_together() {
    let server = servers::Redis::start();
    let proxy = Proxy::with_delay(&server, DELAY);
    let (ours, theirs) = (connect(&server.url(), TTL).await, connect(&proxy.url(), TTL).await);
    let (finish, may_finish) = oneshot::channel::<()>();
    let once = ours.once("a");
    let first = tokio::spawn(async move {
        once.run(async |_| {
            may_finish.await.unwrap();
            Ok::<_, Error>("paid")
        })
        .await
    });
    until("it runs", async || ours.mutex("a").is_locked().await.unwrap()).await;
    let others: Vec<_> = (0..WAITERS)
        .map(|_| {
            let once = theirs.once("a");
            tokio::spawn(async move { once.run(async |_| Ok::<_, Error>("paid twice")).await })
        })
        .collect();
    until("all wait", async || count_waiters(&ours, "a").await == WAITERS).await;
    finish.send(()).unwrap();
    soon(first).await.unwrap().unwrap();
    let sealed_at = now();
    for other in others {
        assert_eq!(soon(other).await.unwrap().unwrap(), Outcome::AlreadyDone("paid".into()));
    }
    assert!(now().since(sealed_at) < MAX_WAIT, "{:?}", now().since(sealed_at));
}
