//! Connecting fails: no server listens, the server does not answer, or it refuses this user.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpListener;

use lockfast::{Error, Locks, Redis};

use crate::fixture::{Admin, connect, now, secs};

const CANARY: &str = "canary-s3cret";

async fn refused(url: &str) -> Error {
    let error = Locks::connect(url).await.map(drop).unwrap_err();
    assert_secret(&error);
    error
}

fn assert_secret(shown: &(impl Debug + ?Sized)) {
    let text = format!("{shown:?} {shown:#?}");
    assert!(!text.contains(CANARY), "{text}");
}

fn assert_invalid(error: &Error, word: &str) {
    assert!(matches!(error, Error::Invalid(text) if text.contains(word)), "{word}: {error:?}");
}

fn assert_unavailable(error: &Error) {
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_missing_or_wrong_password_is_reported_and_never_shown() {
    let server = servers::Redis::options().setting(format!("requirepass {CANARY}")).start();
    let at = |user: &str| format!("redis://{user}127.0.0.1:{}", server.port());
    assert_invalid(&refused(&at("")).await, "password");
    assert_invalid(&refused(&at(":wrong@")).await, "password");
    assert_invalid(&refused(&at("unknown:wrong@")).await, "password");
    assert_invalid(&refused(&at(&format!("unknown:{CANARY}@"))).await, "password");
    let locks = Locks::connect(&at(&format!(":{CANARY}@"))).await.unwrap();
    assert_secret(&locks);
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_secret(&guard);
    assert_secret(&*Redis::open(&at(&format!(":{CANARY}@"))).await.unwrap());
    let mut admin = Admin::of(&at(&format!(":{CANARY}@")));
    // The password changes under a running client.
    admin.run("CONFIG SET requirepass other");
    admin.kill_connections();
    let error = locks.mutex("b").lock_within(secs(1)).await.unwrap_err();
    assert_secret(&error);
    assert!(error.to_string().contains("password"), "{error}");
    assert_secret(&error.to_string());
}

#[tokio::test]
async fn a_password_is_not_shown_when_the_server_repeats_it() {
    // The server answers an unknown command with all its arguments, which include the password.
    let server = servers::Redis::options().setting("rename-command HELLO GREETINGS").start();
    let error = refused(&format!("redis://me:{CANARY}@127.0.0.1:{}", server.port())).await;
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("HELLO")), "{error}");
}

#[tokio::test]
async fn a_password_is_not_shown_when_no_server_is_there() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let error = refused(&format!("redis://me:{CANARY}@127.0.0.1:{port}/0")).await;
    assert_unavailable(&error);
    assert!(error.to_string().contains(&port.to_string()) && !error.to_string().contains(CANARY), "{error}");
    let error = refused(&format!("rediss://me:{CANARY}@127.0.0.1:{port}/0")).await;
    assert_unavailable(&error);
}

#[tokio::test]
async fn a_missing_database_is_reported() {
    let server = servers::Redis::start();
    assert_invalid(&refused(&format!("{}/99", server.url())).await, "database");
    let locks = Locks::connect(&format!("{}/3", server.url())).await.unwrap();
    let _guard = locks.mutex("a").lock().await.unwrap();
    let mut admin = Admin::of(&server.url());
    assert_eq!(admin.number("EXISTS lock:a"), 0);
    admin.run("SELECT 3");
    assert_eq!(admin.number("EXISTS lock:a"), 1);
}

#[tokio::test]
async fn an_error_about_missing_rights_names_the_documentation() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    admin.run(&format!("ACL SETUSER nothing on >{CANARY} ~* &* -@all"));
    admin.run(&format!("ACL SETUSER others on >{CANARY} ~other:* &* +@all"));
    let at = |user: &str| format!("redis://{user}:{CANARY}@127.0.0.1:{}", server.port());
    for user in ["nothing", "others"] {
        let error = refused(&at(user)).await;
        assert!(
            matches!(&error, Error::Unsupported(text) if text.contains("docs/stores/redis.md")),
            "{user}: {error:?}"
        );
    }
    // This user may use some names, and locks another one.
    admin.run(&format!("ACL SETUSER some on >{CANARY} ~lockfast:* ~lock:mine:* &* +@all"));
    let locks = connect(&at("some"), secs(10)).await;
    locks.mutex("mine:a").lock().await.unwrap().release().await.unwrap();
    let error = locks.mutex("a").lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unsupported(_)), "{error:?}");
    assert_secret(&error);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_unavailable() {
    // No part of a host's name may be this long, so that no name server is asked.
    let error = refused(&format!("redis://me:{CANARY}@{}.invalid", "n".repeat(64))).await;
    assert_unavailable(&error);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_seconds() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let started_at = now();
    for scheme in ["redis", "rediss"] {
        let error = refused(&format!("{scheme}://:{CANARY}@{}", listener.local_addr().unwrap())).await;
        assert_unavailable(&error);
    }
    assert!(now().since(started_at) < secs(12), "{:?}", now().since(started_at));
}

#[tokio::test]
async fn a_server_of_another_protocol_is_unavailable() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = [0; 64];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert_unavailable(&refused(&format!("redis://:{CANARY}@{address}")).await);
}
