//! `lockfast break`: an operator ends a claim. Compare-and-break: the fence names the claim, so that a claim which joined in
//! the meantime is never broken.

use lockfast::store::Ticket;
use lockfast::{Clock, Resource};

use crate::exit::{Exit, Failure, conclude};
use crate::settings::Settings;
use crate::show::{describe, json, text};

const EXAMPLES: &str = "\
Examples:
  lockfast inspect nightly                    show the holder and its fencing token (fence)
  lockfast break nightly --fence 41           the holder is notified and stops; then the lock goes to the next waiter
  lockfast break nightly --fence 41 --now     hand it off at once: the old holder may still be running
  lockfast break nightly --fence 42           the fence of a waiter removes it from the queue

`lockfast run` ends its command when its lock is broken. A holder that does not react keeps the lock until its lease ends.
Exits 0 when there was such a claim, 1 when there was not; then the message names the current holder, if there is one.";

/// End a claim on a lock, chosen by its fencing token (fence)
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BreakArgs {
    /// Which lock
    #[arg(value_name = "KEY")]
    key: String,
    /// The fencing token (fence) of the claim to end, as `ls` and `inspect` show it
    #[arg(long, value_name = "N")]
    fence: u64,
    /// Hand the lock off at once, without waiting for its holder to stop
    #[arg(long)]
    now: bool,
}

pub(crate) async fn run(args: BreakArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &BreakArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let BreakArgs { key, fence, now } = args;
    let to_failure = |error| Failure::from_error(format!("breaking {key:?}"), &error);
    let before = locks.mutex(key).info().await.map_err(to_failure)?;
    let broken = match now {
        true => locks.break_lock_now(key, *fence).await,
        false => locks.break_lock(key, *fence).await,
    };
    if !broken.map_err(to_failure)? {
        let found = locks.mutex(key).info().await.map_err(to_failure)?;
        let state = text::in_short(found.as_ref());
        return Err(Failure::new(Exit::No, format!("{key:?} has no claim with fence {fence}; it is {state}")));
    }
    let owner = before.as_ref().and_then(|resource| owner_of(resource, Ticket(*fence)));
    tracing::info!(
        key,
        fence,
        now,
        at = json::time(Clock::boot().wall()),
        by = operator(),
        "broke the claim of {}",
        owner.as_deref().unwrap_or("a client that had just joined")
    );
    Ok(Exit::Yes)
}

/// The owner of the claim with this fence, which may be any number of its block.
fn owner_of(resource: &Resource, fence: Ticket) -> Option<String> {
    resource.queue.iter().find(|entry| entry.tickets.contains(fence)).map(|entry| describe(&entry.note))
}

/// The operator, for the log.
fn operator() -> String {
    let name = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|key| std::env::var(key).ok());
    format!("{} (pid {})", name.as_deref().unwrap_or("unknown"), std::process::id())
}

#[cfg(test)]
mod tests {
    use lockfast::Entry;
    use lockfast::store::Tickets;

    use crate::show::tests::{holder, resource, waiter};

    use super::*;

    #[test]
    fn any_fence_of_a_block_finds_its_claim() {
        let block = Entry { tickets: Tickets::new(Ticket(41), 3), ..holder(1) };
        let resource = resource("a", vec![block, Entry { tickets: Tickets::new(Ticket(44), 1), ..waiter(2) }]);
        assert_eq!(owner_of(&resource, Ticket(43)).as_deref(), Some("web-1 (pid 812)"));
        assert_eq!(owner_of(&resource, Ticket(44)).as_deref(), Some("web-2 (pid 813)"));
        assert_eq!(owner_of(&resource, Ticket(45)), None);
    }
}
