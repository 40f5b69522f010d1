//! The store in Redis or Valkey, for many machines.
//!
//! Every verb is one run of a script, or several runs one after the other if it names many claims. The stored format is described
//! in `lua/claims.lua` and [`format`], the rule in `lua/rule.lua`. [`encode`] writes the arguments of scripts, [`decode`] reads
//! their replies. Connections belong to runtimes ([`connection::pool`]); hand-offs arrive as pushes on them ([`subscriptions`]).
//!
//! | file | content |
//! |---|---|
//! | `scripts.rs`, `lua/` | the scripts, and calls of them |
//! | `encode.rs`, `decode.rs` | arguments of scripts; their replies |
//! | `format.rs`, `keys.rs`, `note.rs` | the stored format; the keys of a name; a claim's note as text |
//! | `listings.rs` | the listings of all clients, merged |
//! | `subscriptions.rs` | pushes and their subscribers |
//! | `replicas.rs` | waiting until replicas have a write |
//! | `failure.rs` | errors of Redis, sorted by what the caller does next |
//! | `fence.rs` | writes that refuse a stale fencing token |
//! | `diagnostics.rs` | `Redis::checkup`, for `lockfast doctor` |
//! | `connection/` | connections to the server |

mod connection;
mod decode;
mod diagnostics;
mod encode;
mod failure;
mod fence;
mod format;
mod keys;
mod listings;
mod note;
mod replicas;
mod scripts;
mod subscriptions;
#[cfg(test)]
mod tests;

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::claim::Claim;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{
    Admission, Busy, Change, Guarantees, Lease, Leaving, Names, Page, Query, Report, Resource, Scope, Shared, Standing,
    Store, StoreClock, Survives, Why,
};

pub use connection::RedisOptions;
use connection::{Connection, Multiplexer, Pool, Server};
pub use diagnostics::Checkup;
use listings::NameScan;
use replicas::{MAX_WAIT, Replicas, WAIT_TIMEOUT};
use subscriptions::{Subscriptions, Watch};

/// The most names in one run of a script. The server runs no other command meanwhile, so a run has to be short. The keeper
/// renews three times this number at once.
const MAX_NAMES_PER_RUN: usize = 94;
/// The most names that one run inspects: half as many, since inspecting a name costs about twice as much.
const MAX_NAMES_INSPECTED: usize = 47;
/// The most names that an error shows.
const MAX_NAMES_SHOWN: usize = 16;
/// The most resources of one page.
const MAX_PAGE: usize = 10_000;

/// Distributed locks in Redis or Valkey, shared by all programs that can reach the server.
///
/// A lock is a lease (TTL) on the server that the client renews, with a fencing token. A lock is lost if the server loses its
/// data; with `replicas=N` a lock counts only while N replicas have it.
///
/// ```no_run
/// # use lockfast::{Locks, Redis};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let locks = Locks::new(Redis::open("redis://user:password@cache.internal:6379/0").await?)?;
/// let guard = locks.mutex("account:123").lock().await?;
/// // .. no other client of the same server holds account:123 meanwhile ..
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    subscriptions: Arc<Subscriptions>,
}

impl Inner {
    /// Waits until the wanted number of replicas has the writes of this connection: until then the outcome of a hold is unknown.
    /// Returns at once if no replicas are wanted, or if no standing is a hold.
    async fn confirm(
        &self,
        connection: &Arc<Connection>,
        standings: &[Standing],
        within: impl FnOnce() -> Duration + Send,
    ) -> Result<()> {
        let is_held = |standing: &Standing| matches!(standing, Standing::Held(_));
        match self.pool.server() {
            server if server.replicas > 0 && standings.iter().any(is_held) => {
                // Boxed: the future of a verb without replicas need not contain it.
                Box::pin(Replicas::confirm(server, connection, within())).await
            }
            _ => Ok(()),
        }
    }
}

impl Redis {
    /// Connects to the server of a URL: `redis://user:password@host:port/database`, or `rediss://` with TLS.
    ///
    /// Parameters follow after a question mark: `replicas=1`, if a lock counts only while one replica has it; `ca=FILE`, the
    /// authorities to trust; `cert=FILE&key=FILE`, the client certificate and its private key; and the limits of a connection,
    /// like `connect_timeout=1s`. [`RedisOptions`] describes them all. Fails if the server cannot be used, with the reason.
    pub async fn open(url: &str) -> Result<Arc<Self>> {
        Self::open_with(url, RedisOptions::default()).await
    }

    pub(crate) async fn open_with(url: &str, options: RedisOptions) -> Result<Arc<Self>> {
        let server = Server::of(url, options)?;
        if server.prefix.is_some() {
            return Err(Error::invalid(
                "prefix= is for Locks::connect; a store takes names as they are, so set it with Locks::builder().prefix(..)",
            ));
        }
        Self::connect(server).await
    }

    /// As [`open`](Self::open), and returns the prefix of the URL.
    pub(crate) async fn open_with_prefix(url: &str) -> Result<(Arc<Self>, Option<String>)> {
        let server = Server::of_url(url)?;
        let prefix = server.prefix.clone();
        Ok((Self::connect(server).await?, prefix))
    }

    async fn connect(server: Server) -> Result<Arc<Self>> {
        // With replicas, a grant counts once they have it: a push is only a hint to ask.
        let subscriptions = Arc::new(Subscriptions::new(server.replicas == 0));
        let receiver = Arc::clone(&subscriptions);
        let pool = Pool::new(server, Clock::boot(), Arc::new(move |info| receiver.on_push(&info)));
        let store = Self { inner: Arc::new(Inner { pool, subscriptions }) };
        store.inner.pool.connection().await?;
        Ok(Arc::new(store))
    }

    /// The resources of names, without unused ones, with at most `max_entries` entries each. Long queues are read in pieces,
    /// between which the server runs other commands.
    async fn read_resources(&self, mut names: &[Name], max_entries: usize) -> Result<Vec<Resource>> {
        let (pool, max_entries) = (&self.inner.pool, max_entries.max(1));
        // `begun`: the first resource of `names`, if only a part of its queue was read.
        let (mut resources, mut begun): (Vec<Resource>, Option<Resource>) = (Vec::new(), None);
        while !names.is_empty() {
            let batch = &names[..names.len().min(MAX_NAMES_INSPECTED)];
            let call = encode::inspect(batch, max_entries, begun.as_ref(), pool.now());
            let reply = pool.call(|| doing("inspecting", batch.iter()), &call).await?;
            for found in decode::resources(&reply, batch)? {
                let resource = match begun.take() {
                    Some(begun) => decode::join_pieces(begun, found),
                    None => found,
                };
                if resource.more > 0 && resource.queue.len() < max_entries {
                    begun = Some(resource);
                    break;
                }
                names = &names[1..];
                let is_used = !resource.queue.is_empty() || resource.sealed_for.is_some();
                resources.extend(is_used.then_some(resource));
            }
        }
        Ok(resources)
    }
}

#[async_trait]
impl Store for Redis {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            shared: Shared::Network,
            survives: Survives::Nothing,
            clock: StoreClock::Wall,
            ..Guarantees::in_process()
        }
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        for demand in claim.demands.iter() {
            keys::check_unreserved(&demand.name)?;
        }
        let Inner { pool, subscriptions } = &*self.inner;
        let doing = || doing("acquiring", names_in(claim));
        let connection = pool.connection().await?;
        let is_subscribed = subscriptions.is_subscribed(claim.client, &connection).await;
        let call = encode::acquire(claim, busy, is_subscribed, pool.now());
        let reply = pool.call_on(&connection, doing, &call).await?;
        let admission = decode::admission(&reply, claim)?;
        let has_joined = matches!(admission, Admission::Held(_) | Admission::Queued { .. });
        if pool.server().replicas > 0 && has_joined {
            // Without confirmation the outcome is unknown. The client repeats the claim or withdraws it; a withdrawal from here
            // could run after the repeat was granted. Boxed: the future of a verb without replicas need not contain it.
            Box::pin(Replicas::confirm(pool.server(), &connection, MAX_WAIT)).await?;
        }
        Ok(admission)
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let pool = &self.inner.pool;
        let connection = pool.connection().await?;
        // `done`: the number of leases in the batches before.
        let (mut standings, mut done) = (vec![Standing::Gone(Why::Unknown); leases.len()], 0);
        for batch in batches(leases, |lease| lease.claim.demands.len()) {
            let (call, order) = encode::renew(batch, pool.now());
            let reply = pool
                .call_on(
                    &connection,
                    || doing("renewing", batch.iter().flat_map(|lease| names_in(&lease.claim))),
                    &call,
                )
                .await?;
            for (index, standing) in order.into_iter().zip(decode::standings(&reply, batch.len())?) {
                standings[done + index] = standing;
            }
            done += batch.len();
        }
        // An eighth of the lease is half of the time that the keeper gives a renewal: so it can repeat one whose outcome is
        // unknown.
        let shortest_ttl = || leases.iter().map(|lease| lease.claim.ttl).min().unwrap_or_default();
        self.inner.confirm(&connection, &standings, || WAIT_TIMEOUT.min(shortest_ttl() / 8)).await?;
        Ok(standings)
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        let Inner { pool, subscriptions } = &*self.inner;
        let connection = pool.connection().await?;
        let mut standings = Vec::with_capacity(leaving.len());
        for batch in batches(leaving, |one| one.claim().map_or(1, |claim| claim.demands.len())) {
            // If a reply is lost, so is the grant that it names. With several claims, grants are pushed instead.
            let encode = if leaving.len() == 1 { encode::release } else { encode::release_by_rule };
            let doing = || doing("releasing", batch.iter().flat_map(names_of_leaving));
            let reply = pool.call_on(&connection, doing, &encode(batch, pool.now())).await?;
            standings.extend(decode::departures(&reply, batch.len())?);
        }
        if let ([Standing::Gone(why @ Why::PassedOn(..))], [leaving]) = (&mut standings[..], leaving) {
            subscriptions.distrust_named_grant(why, leaving);
        }
        self.inner.confirm(&connection, &standings, || MAX_WAIT).await?;
        Ok(standings)
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        let limit = query.limit.clamp(1, MAX_PAGE);
        let beginning = match &query.names {
            Names::One(name) => {
                keys::check_unreserved(name)?;
                let is_wanted = query.after.as_ref().is_none_or(|after| name > after);
                let names = if is_wanted { slice::from_ref(name) } else { &[] };
                // Both requests at once: among many concurrent callers, none waits for a second round trip behind the others.
                let (resources, fleet) =
                    futures::join!(self.read_resources(names, query.entries), listings::fleet(&self.inner.pool));
                return Ok(Page { resources: resources?, next: None, fleet: fleet? });
            }
            Names::Beginning(beginning) => beginning,
        };
        let mut scan = NameScan::begin(&self.inner.pool, beginning, query.after.as_ref()).await?;
        let mut page = Page { fleet: scan.fleet, ..Page::default() };
        loop {
            // A listed queue may be empty by now; then the page has room for more.
            let (mut names, is_more) = scan.next(limit - page.resources.len()).await?;
            page.resources.extend(self.read_resources(&names, query.entries).await?);
            if is_more && page.resources.len() == limit {
                page.next = names.pop();
            }
            if !is_more || page.next.is_some() {
                return Ok(page);
            }
        }
    }

    async fn record(&self, report: &Report) -> Result<()> {
        let pool = &self.inner.pool;
        for call in encode::record(report) {
            let reply = pool.call(|| "reporting".to_owned(), &call).await?;
            pool.set_server_time(decode::server_time(&reply)?);
        }
        Ok(())
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        Watch::begin(&self.inner, scope).boxed()
    }
}

/// What a verb was doing, for an error: like `renewing "a", "b"`, without the names if they are many.
fn doing<'a>(verb: &str, names: impl Iterator<Item = &'a Name>) -> String {
    let names: Vec<_> = names.take(MAX_NAMES_SHOWN + 1).map(|name| format!("{name:?}")).collect();
    match names.len() {
        1..=MAX_NAMES_SHOWN => format!("{verb} {}", names.join(", ")),
        _ => verb.to_owned(),
    }
}

fn names_in(claim: &Claim) -> impl Iterator<Item = &Name> {
    claim.demands.iter().map(|demand| &demand.name)
}

fn names_of_leaving(leaving: &Leaving) -> impl Iterator<Item = &Name> {
    let broken = match leaving {
        Leaving::Break { name, .. } => Some(name),
        _ => None,
    };
    leaving.claim().into_iter().flat_map(|claim| names_in(claim)).chain(broken)
}

/// Batches of at least one item and, if possible, at most [`MAX_NAMES_PER_RUN`] names.
fn batches<T>(all: &[T], name_count: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let (mut batches, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = rest.iter().take_while(|one| {
            sum += name_count(one);
            sum <= MAX_NAMES_PER_RUN
        });
        let (batch, after) = rest.split_at(fits.count().max(1));
        batches.push(batch);
        rest = after;
    }
    batches
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.inner.subscriptions.close();
        self.inner.pool.close();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("server", self.inner.pool.server()).finish_non_exhaustive()
    }
}
