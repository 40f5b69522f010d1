//! The limits of one connection: how much may be open, and the refusal of requests beyond.

use super::super::super::super::failure;
use super::super::super::{Pool, Server};
use super::*;
use crate::clock::Clock;
use crate::error::Error;

/// The server answers no request that writes until [`resume`].
async fn pause(admin: &Multiplexer) {
    assert_eq!(soon(send(admin, &["CLIENT", "PAUSE", "60000", "WRITE"])).await, Ok(Value::Okay));
}

async fn resume(admin: &Multiplexer) {
    assert_eq!(soon(send(admin, &["CLIENT", "UNPAUSE"])).await, Ok(Value::Okay));
}

/// The error of a request that is refused at once.
fn refusal(reply: impl Future<Output = RedisResult<Value>>) -> RedisError {
    let reply = futures::FutureExt::now_or_never(reply).expect("it is refused at once");
    reply.expect_err("it is refused")
}

/// A connection that takes this number of open requests.
async fn limited(server: &servers::Redis, requests: usize) -> Multiplexer {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    let hello = redis::cmd("HELLO").arg(3).to_owned();
    let limits = Limits { requests, ..Limits::default() };
    Multiplexer::open_within(limits, Box::new(stream), &[hello], Arc::new(drop)).await.unwrap()
}

#[tokio::test]
async fn a_request_beyond_the_limit_is_refused_and_leaves_no_trace() {
    let server = servers::Redis::start();
    let admin = multiplexer_to(server.port(), drop).await;
    let multiplexer = limited(&server, 3).await;
    pause(&admin).await;
    let first = send(&multiplexer, &["INCR", "a"]);
    // The pending reply of a dropped caller counts until the reply arrives.
    drop(send(&multiplexer, &["INCR", "a"]));
    let third = send(&multiplexer, &["INCR", "a"]);
    let error = refusal(send(&multiplexer, &["INCR", "a"]));
    assert!(!failure::retires_connection(&error), "{error}");
    let explained = failure::explain("counting", &error);
    assert!(matches!(&explained, Error::Unavailable { cause, .. } if cause.starts_with("3 requests wait for replies")));
    assert!(explained.is_retryable(), "{explained}");
    assert!(
        !multiplexer.is_retired()
            && multiplexer
                .activity()
                .is_some_and(|activity| (activity.open_requests, activity.sent_requests) == (3, 4))
    );
    resume(&admin).await;
    assert_eq!((soon(first).await, soon(third).await), (Ok(Value::Int(1)), Ok(Value::Int(3))));
    assert_eq!(soon(send(&multiplexer, &["INCR", "a"])).await, Ok(Value::Int(4)));
    echo(&multiplexer, "and so on").await;
}

#[tokio::test]
async fn a_pipeline_is_sent_whole_or_not_at_all() {
    let server = servers::Redis::start();
    let admin = multiplexer_to(server.port(), drop).await;
    let mut multiplexer = limited(&server, 3).await;
    let mut other = multiplexer.clone();
    pause(&admin).await;
    let first = send(&multiplexer, &["INCR", "a"]);
    let mut three = redis::pipe();
    three.incr("a", 1).incr("a", 1).incr("a", 1);
    let refused = futures::FutureExt::now_or_never(three.query_async::<(i64, i64, i64)>(&mut multiplexer));
    assert_eq!(refused.expect("it is refused at once").unwrap_err().kind(), ErrorKind::Client);
    let mut two = redis::pipe();
    two.incr("a", 1).incr("a", 1);
    let mut two = Box::pin(two.query_async::<(i64, i64)>(&mut other));
    assert!(futures::poll!(&mut two).is_pending());
    assert_eq!(refusal(send(&multiplexer, &["INCR", "a"])).kind(), ErrorKind::Client);
    resume(&admin).await;
    assert_eq!((soon(first).await, soon(two).await), (Ok(Value::Int(1)), Ok((2, 3))));
    assert_eq!(soon(three.query_async::<(i64, i64, i64)>(&mut multiplexer)).await, Ok((4, 5, 6)));
}

#[tokio::test]
async fn bytes_that_the_server_does_not_take_are_bounded() {
    // The stream takes 64 bytes until the peer reads: less than any of these requests.
    let (ours, mut theirs) = tokio::io::duplex(64);
    let limits = Limits { bytes: 1_000, ..Limits::default() };
    let multiplexer = Multiplexer::open_within(limits, Box::new(ours), &[], Arc::new(drop)).await.unwrap();
    let (text, mut sent) = ("x".repeat(600), Vec::new());
    redis::cmd("ECHO").arg(&text).write_packed_command(&mut sent);
    let first = send(&multiplexer, &["ECHO", &text]);
    // The driver may have taken these bytes: they count until they are written.
    tokio::task::yield_now().await;
    let second = send(&multiplexer, &["ECHO", &text]);
    for _ in 0..3 {
        let error = refusal(send(&multiplexer, &["ECHO", &text]));
        assert!(error.detail().is_some_and(|why| why.starts_with("1000 bytes wait to be sent")), "{error}");
        tokio::task::yield_now().await;
    }
    assert!(
        !multiplexer.is_retired()
            && multiplexer
                .activity()
                .is_some_and(|activity| (activity.open_requests, activity.sent_requests) == (2, 2))
    );
    let mut received = vec![0; 2 * sent.len()];
    soon(theirs.read_exact(&mut received)).await.unwrap();
    assert_eq!(received, sent.repeat(2));
    soon(theirs.write_all(b"+1\r\n+2\r\n")).await.unwrap();
    let reply = |text: &str| Ok(Value::SimpleString(text.to_owned()));
    assert_eq!((soon(first).await, soon(second).await), (reply("1"), reply("2")));
    // Where no bytes wait to be sent, one request may exceed the limit; after it there is room again.
    let (third, mut sent) = (redis::cmd("ECHO").arg("x".repeat(5_000)).to_owned(), Vec::new());
    third.write_packed_command(&mut sent);
    let third = multiplexer.send(&third);
    let mut received = vec![0; sent.len()];
    soon(theirs.read_exact(&mut received)).await.unwrap();
    assert_eq!(received, sent);
    soon(theirs.write_all(b"+3\r\n")).await.unwrap();
    assert_eq!(soon(third).await, reply("3"));
    let fourth = send(&multiplexer, &["PING"]);
    let mut received = vec![0; PING.len()];
    soon(theirs.read_exact(&mut received)).await.unwrap();
    assert_eq!(received, PING);
    soon(theirs.write_all(b"+4\r\n")).await.unwrap();
    assert_eq!(soon(fourth).await, reply("4"));
}

#[tokio::test]
async fn a_full_connection_is_unavailable_and_goes_on_later() {
    let server = servers::Redis::start();
    let admin = multiplexer_to(server.port(), drop).await;
    let pool = Pool::new(Server::of_url(&server.url()).unwrap(), Clock::boot(), Arc::new(drop));
    let connection = pool.connection().await.unwrap();
    let incr = redis::cmd("INCR").arg("a").to_owned();
    pause(&admin).await;
    let mut open: Vec<_> = (0..100_000).map(|_| Box::pin(connection.command("counting", &incr))).collect();
    for request in &mut open {
        assert!(futures::poll!(request).is_pending());
    }
    let refused = futures::FutureExt::now_or_never(connection.command("counting", &incr));
    let error = refused.expect("it is refused at once").unwrap_err();
    let expected = "100000 requests wait for replies of Redis on this connection";
    assert!(error.is_retryable() && error.to_string().contains(expected), "{error}");
    assert!(!connection.is_retired());
    resume(&admin).await;
    for (count, request) in (1..).zip(open) {
        assert_eq!(soon(request).await.unwrap(), Value::Int(count));
    }
    assert_eq!(soon(connection.command("counting", &incr)).await.unwrap(), Value::Int(100_001));
}
