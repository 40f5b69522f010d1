//! TLS connections: with a trusted certificate, with one that is not trusted, and without TLS at one end.

use std::process::{Command, Stdio};

use lockfast::{Error, Locks};
use servers::{Certificates, Redis};

use crate::fixture::{Admin, connect, secs, soon};

fn assert_unavailable(error: &Error) {
    assert!(matches!(error, Error::Unavailable { .. }) && !error.to_string().contains("s3cret"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_trusted_server_is_connected_to() {
    let certificates = Certificates::new();
    let server = Redis::options().tls(&certificates, false).start();

    let trusting = format!("{}?ca={}", server.tls_url(), certificates.file("ca.pem"));
    let (ours, theirs) = (connect(&trusting, secs(5)).await, connect(&trusting, secs(5)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let entering = tokio::spawn(async move { theirs.mutex("a").lock().await.unwrap() });
    guard.release().await.unwrap();
    soon(entering).await.unwrap().release().await.unwrap();

    // Signed by an authority that this machine does not know.
    let unknown = Locks::connect(&server.tls_url()).await.unwrap_err();
    assert_unavailable(&unknown);
    assert!(unknown.to_string().to_lowercase().contains("certificate"), "{unknown}");
    // Signed by another authority than the trusted one.
    let other = Certificates::new();
    let stranger = format!("{}?ca={}", server.tls_url(), other.file("ca.pem"));
    assert_unavailable(&Locks::connect(&stranger).await.unwrap_err());
    // The client uses TLS and the server does not; then the other way round.
    let plain = Locks::connect(&format!("rediss://:s3cret@127.0.0.1:{}", server.port())).await.unwrap_err();
    assert_unavailable(&plain);
    let encrypted = server.tls_url().replace("rediss://", "redis://:s3cret@");
    assert_unavailable(&Locks::connect(&encrypted).await.unwrap_err());
}

#[tokio::test]
async fn unusable_certificates_are_refused_before_anything_is_sent() {
    let certificates = Certificates::new();
    let nonsense = certificates.write("nonsense.pem", "no certificate at all");
    for path in [nonsense, certificates.path("missing.pem")] {
        let url = format!("rediss://:s3cret@127.0.0.1:1?ca={}", path.display());
        let refused = Locks::connect(&url).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(text) if text.contains("ca=")), "{path:?}: {refused:?}");
        assert!(!refused.to_string().contains("s3cret"));
    }
}

fn assert_invalid(error: &Error, says: &[&str]) {
    let text = format!("{error} {error:?}");
    assert!(matches!(error, Error::Invalid(_)) && says.iter().all(|word| text.contains(word)), "{says:?}: {text}");
    assert!(!text.contains("s3cret") && !text.contains("PRIVATE KEY"), "{text}");
}

/// An authority, a certificate and its key, as settings of a URL.
fn identity(certificates: &Certificates, name: &str) -> String {
    let file = |name: String| certificates.file(&name);
    format!("ca={}&cert={}&key={}", file("ca.pem".to_owned()), file(format!("{name}.pem")), file(format!("{name}.key")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_demands_a_certificate_gets_ours() {
    let certificates = Certificates::new();
    certificates.sign("client");
    let server = Redis::options().tls(&certificates, true).start();
    let known = format!("{}?{}", server.tls_url(), identity(&certificates, "client"));
    let (ours, theirs) = (connect(&known, secs(5)).await, connect(&known, secs(5)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let entering = tokio::spawn(async move { theirs.mutex("a").lock().await.unwrap() });
    guard.release().await.unwrap();
    soon(entering).await.unwrap().release().await.unwrap();

    let anonymous = format!("{}?ca={}", server.tls_url().replace("//", "//:s3cret@"), certificates.file("ca.pem"));
    assert_invalid(&Locks::connect(&anonymous).await.unwrap_err(), &["demands a certificate", "cert=FILE", "key=FILE"]);
    // Signed by an authority that the server does not know.
    let other = Certificates::new();
    other.sign("client");
    std::fs::copy(certificates.path("ca.pem"), other.path("ca.pem")).unwrap();
    let stranger = format!("{}?{}", server.tls_url().replace("//", "//:s3cret@"), identity(&other, "client"));
    assert_invalid(&Locks::connect(&stranger).await.unwrap_err(), &["does not accept the certificate", "UnknownCA"]);
}

#[tokio::test]
async fn a_server_with_tls_1_2_can_demand_a_certificate_too() {
    let certificates = Certificates::new();
    certificates.sign("client");
    let server = Redis::options().tls(&certificates, true).setting("tls-protocols TLSv1.2").start();
    let known = format!("{}?{}", server.tls_url(), identity(&certificates, "client"));
    Locks::connect(&known).await.unwrap().mutex("a").lock().await.unwrap().release().await.unwrap();
    // TLS 1.2 has no alert for a missing certificate: the server only says that the handshake failed.
    let anonymous = format!("{}?ca={}", server.tls_url(), certificates.file("ca.pem"));
    let refused = Locks::connect(&anonymous).await.unwrap_err();
    assert_unavailable(&refused);
    assert!(refused.to_string().contains("cert=FILE"), "{refused}");
}

#[tokio::test]
async fn unusable_keys_are_refused_with_the_file_and_the_reason() {
    let certificates = Certificates::new();
    certificates.sign("client");
    certificates.sign("other");
    certificates.write("nonsense.pem", "nothing of use");
    certificates.write("broken.key", "-----BEGIN PRIVATE KEY-----\ns3cret!\n-----END PRIVATE KEY-----\n");
    certificates.openssl("pkcs8 -topk8 -in client.key -passout pass:s3cret -out encrypted.key");
    certificates.openssl("ec -in client.key -aes128 -passout pass:s3cret -out encrypted-ec.key");
    let file = |name: &str| certificates.file(name);
    let (cert, key) = (format!("cert={}", file("client.pem")), format!("key={}", file("client.key")));
    let with_cert = |name: &str| format!("{cert}&key={}", file(name));
    let with_key = |name: &str| format!("cert={}&{key}", file(name));
    for (settings, says) in [
        (cert.clone(), &["key=", "belong together"][..]),
        (key.clone(), &["cert=", "belong together"]),
        (with_key("missing.pem"), &["cert=/", "missing.pem", "No such file"]),
        (with_cert("missing.key"), &["key=/", "missing.key", "No such file"]),
        (with_key("nonsense.pem"), &["cert=/", "nonsense.pem", "no certificate in it"]),
        (with_cert("nonsense.pem"), &["key=/", "nonsense.pem", "no private key in it"]),
        (with_cert("broken.key"), &["key=/", "broken.key", "private key"]),
        (with_cert("client.pem"), &["key=/", "client.pem", "no private key in it"]),
        (with_cert("encrypted.key"), &["key=/", "encrypted", "openssl pkey"]),
        (with_cert("encrypted-ec.key"), &["key=/", "encrypted", "openssl pkey"]),
        (with_cert("other.key"), &["other.key", "not the private key of the certificate", "client.pem"]),
    ] {
        let url = format!("rediss://:s3cret@127.0.0.1:1?{settings}");
        assert_invalid(&Locks::connect(&url).await.unwrap_err(), says);
    }
    for setting in ["ca", "cert", "key"] {
        let url = format!("redis://:s3cret@127.0.0.1:1?{setting}={}", file("client.pem"));
        assert_invalid(&Locks::connect(&url).await.unwrap_err(), &[&format!("{setting}= "), "rediss://"]);
    }
}

/// The URLs of the server for a child process: for TLS connections, and for an administrator.
const ENCRYPTED: &str = "LOCKFAST_TEST_ENCRYPTED";
const ADMIN: &str = "LOCKFAST_TEST_ADMIN";
/// The file of the certificates that a process trusts instead of the machine's.
const TRUSTED: &str = "SSL_CERT_FILE";

#[test]
fn a_store_loads_the_machines_certificates_once() {
    let certificates = Certificates::new();
    let server = Redis::options().tls(&certificates, false).start();
    std::fs::copy(certificates.path("ca.pem"), certificates.path("trusted.pem")).unwrap();
    // A child process, because the environment of this one cannot be changed while other tests run in it.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tls::a_process_connects_without_its_certificates", "--nocapture"]);
    child.env(ENCRYPTED, server.tls_url()).env(ADMIN, server.url()).env(TRUSTED, certificates.path("trusted.pem"));
    let ended = child.stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!certificates.path("trusted.pem").exists(), "the process has removed it");
}

/// Does nothing unless it runs in the process of [`a_store_loads_the_machines_certificates_once`].
#[tokio::test]
async fn a_process_connects_without_its_certificates() {
    let Ok(url) = std::env::var(ENCRYPTED) else { return };
    let locks = Locks::connect(&url).await.unwrap();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    std::fs::remove_file(std::env::var(TRUSTED).unwrap()).unwrap();
    Admin::of(&std::env::var(ADMIN).unwrap()).kill_connections();
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    let another = Locks::connect(&url).await.unwrap_err();
    assert!(matches!(another, Error::Unavailable { .. }), "another store loads them itself: {another}");
}
