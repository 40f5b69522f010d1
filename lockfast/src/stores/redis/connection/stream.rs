//! How a connection comes about: the name, the socket, the encryption, and the first words.
//!
//! The name is looked up each time: after a failover it may mean another server.

use futures::future::select_ok;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisResult};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Multiplexer;
use super::multiplexer::OnPush;
use super::tls::Tls;

/// Whatever bytes go to and fro on.
pub(crate) type Stream = Box<dyn ReadWrite>;

pub(crate) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Opens a connection and logs in. With encryption, `tls` says how.
pub(crate) async fn dial(address: &ConnectionInfo, tls: &Tls, on_push: OnPush) -> RedisResult<Multiplexer> {
    Multiplexer::open(connect(address.addr(), tls).await?, &greetings(address), on_push).await
}

/// The stream alone: name, socket and encryption.
pub(crate) async fn connect(address: &ConnectionAddr, tls: &Tls) -> RedisResult<Stream> {
    match address {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(reach(host, *port).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let connector = TlsConnector::from(tls.config().await?);
            let name = ServerName::try_from(&**host)?.to_owned();
            let stream = reach(host, *port).await?;
            Ok(Box::new(connector.connect(name, stream).await?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        _ => Err((ErrorKind::InvalidClientConfig, "no way to such an address is known here").into()),
    }
}

/// A name may have several addresses, of which not all answer: the first that does.
async fn reach(host: &str, port: u16) -> RedisResult<TcpStream> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err((ErrorKind::InvalidClientConfig, "this name has no address").into());
    }
    let (stream, _) = select_ok(addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asked for in one write: the protocol, with user and password, and the database.
fn greetings(address: &ConnectionInfo) -> Vec<Cmd> {
    let settings = address.redis_settings();
    let mut hello = redis::cmd("HELLO");
    hello.arg("3");
    if let Some(password) = settings.password() {
        hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
    }
    let mut greetings = vec![hello];
    if settings.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(settings.db());
        greetings.push(select);
    }
    greetings
}
