//! The settings of a connection, from a URL and from `RedisOptions`.

use std::net::TcpListener;

use lockfast::{Error, Locks, RedisOptions};

use crate::fixture::{millis, now, secs};

#[tokio::test]
async fn a_silent_server_is_unavailable_after_connect_timeout() {
    // The kernel accepts connections, and no program reads them.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let begun = now();
    let by_url = Locks::builder().connect(&format!("{url}?connect_timeout=200ms")).await.unwrap_err();
    let by_options = RedisOptions::new().connect_timeout(millis(200)).open(&url).await.unwrap_err();
    assert!(now().since(begun) < secs(3), "sooner than without the setting");
    for error in [by_url, by_options] {
        assert!(matches!(&error, Error::Unavailable { cause, .. } if cause.contains("200ms")), "{error:?}");
    }
}

#[tokio::test]
async fn locks_work_with_every_setting_given() {
    let server = servers::Redis::start();
    let options = RedisOptions::new()
        .replicas(0)
        .connect_timeout(secs(2))
        .response_timeout(secs(1))
        .heartbeat(secs(5))
        .keepalive(secs(30))
        .reconnect_cap(secs(1));
    let by_options = Locks::new(options.open(&server.url()).await.unwrap()).unwrap();
    let all = "replicas=0&connect_timeout=2s&response_timeout=1s&heartbeat=5s&keepalive=30s&reconnect_cap=1s";
    let by_url = Locks::connect(&format!("{}?prefix=lock:&{all}", server.url())).await.unwrap();
    let guard = by_options.mutex("a").lock().await.unwrap();
    assert!(by_url.mutex("a").is_locked().await.unwrap());
    guard.release().await.unwrap();
}
