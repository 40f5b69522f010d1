//! A TCP proxy in front of a server, which a test redirects, slows down, cuts or makes silent.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A proxy. When it is dropped, its connections end and it accepts no more.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: AtomicU16,
    /// Both ends of each connection since the last cut.
    open_connections: Mutex<Vec<[TcpStream; 2]>>,
    /// The number of connections that were ever attempted. Each has its number.
    attempts: AtomicUsize,
    /// Connections with a smaller number are silent: all bytes are dropped, and the connections stay open.
    silenced_below: AtomicUsize,
}

impl Proxy {
    pub(crate) fn to(server: &servers::Redis) -> Self {
        Self::with_delay(server, Duration::ZERO)
    }

    /// Delays each chunk by this much, in each direction.
    pub(crate) fn with_delay(server: &servers::Redis, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(server.port()),
            open_connections: Mutex::default(),
            attempts: AtomicUsize::new(0),
            silenced_below: AtomicUsize::new(0),
        });
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for client_side in listener.incoming() {
                let (Ok(client_side), Some(shared)) = (client_side, weak.upgrade()) else { return };
                let number = shared.attempts.fetch_add(1, Ordering::SeqCst);
                let port = shared.target.load(Ordering::SeqCst);
                let Ok(server_side) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&client_side, &server_side), (&server_side, &client_side)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    to.set_nodelay(true).unwrap();
                    let weak = Arc::downgrade(&shared);
                    let is_silenced = move || {
                        weak.upgrade().is_some_and(|shared| number < shared.silenced_below.load(Ordering::SeqCst))
                    };
                    std::thread::spawn(move || {
                        forward(&mut from, &mut to, delay, &is_silenced);
                        if !is_silenced() {
                            let _ = to.shutdown(Shutdown::Both);
                            let _ = from.shutdown(Shutdown::Both);
                        }
                    });
                }
                shared.open_connections.lock().unwrap().push([client_side, server_side]);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Connects new connections to this port from now on. No process listens on port 1.
    pub(crate) fn redirect(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// Refuses new connections, and ends all open connections.
    pub(crate) fn disconnect(&self) {
        self.redirect(1);
        self.cut();
    }

    /// The number of connections since the last cut.
    pub(crate) fn open_connections(&self) -> usize {
        self.shared.open_connections.lock().unwrap().len()
    }

    /// The number of connections that were ever attempted, also without success.
    pub(crate) fn connection_attempts(&self) -> usize {
        self.shared.attempts.load(Ordering::SeqCst)
    }

    /// Ends all connections. New ones work.
    pub(crate) fn cut(&self) {
        for stream in self.shared.open_connections.lock().unwrap().drain(..).flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Drops all bytes of the open connections from now on, without an error at either end. New connections work.
    pub(crate) fn silence(&self) {
        self.shared.silenced_below.store(self.connection_attempts(), Ordering::SeqCst);
    }
}

/// Forwards each chunk after `delay`, until either end is gone.
fn forward(from: &mut TcpStream, to: &mut TcpStream, delay: Duration, is_silenced: &impl Fn() -> bool) {
    let mut chunk = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        std::thread::sleep(delay);
        if !is_silenced() && to.write_all(&chunk[..length]).is_err() {
            return;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.redirect(1);
    }
}
