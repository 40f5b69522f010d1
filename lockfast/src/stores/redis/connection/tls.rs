//! What an encrypted connection trusts: the TLS configuration of one server.
//!
//! It is made once and shared by all connections to the server, so that a reconnect reads no files and can resume the TLS
//! session of an earlier connection. Nothing of it is global to the process.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{Mutex, oneshot};

use crate::error::{Error, Result};

/// The TLS side of a server.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    /// Set at the beginning if the authorities are named, otherwise by the thread that loads those of this machine.
    config: Arc<OnceLock<Arc<ClientConfig>>>,
    /// Held while they are loaded, so that connections that begin together load them once.
    loading: Mutex<()>,
}

impl Tls {
    /// Trusts the authorities of the file `ca`, or else those of this machine, which are not read yet.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Self> {
        let tls =
            Self { provider: Arc::new(ring::default_provider()), config: Arc::default(), loading: Mutex::default() };
        if let Some(path) = ca {
            let config = configured(&tls.provider, authorities(path)?).map_err(Error::invalid)?;
            tls.config.get_or_init(|| Arc::new(config));
        }
        Ok(tls)
    }

    /// The configuration for a connection. The first call may have to load the certificates that this machine trusts.
    pub(crate) async fn config(&self) -> io::Result<Arc<ClientConfig>> {
        self.config_trusting(of_this_machine).await
    }

    async fn config_trusting(
        &self,
        load: impl FnOnce() -> io::Result<RootCertStore> + Send + 'static,
    ) -> io::Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let _only_one = self.loading.lock().await;
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let (provider, kept) = (Arc::clone(&self.provider), Arc::clone(&self.config));
        let load = move || {
            let config = configured(&provider, load()?).map_err(io::Error::other)?;
            // Order matters: kept before it is told. A caller that gave up meanwhile leaves it to the next one; otherwise
            // a load that takes longer than `connect_timeout` would begin anew for ever. A failure is not kept.
            Ok(Arc::clone(kept.get_or_init(|| Arc::new(config))))
        };
        let (tell, told) = oneshot::channel();
        // Hundreds of files are read: not on a thread of the caller's runtime. A thread of our own, because a runtime that
        // is shut down would wait for one of its blocking pool.
        std::thread::Builder::new().name("lockfast-roots".to_owned()).spawn(move || drop(tell.send(load())))?;
        told.await.map_err(|_| io::Error::other("the thread that loads certificates has ended"))?
    }
}

fn configured(provider: &Arc<CryptoProvider>, trusted: RootCertStore) -> std::result::Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(trusted).with_no_client_auth())
}

/// The certificates in the PEM file that `ca=` names.
fn authorities(path: &Path) -> Result<RootCertStore> {
    let wrong = |what: &dyn std::fmt::Display| Error::invalid(format!("ca={}: {what}", path.display()));
    let mut store = RootCertStore::empty();
    for certificate in certificates(path).map_err(|error| wrong(&error))? {
        store.add(certificate).map_err(|error| wrong(&error))?;
    }
    Ok(store)
}

/// All certificates in a PEM file; at least one.
fn certificates(path: &Path) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found.map_err(|error| error.to_string())? {
        none if none.is_empty() => Err("there is no certificate in it; it has to be a PEM file".to_owned()),
        some => Ok(some),
    }
}

/// The certificates that this machine trusts.
fn of_this_machine() -> io::Result<RootCertStore> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(io::Error::other(error));
    }
    let mut store = RootCertStore::empty();
    for certificate in found.certs {
        store.add(certificate).map_err(io::Error::other)?;
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn authorities_are_loaded_once_on_another_thread() {
        let tls = Tls::new(None).unwrap();
        let here = std::thread::current().id();
        let load = move || {
            assert_ne!(std::thread::current().id(), here);
            Ok(RootCertStore::empty())
        };
        let both =
            futures::join!(tls.config_trusting(load), tls.config_trusting(|| panic!("the first one is waited for")));
        let (first, second) = (both.0.unwrap(), both.1.unwrap());
        assert!(Arc::ptr_eq(&first, &second), "with it, TLS sessions are shared");
        assert!(CryptoProvider::get_default().is_none(), "nothing is set for the whole process");
    }

    #[tokio::test]
    async fn a_failed_load_is_not_remembered() {
        let tls = Tls::new(None).unwrap();
        let failed = tls.config_trusting(|| Err(io::Error::other("no room"))).await.unwrap_err();
        assert_eq!(failed.to_string(), "no room");
        tls.config_trusting(|| Ok(RootCertStore::empty())).await.unwrap();
    }

    #[tokio::test]
    async fn a_load_outlives_the_caller_that_gave_up() {
        let tls = Tls::new(None).unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let slow = tls.config_trusting(move || {
            gone.recv().unwrap();
            Ok(RootCertStore::empty())
        });
        assert!(futures::poll!(Box::pin(slow)).is_pending());
        go.send(()).unwrap();
        let kept = async {
            while tls.config.get().is_none() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), kept).await.expect("it is kept for the next caller");
    }
}
