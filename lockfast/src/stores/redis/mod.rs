//! The store in Redis or Valkey, for many machines.
//!
//! Every verb is one script, or some of the same one after the other where it names many claims. What is stored is described
//! in `lua/claims.lua` and [`format`], the rule over it in `lua/rule.lua`. Connections belong
//! to runtimes ([`connection::pool`]); hand-offs arrive as messages on them ([`feed`]).

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
use listings::Walk;
use replicas::{ANSWERED_WITHIN, HAVE_IT_WITHIN, Replicas};
use subscriptions::{Feed, Watch};

/// How many names one script deals with. It is alone on the server while it runs, so it should not run for long.
const NAMES_A_SCRIPT: usize = 94;
/// How many names one script looks at, which costs about twice as much.
const NAMES_LOOKED_AT: usize = 47;
/// How many names an error shows.
const NAMES_SHOWN: usize = 16;

/// Locks in Redis or Valkey, for whoever reaches the server.
///
/// ```no_run
/// # use lockfast::{Locks, Redis};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let locks = Locks::new(Redis::open("redis://user:password@cache.internal:6379/0").await?)?;
/// let guard = locks.mutex("account:123").lock().await?;
/// // .. nobody else who uses the same server gets here meanwhile ..
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct Redis {
    inside: Arc<Inside>,
}

struct Inside {
    pool: Pool,
    feed: Arc<Feed>,
}

impl Inside {
    /// Comes back when as many replicas as the URL asks for have what was written on this connection; at once if it asks for
    /// none, or if the answer says of no claim that it holds. Until then it is unknown whether a holder may count on it.
    async fn have_it(
        &self,
        connection: &Arc<Connection>,
        standings: &[Standing],
        within: impl FnOnce() -> Duration + Send,
    ) -> Result<()> {
        let is_held = |standing: &Standing| matches!(standing, Standing::Held(_));
        match self.pool.server() {
            server if server.replicas > 0 && standings.iter().any(is_held) => {
                // Apart: a verb that waits for no replicas need not carry it along.
                Box::pin(Replicas::have_it(server, connection, within())).await
            }
            _ => Ok(()),
        }
    }
}

impl Redis {
    /// Connects to the server of a URL: `redis://user:password@host:port/database`, or `rediss://` with TLS. After a question
    /// mark may follow `replicas=1`, if a lock shall count only while so many replicas have it; `ca=FILE`, the certificates to
    /// trust; `cert=FILE&key=FILE`, the certificate to show and its private key; and the limits of a connection, like
    /// `connect_timeout=1s`: [`RedisOptions`] has them all. Fails when the server cannot be used, with the reason.
    pub async fn open(url: &str) -> Result<Arc<Self>> {
        Self::open_with(url, RedisOptions::default()).await
    }

    pub(crate) async fn open_with(url: &str, options: RedisOptions) -> Result<Arc<Self>> {
        let server = Server::of(url, options)?;
        if server.prefix.is_some() {
            return Err(Error::invalid(
                "prefix= is for Locks::connect; a store takes names as they are, so say it with Locks::builder().prefix(..)",
            ));
        }
        Self::at(server).await
    }

    /// The same, and the prefix that the URL asks for.
    pub(crate) async fn open_with_prefix(url: &str) -> Result<(Arc<Self>, Option<String>)> {
        let server = Server::of_url(url)?;
        let prefix = server.prefix.clone();
        Ok((Self::at(server).await?, prefix))
    }

    async fn at(server: Server) -> Result<Arc<Self>> {
        // With replicas, a grant counts when they have it: a push is no more than a hint to ask.
        let feed = Arc::new(Feed::new(server.replicas == 0));
        let hears = Arc::clone(&feed);
        let pool = Pool::new(server, Clock::boot(), Arc::new(move |info| hears.hear(&info)));
        let store = Self { inside: Arc::new(Inside { pool, feed }) };
        store.inside.pool.connection().await?;
        Ok(Arc::new(store))
    }

    /// The lines of names, without those that nobody uses. Long ones in pieces, between which others get their turn.
    async fn look(&self, mut names: &[Name], entries: usize) -> Result<Vec<Resource>> {
        let (pool, entries) = (&self.inside.pool, entries.max(1));
        let (mut resources, mut begun): (Vec<Resource>, Option<Resource>) = (Vec::new(), None);
        while !names.is_empty() {
            let some = &names[..names.len().min(NAMES_LOOKED_AT)];
            let call = encode::look(some, entries, begun.as_ref(), pool.now());
            let answer = pool.call(|| doing("inspecting", some.iter()), &call).await?;
            for found in decode::resources(&answer, some)? {
                let resource = match begun.take() {
                    Some(begun) => decode::joined(begun, found),
                    None => found,
                };
                if resource.more > 0 && resource.queue.len() < entries {
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
            keys::check(&demand.name)?;
        }
        let Inside { pool, feed } = &*self.inside;
        let doing = || doing("acquiring", names_in(claim));
        let connection = pool.connection().await?;
        let ears = feed.ears(claim.client, &connection).await;
        let answer = pool.call_on(&connection, doing, &encode::acquire(claim, busy, ears, pool.now())).await?;
        let admission = decode::admission(&answer, claim)?;
        let counts = pool.server().replicas > 0 && matches!(admission, Admission::Held(_) | Admission::Queued { .. });
        if counts {
            // Unconfirmed, its outcome is unknown. The client repeats the claim or withdraws it; a withdrawal from here could run
            // after the repeat was granted. Apart: a verb that waits for no replicas need not carry it along.
            Box::pin(Replicas::have_it(pool.server(), &connection, ANSWERED_WITHIN)).await?;
        }
        Ok(admission)
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let pool = &self.inside.pool;
        let connection = pool.connection().await?;
        let (mut standings, mut before) = (vec![Standing::Gone(Why::Unknown); leases.len()], 0);
        for some in by_names(leases, |lease| lease.claim.demands.len()) {
            let (call, order) = encode::renew(some, pool.now());
            let answer = pool
                .call_on(&connection, || doing("renewing", some.iter().flat_map(|lease| names_in(&lease.claim))), &call)
                .await?;
            for (index, standing) in order.into_iter().zip(decode::standings(&answer, some.len())?) {
                standings[before + index] = standing;
            }
            before += some.len();
        }
        // Half of the time that the keeper gives a renewal: what is unknown by then is asked for once more.
        let shortest = || leases.iter().map(|lease| lease.claim.ttl).min().unwrap_or_default();
        self.inside.have_it(&connection, &standings, || HAVE_IT_WITHIN.min(shortest() / 8)).await?;
        Ok(standings)
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        let Inside { pool, feed } = &*self.inside;
        let connection = pool.connection().await?;
        let mut standings = Vec::with_capacity(leaving.len());
        for some in by_names(leaving, |one| one.claim().map_or(1, |claim| claim.demands.len())) {
            // Of an answer to several nobody hears who holds now if it is lost: so those are pushed.
            let call = if leaving.len() == 1 { encode::release } else { encode::release_by_rule };
            let doing = || doing("releasing", some.iter().flat_map(names_left));
            let answer = pool.call_on(&connection, doing, &call(some, pool.now())).await?;
            standings.extend(decode::departures(&answer, some.len())?);
        }
        if let ([Standing::Gone(why @ Why::PassedOn(..))], [leaving]) = (&mut standings[..], leaving) {
            feed.passed_on(why, leaving);
        }
        self.inside.have_it(&connection, &standings, || ANSWERED_WITHIN).await?;
        Ok(standings)
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        let limit = query.limit.clamp(1, 10_000);
        let beginning = match &query.names {
            Names::One(name) => {
                keys::check(name)?;
                let wanted = query.after.as_ref().is_none_or(|after| name > after);
                let names = if wanted { slice::from_ref(name) } else { &[] };
                // Both at once: of many who look at the same time, the first need not wait until all have looked.
                let (resources, fleet) =
                    futures::join!(self.look(names, query.entries), listings::fleet(&self.inside.pool));
                return Ok(Page { resources: resources?, next: None, fleet: fleet? });
            }
            Names::Beginning(beginning) => beginning,
        };
        let mut walk = Walk::begin(&self.inside.pool, beginning, query.after.as_ref()).await?;
        let mut page = Page { fleet: walk.fleet, ..Page::default() };
        loop {
            // What is listed may be gone by now; then there is room for more.
            let (mut names, is_more) = walk.next(limit - page.resources.len()).await?;
            page.resources.extend(self.look(&names, query.entries).await?);
            if is_more && page.resources.len() == limit {
                page.next = names.pop();
            }
            if !is_more || page.next.is_some() {
                return Ok(page);
            }
        }
    }

    async fn record(&self, report: &Report) -> Result<()> {
        let pool = &self.inside.pool;
        for call in encode::record(report) {
            let answer = pool.call(|| "reporting".to_owned(), &call).await?;
            pool.tell_time(decode::time(&answer)?);
        }
        Ok(())
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        Watch::begin(&self.inside, scope).boxed()
    }
}

/// What is being done, with the names that it is done to unless they are many.
fn doing<'a>(verb: &str, names: impl Iterator<Item = &'a Name>) -> String {
    let names: Vec<_> = names.take(NAMES_SHOWN + 1).map(|name| format!("{name:?}")).collect();
    match names.len() {
        1..=NAMES_SHOWN => format!("{verb} {}", names.join(", ")),
        _ => verb.to_owned(),
    }
}

fn names_in(claim: &Claim) -> impl Iterator<Item = &Name> {
    claim.demands.iter().map(|demand| &demand.name)
}

fn names_left(leaving: &Leaving) -> impl Iterator<Item = &Name> {
    let broken = match leaving {
        Leaving::Break { name, .. } => Some(name),
        _ => None,
    };
    leaving.claim().into_iter().flat_map(|claim| names_in(claim)).chain(broken)
}

/// Some at a time, so that no script deals with too many names; each with at least one.
fn by_names<T>(all: &[T], names: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let (mut parts, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = rest.iter().take_while(|one| {
            sum += names(one);
            sum <= NAMES_A_SCRIPT
        });
        let (part, after) = rest.split_at(fits.count().max(1));
        parts.push(part);
        rest = after;
    }
    parts
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.inside.feed.close();
        self.inside.pool.close();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("server", self.inside.pool.server()).finish_non_exhaustive()
    }
}
