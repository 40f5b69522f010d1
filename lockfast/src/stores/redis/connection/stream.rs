//! How a connection comes about: the name, the socket, the encryption, and the first words.
//!
//! The name is looked up each time: after a failover it may mean another server.

use std::sync::Arc;

use futures::future::select_ok;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Multiplexer;
use super::multiplexer::OnPush;

/// Whatever bytes go to and fro on.
pub(crate) type Stream = Box<dyn ReadWrite>;

pub(crate) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Opens a connection and says who we are. With encryption, `authorities` are trusted, or else those of this machine.
pub(crate) async fn dial(
    address: &ConnectionInfo,
    authorities: Option<&Arc<RootCertStore>>,
    on_push: OnPush,
) -> RedisResult<Multiplexer> {
    Multiplexer::open(connect(address.addr(), authorities).await?, &greetings(address), on_push).await
}

/// The stream alone: name, socket and encryption.
pub(crate) async fn connect(address: &ConnectionAddr, authorities: Option<&Arc<RootCertStore>>) -> RedisResult<Stream> {
    match address {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(reach(host, *port).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let trusted = match authorities {
                Some(authorities) => Arc::clone(authorities),
                None => Arc::new(of_this_machine()?),
            };
            let settings = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
            let name = ServerName::try_from(&**host)?.to_owned();
            let stream = reach(host, *port).await?;
            Ok(Box::new(TlsConnector::from(Arc::new(settings)).connect(name, stream).await?))
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

/// The certificates in a PEM file.
pub(crate) fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        store.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    Ok(store)
}

fn of_this_machine() -> RedisResult<RootCertStore> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(RedisError::from(std::io::Error::other(error)));
    }
    let mut store = RootCertStore::empty();
    for certificate in found.certs {
        store.add(certificate)?;
    }
    Ok(store)
}
