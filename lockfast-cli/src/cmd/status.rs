//! `lockfast status`: whether a lock is held, as one line for people and as an exit code for scripts.

use crate::exit::{Exit, Failure, conclude};
use crate::out::{escape_controls, print_result};
use crate::settings::Settings;
use crate::show::text;

const EXAMPLES: &str = "\
Examples:
  lockfast status nightly                                   nightly: held by web-2 (pid 812) for 3m12s, fence 41
  lockfast status nightly > /dev/null && echo busy          for a script
  while lockfast status deploy; do sleep 5; done            (better: lockfast run -w 10m deploy -- ..)

Exits 0 when it is held, 1 when it is free, 69 when the store cannot be reached. The state may have changed by the time you
read it: to do something while the lock is free, take it (`lockfast run -n`).";

/// Print in one line whether a lock is held; exits 0 if it is, 1 if it is free
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Which lock
    #[arg(value_name = "KEY")]
    key: String,
}

pub(crate) async fn run(args: StatusArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &StatusArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let resource = locks.mutex(&args.key).info().await;
    let resource = resource.map_err(|error| Failure::from_error(format!("looking at {:?}", args.key), &error))?;
    print_result(&format!("{}: {}\n", escape_controls(&args.key), text::in_short(resource.as_ref())))?;
    let is_held = resource.is_some_and(|resource| resource.holders().next().is_some());
    Ok(if is_held { Exit::Yes } else { Exit::No })
}
