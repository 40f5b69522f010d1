//! The TLS configuration of one server: trusted authorities and the client certificate.
//!
//! It is built once and shared by all connections to the server, so that a reconnect reads no files and can resume the TLS
//! session of an earlier connection. It never sets anything global to the process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use tokio::sync::{Mutex, oneshot};

use crate::error::{Error, Result};

/// The files that the settings of a server name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// The authorities to trust, instead of those of this machine.
    pub(crate) ca: Option<PathBuf>,
    /// The client certificate, with its chain.
    pub(crate) cert: Option<PathBuf>,
    /// The private key of `cert`.
    pub(crate) key: Option<PathBuf>,
}

impl Files {
    /// The name of the first setting that is set, like `ca=`: all of them need TLS.
    pub(crate) fn first_set(&self) -> Option<&'static str> {
        [(&self.ca, "ca="), (&self.cert, "cert="), (&self.key, "key=")]
            .into_iter()
            .find_map(|(file, setting)| file.as_ref().and(Some(setting)))
    }
}

/// The TLS side of a server.
pub(crate) struct Tls {
    base: Base,
    /// Set by `new` if `ca=` names the authorities, otherwise by the thread that loads those of this machine.
    config: Arc<OnceLock<Arc<ClientConfig>>>,
    /// Held while authorities are loaded, so that concurrent connections load them once.
    loading: Mutex<()>,
}

/// The parts of a configuration without the authorities.
#[derive(Clone)]
struct Base {
    provider: Arc<CryptoProvider>,
    identity: Option<Arc<SingleCertAndKey>>,
}

impl Tls {
    /// Reads the files. The authorities that this machine trusts are loaded later, if they are needed.
    pub(crate) fn new(files: &Files) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let identity = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => Some(Arc::new(read_identity(cert, key, &provider)?)),
            (None, None) => None,
            _ => {
                return Err(Error::invalid(
                    "cert= and key= belong together: name both, the certificate and its private key",
                ));
            }
        };
        let base = Base { provider, identity };
        let config = Arc::<OnceLock<_>>::default();
        if let Some(path) = &files.ca {
            let built = base.config_with(read_authorities(path)?).map_err(Error::invalid)?;
            config.get_or_init(|| Arc::new(built));
        }
        Ok(Self { base, config, loading: Mutex::default() })
    }

    /// The configuration for a connection. The first call may load the authorities that this machine trusts.
    pub(crate) async fn config(&self) -> io::Result<Arc<ClientConfig>> {
        self.config_loading(load_machine_authorities).await
    }

    async fn config_loading(
        &self,
        load: impl FnOnce() -> io::Result<RootCertStore> + Send + 'static,
    ) -> io::Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let _loading = self.loading.lock().await;
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let (base, shared_config) = (self.base.clone(), Arc::clone(&self.config));
        let load = move || {
            let config = base.config_with(load()?).map_err(io::Error::other)?;
            // Order matters: the configuration is stored before it is sent. If the caller has given up, the next one finds it;
            // otherwise a load that takes longer than `connect_timeout` would restart for ever. A failure is not stored.
            Ok(Arc::clone(shared_config.get_or_init(|| Arc::new(config))))
        };
        let (sender, receiver) = oneshot::channel();
        // Loading reads hundreds of files, so not on a thread of the caller's runtime; and not on its blocking pool, because a
        // runtime that is shut down would wait for it.
        std::thread::Builder::new().name("lockfast-roots".to_owned()).spawn(move || drop(sender.send(load())))?;
        receiver.await.map_err(|_| io::Error::other("the thread that loads certificates has ended"))?
    }
}

impl Base {
    /// A configuration that trusts these authorities.
    fn config_with(&self, authorities: RootCertStore) -> std::result::Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(authorities);
        Ok(match &self.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::clone(identity) as _),
            None => builder.with_no_client_auth(),
        })
    }
}

/// The error for a server that refuses the client certificate, or demands one, if the TLS error `text` means that.
pub(crate) fn certificate_refusal(text: &str) -> Option<String> {
    let (_, alert) = text.split_once("received fatal alert: ")?;
    let alert: String = alert.chars().take_while(char::is_ascii_alphanumeric).collect();
    match alert.as_str() {
        "CertificateRequired" => Some(
            "this server demands a certificate of its clients; name one with cert=FILE and its private key with key=FILE"
                .to_owned(),
        ),
        "AccessDenied" | "BadCertificate" | "CertificateExpired" | "CertificateRevoked" | "CertificateUnknown"
        | "DecryptError" | "UnknownCA" | "UnsupportedCertificate" => {
            Some(format!("this server does not accept the certificate of cert=FILE ({alert})"))
        }
        _ => None,
    }
}

/// The certificates in the PEM file that `ca=` names.
fn read_authorities(path: &Path) -> Result<RootCertStore> {
    let wrong = |what: &dyn std::fmt::Display| Error::invalid(format!("ca={}: {what}", path.display()));
    let mut store = RootCertStore::empty();
    for certificate in read_certificates(path).map_err(|error| wrong(&error))? {
        store.add(certificate).map_err(|error| wrong(&error))?;
    }
    Ok(store)
}

/// The certificate of `cert=` with the private key of `key=`. Errors never show a part of the key.
fn read_identity(cert: &Path, key: &Path, provider: &CryptoProvider) -> Result<SingleCertAndKey> {
    let (shown_cert, shown_key) = (format!("cert={}", cert.display()), format!("key={}", key.display()));
    let chain = read_certificates(cert).map_err(|error| Error::invalid(format!("{shown_cert}: {error}")))?;
    let private = read_private_key(key).map_err(|error| Error::invalid(format!("{shown_key}: {error}")))?;
    let private = provider.key_provider.load_private_key(private).map_err(|_| {
        Error::invalid(format!("{shown_key}: a private key of this kind is not known; use ECDSA P-256 or RSA"))
    })?;
    let certified = CertifiedKey::new(chain, private);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
            Ok(SingleCertAndKey::from(certified))
        }
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(Error::invalid(format!("{shown_key}: it is not the private key of the certificate in {shown_cert}")))
        }
        Err(error) => Err(Error::invalid(format!("{shown_cert}: {error}"))),
    }
}

/// The private key in a PEM file.
fn read_private_key(path: &Path) -> std::result::Result<PrivateKeyDer<'static>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&pem);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err("the private key is encrypted, and there is no way to say its password here; name a file that \
                    `openssl pkey` wrote without one and that only this user can read"
            .to_owned());
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        pem::Error::NoItemsFound => "there is no private key in it; it has to be a PEM file".to_owned(),
        // The error of the library may contain a part of the file.
        _ => "the private key in it is damaged".to_owned(),
    })
}

/// All certificates in a PEM file; at least one.
fn read_certificates(path: &Path) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found.map_err(|error| error.to_string())? {
        none if none.is_empty() => Err("there is no certificate in it; it has to be a PEM file".to_owned()),
        some => Ok(some),
    }
}

/// The certificates that this machine trusts.
fn load_machine_authorities() -> io::Result<RootCertStore> {
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
        let tls = Tls::new(&Files::default()).unwrap();
        let here = std::thread::current().id();
        let load = move || {
            assert_ne!(std::thread::current().id(), here);
            Ok(RootCertStore::empty())
        };
        let both =
            futures::join!(tls.config_loading(load), tls.config_loading(|| panic!("the first one is waited for")));
        let (first, second) = (both.0.unwrap(), both.1.unwrap());
        assert!(Arc::ptr_eq(&first, &second), "TLS sessions are shared by the shared configuration");
        assert!(CryptoProvider::get_default().is_none(), "no provider is set for the whole process");
    }

    #[tokio::test]
    async fn a_failed_load_is_not_remembered() {
        let tls = Tls::new(&Files::default()).unwrap();
        let failed = tls.config_loading(|| Err(io::Error::other("no room"))).await.unwrap_err();
        assert_eq!(failed.to_string(), "no room");
        tls.config_loading(|| Ok(RootCertStore::empty())).await.unwrap();
    }

    #[tokio::test]
    async fn a_load_outlives_the_caller_that_gave_up() {
        let tls = Tls::new(&Files::default()).unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let slow = tls.config_loading(move || {
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
        tokio::time::timeout(std::time::Duration::from_secs(30), kept).await.expect("it is stored for the next caller");
    }
}
