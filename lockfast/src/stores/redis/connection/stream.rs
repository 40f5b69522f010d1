//! Opens the stream of a connection: resolves the name, connects the socket, and negotiates TLS. Then logs in.
//!
//! The name is resolved for every connection: after a failover it may lead to another server.

use std::io;
use std::time::Duration;

use futures::future::select_ok;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisResult};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Multiplexer;
use super::multiplexer::OnPush;
use super::timing::Timing;
use super::tls::Tls;

/// A TCP, TLS or Unix stream.
pub(crate) type Stream = Box<dyn ReadWrite>;

pub(crate) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Opens a connection and logs in. `tls` is for `rediss://`.
pub(crate) async fn open_multiplexer(
    address: &ConnectionInfo,
    timing: &Timing,
    tls: &Tls,
    on_push: OnPush,
) -> RedisResult<Multiplexer> {
    Multiplexer::open(connect(address.addr(), timing, tls).await?, &login_commands(address), on_push).await
}

/// Opens the stream alone: name, socket and TLS.
pub(crate) async fn connect(address: &ConnectionAddr, timing: &Timing, tls: &Tls) -> RedisResult<Stream> {
    match address {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(connect_tcp(host, *port, timing).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let connector = TlsConnector::from(tls.config().await?);
            let name = ServerName::try_from(&**host)?.to_owned();
            let stream = connect_tcp(host, *port, timing).await?;
            Ok(Box::new(connector.connect(name, stream).await?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        _ => Err((ErrorKind::InvalidClientConfig, "addresses of this kind are not supported").into()),
    }
}

/// Connects to the first address of the name that accepts: a name may have several, of which not all do.
async fn connect_tcp(host: &str, port: u16, timing: &Timing) -> RedisResult<TcpStream> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err((ErrorKind::InvalidClientConfig, "this name has no address").into());
    }
    let (stream, _) = select_ok(addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)))).await?;
    stream.set_nodelay(true)?;
    set_dead_peer_timeouts(&stream, timing)?;
    Ok(stream)
}

/// Makes the kernel detect a dead peer: on an idle connection by keep-alive, and on Linux also while written bytes are not
/// acknowledged, which the kernel would otherwise retransmit for a quarter of an hour.
fn set_dead_peer_timeouts(stream: &TcpStream, timing: &Timing) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(timing.keepalive);
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "macos", windows))]
    // The kernel counts whole seconds and refuses 0, which a third of the shortest keep-alive would be.
    let keepalive = keepalive.with_interval((timing.keepalive / 3).max(Duration::from_secs(1))).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(timing.response_timeout))?;
    Ok(())
}

/// The first commands, sent in one write: the protocol with user and password, and the database.
fn login_commands(address: &ConnectionInfo) -> Vec<Cmd> {
    let settings = address.redis_settings();
    let mut hello = redis::cmd("HELLO");
    hello.arg("3");
    if let Some(password) = settings.password() {
        hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
    }
    let mut commands = vec![hello];
    if settings.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(settings.db());
        commands.push(select);
    }
    commands
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_has_the_limits_of_its_server() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let usual = Timing::default();
        let short = Timing { response_timeout: Duration::from_millis(250), keepalive: Duration::from_secs(1), ..usual };
        for (timing, interval) in [(usual, 5), (short, 1)] {
            let stream = connect_tcp("127.0.0.1", port, &timing).await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), timing.keepalive);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(interval));
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(timing.response_timeout));
        }
    }
}
