//! A minimal client for Redis, written by hand: the best that any client could achieve.
//!
//! Owns the encoding and three kinds of connections: one command at a time, many tasks on one connection with their writes
//! batched, and one command at a time without a runtime. Never reconnects: a benchmark whose server is gone is over.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Deletes the key if it still has this value.
pub(crate) const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Text(String),
    Number(i64),
    Nothing,
    List(Vec<Reply>),
    Error(String),
}

impl Reply {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("Redis answered {other:?} where a text was due"),
        }
    }

    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Number(number) => number,
            other => panic!("Redis answered {other:?} where a number was due"),
        }
    }
}

pub(crate) fn write_command(args: &[&str], out: &mut Vec<u8>) {
    let write_length = |kind: u8, count: usize, out: &mut Vec<u8>| {
        out.push(kind);
        write!(out, "{count}\r\n").expect("a vector takes all bytes");
    };
    write_length(b'*', args.len(), out);
    for arg in args {
        write_length(b'$', arg.len(), out);
        out.extend_from_slice(arg.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// The first reply in `bytes` and its length; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = String::from_utf8_lossy(&bytes[1..end]);
    let after = end + 2;
    let number = || line.parse::<i64>().expect("Redis writes lengths and numbers in digits");
    match bytes[0] {
        b'+' => Some((Reply::Text(line.into_owned()), after)),
        b'-' => Some((Reply::Error(line.into_owned()), after)),
        b':' => Some((Reply::Number(number()), after)),
        b'$' => match usize::try_from(number()) {
            Err(_) => Some((Reply::Nothing, after)),
            Ok(length) => {
                let text = bytes.get(after..after + length + 2)?;
                Some((Reply::Text(String::from_utf8_lossy(&text[..length]).into_owned()), after + length + 2))
            }
        },
        b'*' => {
            let Ok(length) = usize::try_from(number()) else { return Some((Reply::Nothing, after)) };
            let (mut items, mut at) = (Vec::with_capacity(length), after);
            for _ in 0..length {
                let (item, item_length) = parse(&bytes[at..])?;
                items.push(item);
                at += item_length;
            }
            Some((Reply::List(items), at))
        }
        kind => panic!("Redis sent a reply of the unknown kind {:?}", char::from(kind)),
    }
}

/// Bytes that were received and not decoded yet.
#[derive(Debug, Default)]
struct Unread {
    bytes: Vec<u8>,
    /// How many of `bytes` are decoded.
    decoded: usize,
}

impl Unread {
    fn next(&mut self) -> Option<Reply> {
        let rest = &self.bytes[self.decoded..];
        if rest.is_empty() {
            self.bytes.clear();
            self.decoded = 0;
            return None;
        }
        let (reply, length) = parse(rest)?;
        self.decoded += length;
        Some(reply)
    }

    /// The buffer for more bytes. It has capacity, so that reading no bytes means the end of the connection.
    fn room(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.decoded);
        self.decoded = 0;
        self.bytes.reserve(16 * 1024);
        &mut self.bytes
    }
}

async fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket can send at once");
    stream
}

/// A connection for one command at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    unread: Unread,
    outgoing: Vec<u8>,
}

impl Connection {
    pub(crate) async fn connect(port: u16) -> Self {
        Self { stream: connect(port).await, unread: Unread::default(), outgoing: Vec::new() }
    }

    pub(crate) async fn call(&mut self, args: &[&str]) -> Reply {
        self.outgoing.clear();
        write_command(args, &mut self.outgoing);
        self.stream.write_all(&self.outgoing).await.expect("the server reads");
        loop {
            if let Some(reply) = self.unread.next() {
                return reply;
            }
            let read = self.stream.read_buf(self.unread.room()).await.expect("the server answers");
            assert!(read > 0, "the server hung up");
        }
    }
}

type Command = (Vec<u8>, oneshot::Sender<Reply>);

/// One connection for many tasks. Commands that arrive during a write are sent together in the next one.
#[derive(Clone, Debug)]
pub(crate) struct Shared(mpsc::UnboundedSender<Command>);

impl Shared {
    pub(crate) async fn connect(port: u16) -> Self {
        let (read, write) = connect(port).await.into_split();
        let (send, commands) = mpsc::unbounded_channel();
        let in_flight = Arc::default();
        tokio::spawn(write_batches(write, commands, Arc::clone(&in_flight)));
        tokio::spawn(read_replies(read, in_flight));
        Self(send)
    }

    pub(crate) async fn call(&self, args: &[&str]) -> Reply {
        let mut bytes = Vec::with_capacity(160);
        write_command(args, &mut bytes);
        let (send, reply) = oneshot::channel();
        self.0.send((bytes, send)).expect("the writing task lives as long as its queue");
        reply.await.expect("the server answers every command")
    }
}

/// The callers that wait for a reply, in the order of their commands.
type InFlight = Arc<Mutex<VecDeque<oneshot::Sender<Reply>>>>;

async fn write_batches(mut write: OwnedWriteHalf, mut commands: mpsc::UnboundedReceiver<Command>, in_flight: InFlight) {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while commands.recv_many(&mut batch, 1024).await > 0 {
        // Tasks that the last replies have just woken add their next commands to this batch.
        tokio::task::yield_now().await;
        while let Ok(command) = commands.try_recv() {
            batch.push(command);
        }
        bytes.clear();
        {
            // Order matters: a reply must find its caller, so callers are queued before the bytes are written.
            let mut in_flight = in_flight.lock().expect("no task panics while it is locked");
            for (command, send) in batch.drain(..) {
                bytes.extend_from_slice(&command);
                in_flight.push_back(send);
            }
        }
        write.write_all(&bytes).await.expect("the server reads");
    }
}

async fn read_replies(mut read: OwnedReadHalf, in_flight: InFlight) {
    let mut unread = Unread::default();
    loop {
        // The end of the benchmark closes the connection, and this task with it.
        let Ok(1..) = read.read_buf(unread.room()).await else { return };
        let mut in_flight = in_flight.lock().expect("no task panics while it is locked");
        while let Some(reply) = unread.next() {
            let send = in_flight.pop_front().expect("every reply belongs to a command");
            let _ = send.send(reply);
        }
    }
}

/// A blocking connection for an administrator's commands, inside a runtime and outside.
#[derive(Debug)]
pub(crate) struct Console {
    stream: std::net::TcpStream,
    unread: Unread,
}

impl Console {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket can send at once");
        Self { stream, unread: Unread::default() }
    }

    pub(crate) fn call(&mut self, args: &[&str]) -> Reply {
        let mut bytes = Vec::new();
        write_command(args, &mut bytes);
        self.stream.write_all(&bytes).expect("the server reads");
        loop {
            if let Some(reply) = self.unread.next() {
                return reply;
            }
            let mut more = [0; 16 * 1024];
            let read = self.stream.read(&mut more).expect("the server answers");
            assert!(read > 0, "the server hung up");
            self.unread.room().extend_from_slice(&more[..read]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_decoded_only_when_it_is_complete() {
        let bytes = b"*3\r\n$4\r\nlist\r\n:-7\r\n$-1\r\n+OK\r\n";
        let list = Reply::List(vec![Reply::Text("list".to_owned()), Reply::Number(-7), Reply::Nothing]);
        for cut in 1..bytes.len() - 5 {
            assert_eq!(parse(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(parse(bytes), Some((list, bytes.len() - 5)));
    }

    #[test]
    fn a_shared_connection_gives_each_task_its_own_reply() {
        let server = servers::Redis::start();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let port = server.port();
        runtime.block_on(async move {
            let shared = Shared::connect(port).await;
            let tasks: Vec<_> = (0..200)
                .map(|number| {
                    let shared = shared.clone();
                    let text = number.to_string();
                    tokio::spawn(async move { (shared.call(&["ECHO", &text]).await, Reply::Text(text)) })
                })
                .collect();
            for task in tasks {
                let (reply, expected) = task.await.unwrap();
                assert_eq!(reply, expected);
            }
        });
    }
}
