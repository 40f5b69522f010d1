//! The command line's syntax. Parsing only: `settings.rs` merges the flags with the environment and the config files; what a
//! command does is in `cmd/`, beside its own arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::cmd::{
    acquire, break_, completions, doctor, elect, inspect, ls, man, release, renew, run, stats, status, watch,
};
use crate::duration;

const EXAMPLES: &str = "\
Examples:
  lockfast run nightly -- ./backup.sh            run a command while holding the lock `nightly`
  lockfast run --skip nightly -- ./backup.sh     the same from cron on every server: one runs it, the others skip
  lockfast ls                                    all locks with their holders and waiters
  lockfast inspect nightly                       one lock in full
  lockfast doctor                                is the store reachable, and what does it promise
  lockfast run --store redis://cache.internal nightly -- ./backup.sh
                                                 with locks that all servers share

The store is set by --store, LOCKFAST_URL or a config file (see lockfast.example.toml): redis://HOST for Redis or Valkey,
rediss://HOST with TLS, sqlite:FILE for a file. The default is a file in your state directory, shared by all your
processes on this machine.

LOCKFAST_RECORD=FILE appends a recording of this client's inputs and effects to FILE, for a bug report. The file contains
the names of locks; it contains no secrets, values, notes or labels.";

/// Locks that work across processes and servers: exclusive access to a named resource, freed when its holder dies.
#[derive(Debug, Parser)]
#[command(name = "lockfast", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Accepted before and after the command's name.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct Globals {
    /// The store, like redis://user:password@host or sqlite:/path/locks.db; `-` reads it from standard input, so that a
    /// password need not be an argument
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) store: Option<String>,
    /// Put before every key in the store
    #[arg(long, global = true, value_name = "TEXT", help_heading = "Global options")]
    pub(crate) prefix: Option<String>,
    /// Read this config file and no other
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// Write more messages to standard error; twice for all of them
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Write only errors to standard error
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// The format of messages on standard error
    #[arg(long, global = true, value_enum, value_name = "FORMAT", help_heading = "Global options")]
    pub(crate) log_format: Option<LogFormat>,
}

impl std::fmt::Debug for Globals {
    /// Without the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Globals").field("prefix", &self.prefix).field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object per line, for programs
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::RunArgs>),
    Elect(Box<elect::ElectArgs>),
    Ls(ls::LsArgs),
    Inspect(inspect::InspectArgs),
    Status(status::StatusArgs),
    Acquire(acquire::AcquireArgs),
    Renew(renew::RenewArgs),
    Release(release::ReleaseArgs),
    Break(break_::BreakArgs),
    Watch(watch::WatchArgs),
    Stats(stats::StatsArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// What to lock, in which mode, with which lease and how long to wait: the same for every command that takes a lock.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LockArgs {
    /// What to lock: any text
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Lock this too, together with KEY: all or nothing (repeatable)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["shared", "slots"])]
    pub(crate) also: Vec<String>,
    /// Share it with other --shared holders
    #[arg(short, long, conflicts_with_all = ["exclusive", "slots"])]
    pub(crate) shared: bool,
    /// Hold it alone (the default)
    #[arg(short = 'x', long, conflicts_with = "slots")]
    pub(crate) exclusive: bool,
    /// At most N holders at once; all users of KEY have to give the same N
    #[arg(short = 'j', long, value_name = "N")]
    pub(crate) slots: Option<u32>,
    /// Give up at once when the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Give up after this long, like `90` (seconds) or `1m30s`; without it, wait for ever
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// The lease (TTL): how long the lock stays held when its holder stops renewing it [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// A name for this holder or waiter, shown by `ls` and `inspect`
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// A label for this holder or waiter, shown by `ls -o wide` and `inspect` (repeatable)
    #[arg(long, value_name = "K=V", value_parser = parse_label)]
    pub(crate) label: Vec<(String, String)>,
}

impl LockArgs {
    /// How long to wait; `None` is for ever, zero is not at all.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.wait }
    }
}

/// Reads `key=value`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is not a label; write `key=value`")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn global_options_are_accepted_before_and_after_the_command() {
        for line in ["lockfast --store memory: -v man", "lockfast man --store memory: -v"] {
            let args = Args::try_parse_from(line.split(' ')).unwrap();
            assert_eq!((args.globals.store.as_deref(), args.globals.verbose), (Some("memory:"), 1), "{line}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let args = Args::try_parse_from(["lockfast", "man", "--store", "redis://:s3cret@db"]).unwrap();
        assert!(!format!("{args:?}").contains("s3cret"));
    }
}
