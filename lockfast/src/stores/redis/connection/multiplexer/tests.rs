//! The connection to a real server, and to a peer whose bytes the test writes.

mod bounds;

use std::sync::mpsc;
use std::time::Duration;

use redis::PushKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

async fn multiplexer_to(port: u16, on_push: impl Fn(PushInfo) + Send + Sync + 'static) -> Multiplexer {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut hello = redis::cmd("HELLO");
    hello.arg(3);
    Multiplexer::open(Box::new(stream), &[hello], Arc::new(on_push)).await.unwrap()
}

fn send(multiplexer: &Multiplexer, words: &[&str]) -> Reply {
    let mut command = Cmd::new();
    command.arg(words);
    multiplexer.send(&command)
}

/// The future's result; fails after 20 seconds.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it completes within seconds")
}

/// Sends a text and expects it as the reply.
async fn echo(multiplexer: &Multiplexer, text: &str) {
    let reply = soon(send(multiplexer, &["ECHO", text])).await.unwrap();
    assert_eq!(reply, Value::BulkString(text.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_task_gets_its_own_reply() {
    let server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    let tasks: Vec<_> = (0..300)
        .map(|task| {
            let multiplexer = multiplexer.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    // Some texts are longer than one read or write.
                    let text = format!("{task} {round} {}", "x".repeat(if task % 50 == 0 { 100_000 } else { round }));
                    echo(&multiplexer, &text).await;
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
    let activity = multiplexer.activity().unwrap();
    // One more: the HELLO of the handshake.
    assert_eq!((activity.open_requests, activity.sent_requests), (0, 300 * 20 + 1));
}

#[tokio::test]
async fn a_dropped_request_keeps_its_pending_reply() {
    let server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    drop(send(&multiplexer, &["ECHO", "never sent when it was dropped"]));
    let mut blocking_pop = Box::pin(send(&multiplexer, &["BLPOP", "list", "0.3"]));
    assert!(futures::poll!(&mut blocking_pop).is_pending());
    let after = send(&multiplexer, &["ECHO", "after"]);
    drop(blocking_pop);
    assert_eq!(soon(after).await.unwrap(), Value::BulkString("after".into()));
    echo(&multiplexer, "and so on").await;
}

#[tokio::test]
async fn open_and_later_requests_fail_when_the_server_dies() {
    let mut server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    let open: Vec<_> = (0..10).map(|_| send(&multiplexer, &["BLPOP", "list", "0"])).collect();
    assert!(!multiplexer.is_retired());
    server.kill();
    for reply in open {
        assert!(soon(reply).await.unwrap_err().is_unrecoverable_error());
    }
    soon(multiplexer.retired()).await;
    assert!(multiplexer.is_retired() && multiplexer.activity().is_none());
    assert!(soon(send(&multiplexer, &["PING"])).await.unwrap_err().is_unrecoverable_error());
}

#[tokio::test]
async fn confirmations_come_in_order_and_messages_are_no_replies() {
    let server = servers::Redis::start();
    let admin = multiplexer_to(server.port(), drop).await;
    let rules = ["ACL", "SETUSER", "default", "resetchannels", "&allowed"];
    assert_eq!(soon(send(&admin, &rules)).await.unwrap(), Value::Okay);
    let (sender, pushes) = mpsc::channel();
    let multiplexer = multiplexer_to(server.port(), move |info| sender.send(info).unwrap()).await;
    let requests = [
        send(&multiplexer, &["ECHO", "1"]),
        send(&multiplexer, &["SUBSCRIBE", "allowed"]),
        send(&multiplexer, &["PUBLISH", "allowed", "hello"]),
        send(&multiplexer, &["SUBSCRIBE", "forbidden"]),
        send(&multiplexer, &["ECHO", "2"]),
        send(&multiplexer, &["UNSUBSCRIBE", "allowed"]),
        send(&multiplexer, &["UNSUBSCRIBE", "never subscribed"]),
        send(&multiplexer, &["ECHO", "3"]),
    ];
    let replies = soon(futures::future::join_all(requests)).await;
    let replies: Vec<_> = replies.into_iter().map(|reply| reply.and_then(Value::extract_error)).collect();
    for (index, text) in [(0, "1"), (4, "2"), (7, "3")] {
        assert_eq!(replies[index], Ok(Value::BulkString(text.into())));
    }
    assert!(matches!(replies[1], Ok(Value::Push { kind: PushKind::Subscribe, .. })), "{replies:?}");
    assert_eq!(replies[2], Ok(Value::Int(1)));
    assert!(replies[3].as_ref().is_err_and(|error| error.code() == Some("NOPERM")), "{replies:?}");
    assert!(replies[5..7].iter().all(|reply| matches!(reply, Ok(Value::Push { kind: PushKind::Unsubscribe, .. }))));
    let words = ["allowed", "hello"].map(|word| Value::BulkString(word.into()));
    assert_eq!(pushes.try_recv().unwrap(), PushInfo { kind: PushKind::Message, data: words.to_vec() });
    assert!(pushes.try_recv().is_err());
}

#[tokio::test]
async fn a_confirmation_of_any_kind_shifts_no_later_reply() {
    let server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    let requests: [&[&str]; 9] = [
        &["SUBSCRIBE", "a"],
        &["PSUBSCRIBE", "a*"],
        &["SSUBSCRIBE", "a"],
        &["SUBSCRIBE", "b", "c"],
        &["UNSUBSCRIBE", "b"],
        &["PUNSUBSCRIBE"],
        &["SUNSUBSCRIBE", "a"],
        &["UNSUBSCRIBE"],
        &["unsubscribe", "never subscribed"],
    ];
    for request in requests {
        let (confirmed, after) = (send(&multiplexer, request), send(&multiplexer, &["ECHO", "after"]));
        let confirmed = soon(confirmed).await.unwrap();
        assert!(matches!(confirmed, Value::Push { .. }), "{request:?}: {confirmed:?}");
        assert_eq!(soon(after).await.unwrap(), Value::BulkString("after".into()), "{request:?}");
    }
}

#[tokio::test]
async fn a_confirmation_that_no_request_awaits_is_no_reply() {
    let (multiplexer, mut there) = pair().await;
    let (ping, subscribed) = (send(&multiplexer, &["PING"]), send(&multiplexer, &["SUBSCRIBE", "mine"]));
    for confirmed in ["unsubscribe\r\n$6\r\nothers", "subscribe\r\n$6\r\nothers"] {
        let length = confirmed.find('\r').unwrap();
        there.write_all(format!(">3\r\n${length}\r\n{confirmed}\r\n:0\r\n").as_bytes()).await.unwrap();
    }
    there.write_all(b"+PONG\r\n>3\r\n+subscribe\r\n$6\r\nothers\r\n:1\r\n").await.unwrap();
    there.write_all(b">3\r\n+subscribe\r\n$4\r\nmine\r\n:1\r\n").await.unwrap();
    assert_eq!(soon(ping).await.unwrap(), Value::SimpleString("PONG".to_owned()));
    let Value::Push { kind: PushKind::Subscribe, data } = soon(subscribed).await.unwrap() else {
        panic!("it is confirmed by a push")
    };
    assert_eq!(data[0], Value::BulkString("mine".into()));
}

#[tokio::test]
async fn a_reply_where_a_confirmation_is_due_ends_the_connection() {
    let (multiplexer, mut there) = pair().await;
    let (subscribed, after) = (send(&multiplexer, &["SUBSCRIBE", "a"]), send(&multiplexer, &["PING"]));
    there.write_all(b"+OK\r\n+PONG\r\n").await.unwrap();
    assert_eq!(soon(subscribed).await.unwrap_err().kind(), ErrorKind::Parse);
    assert!(soon(after).await.is_err());
    wait_until_closed(there).await;
}

#[tokio::test]
async fn a_pipeline_is_answered_as_one() {
    let server = servers::Redis::start();
    let mut multiplexer = multiplexer_to(server.port(), drop).await;
    let mut both = redis::pipe();
    both.cmd("SET").arg("a").arg(1).ignore().cmd("INCR").arg("a");
    assert_eq!(both.query_async::<(i64,)>(&mut multiplexer).await, Ok((2,)));
    let in_one: (i64,) = redis::pipe().atomic().cmd("INCR").arg("a").query_async(&mut multiplexer).await.unwrap();
    assert_eq!(in_one, (3,));
    assert_eq!(redis::cmd("GET").arg("a").query_async::<String>(&mut multiplexer).await.unwrap(), "3");
}

/// A multiplexer, and the server's end of its stream.
async fn pair() -> (Multiplexer, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let multiplexer = Multiplexer::open(Box::new(stream), &[], Arc::new(drop)).await.unwrap();
    (multiplexer, listener.accept().await.unwrap().0)
}

/// Waits until the other side has closed the connection.
async fn wait_until_closed(mut there: TcpStream) {
    let mut rest = Vec::new();
    // A close with unread bytes is a reset, which fails the read.
    let _ = soon(there.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn a_reply_that_is_not_resp_ends_the_connection() {
    for nonsense in ["HTTP/1.1 400 Bad Request\r\n\r\n", "$1\r\nxyz\r\n"] {
        let (multiplexer, mut there) = pair().await;
        let (first, second) = (send(&multiplexer, &["PING"]), send(&multiplexer, &["PING"]));
        // The reply before the damage is delivered.
        there.write_all(format!("+PONG\r\n{nonsense}").as_bytes()).await.unwrap();
        assert_eq!(soon(first).await.unwrap(), Value::SimpleString("PONG".to_owned()));
        assert_eq!(soon(second).await.unwrap_err().kind(), ErrorKind::Parse);
        wait_until_closed(there).await;
    }
    let (multiplexer, mut there) = pair().await;
    there.write_all(b"+unasked\r\n").await.unwrap();
    soon(multiplexer.retired()).await;
    wait_until_closed(there).await;
}

#[tokio::test]
async fn a_retired_connection_closes_after_its_open_requests() {
    let (multiplexer, mut there) = pair().await;
    let open = send(&multiplexer, &["PING"]);
    multiplexer.retire();
    assert!(
        multiplexer.is_retired()
            && multiplexer
                .activity()
                .is_some_and(|activity| (activity.open_requests, activity.sent_requests) == (1, 1))
    );
    there.write_all(b"+PONG\r\n").await.unwrap();
    assert!(soon(open).await.is_ok());
    wait_until_closed(there).await;
    let (idle, there) = pair().await;
    idle.retire();
    wait_until_closed(there).await;
}

#[tokio::test]
async fn a_connection_without_handles_closes_despite_open_requests() {
    let (multiplexer, there) = pair().await;
    let other = multiplexer.clone();
    let open = send(&multiplexer, &["PING"]);
    // More than the buffers of the sockets take if the peer does not read.
    let stuck = send(&multiplexer, &["ECHO", &"x".repeat(50_000_000)]);
    tokio::task::yield_now().await;
    drop(multiplexer);
    assert!(!other.is_retired());
    drop(other);
    assert!(soon(open).await.is_err() && soon(stuck).await.is_err());
    wait_until_closed(there).await;
}

#[tokio::test]
async fn an_abort_fails_all_requests_with_its_reason() {
    let (multiplexer, there) = pair().await;
    let open = send(&multiplexer, &["PING"]);
    multiplexer.abort(&io::Error::new(io::ErrorKind::ConnectionAborted, "too late").into());
    assert_eq!(soon(open).await.unwrap_err().to_string(), "too late");
    assert_eq!(soon(send(&multiplexer, &["PING"])).await.unwrap_err().to_string(), "too late");
    wait_until_closed(there).await;
}

#[test]
fn open_requests_fail_when_their_runtime_is_dropped() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (multiplexer, _there) = runtime.block_on(pair());
    let open = send(&multiplexer, &["PING"]);
    drop(runtime);
    assert!(futures::executor::block_on(open).is_err() && multiplexer.is_retired());
}

/// A hundred tasks that send a request, and another as soon as they have its reply. Each ends with its first reply.
fn a_hundred_tasks(multiplexer: &Multiplexer) -> Vec<tokio::task::JoinHandle<RedisResult<Value>>> {
    let send_twice = |multiplexer: Multiplexer| async move {
        let first = send(&multiplexer, &["PING"]).await;
        tokio::spawn(send(&multiplexer, &["PING"]));
        first
    };
    (0..100).map(|_| tokio::spawn(send_twice(multiplexer.clone()))).collect()
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

#[tokio::test]
async fn replies_received_before_the_close_are_delivered() {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let multiplexer = Multiplexer::open(Box::new(ours), &[], Arc::new(drop)).await.unwrap();
    let tasks = a_hundred_tasks(&multiplexer);
    soon(theirs.read_exact(&mut vec![0; 100 * PING.len()])).await.unwrap();
    soon(theirs.write_all(&b"+PONG\r\n".repeat(100))).await.unwrap();
    drop(theirs);
    for first in tasks {
        assert!(soon(first).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn replies_do_not_wait_for_requests_to_be_written() {
    let ((replies, mut write_half), (mut read_half, requests)) = (tokio::io::simplex(1 << 16), tokio::io::simplex(64));
    let multiplexer =
        Multiplexer::open(Box::new(tokio::io::join(replies, requests)), &[], Arc::new(drop)).await.unwrap();
    let tasks = a_hundred_tasks(&multiplexer);
    soon(read_half.read_exact(&mut vec![0; 100 * PING.len()])).await.unwrap();
    soon(write_half.write_all(&b"+PONG\r\n".repeat(100))).await.unwrap();
    for first in tasks {
        assert!(soon(first).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_runtime_that_was_blocked_for_too_long_sends_nothing() {
    let (multiplexer, mut there) = pair().await;
    let late = send(&multiplexer, &["ECHO", "late"]);
    // As long as a request may wait before it is written: no task of this runtime runs meanwhile.
    std::thread::sleep(crate::stores::redis::connection::MAX_RESPONSE_TIMEOUT);
    assert!(soon(late).await.unwrap_err().is_timeout());
    let mut sent = Vec::new();
    soon(there.read_to_end(&mut sent)).await.unwrap();
    assert_eq!(sent, b"");
}
