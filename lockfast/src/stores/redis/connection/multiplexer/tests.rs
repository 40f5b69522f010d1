//! The connection on a real server, and on one that says what the test wants.

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

fn ask(multiplexer: &Multiplexer, words: &[&str]) -> Answer {
    let mut command = Cmd::new();
    command.arg(words);
    multiplexer.ask(&command)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes about in seconds")
}

async fn echo(multiplexer: &Multiplexer, text: &str) {
    let said = soon(ask(multiplexer, &["ECHO", text])).await.unwrap();
    assert_eq!(said, Value::BulkString(text.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_each_get_their_own_answer() {
    let server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    let tasks: Vec<_> = (0..300)
        .map(|task| {
            let multiplexer = multiplexer.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    // Some of them longer than is read or written at once.
                    let text = format!("{task} {round} {}", "x".repeat(if task % 50 == 0 { 100_000 } else { round }));
                    echo(&multiplexer, &text).await;
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
    let pulse = multiplexer.pulse().unwrap();
    assert_eq!((pulse.open, pulse.asked), (0, 300 * 20 + 1));
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_any_more_keeps_its_place() {
    let server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    drop(ask(&multiplexer, &["ECHO", "never sent when it was dropped"]));
    let mut waits = Box::pin(ask(&multiplexer, &["BLPOP", "list", "0.3"]));
    assert!(futures::poll!(&mut waits).is_pending());
    let after = ask(&multiplexer, &["ECHO", "after"]);
    drop(waits);
    assert_eq!(soon(after).await.unwrap(), Value::BulkString("after".into()));
    echo(&multiplexer, "and so on").await;
}

#[tokio::test]
async fn all_that_is_open_fails_when_the_server_dies_and_so_does_what_is_asked_later() {
    let mut server = servers::Redis::start();
    let multiplexer = multiplexer_to(server.port(), drop).await;
    let asked: Vec<_> = (0..10).map(|_| ask(&multiplexer, &["BLPOP", "list", "0"])).collect();
    assert!(!multiplexer.is_left());
    server.kill();
    for answer in asked {
        assert!(soon(answer).await.unwrap_err().is_unrecoverable_error());
    }
    soon(multiplexer.left()).await;
    assert!(multiplexer.is_left() && multiplexer.pulse().is_none());
    assert!(soon(ask(&multiplexer, &["PING"])).await.unwrap_err().is_unrecoverable_error());
}

#[tokio::test]
async fn subscriptions_allowed_or_not_are_answered_in_their_place_and_pushes_are_not_answers() {
    let server = servers::Redis::start();
    let admin = multiplexer_to(server.port(), drop).await;
    let rules = ["ACL", "SETUSER", "default", "resetchannels", "&allowed"];
    assert_eq!(soon(ask(&admin, &rules)).await.unwrap(), Value::Okay);
    let (say, heard) = mpsc::channel();
    let multiplexer = multiplexer_to(server.port(), move |info| say.send(info).unwrap()).await;
    let asked = [
        ask(&multiplexer, &["ECHO", "1"]),
        ask(&multiplexer, &["SUBSCRIBE", "allowed"]),
        ask(&multiplexer, &["PUBLISH", "allowed", "hello"]),
        ask(&multiplexer, &["SUBSCRIBE", "forbidden"]),
        ask(&multiplexer, &["ECHO", "2"]),
        ask(&multiplexer, &["UNSUBSCRIBE", "allowed"]),
        ask(&multiplexer, &["UNSUBSCRIBE", "never subscribed"]),
        ask(&multiplexer, &["ECHO", "3"]),
    ];
    let said = soon(futures::future::join_all(asked)).await;
    let said: Vec<_> = said.into_iter().map(|said| said.and_then(Value::extract_error)).collect();
    for (place, text) in [(0, "1"), (4, "2"), (7, "3")] {
        assert_eq!(said[place], Ok(Value::BulkString(text.into())));
    }
    assert!(matches!(said[1], Ok(Value::Push { kind: PushKind::Subscribe, .. })), "{said:?}");
    assert_eq!(said[2], Ok(Value::Int(1)));
    assert!(said[3].as_ref().is_err_and(|error| error.code() == Some("NOPERM")), "{said:?}");
    assert!(said[5..7].iter().all(|said| matches!(said, Ok(Value::Push { kind: PushKind::Unsubscribe, .. }))));
    let words = ["allowed", "hello"].map(|word| Value::BulkString(word.into()));
    assert_eq!(heard.try_recv().unwrap(), PushInfo { kind: PushKind::Message, data: words.to_vec() });
    assert!(heard.try_recv().is_err());
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
        let (confirmed, after) = (ask(&multiplexer, request), ask(&multiplexer, &["ECHO", "after"]));
        let confirmed = soon(confirmed).await.unwrap();
        assert!(matches!(confirmed, Value::Push { .. }), "{request:?}: {confirmed:?}");
        assert_eq!(soon(after).await.unwrap(), Value::BulkString("after".into()), "{request:?}");
    }
}

#[tokio::test]
async fn a_confirmation_that_no_request_awaits_is_no_reply() {
    let (multiplexer, mut there) = pair().await;
    let (ping, subscribed) = (ask(&multiplexer, &["PING"]), ask(&multiplexer, &["SUBSCRIBE", "mine"]));
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
    let (subscribed, after) = (ask(&multiplexer, &["SUBSCRIBE", "a"]), ask(&multiplexer, &["PING"]));
    there.write_all(b"+OK\r\n+PONG\r\n").await.unwrap();
    assert_eq!(soon(subscribed).await.unwrap_err().kind(), ErrorKind::Parse);
    assert!(soon(after).await.is_err());
    is_closed(there).await;
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

/// A multiplexer, and the end of it that a server would have.
async fn pair() -> (Multiplexer, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let multiplexer = Multiplexer::open(Box::new(stream), &[], Arc::new(drop)).await.unwrap();
    (multiplexer, listener.accept().await.unwrap().0)
}

/// Comes back when the other side has closed the connection.
async fn is_closed(mut there: TcpStream) {
    let mut rest = Vec::new();
    // Closed with bytes unread is reset, which is closed as well.
    let _ = soon(there.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn who_speaks_another_language_ends_the_connection_and_answers_before_that_count() {
    for nonsense in ["HTTP/1.1 400 Bad Request\r\n\r\n", "$1\r\nxyz\r\n"] {
        let (multiplexer, mut there) = pair().await;
        let (first, second) = (ask(&multiplexer, &["PING"]), ask(&multiplexer, &["PING"]));
        there.write_all(format!("+PONG\r\n{nonsense}").as_bytes()).await.unwrap();
        assert_eq!(soon(first).await.unwrap(), Value::SimpleString("PONG".to_owned()));
        assert_eq!(soon(second).await.unwrap_err().kind(), ErrorKind::Parse);
        is_closed(there).await;
    }
    let (multiplexer, mut there) = pair().await;
    there.write_all(b"+unasked\r\n").await.unwrap();
    soon(multiplexer.left()).await;
    is_closed(there).await;
}

#[tokio::test]
async fn who_leaves_gets_what_is_open_and_then_it_is_closed() {
    let (multiplexer, mut there) = pair().await;
    let open = ask(&multiplexer, &["PING"]);
    multiplexer.leave();
    assert!(multiplexer.is_left() && multiplexer.pulse().is_some_and(|pulse| (pulse.open, pulse.asked) == (1, 1)));
    there.write_all(b"+PONG\r\n").await.unwrap();
    assert!(soon(open).await.is_ok());
    is_closed(there).await;
    let (idle, there) = pair().await;
    idle.leave();
    is_closed(there).await;
}

#[tokio::test]
async fn a_connection_that_nobody_has_is_closed_also_with_questions_open_and_a_full_pipe() {
    let (multiplexer, there) = pair().await;
    let other = multiplexer.clone();
    let open = ask(&multiplexer, &["PING"]);
    // More than fits on the way to a peer that does not read.
    let stuck = ask(&multiplexer, &["ECHO", &"x".repeat(50_000_000)]);
    tokio::task::yield_now().await;
    drop(multiplexer);
    assert!(!other.is_left());
    drop(other);
    assert!(soon(open).await.is_err() && soon(stuck).await.is_err());
    is_closed(there).await;
}

#[tokio::test]
async fn a_cut_fails_all_with_its_reason() {
    let (multiplexer, there) = pair().await;
    let open = ask(&multiplexer, &["PING"]);
    multiplexer.cut(&io::Error::new(io::ErrorKind::ConnectionAborted, "too late").into());
    assert_eq!(soon(open).await.unwrap_err().to_string(), "too late");
    assert_eq!(soon(ask(&multiplexer, &["PING"])).await.unwrap_err().to_string(), "too late");
    is_closed(there).await;
}

#[test]
fn what_is_open_fails_when_the_runtime_that_drives_it_is_gone() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (multiplexer, _there) = runtime.block_on(pair());
    let open = ask(&multiplexer, &["PING"]);
    drop(runtime);
    assert!(futures::executor::block_on(open).is_err() && multiplexer.is_left());
}

/// A hundred who ask, and ask again as soon as they have an answer; what the first answer was to each.
fn a_hundred(multiplexer: &Multiplexer) -> Vec<tokio::task::JoinHandle<RedisResult<Value>>> {
    let ask_twice = |multiplexer: Multiplexer| async move {
        let first = ask(&multiplexer, &["PING"]).await;
        tokio::spawn(ask(&multiplexer, &["PING"]));
        first
    };
    (0..100).map(|_| tokio::spawn(ask_twice(multiplexer.clone()))).collect()
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

#[tokio::test]
async fn all_get_the_answers_that_came_before_the_other_end_was_closed() {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let multiplexer = Multiplexer::open(Box::new(ours), &[], Arc::new(drop)).await.unwrap();
    let asked = a_hundred(&multiplexer);
    soon(theirs.read_exact(&mut vec![0; 100 * PING.len()])).await.unwrap();
    soon(theirs.write_all(&b"+PONG\r\n".repeat(100))).await.unwrap();
    drop(theirs);
    for first in asked {
        assert!(soon(first).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn answers_do_not_wait_for_questions_to_be_taken() {
    let ((answers, mut says), (mut hears, questions)) = (tokio::io::simplex(1 << 16), tokio::io::simplex(64));
    let multiplexer =
        Multiplexer::open(Box::new(tokio::io::join(answers, questions)), &[], Arc::new(drop)).await.unwrap();
    let asked = a_hundred(&multiplexer);
    soon(hears.read_exact(&mut vec![0; 100 * PING.len()])).await.unwrap();
    soon(says.write_all(&b"+PONG\r\n".repeat(100))).await.unwrap();
    for first in asked {
        assert!(soon(first).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_runtime_that_was_blocked_for_too_long_sends_nothing() {
    let (multiplexer, mut there) = pair().await;
    let asked = ask(&multiplexer, &["ECHO", "late"]);
    // As long as a request may wait before it is written: nothing of this runtime runs meanwhile.
    std::thread::sleep(crate::stores::redis::connection::LONGEST_RESPONSE);
    assert!(soon(asked).await.unwrap_err().is_timeout());
    let mut sent = Vec::new();
    soon(there.read_to_end(&mut sent)).await.unwrap();
    assert_eq!(sent, b"");
}
