//! `lockfast run`: runs a command while it holds a lock.

use std::ffi::OsString;
use std::ops::Deref;
use std::time::Duration;

use clap::ValueEnum;
use lockfast::{Builder, Error, Guard, Locks, OnceGuard, OnceState, Retry};
use tracing::Instrument;

use crate::args::LockArgs;
use crate::cmd::SHUTDOWN_WITHIN;
use crate::duration::{self, brief};
use crate::exit::{Exit, Failure, conclude};
use crate::guardian::messages::Status;
use crate::run::signals::{self, Signals};
use crate::run::{CommandEnd, Task, environment, supervise, waiting};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  lockfast run nightly -- ./backup.sh            wait in the queue for the lock, then run the command
  lockfast run -n nightly -- ./backup.sh         or give up at once, with exit code 75 and the holder's name
  lockfast run --skip nightly -- ./backup.sh     or skip it: the same crontab line on every server
  lockfast run -w 1m30s db -c 'dump | gzip > x'  wait for at most 90 seconds; a shell line instead of a command
  lockfast run -j 3 api -- ./call.sh             at most three at once
  lockfast run --at-most 10m nightly -- ./job    end it after ten minutes, with exit code 124
  lockfast run --once 1d order:7 -- ./ship 7     at most once a day for this key, if it succeeds

The command finds its fencing token in the environment, as LOCKFAST_FENCE: a number that rises with every holder. A system
that is sent the fence with every write can refuse a late write of an earlier holder.

The lock is released when the command exits, even if the command left processes in the background. When the lock is lost,
the command and all its descendants are ended before another holder can get the lock, also while lockfast itself is
stopped or was killed. Nothing can end a command while the machine is suspended; after that it is dead within
milliseconds, and until then only the fence protects.

Exit codes: the command's own, or 128+n if signal n ended it. 75: not acquired. 79: the lock was lost. 124: --at-most.
64: usage. 69: the store cannot be reached. 78: config or URL. 126: the command cannot be executed. 127: there is no such
command. 125: lockfast itself failed, for instance because its guardian process was killed.";

/// Run a command while holding a lock, and end it if the lock is lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "lockfast run [OPTIONS] KEY -- COMMAND [ARG]...\n       lockfast run [OPTIONS] KEY -c LINE")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// The exit code when the lock was not acquired [default: 75]
    #[arg(short = 'E', long, value_name = "N")]
    conflict_exit_code: Option<u8>,
    /// When the lock is held, print the holder and exit with 0 without running the command
    #[arg(long, conflicts_with_all = ["wait", "nonblock", "conflict_exit_code"])]
    skip: bool,
    /// End the command after this long
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    at_most: Option<Duration>,
    /// Keep the lock for this long from the start, even if the command ends earlier; lockfast does not wait for that
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    at_least: Option<Duration>,
    /// Run it at most once for KEY: after it has succeeded, KEY is remembered as done for this long
    #[arg(long, value_name = "DUR", value_parser = duration::parse, conflicts_with_all = ["shared", "slots", "also", "at_least"])]
    once: Option<Duration>,
    #[command(flatten)]
    pub(super) ending: EndingArgs,
    #[command(flatten)]
    pub(super) command_line: CommandLine,
}

/// How a command is ended, and the environment it gets.
#[derive(Debug, clap::Args)]
pub(super) struct EndingArgs {
    /// The signal that ends the command
    #[arg(long, value_name = "SIG", default_value = "TERM", value_parser = signals::parse)]
    signal: i32,
    /// Kill the command if it has not ended this long after that signal; at most a third of the lease (TTL) [default: 5s]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    kill_after: Option<Duration>,
    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, value_name = "WHAT", default_value = "terminate")]
    on_lost: OnLost,
    /// Remove the store's URL and credentials from the command's environment
    #[arg(long)]
    clean_env: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// End it before another holder can get the lock
    Terminate,
    /// Let it go on without the lock, and print a warning
    Warn,
}

/// The command to run.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct CommandLine {
    /// Run this line with the shell
    #[arg(short = 'c', long = "command", value_name = "LINE")]
    shell: Option<OsString>,
    /// The command and its arguments; nothing after `--` is parsed
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

impl CommandLine {
    pub(super) fn into_words(self) -> Vec<OsString> {
        match self.shell {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line],
            None => self.words,
        }
    }
}

impl EndingArgs {
    /// Less if the lease is shorter than 15 s.
    const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);

    /// The task that runs `command`.
    pub(super) fn task(
        &self,
        command: Vec<OsString>,
        settings: &Settings,
        ttl: Duration,
        kill_after: Duration,
    ) -> Task {
        let (variables, hidden) = match self.clean_env {
            true => (Vec::new(), environment::credential_variables()),
            false => (environment::store_variables(settings), Vec::new()),
        };
        Task {
            command,
            variables,
            hidden,
            signal: self.signal,
            kill_after,
            at_most: None,
            ends_on_loss: self.on_lost == OnLost::Terminate,
            ttl,
        }
    }

    /// The time between the ending signal and SIGKILL. It has to fit between two renewals, which are a third of the lease apart.
    pub(super) fn kill_after(&self, ttl: Duration) -> Result<Duration, Failure> {
        match self.kill_after {
            None => Ok(Self::DEFAULT_KILL_AFTER.min(ttl / 3)),
            Some(span) if span <= ttl / 3 => Ok(span),
            Some(span) => Err(Failure::new(
                Exit::RunUsage,
                format!(
                    "--kill-after {} is more than a third of the ttl of {}; use at most {}, or a longer --ttl",
                    brief(span),
                    brief(ttl),
                    brief(ttl / 3)
                ),
            )),
        }
    }
}

/// Runs a command under a lock.
pub(crate) async fn run(args: RunArgs, settings: Settings) -> Exit {
    let trace = environment::trace_id();
    let exit = async { conclude(Run { args, settings, trace }.run().await) };
    exit.instrument(tracing::error_span!("run", %trace)).await
}

struct Run {
    args: RunArgs,
    settings: Settings,
    trace: lockfast::TraceId,
}

/// The guard that is held while the command runs.
enum RunGuard {
    Lock(Guard),
    /// Sealed when the command succeeds.
    Once(OnceGuard),
}

impl Deref for RunGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Once(guard) => guard,
        }
    }
}

impl Run {
    async fn run(self) -> Result<Exit, Failure> {
        let LockArgs { key, also, .. } = &self.args.lock;
        let ttl = self.settings.ttl_with_flag(self.args.lock.ttl);
        let kill_after = self.args.ending.kill_after(ttl)?;
        if let (Some(least), Some(most)) = (self.args.at_least, self.args.at_most)
            && least > most
        {
            return Err(Failure::new(
                Exit::RunUsage,
                "--at-least is longer than --at-most; swap them, or leave one out",
            ));
        }
        let mut signals = Signals::listen().map_err(|error| io_failure("listening to signals", &error))?;
        let locks = tokio::select! {
            locks = self.settings.connect(self.builder()) => locks?,
            signal = signals.next() => return Ok(Exit::Signal(signal as u8)),
        };
        let keys = std::iter::once(key).chain(also).map(String::as_str);
        refuse_nested(&locks, keys).await?;

        let status = waiting::StoreStatus::new(key);
        let acquired = waiting::unless_signalled(self.acquire(&locks, ttl), &mut signals, &locks, &status).await;
        let guard = match acquired {
            Ok(Ok(Some(guard))) => guard,
            Ok(Ok(None)) => {
                tracing::info!("{key} was done already");
                return Ok(Exit::Yes);
            }
            Ok(Err(error)) => return self.report_not_acquired(&error),
            Err(signal) => {
                // Leave the queue now: otherwise other waiters would wait until this claim's lease ends.
                let _ = locks.shutdown(SHUTDOWN_WITHIN).await;
                return Ok(Exit::Signal(signal as u8));
            }
        };
        let mut task = self.args.ending.task(self.args.command_line.into_words(), &self.settings, ttl, kill_after);
        task.at_most = self.args.at_most;
        task.variables.extend(environment::lock_variables(&guard, key, ttl, self.trace));
        let end = supervise(&guard, &task, &mut signals).await;
        let exit = release(guard, end, &task).await;
        let _ = locks.shutdown(SHUTDOWN_WITHIN).await;
        exit
    }

    fn builder(&self) -> Builder {
        let mut builder = self.settings.builder().trace_id(self.trace).count_children(true);
        if self.patience() == Some(Duration::ZERO) {
            builder = builder.retry(Retry { count: Some(0), ..Retry::default() });
        }
        let LockArgs { name, label, .. } = &self.args.lock;
        if let Some(name) = name {
            builder = builder.note(name);
        }
        label.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
    }

    fn patience(&self) -> Option<Duration> {
        if self.args.skip { Some(Duration::ZERO) } else { self.args.lock.patience() }
    }

    /// Acquires the lock; `None` when `--once` finds that it was done before.
    async fn acquire(&self, locks: &Locks, ttl: Duration) -> lockfast::Result<Option<RunGuard>> {
        let LockArgs { key, also, shared, slots, .. } = &self.args.lock;
        // Without patience, the client's retry setting makes it one attempt.
        let max_wait = self.patience().filter(|patience| !patience.is_zero());
        if let Some(keep) = self.args.once {
            let once = locks.once(key).ttl(ttl).keep(keep);
            let state = match max_wait {
                Some(patience) => once.begin_within(patience).await?,
                None => once.begin().await?,
            };
            return Ok(match state {
                OnceState::Ours(guard) => Some(RunGuard::Once(guard)),
                OnceState::AlreadyDone(_) => None,
            });
        }
        /// Acquires through one of the primitives, which share options but not verbs.
        macro_rules! acquire {
            ($primitive:expr, $wait:ident, $wait_within:ident) => {{
                let mut primitive = $primitive.ttl(ttl);
                if let Some(span) = self.args.at_least {
                    primitive = primitive.hold_at_least(span);
                }
                match max_wait {
                    Some(patience) => primitive.$wait_within(patience).await,
                    None => primitive.$wait().await,
                }
            }};
        }
        let guard = match slots {
            Some(slots) => acquire!(locks.semaphore(key, *slots), acquire, acquire_within),
            None if *shared => acquire!(locks.rwlock(key), read, read_within),
            None if also.is_empty() => acquire!(locks.mutex(key), lock, lock_within),
            None => acquire!(locks.multi(std::iter::once(key).chain(also)), lock, lock_within),
        };
        guard.map(RunGuard::Lock).map(Some)
    }

    /// Reports the holder. Returns the exit code, or the failure if the lock was not acquired for another reason.
    fn report_not_acquired(&self, error: &Error) -> Result<Exit, Failure> {
        let Error::Busy { holder, held_for, position, waited, .. } = error else {
            return Err(Failure::from_run_error(format!("acquiring {}", self.args.lock.key), error));
        };
        let holder = holder.as_ref().map_or_else(|| "another holder".to_owned(), ToString::to_string);
        let since = held_for.map(|span| format!(" for {}", brief(span))).unwrap_or_default();
        if self.args.skip {
            tracing::info!("skipped: held by {holder}{since}");
            return Ok(Exit::Yes);
        }
        // Of several keys, the store does not report which one is held.
        let LockArgs { key, also, .. } = &self.args.lock;
        let what = if also.is_empty() { key.clone() } else { format!("one of {key}, {}", also.join(", ")) };
        let mut text = format!("{what} is held by {holder}{since}");
        // A single attempt has waited only for the store's reply, not for a holder.
        if self.patience() != Some(Duration::ZERO) {
            text += &format!("; gave up after {}", brief(*waited));
        }
        if let Some(ahead @ 1..) = position {
            text += &format!(" with {ahead} ahead in the queue");
        }
        tracing::warn!("{text}");
        Ok(self.args.conflict_exit_code.map_or(Exit::NotAcquired, Exit::Code))
    }
}

/// Refuses a key that a `run` around this one holds: the two would wait for each other.
pub(super) async fn refuse_nested(locks: &Locks, keys: impl Iterator<Item = &str>) -> Result<(), Failure> {
    match environment::held_by_outer_run(locks, keys).await {
        Ok(None) => Ok(()),
        Ok(Some(key)) => Err(Failure::new(
            Exit::RunUsage,
            format!(
                "{key} is held by a lockfast around this one, which would have to end first; take it once, outside"
            ),
        )),
        Err(error) => Err(Failure::from_run_error("checking which locks the outer command holds", &error)),
    }
}

/// Releases the lock now that the command is over, and returns the exit code.
async fn release(guard: RunGuard, end: std::io::Result<CommandEnd>, task: &Task) -> Result<Exit, Failure> {
    let has_succeeded = matches!(end, Ok(CommandEnd::Exited(Status::Code(0))));
    // Either the loss has ended the command and was reported then, or `--on-lost warn` lets losses change nothing.
    let is_loss_handled = matches!(end, Ok(CommandEnd::Lost)) || !task.ends_on_loss;
    let names = guard.names().collect::<Vec<_>>().join(", ");
    let released = match guard {
        RunGuard::Once(guard) if has_succeeded => match guard.done("").await {
            Err(error @ Error::Unavailable { .. }) => {
                return Err(Failure::from_run_error(format!("remembering that {names} was done"), &error));
            }
            released => released,
        },
        RunGuard::Once(guard) => guard.release().await,
        RunGuard::Lock(guard) => guard.release().await,
    };
    match released {
        Err(error @ Error::Lost { .. }) if !is_loss_handled => {
            tracing::error!("{error}");
            return Ok(Exit::Lost);
        }
        // The command is over, and its exit code counts even if the store does not answer now; the lease ends by itself.
        Err(error) if !is_loss_handled => tracing::warn!("releasing {names}: {error}"),
        _ => {}
    }
    exit_of(end, task)
}

/// The exit code for the end of a command.
pub(super) fn exit_of(end: std::io::Result<CommandEnd>, task: &Task) -> Result<Exit, Failure> {
    let program = || task.command[0].to_string_lossy();
    match end {
        Ok(CommandEnd::Exited(Status::Code(code))) => Ok(Exit::Code(code)),
        Ok(CommandEnd::Exited(Status::Signal(signal))) => Ok(Exit::Signal(signal)),
        Ok(CommandEnd::Lost) => Ok(Exit::Lost),
        Ok(CommandEnd::AtMost) => Ok(Exit::AtMost),
        Ok(CommandEnd::Unguarded) => Ok(Exit::Failed),
        Ok(CommandEnd::NotStarted(error)) => {
            let exit = match error.kind() {
                std::io::ErrorKind::NotFound => Exit::NotFound,
                // The system could not start another process; nothing is wrong with the command.
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory => Exit::Failed,
                _ => Exit::NotExecutable,
            };
            Err(Failure::new(exit, format!("running {}: {error}", program())))
        }
        Err(error) => Err(io_failure(&format!("starting {}", program()), &error)),
    }
}

pub(super) fn io_failure(doing: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{doing}: {error}"))
}
