//! Paths that carry badly: replies in pieces that stop, requests that get lost while pushes come, packets that are late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockfast::Redis;
use lockfast::store::ClientId;
use lockfast::store::{Busy, Scope, Store};

use crate::stage::{Admin, claim, claim_by, connect, hold, millis, now, secs, soon, until};

/// A way whose connections that were opened before `spoil` carry bytes badly from then on.
struct BadWay {
    port: u16,
    opened: Arc<AtomicUsize>,
    spoilt: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Replies come byte by byte, ten of them, and then none.
    Trickle,
    /// Requests get lost, pushes and replies come.
    Deaf,
    /// Requests come 700 ms late, as after two lost packets in a row.
    Late,
}

impl BadWay {
    fn to(server: &servers::Redis, how: How) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (opened, spoilt) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, limit, target) = (Arc::clone(&opened), Arc::clone(&spoilt), server.port());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                near.set_nodelay(true).unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let far = TcpStream::connect(("127.0.0.1", target)).unwrap();
                far.set_nodelay(true).unwrap();
                for is_reply in [false, true] {
                    let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                    if is_reply {
                        std::mem::swap(&mut from, &mut to);
                    }
                    let limit = Arc::clone(&limit);
                    std::thread::spawn(move || {
                        let mut piece = [0; 1 << 16];
                        while let Ok(length @ 1..) = from.read(&mut piece) {
                            let piece = &piece[..length];
                            let sent = match (number < limit.load(Ordering::SeqCst), how, is_reply) {
                                (true, How::Trickle, true) => {
                                    for byte in piece.iter().take(10) {
                                        if to.write_all(&[*byte]).is_err() {
                                            return;
                                        }
                                        std::thread::sleep(millis(40));
                                    }
                                    // Neither end is told.
                                    let _ = from.read_to_end(&mut Vec::new());
                                    return;
                                }
                                (true, How::Deaf, false) => Ok(()),
                                (true, How::Late, false) => {
                                    std::thread::sleep(millis(700));
                                    to.write_all(piece)
                                }
                                _ => to.write_all(piece),
                            };
                            if sent.is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        Self { port, opened, spoilt }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn spoil(&self) {
        self.spoilt.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_connection_that_dies_within_a_reply_is_noticed() {
    let server = servers::Redis::start();
    let way = BadWay::to(&server, How::Trickle);
    let store = Redis::open(&way.url()).await.unwrap();
    soon(hold(&store, &claim("lock:a", secs(60)))).await;
    way.spoil();
    let began = now();
    assert!(store.acquire(&claim("lock:b", secs(60)), Busy::Wait).await.is_err());
    let took = now().since(began);
    assert!(took < secs(3), "it took {took:?}");
}

#[tokio::test]
async fn a_request_that_gets_lost_fails_although_pushes_come() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let way = BadWay::to(&server, How::Deaf);
    let store = Redis::open(&format!("{}?response_timeout=1s", way.url())).await.unwrap();
    let _changes = store.watch(Scope::Client(ClientId(7)));
    until("it is subscribed", async || admin.list("PUBSUB CHANNELS lockfast:push:*").len() == 1).await;
    let channel = admin.list("PUBSUB CHANNELS lockfast:push:*").remove(0);
    way.spoil();
    let one = claim_by(7, "lock:a", secs(30));
    let mut asked = std::pin::pin!(store.acquire(&one, Busy::Wait));
    let began = now();
    let answer = loop {
        match tokio::time::timeout(millis(40), asked.as_mut()).await {
            Ok(answer) => break answer,
            Err(_) => drop(admin.run(&format!("PUBLISH {channel} x"))),
        }
        assert!(now().since(began) < secs(10), "pushes keep a dead connection");
    };
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn a_request_that_is_late_once_does_not_fail() {
    let server = servers::Redis::start();
    let way = BadWay::to(&server, How::Late);
    let locks = connect(&way.url(), secs(30)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    way.spoil();
    assert!(locks.mutex("a").is_locked().await.unwrap());
    guard.release().await.unwrap();
}
