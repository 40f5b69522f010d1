//! What the tests share: an administrator's connection, claims made by hand, users in line, and a way in between.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::store::{Admission, Busy, Store};
use lockfast::store::{Claim, ClientId, Demand, Demands, Moment, Name};
use lockfast::{Clock, Guard, Locks, Redis};
use redis::Value;
use tokio::task::JoinHandle;

/// Longer than anything here takes when it works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) async fn soon<T>(asked: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, asked).await.expect("it takes no longer than this when it works")
}

/// Asks again and again, gently, until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let reached = async {
        while !is_so().await {
            tokio::time::sleep(millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("never came: {what}"));
}

pub(crate) fn now() -> Moment {
    Clock::boot().now()
}

pub(crate) fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

/// An administrator's connection.
pub(crate) struct Admin(redis::Connection);

impl Admin {
    pub(crate) fn of(url: &str) -> Self {
        Self(redis::Client::open(url).unwrap().get_connection().unwrap())
    }

    /// One command, its words separated by spaces.
    pub(crate) fn run(&mut self, line: &str) -> Value {
        self.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub(crate) fn run_words(&mut self, words: &[&str]) -> Value {
        self.ask_words(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn ask(&mut self, line: &str) -> redis::RedisResult<Value> {
        self.ask_words(&line.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn run_words_to_an_error(&mut self, words: &[&str]) {
        assert!(self.ask_words(words).is_err(), "{words:?} was to fail");
    }

    fn ask_words(&mut self, words: &[&str]) -> redis::RedisResult<Value> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut self.0)
    }

    pub(crate) fn text(&mut self, line: &str) -> String {
        redis::from_redis_value(self.run(line)).unwrap_or_default()
    }

    pub(crate) fn number(&mut self, line: &str) -> i64 {
        redis::from_redis_value(self.run(line)).unwrap()
    }

    pub(crate) fn list(&mut self, line: &str) -> Vec<String> {
        redis::from_redis_value(self.run(line)).unwrap()
    }

    /// How often a command was run, also by scripts.
    pub(crate) fn calls(&mut self, command: &str) -> u64 {
        let stats = self.text("INFO commandstats");
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// How often it was asked who listens. Before version 7 that counts as the command it is part of.
    pub(crate) fn asked_who_listens(&mut self) -> u64 {
        self.calls("pubsub|numsub") + self.calls("pubsub")
    }

    /// How many requests clients have made.
    pub(crate) fn requests(&mut self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// The line that belongs to a name, if there is one.
    pub(crate) fn line_of(&mut self, key: &str) -> Option<String> {
        let suffix = format!(":line:{key}");
        self.list("KEYS lockfast:*").into_iter().find(|companion| companion.ends_with(&suffix))
    }

    pub(crate) fn kill_connections(&mut self) {
        self.run("CLIENT KILL TYPE normal SKIPME yes");
        self.run("CLIENT KILL TYPE pubsub SKIPME yes");
    }
}

/// What the server does, command by command, also inside scripts.
pub(crate) struct Monitor(redis::Connection);

impl Monitor {
    pub(crate) fn of(url: &str) -> Self {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("MONITOR").exec(&mut connection).unwrap();
        Self(connection)
    }

    /// Everything up to now.
    pub(crate) fn until_marked(&mut self, admin: &mut Admin) -> Vec<String> {
        admin.run("ECHO up-to-here");
        let mut seen = Vec::new();
        loop {
            let line: String = redis::from_redis_value(self.0.recv_response().unwrap()).unwrap();
            if line.contains("up-to-here") {
                return seen;
            }
            seen.push(line);
        }
    }
}

/// A name wanted alone, by nobody who hears or renews.
pub(crate) fn claim(name: &str, ttl: Duration) -> Arc<Claim> {
    claim_of(Demand::exclusive(Name::new(name).unwrap()).into(), ttl)
}

pub(crate) fn claim_of(demands: Demands, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim::new(demands, ttl).unwrap())
}

/// The same of a client that can be told.
pub(crate) fn claim_by(client: u64, name: &str, ttl: Duration) -> Arc<Claim> {
    let client = ClientId(client);
    Arc::new(Claim { client, ..Claim::new(Demand::exclusive(Name::new(name).unwrap()).into(), ttl).unwrap() })
}

pub(crate) async fn hold(store: &Redis, claim: &Arc<Claim>) -> u64 {
    match store.acquire(claim, Busy::Wait).await.unwrap() {
        Admission::Held(tickets) => tickets.first.0,
        other => panic!("it was free: {other:?}"),
    }
}

pub(crate) async fn queue(store: &Redis, claim: &Arc<Claim>) -> u64 {
    match store.acquire(claim, Busy::Wait).await.unwrap() {
        Admission::Queued { ticket, .. } => ticket.0,
        other => panic!("somebody is in the way: {other:?}"),
    }
}

/// A client whose tasks all stand in line themselves.
pub(crate) async fn connect(url: &str, ttl: Duration) -> Locks {
    Locks::builder().ttl(ttl).local_handoff(false).connect(url).await.unwrap()
}

/// How many wait for a name.
pub(crate) async fn waiting(locks: &Locks, name: &str) -> usize {
    let line = locks.mutex(name).info().await.unwrap();
    line.map_or(0, |resource| resource.waiters().count())
}

/// Tasks that wait for a name, one behind the other. Each that gets in notes its number, and that nobody else is in.
pub(crate) struct Crowd {
    pub(crate) entered: Arc<Mutex<Vec<(usize, u64)>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub(crate) async fn gather(locks: &Locks, name: &str, size: usize) -> Self {
        let entered = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..size {
            let (entered, inside) = (Arc::clone(&entered), Arc::clone(&inside));
            let mutex = locks.mutex(name).label("number", number.to_string());
            let stay = async move {
                let guard = mutex.lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two are in at once");
                entered.lock().unwrap().push((number, guard.fence().unwrap()));
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            };
            tasks.push(tokio::spawn(stay));
            // A small crowd is numbered in the order of its line; of a large one only the line itself knows.
            if size <= 10 {
                until("one more waits", async || waiting(locks, name).await == number + 1).await;
            }
        }
        until("all wait", async || waiting(locks, name).await == size).await;
        Self { entered, tasks }
    }

    /// The numbers of those in line, in order.
    pub(crate) async fn order(locks: &Locks, name: &str) -> Vec<usize> {
        let line = locks.mutex(name).info().await.unwrap().unwrap();
        let number = |labels: &[(String, String)]| labels.first().map(|(_, number)| number.parse().unwrap());
        line.waiters().filter_map(|entry| number(&entry.note.labels)).collect()
    }

    /// Who got in, in order, with their fences; after all have.
    pub(crate) async fn all_in(self) -> Vec<(usize, u64)> {
        for task in self.tasks {
            tokio::time::timeout(secs(60), task).await.expect("everybody gets in").unwrap();
        }
        self.entered.lock().unwrap().clone()
    }
}

/// All of them in this order, each once, with fences that rise above `floor`.
pub(crate) fn assert_in_order(entered: &[(usize, u64)], order: impl IntoIterator<Item = usize>, floor: u64) {
    let numbers: Vec<_> = entered.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, order.into_iter().collect::<Vec<_>>(), "the order of the line");
    assert_fences_rise(std::iter::once(floor).chain(entered.iter().map(|(_, fence)| *fence)));
}

pub(crate) fn assert_fences_rise(fences: impl IntoIterator<Item = u64>) {
    let fences: Vec<_> = fences.into_iter().collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "fences rise: {fences:?}");
}

/// Puts a guard into a task's hands and says when it was lost.
pub(crate) fn watch_over(guard: Guard) -> JoinHandle<(lockfast::LostWhy, Moment)> {
    tokio::spawn(async move {
        let why = guard.lost().await;
        (why, now())
    })
}

/// An address that leads to a server, for as long as it does; and then to another.
pub(crate) struct Way {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: AtomicU16,
    /// Each connection, from both ends, since the last cut.
    open: Mutex<Vec<[TcpStream; 2]>>,
    tried: AtomicUsize,
    /// Connections with a smaller number carry nothing any more, and do not end either.
    swallowed: AtomicUsize,
}

impl Way {
    pub(crate) fn to(server: &servers::Redis) -> Self {
        Self::slow(server, Duration::ZERO)
    }

    /// The same, on which everything takes this long in each direction.
    pub(crate) fn slow(server: &servers::Redis, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(server.port()),
            open: Mutex::default(),
            tried: AtomicUsize::new(0),
            swallowed: AtomicUsize::new(0),
        });
        let theirs = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Some(shared)) = (near, theirs.upgrade()) else { return };
                let number = shared.tried.fetch_add(1, Ordering::SeqCst);
                let port = shared.target.load(Ordering::SeqCst);
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    to.set_nodelay(true).unwrap();
                    let theirs = Arc::downgrade(&shared);
                    let is_swallowed =
                        move || theirs.upgrade().is_some_and(|shared| number < shared.swallowed.load(Ordering::SeqCst));
                    std::thread::spawn(move || {
                        carry(&mut from, &mut to, delay, &is_swallowed);
                        if !is_swallowed() {
                            let _ = to.shutdown(Shutdown::Both);
                            let _ = from.shutdown(Shutdown::Both);
                        }
                    });
                }
                shared.open.lock().unwrap().push([near, far]);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Whoever comes from now on gets to this port; 1 is nobody's.
    pub(crate) fn lead_to(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// How many came this way since it was last cut.
    pub(crate) fn came(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }

    /// How many connections were begun ever, also in vain.
    pub(crate) fn tried(&self) -> usize {
        self.shared.tried.load(Ordering::SeqCst)
    }

    /// Ends every connection that came this way.
    pub(crate) fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..).flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing arrives on the connections there are. Neither end is told. New ones work.
    pub(crate) fn swallow(&self) {
        self.shared.swallowed.store(self.tried(), Ordering::SeqCst);
    }
}

/// Passes on what comes, each piece after `delay`, until either end is gone.
fn carry(from: &mut TcpStream, to: &mut TcpStream, delay: Duration, is_swallowed: &impl Fn() -> bool) {
    let mut piece = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        std::thread::sleep(delay);
        if !is_swallowed() && to.write_all(&piece[..length]).is_err() {
            return;
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
        self.lead_to(1);
    }
}
