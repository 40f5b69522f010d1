//! `lockfast elect`: leader election. A command runs on one of many servers, and on another one when that fails.

use std::time::Duration;

use lockfast::{Clock, Error, Locks, TraceId};
use tracing::Instrument;

use super::SHUTDOWN_WITHIN;
use super::run::{CommandLine, EndingArgs, exit_of, io_failure, refuse_nested};
use crate::args::parse_label;
use crate::duration;
use crate::exit::{Exit, Failure, conclude};
use crate::run::signals::Signals;
use crate::run::waiting::StoreStatus;
use crate::run::{CommandEnd, environment, supervise, waiting};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  lockfast elect scheduler -- ./scheduler              start it on every server: one leads and runs it
  lockfast elect scheduler --name 10.0.0.5 -- ./serve  publish the leader's address: `lockfast inspect scheduler` shows it
  lockfast elect --ttl 10s scheduler -- ./scheduler    another one takes over ten seconds after a crash

All others wait in the queue. When the leader's command ends by itself, lockfast ends with its exit code, and the next
waiter leads. When leadership is lost, the command is ended before another one can lead, and lockfast campaigns again.
Exit codes are those of `lockfast run`.";

/// The pause after a campaign that failed because the store did not answer.
const CAMPAIGN_PAUSE: Duration = Duration::from_secs(1);

/// Run a command on one of all servers that campaign, and on another one when that fails
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "lockfast elect [OPTIONS] KEY -- COMMAND [ARG]...\n       lockfast elect [OPTIONS] KEY -c LINE")]
pub(crate) struct ElectArgs {
    /// What to lead: any text
    #[arg(value_name = "KEY")]
    key: String,
    /// The lease (TTL): how long leadership lasts when the leader stops renewing it [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// A name for this candidate, like its address, shown by `ls` and `inspect`
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// A label for this candidate, shown by `ls -o wide` and `inspect` (repeatable)
    #[arg(long, value_name = "K=V", value_parser = parse_label)]
    label: Vec<(String, String)>,
    #[command(flatten)]
    ending: EndingArgs,
    #[command(flatten)]
    command_line: CommandLine,
}

/// Campaigns, and runs a command while leading.
pub(crate) async fn run(args: ElectArgs, settings: Settings) -> Exit {
    let trace = environment::trace_id();
    let exit = async { conclude(elect(args, settings, trace).await) };
    exit.instrument(tracing::error_span!("elect", %trace)).await
}

async fn elect(args: ElectArgs, settings: Settings, trace: TraceId) -> Result<Exit, Failure> {
    let ElectArgs { key, ttl, name, label, ending, command_line } = args;
    let ttl = settings.ttl_with_flag(ttl);
    let kill_after = ending.kill_after(ttl)?;
    let mut task = ending.task(command_line.into_words(), &settings, ttl, kill_after);
    let store_variables = task.variables.clone();
    let mut signals = Signals::listen().map_err(|error| io_failure("listening to signals", &error))?;
    let mut builder = settings.builder().trace_id(trace).count_children(true);
    if let Some(name) = name {
        builder = builder.note(name);
    }
    builder = label.iter().fold(builder, |builder, (key, value)| builder.label(key, value));
    let locks = tokio::select! {
        locks = settings.connect(builder) => locks?,
        signal = signals.next() => return Ok(Exit::Signal(signal as u8)),
    };
    refuse_nested(&locks, std::iter::once(key.as_str())).await?;
    let exit = loop {
        let status = StoreStatus::new(&key);
        let campaign = campaign(&locks, &key, ttl, &status);
        let leadership = match waiting::unless_signalled(campaign, &mut signals, &locks, &status).await {
            Ok(leadership) => {
                leadership.map_err(|error| Failure::from_run_error(format!("campaigning for {key}"), &error))?
            }
            Err(signal) => break Ok(Exit::Signal(signal as u8)),
        };
        tracing::info!("leading {key}");
        task.variables = [store_variables.clone(), environment::lock_variables(&leadership, &key, ttl, trace)].concat();
        let end = supervise(&leadership, &task, &mut signals).await;
        let is_lost = matches!(end, Ok(CommandEnd::Lost));
        // The command is dead, so another candidate may lead, whether the store receives the release or not.
        let stepped_down = leadership.step_down().await;
        // A lockfast that got an ending signal before it lost leadership must not lead again.
        if is_lost && !signals.has_end_request() {
            tracing::info!("campaigning again for {key}");
            continue;
        }
        match stepped_down {
            Err(error @ Error::Lost { .. }) if task.ends_on_loss => {
                if !is_lost {
                    tracing::error!("{error}");
                }
                break Ok(Exit::Lost);
            }
            // The command is over, and its exit code counts even if the store does not answer now; the lease ends by itself.
            Err(error) if task.ends_on_loss => tracing::warn!("stepping down from {key}: {error}"),
            _ => {}
        }
        break exit_of(end, &task);
    };
    let _ = locks.shutdown(SHUTDOWN_WITHIN).await;
    exit
}

/// Campaigns for as long as it takes, also while the store does not answer.
async fn campaign(
    locks: &Locks,
    key: &str,
    ttl: Duration,
    status: &StoreStatus<'_>,
) -> lockfast::Result<lockfast::Leadership> {
    loop {
        match locks.election(key).ttl(ttl).campaign().await {
            Err(error) if error.is_retryable() => {
                status.on_unanswered(&error.to_string());
                let mut timer = lockfast::store::Timer::new(Clock::boot());
                timer.sleep_until(Clock::boot().now() + CAMPAIGN_PAUSE).await;
            }
            result => return result,
        }
    }
}
