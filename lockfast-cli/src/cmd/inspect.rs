//! `lockfast inspect`: one lock in full.

use clap::ValueEnum;
use lockfast::Clock;

use crate::exit::{Exit, Failure, conclude};
use crate::out::print_result;
use crate::settings::Settings;
use crate::show::{json, text};

const EXAMPLES: &str = "\
Examples:
  lockfast inspect nightly                            its holder, since when, until when, and its waiters in order
  lockfast inspect nightly -o json | jq .holders[0].fence
  lockfast inspect nightly -o json | jq -r '.waiters[] | \"\\(.position) \\(.host)\"'

Exits 0 when its queue has a holder or a waiter, 1 when its queue is empty, 69 when the store cannot be reached.";

/// Show one lock in full: its holder, and its waiters in order
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// Which lock
    #[arg(value_name = "KEY")]
    key: String,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One object
    Json,
}

pub(crate) async fn run(args: InspectArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &InspectArgs, settings: &Settings) -> Result<Exit, Failure> {
    let locks = settings.locks().await?;
    let resource = locks.mutex(&args.key).info().await;
    let resource = resource.map_err(|error| Failure::from_error(format!("inspecting {:?}", args.key), &error))?;
    let now = Clock::boot().wall();
    match (&resource, args.output) {
        (Some(resource), Format::Text) => print_result(&text::in_full(resource, now))?,
        (Some(resource), Format::Json) => print_result(&json::pretty(&json::Queue::of(resource, now)))?,
        (None, Format::Text) => {
            return Err(Failure::new(Exit::No, format!("{:?} is free: its queue is empty", args.key)));
        }
        (None, Format::Json) => print_result("null\n")?,
    }
    Ok(if resource.is_some() { Exit::Yes } else { Exit::No })
}
