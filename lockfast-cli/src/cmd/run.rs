//! `lockfast run`: a command under a lock.

use std::ffi::OsString;
use std::ops::Deref;
use std::time::Duration;

use clap::ValueEnum;
use lockfast::{Builder, Error, Guard, Locks, OnceGuard, OnceState, Retry};
use tracing::Instrument;

use crate::args::Wanted;
use crate::duration::{self, brief};
use crate::exit::{Exit, Failure, conclude};
use crate::guardian::wire::Status;
use crate::run::signals::{self, Signals};
use crate::run::{Ended, Task, environment, supervise, waiting};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  lockfast run nightly -- ./backup.sh            wait until nobody else runs it, then run it
  lockfast run -n nightly -- ./backup.sh         or give up at once, with exit code 75 and a word on who has it
  lockfast run --skip nightly -- ./backup.sh     or skip it: the same crontab line on every server
  lockfast run -w 1m30s db -c 'dump | gzip > x'  wait for at most 90 seconds; a shell line instead of a command
  lockfast run -j 3 api -- ./call.sh             at most three at once
  lockfast run --at-most 10m nightly -- ./job    end it after ten minutes, with exit code 124
  lockfast run --once 1d order:7 -- ./ship 7     at most once a day for this key, if it succeeds

The command finds LOCKFAST_FENCE in its environment: a number that rises with every holder. Where it can be sent along
with a write, a late write of an earlier holder can be refused.

The lock is the command's: it is given back when the command exits, whatever that left running in the background. When
the lock is lost, the command and everything it has started is ended before anybody else can get the lock, also while
lockfast itself is stopped or was killed. Nothing can end a command while the machine is suspended; after that it is
dead within milliseconds, and until then only the fence protects.

Exit codes: the command's own, or 128+n if signal n ended it. 75: not acquired. 79: the lock was lost. 124: --at-most.
64: usage. 69: the store cannot be reached. 78: config or URL. 126, 127: the command cannot be run, is not there.
125: lockfast itself failed, for instance when somebody killed its guardian process.";

/// Run a command while holding a lock, and end it if the lock is lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "lockfast run [OPTIONS] KEY -- COMMAND [ARG]...\n       lockfast run [OPTIONS] KEY -c LINE")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// The exit code when the lock was not acquired [default: 75]
    #[arg(short = 'E', long, value_name = "N")]
    conflict_exit_code: Option<u8>,
    /// When somebody else has it, say so and succeed without running the command
    #[arg(long, conflicts_with_all = ["wait", "nonblock", "conflict_exit_code"])]
    skip: bool,
    /// End the command after this long
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    at_most: Option<Duration>,
    /// Keep the lock for this long from the start, even if the command is quicker; does not wait for it
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    at_least: Option<Duration>,
    /// Run it at most once for KEY: when it has succeeded, that is remembered for this long
    #[arg(long, value_name = "DUR", value_parser = duration::parse, conflicts_with_all = ["shared", "slots", "also", "at_least"])]
    once: Option<Duration>,
    #[command(flatten)]
    pub(super) ending: Ending,
    #[command(flatten)]
    pub(super) line: Line,
}

/// What ends a command that has to end.
#[derive(Debug, clap::Args)]
pub(super) struct Ending {
    /// What asks the command to end
    #[arg(long, value_name = "SIG", default_value = "TERM", value_parser = signals::parse)]
    signal: i32,
    /// Kill it if it has not ended this long after that; at most a third of the ttl [default: 5s]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    kill_after: Option<Duration>,
    /// What becomes of the command when the lock is lost
    #[arg(long, value_enum, value_name = "WHAT", default_value = "terminate")]
    on_lost: OnLost,
    /// Take the store's URL and credentials out of the command's environment
    #[arg(long)]
    clean_env: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// It is ended before anybody else can get the lock
    Terminate,
    /// It goes on without the lock, and a line says so
    Warn,
}

/// What to run.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Line {
    /// Run this line with the shell
    #[arg(short = 'c', long = "command", value_name = "LINE")]
    shell: Option<OsString>,
    /// The command and its arguments; nothing after `--` is ours to read
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

impl Line {
    pub(super) fn into_words(self) -> Vec<OsString> {
        match self.shell {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line],
            None => self.words,
        }
    }
}

impl Ending {
    const KILL_AFTER: Duration = Duration::from_secs(5);

    /// A task to run `command` under `guard`.
    pub(super) fn task(
        &self,
        command: Vec<OsString>,
        settings: &Settings,
        ttl: Duration,
        kill_after: Duration,
    ) -> Task {
        let (variables, hidden) = match self.clean_env {
            true => (Vec::new(), environment::credentials()),
            false => (environment::store(settings), Vec::new()),
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

    /// How long the command has to end by itself: it has to fit between two renewals.
    pub(super) fn kill_after(&self, ttl: Duration) -> Result<Duration, Failure> {
        match self.kill_after {
            None => Ok(Self::KILL_AFTER.min(ttl / 3)),
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

/// The ttl when nobody says anything.
pub(super) const TTL: Duration = Duration::from_secs(30);

/// Runs a command under a lock.
pub(crate) async fn run(args: RunArgs, settings: Settings) -> Exit {
    let trace = environment::trace();
    let running = async { conclude(Run { args, settings, trace }.run().await) };
    running.instrument(tracing::error_span!("run", %trace)).await
}

struct Run {
    args: RunArgs,
    settings: Settings,
    trace: lockfast::TraceId,
}

/// What is held while the command runs.
enum Held {
    Lock(Guard),
    /// To be remembered as done.
    Once(OnceGuard),
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Once(doing) => doing,
        }
    }
}

impl Run {
    async fn run(self) -> Result<Exit, Failure> {
        let Wanted { key, also, .. } = &self.args.wanted;
        let ttl = self.args.wanted.ttl.or(self.settings.ttl).unwrap_or(TTL);
        let kill_after = self.args.ending.kill_after(ttl)?;
        if let (Some(least), Some(most)) = (self.args.at_least, self.args.at_most)
            && least > most
        {
            return Err(Failure::new(
                Exit::RunUsage,
                "--at-least is longer than --at-most; swap them, or leave one out",
            ));
        }
        let mut signals = Signals::listen().map_err(|error| failed("listening to signals", &error))?;
        let locks = tokio::select! {
            locks = self.settings.connect(self.builder()) => locks?,
            signal = signals.next() => return Ok(Exit::Signal(signal as u8)),
        };
        let keys = std::iter::once(key).chain(also).map(String::as_str);
        refuse_nested(&locks, keys).await?;

        let contact = waiting::Contact::new(key);
        let entered = waiting::unless_signalled(self.enter(&locks, ttl), &mut signals, &locks, &contact).await;
        let held = match entered {
            Ok(Ok(Some(held))) => held,
            Ok(Ok(None)) => {
                tracing::info!("{key} was done already");
                return Ok(Exit::Yes);
            }
            Ok(Err(error)) => return self.not_entered(&error),
            Err(signal) => {
                // Others must not wait for our place in line until its lease ends.
                let _ = locks.shutdown(LEAVING).await;
                return Ok(Exit::Signal(signal as u8));
            }
        };
        let mut task = self.args.ending.task(self.args.line.into_words(), &self.settings, ttl, kill_after);
        task.at_most = self.args.at_most;
        task.variables.extend(environment::of(&held, key, ttl, self.trace));
        let ended = supervise(&held, &task, &mut signals).await;
        let exit = give_back(held, ended, &task).await;
        let _ = locks.shutdown(LEAVING).await;
        exit
    }

    fn builder(&self) -> Builder {
        let mut builder = self.settings.builder().trace_id(self.trace).count_children(true);
        if self.patience() == Some(Duration::ZERO) {
            builder = builder.retry(Retry { count: Some(0), ..Retry::default() });
        }
        let Wanted { name, label, .. } = &self.args.wanted;
        if let Some(name) = name {
            builder = builder.note(name);
        }
        label.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
    }

    fn patience(&self) -> Option<Duration> {
        if self.args.skip { Some(Duration::ZERO) } else { self.args.wanted.patience() }
    }

    /// Gets in, or finds that it was done before.
    async fn enter(&self, locks: &Locks, ttl: Duration) -> lockfast::Result<Option<Held>> {
        let Wanted { key, also, shared, slots, .. } = &self.args.wanted;
        // No patience at all is one attempt, as the client was told.
        let within = self.patience().filter(|patience| !patience.is_zero());
        if let Some(keep) = self.args.once {
            let once = locks.once(key).ttl(ttl).keep(keep);
            let begun = match within {
                Some(patience) => once.begin_within(patience).await?,
                None => once.begin().await?,
            };
            return Ok(match begun {
                OnceState::Ours(doing) => Some(Held::Once(doing)),
                OnceState::AlreadyDone(_) => None,
            });
        }
        /// Asks one of the faces, which have the same options and verbs of their own.
        macro_rules! ask {
            ($face:expr, $wait:ident, $within:ident) => {{
                let mut face = $face.ttl(ttl);
                if let Some(span) = self.args.at_least {
                    face = face.hold_at_least(span);
                }
                match within {
                    Some(patience) => face.$within(patience).await,
                    None => face.$wait().await,
                }
            }};
        }
        let guard = match slots {
            Some(slots) => ask!(locks.semaphore(key, *slots), acquire, acquire_within),
            None if *shared => ask!(locks.rwlock(key), read, read_within),
            None if also.is_empty() => ask!(locks.mutex(key), lock, lock_within),
            None => ask!(locks.multi(std::iter::once(key).chain(also)), lock, lock_within),
        };
        guard.map(Held::Lock).map(Some)
    }

    fn not_entered(&self, error: &Error) -> Result<Exit, Failure> {
        let Error::Busy { holder, held_for, position, waited, .. } = error else {
            return Err(Failure::while_running(format!("acquiring {}", self.args.wanted.key), error));
        };
        let holder = holder.as_ref().map_or_else(|| "somebody else".to_owned(), ToString::to_string);
        let since = held_for.map(|span| format!(" for {}", brief(span))).unwrap_or_default();
        if self.args.skip {
            tracing::info!("skipped: held by {holder}{since}");
            return Ok(Exit::Yes);
        }
        // Of several, the store does not say which.
        let Wanted { key, also, .. } = &self.args.wanted;
        let what = if also.is_empty() { key.clone() } else { format!("one of {key}, {}", also.join(", ")) };
        let mut text = format!("{what} is held by {holder}{since}");
        // Who asks once has waited for the answer, however long that took, and for nobody.
        if self.patience() != Some(Duration::ZERO) {
            text += &format!("; gave up after {}", brief(*waited));
        }
        if let Some(ahead @ 1..) = position {
            text += &format!(" with {ahead} ahead in line");
        }
        tracing::warn!("{text}");
        Ok(self.args.conflict_exit_code.map_or(Exit::NotAcquired, Exit::As))
    }
}

/// How long the store is waited for when everything else is over.
pub(super) const LEAVING: Duration = Duration::from_secs(2);

/// Waiting for what a `run` around this one holds would be waiting for itself.
pub(super) async fn refuse_nested(locks: &Locks, keys: impl Iterator<Item = &str>) -> Result<(), Failure> {
    match environment::held_around_us(locks, keys).await {
        Ok(None) => Ok(()),
        Ok(Some(key)) => Err(Failure::new(
            Exit::RunUsage,
            format!(
                "{key} is held by a lockfast around this one, which would have to end first; take it once, outside"
            ),
        )),
        Err(error) => Err(Failure::while_running("looking at what is held around this command", &error)),
    }
}

/// Gives the lock back now that the command is over, and says what to end with.
async fn give_back(held: Held, ended: std::io::Result<Ended>, task: &Task) -> Result<Exit, Failure> {
    let is_done = matches!(ended, Ok(Ended::Exited(Status::Code(0))));
    let is_lost_anyway = matches!(ended, Ok(Ended::Lost)) || !task.ends_on_loss;
    let title = held.names().collect::<Vec<_>>().join(", ");
    let given_back = match held {
        Held::Once(doing) if is_done => match doing.done("").await {
            Err(error @ Error::Unavailable { .. }) => {
                return Err(Failure::while_running(format!("remembering that {title} was done"), &error));
            }
            given_back => given_back,
        },
        Held::Once(doing) => doing.release().await,
        Held::Lock(guard) => guard.release().await,
    };
    match given_back {
        Err(error @ Error::Lost { .. }) if !is_lost_anyway => {
            tracing::error!("{error}");
            return Ok(Exit::Lost);
        }
        // The command is over. That the store does not answer now is no failure of it; the lease ends by itself.
        Err(error) if !is_lost_anyway => tracing::warn!("giving back {title}: {error}"),
        _ => {}
    }
    exit_of(ended, task)
}

/// What the end of a command means.
pub(super) fn exit_of(ended: std::io::Result<Ended>, task: &Task) -> Result<Exit, Failure> {
    let program = || task.command[0].to_string_lossy();
    match ended {
        Ok(Ended::Exited(Status::Code(code))) => Ok(Exit::As(code)),
        Ok(Ended::Exited(Status::Signal(signal))) => Ok(Exit::Signal(signal)),
        Ok(Ended::Lost) => Ok(Exit::Lost),
        Ok(Ended::AtMost) => Ok(Exit::AtMost),
        Ok(Ended::Unguarded) => Ok(Exit::Failed),
        Ok(Ended::NotStarted(error)) => {
            let exit = match error.kind() {
                std::io::ErrorKind::NotFound => Exit::NotFound,
                // No process could be had; nothing is wrong with the command.
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory => Exit::Failed,
                _ => Exit::NotExecutable,
            };
            Err(Failure::new(exit, format!("running {}: {error}", program())))
        }
        Err(error) => Err(failed(&format!("starting {}", program()), &error)),
    }
}

pub(super) fn failed(doing: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{doing}: {error}"))
}
