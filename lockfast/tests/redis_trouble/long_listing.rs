//! A listing of very many names does not block the server: it runs many short scripts, and a walk over all pages is linear in
//! the number of names.

use lockfast::Redis;
use lockfast::store::{ClaimId, ClientId, Demand, Demands, Name};
use lockfast::store::{Counters, Names, Query, Report, Store};

use crate::fixture::{Admin, Monitor, secs};

/// Names in use, each listed by the client that `client_of` returns.
async fn listed_names(
    server: &servers::Redis,
    store: &Redis,
    (count, clients): (usize, usize),
    mut client_of: impl FnMut(usize) -> usize,
) -> Vec<String> {
    let mut admin = Admin::of(&server.url());
    let names: Vec<_> = (0..count).map(|number| format!("lock:{number:06}")).collect();
    for some in names.chunks(10_000) {
        let mut pipe = redis::pipe();
        for name in some {
            // Another program's lock counts as in use, too.
            pipe.cmd("SET").arg(name).arg("x").arg("PX").arg(600_000).ignore();
        }
        admin.run_pipe(&pipe);
    }
    let mut entered: Vec<Vec<_>> = (0..clients).map(|_| Vec::new()).collect();
    for (number, name) in names.iter().enumerate() {
        let demands = Demands::from(Demand::exclusive(Name::new(name).unwrap()));
        entered[client_of(number)].push((ClaimId::random().unwrap().hash(), demands));
    }
    for (client, entered) in (1..).zip(entered) {
        let client = ClientId(client);
        let report = Report { client, counters: Counters::default(), entered, left: Vec::new(), keep: secs(600) };
        store.record(&report).await.unwrap();
    }
    names
}

/// The names of all pages.
async fn walk(store: &Redis, limit: usize) -> Vec<String> {
    let mut query = Query { names: Names::Beginning("lock:".to_owned()), after: None, limit, entries: 1 };
    let mut found = Vec::new();
    loop {
        let page = store.inspect(&query).await.unwrap();
        assert!(page.resources.len() <= limit);
        found.extend(page.resources.into_iter().map(|resource| resource.name.as_str().to_owned()));
        match page.next {
            None => return found,
            next => query.after = next,
        }
    }
}

#[tokio::test]
async fn a_hundred_thousand_names_are_listed_in_short_scripts() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let names = listed_names(&server, &store, (100_000, 500), |_| rng.usize(..500)).await;
    let mut admin = Admin::of(&server.url());
    // The server logs scripts that take 30 ms or more. None needs a tenth of that; on a busy machine the server may be
    // preempted within one.
    admin.run("CONFIG SET slowlog-log-slower-than 30000");
    admin.run("SLOWLOG RESET");
    let requests = admin.requests();
    assert!(walk(&store, 1_000).await == names, "each name once, and in order");
    let requests = admin.requests() - requests;
    let slow = admin.number("SLOWLOG LEN");
    admin.run("CONFIG SET slowlog-log-slower-than -1");
    assert!(slow < 10, "{slow} slow ones: {:?}", admin.run("SLOWLOG GET 3"));
    assert!(requests < 10_000, "{requests} scripts");
}

/// How many names are read to list 5,000 of 50 clients in pages of 200.
async fn read_in_a_walk(client_of: impl FnMut(usize) -> usize) -> usize {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let names = listed_names(&server, &store, (5_000, 50), client_of).await;
    let mut admin = Admin::of(&server.url());
    let mut monitor = Monitor::of(&server.url());
    assert!(walk(&store, 200).await == names, "each name once, and in order");
    let mut read = 0;
    for line in monitor.commands_so_far(&mut admin) {
        let lower = line.to_lowercase();
        if let Some((_, limit)) = lower.split_once("\"zrangebylex\"").and_then(|(_, rest)| rest.rsplit_once(' ')) {
            let limit: usize = limit.trim_matches('"').parse().unwrap();
            assert!(limit <= 300, "one command reads {limit} names");
            read += limit;
        }
    }
    assert!(read >= names.len());
    read
}

#[tokio::test]
async fn a_walk_over_all_pages_is_linear_in_the_names() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mixed = read_in_a_walk(|_| rng.usize(..50)).await;
    assert!(mixed <= 3 * 5_000, "{mixed} where the clients' names are mixed");
    let in_blocks = read_in_a_walk(|number| number / 100).await;
    assert!(in_blocks <= 4 * 5_000, "{in_blocks} where each client has its own part of the names");
    let of_one = read_in_a_walk(|number| if number < 49 { number + 1 } else { 0 }).await;
    assert!(of_one <= 3 * 5_000, "{of_one} where one client has nearly all of them");
}

#[tokio::test]
async fn clients_whose_listings_end_at_the_same_moment_are_all_found() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let mut pipe = redis::pipe();
    let names: Vec<_> = (0..1_000).map(|number| format!("lock:{number:04}")).collect();
    for (client, name) in names.iter().enumerate() {
        let (client, owner) = (format!("{client:016x}"), "0".repeat(32));
        pipe.cmd("SET").arg(name).arg("x").arg("PX").arg(60_000).ignore();
        pipe.cmd("ZADD").arg("lockfast:listings").arg(9_000_000_000_000u64).arg(&client).ignore();
        pipe.cmd("ZADD").arg(format!("lockfast:listing:{client}")).arg(0).arg(format!("{name}\0{owner}")).ignore();
    }
    admin.run_pipe(&pipe);
    assert!(walk(&store, 300).await == names, "each name once, and in order");
}
