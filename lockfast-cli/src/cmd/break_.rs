//! `lockfast break`: an operator ends somebody's claim. Compare-and-break: the fence says whose, so that a claim which came
//! in the meantime is never hit.

use lockfast::store::Ticket;
use lockfast::{Clock, Resource};

use crate::exit::{Exit, Failure, conclude};
use crate::settings::Settings;
use crate::show::{json, lines, who};

const EXAMPLES: &str = "\
Examples:
  lockfast inspect nightly                    see who holds it, and with which fence
  lockfast break nightly --fence 41           its holder is told and stops; then the lock passes on
  lockfast break nightly --fence 41 --now     pass it on at once: the holder may still be at it
  lockfast break nightly --fence 42           the fence of one who waits puts it out of the line

`lockfast run` ends its command when its lock is broken. A holder that does not answer keeps its place until its lease
ends. Exits 0 when there was such a claim, 1 when there was not: then says what is there instead.";

/// End somebody's claim on a lock, by its fence
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BreakArgs {
    /// Which lock
    #[arg(value_name = "KEY")]
    key: String,
    /// The fence of the claim to end, as `ls` and `inspect` show it
    #[arg(long, value_name = "N")]
    fence: u64,
    /// Pass the lock on at once, without waiting for its holder to stop
    #[arg(long)]
    now: bool,
}

pub(crate) async fn run(args: BreakArgs, settings: Settings) -> Exit {
    conclude(answer(&args, &settings).await)
}

async fn answer(args: &BreakArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let BreakArgs { key, fence, now } = args;
    let failed = |error| Failure::while_(format!("breaking {key:?}"), &error);
    let before = locks.mutex(key).info().await.map_err(failed)?;
    let broken = match now {
        true => locks.break_lock_now(key, *fence).await,
        false => locks.break_lock(key, *fence).await,
    };
    if !broken.map_err(failed)? {
        let there = locks.mutex(key).info().await.map_err(failed)?;
        let instead = lines::in_short(there.as_ref());
        return Err(Failure::new(Exit::No, format!("{key:?} has no claim with fence {fence}; it is {instead}")));
    }
    let whose = before.as_ref().and_then(|resource| owner_of(resource, Ticket(*fence)));
    tracing::info!(
        key,
        fence,
        now,
        at = json::time(Clock::boot().wall()),
        by = operator(),
        "broke the claim of {}",
        whose.as_deref().unwrap_or("somebody who had just come")
    );
    Ok(Exit::Yes)
}

/// Who has the claim with this fence, which may be any number of its block.
fn owner_of(resource: &Resource, fence: Ticket) -> Option<String> {
    resource.queue.iter().find(|entry| entry.tickets.contains(fence)).map(|entry| who(&entry.note))
}

/// Who gave the order, for the record.
fn operator() -> String {
    let name = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|key| std::env::var(key).ok());
    format!("{} (pid {})", name.as_deref().unwrap_or("unknown"), std::process::id())
}

#[cfg(test)]
mod tests {
    use lockfast::Entry;
    use lockfast::store::Tickets;

    use crate::show::tests::{entry, resource};

    use super::*;

    #[test]
    fn any_number_of_a_block_says_whose_claim_it_is() {
        let block = Entry { tickets: Tickets::new(Ticket(41), 3), ..entry(1, true) };
        let line = resource("a", vec![block, Entry { tickets: Tickets::new(Ticket(44), 1), ..entry(2, false) }]);
        assert_eq!(owner_of(&line, Ticket(43)).as_deref(), Some("web-1 (pid 812)"));
        assert_eq!(owner_of(&line, Ticket(44)).as_deref(), Some("web-2 (pid 813)"));
        assert_eq!(owner_of(&line, Ticket(45)), None);
    }
}
