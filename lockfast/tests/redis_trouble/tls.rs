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
    let server = Redis::options().tls(&certificates).start();

    let trusting = format!("{}?ca={}", server.tls_url(), certificates.file("ca.pem"));
    let (ours, theirs) = (connect(&trusting, secs(5)).await, connect(&trusting, secs(5)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.mutex("a").lock().await.unwrap() });
    guard.release().await.unwrap();
    soon(waiter).await.unwrap().release().await.unwrap();

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

fn assert_invalid(error: &Error, expected: &[&str]) {
    let text = format!("{error} {error:?}");
    assert!(
        matches!(error, Error::Invalid(_)) && expected.iter().all(|part| text.contains(part)),
        "{expected:?}: {text}"
    );
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
    let server = Redis::options().mutual_tls(&certificates).start();
    let known = format!("{}?{}", server.tls_url(), identity(&certificates, "client"));
    let (ours, theirs) = (connect(&known, secs(5)).await, connect(&known, secs(5)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.mutex("a").lock().await.unwrap() });
    guard.release().await.unwrap();
    soon(waiter).await.unwrap().release().await.unwrap();

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
    let server = Redis::options().mutual_tls(&certificates).setting("tls-protocols TLSv1.2").start();
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
    for (settings, expected) in [
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
        assert_invalid(&Locks::connect(&url).await.unwrap_err(), expected);
    }
    for setting in ["ca", "cert", "key"] {
        let url = format!("redis://:s3cret@127.0.0.1:1?{setting}={}", file("client.pem"));
        // The space: the message names the setting alone, without the path after it.
        let setting_without_path = format!("{setting}= ");
        assert_invalid(&Locks::connect(&url).await.unwrap_err(), &[&setting_without_path, "rediss://"]);
    }
}

/// The environment variable with the server's URL for TLS connections, for a child process.
const TLS_URL_VAR: &str = "LOCKFAST_TEST_TLS_URL";
/// The environment variable with the server's URL for an administrator, for a child process.
const ADMIN_URL_VAR: &str = "LOCKFAST_TEST_ADMIN_URL";
/// The environment variable with the path of a file of certificates. A process trusts them instead of the machine's.
const CA_FILE_VAR: &str = "SSL_CERT_FILE";

#[test]
fn a_store_loads_the_machines_certificates_once() {
    let certificates = Certificates::new();
    let server = Redis::options().tls(&certificates).start();
    std::fs::copy(certificates.path("ca.pem"), certificates.path("trusted.pem")).unwrap();
    // A child process, because the environment of this one cannot be changed while other tests run in it.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tls::a_child_process_reconnects_after_its_ca_file_is_deleted", "--nocapture"]);
    child.env(TLS_URL_VAR, server.tls_url()).env(ADMIN_URL_VAR, server.url());
    child.env(CA_FILE_VAR, certificates.path("trusted.pem"));
    let output = child.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!certificates.path("trusted.pem").exists(), "the child process has deleted the file");
}

/// Does nothing unless it runs in the process of [`a_store_loads_the_machines_certificates_once`].
#[tokio::test]
async fn a_child_process_reconnects_after_its_ca_file_is_deleted() {
    let Ok(url) = std::env::var(TLS_URL_VAR) else { return };
    let locks = Locks::connect(&url).await.unwrap();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    std::fs::remove_file(std::env::var(CA_FILE_VAR).unwrap()).unwrap();
    Admin::of(&std::env::var(ADMIN_URL_VAR).unwrap()).kill_connections();
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    let another = Locks::connect(&url).await.unwrap_err();
    assert!(matches!(another, Error::Unavailable { .. }), "another store loads the certificates itself: {another}");
}
