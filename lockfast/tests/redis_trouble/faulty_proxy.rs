//! Faulty networks: replies that stop in the middle, requests that get lost while pushes arrive, requests that are late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockfast::Redis;
use lockfast::store::ClientId;
use lockfast::store::{Busy, Scope, Store};

use crate::fixture::{Admin, claim, claim_of_client, connect, hold, millis, now, secs, soon, until};

/// The delay of TCP after two lost packets in a row.
const LATENESS: std::time::Duration = millis(700);

/// A proxy whose open connections get a fault at `begin_fault`. Later connections work.
struct FaultyProxy {
    port: u16,
    /// The number of connections so far. Each has its number.
    opened: Arc<AtomicUsize>,
    /// Connections with a smaller number have the fault.
    faulty_below: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Ten bytes of a reply arrive, one by one, and then no more.
    Trickle,
    /// Requests get lost; pushes and replies arrive.
    LostRequests,
    /// Requests arrive late by [`LATENESS`].
    LateRequests,
}

impl FaultyProxy {
    fn to(server: &servers::Redis, fault: Fault) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (opened, faulty_below) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, faulty_limit, target) = (Arc::clone(&opened), Arc::clone(&faulty_below), server.port());
        std::thread::spawn(move || {
            for client_side in listener.incoming() {
                let Ok(client_side) = client_side else { return };
                client_side.set_nodelay(true).unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let server_side = TcpStream::connect(("127.0.0.1", target)).unwrap();
                server_side.set_nodelay(true).unwrap();
                for is_reply in [false, true] {
                    let (mut from, mut to) = (client_side.try_clone().unwrap(), server_side.try_clone().unwrap());
                    if is_reply {
                        std::mem::swap(&mut from, &mut to);
                    }
                    let faulty_limit = Arc::clone(&faulty_limit);
                    std::thread::spawn(move || {
                        let mut chunk = [0; 1 << 16];
                        while let Ok(length @ 1..) = from.read(&mut chunk) {
                            let chunk = &chunk[..length];
                            let written = match (number < faulty_limit.load(Ordering::SeqCst), fault, is_reply) {
                                (true, Fault::Trickle, true) => {
                                    for byte in chunk.iter().take(10) {
                                        if to.write_all(&[*byte]).is_err() {
                                            return;
                                        }
                                        std::thread::sleep(millis(40));
                                    }
                                    // The connection stays open at both ends.
                                    let _ = from.read_to_end(&mut Vec::new());
                                    return;
                                }
                                (true, Fault::LostRequests, false) => Ok(()),
                                (true, Fault::LateRequests, false) => {
                                    std::thread::sleep(LATENESS);
                                    to.write_all(chunk)
                                }
                                _ => to.write_all(chunk),
                            };
                            if written.is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        Self { port, opened, faulty_below }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn begin_fault(&self) {
        self.faulty_below.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_connection_that_stops_within_a_reply_is_given_up() {
    let server = servers::Redis::start();
    let proxy = FaultyProxy::to(&server, Fault::Trickle);
    let store = Redis::open(&proxy.url()).await.unwrap();
    soon(hold(&store, &claim("lock:a", secs(60)))).await;
    proxy.begin_fault();
    let started_at = now();
    assert!(store.acquire(&claim("lock:b", secs(60)), Busy::Wait).await.is_err());
    let elapsed = now().since(started_at);
    assert!(elapsed < secs(3), "it took {elapsed:?}");
}

#[tokio::test]
async fn a_lost_request_fails_although_pushes_arrive() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let proxy = FaultyProxy::to(&server, Fault::LostRequests);
    let store = Redis::open(&format!("{}?response_timeout=1s", proxy.url())).await.unwrap();
    let _changes = store.watch(Scope::Client(ClientId(7)));
    until("it is subscribed", async || admin.push_channels().len() == 1).await;
    let channel = admin.push_channels().remove(0);
    proxy.begin_fault();
    let one = claim_of_client(7, "lock:a", secs(30));
    let mut acquiring = std::pin::pin!(store.acquire(&one, Busy::Wait));
    let started_at = now();
    let answer = loop {
        match tokio::time::timeout(millis(40), acquiring.as_mut()).await {
            Ok(answer) => break answer,
            Err(_) => drop(admin.run(&format!("PUBLISH {channel} x"))),
        }
        assert!(now().since(started_at) < secs(10), "pushes keep a dead connection");
    };
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn a_request_that_is_late_once_succeeds() {
    let server = servers::Redis::start();
    let proxy = FaultyProxy::to(&server, Fault::LateRequests);
    let locks = connect(&proxy.url(), secs(30)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    proxy.begin_fault();
    assert!(locks.mutex("a").is_locked().await.unwrap());
    guard.release().await.unwrap();
}
