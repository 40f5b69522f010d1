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
    open: Mutex<Vec<[TcpStream; 2]>>,
    attempts: AtomicUsize,
    /// Connections with a smaller number carry nothing any more, and do not end either.
    silenced: AtomicUsize,
}

impl Proxy {
    pub(crate) fn to(server: &servers::Redis) -> Self {
        Self::slow(server, Duration::ZERO)
    }

    /// Delays each piece by this much, in each direction.
    pub(crate) fn slow(server: &servers::Redis, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(server.port()),
            open: Mutex::default(),
            attempts: AtomicUsize::new(0),
            silenced: AtomicUsize::new(0),
        });
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Some(shared)) = (near, weak.upgrade()) else { return };
                let number = shared.attempts.fetch_add(1, Ordering::SeqCst);
                let port = shared.target.load(Ordering::SeqCst);
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    to.set_nodelay(true).unwrap();
                    let weak = Arc::downgrade(&shared);
                    let is_silenced =
                        move || weak.upgrade().is_some_and(|shared| number < shared.silenced.load(Ordering::SeqCst));
                    std::thread::spawn(move || {
                        forward(&mut from, &mut to, delay, &is_silenced);
                        if !is_silenced() {
                            let _ = to.shutdown(Shutdown::Both);
                            let _ = from.shutdown(Shutdown::Both);
                        }
                    });
                }
                shared.open.lock().unwrap().push([near, far]);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Leads new connections to this port. No process listens on port 1.
    pub(crate) fn redirect(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// Refuses new connections, and ends those that are open.
    pub(crate) fn disconnect(&self) {
        self.redirect(1);
        self.cut();
    }

    /// The number of connections since the last cut.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }

    /// The number of connections that were ever begun, also in vain.
    pub(crate) fn attempts(&self) -> usize {
        self.shared.attempts.load(Ordering::SeqCst)
    }

    /// Ends all connections. New ones work.
    pub(crate) fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..).flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Drops all bytes of the open connections from now on, without an error at either end. New connections work.
    pub(crate) fn silence(&self) {
        self.shared.silenced.store(self.attempts(), Ordering::SeqCst);
    }
}

/// Forwards each piece after `delay`, until either end is gone.
fn forward(from: &mut TcpStream, to: &mut TcpStream, delay: Duration, is_silenced: &impl Fn() -> bool) {
    let mut piece = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        std::thread::sleep(delay);
        if !is_silenced() && to.write_all(&piece[..length]).is_err() {
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
