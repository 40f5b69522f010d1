//! How the program ends: every exit code that a script may rely on, in one place.
//!
//! `run` and `elect` exit with the code of their child, so their own codes are ones that programs rarely use: those of
//! `sysexits.h` and of `timeout`. The other commands answer a question: 0 is yes, 1 is no.

use std::process::{ExitCode, Termination};

use lockfast::Error;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Yes; done.
    Yes,
    /// No: the lock is free, held by another claim, or unknown; or a check failed.
    No,
    /// The command line is invalid.
    Usage,
    /// The same for `run` and `elect`, whose child may exit with 2.
    RunUsage,
    /// The store cannot be reached.
    StoreUnreachable,
    /// `run` did not get the lock.
    NotAcquired,
    /// A setting, a config file or the store's URL is wrong.
    Config,
    /// The lock was lost while the command ran.
    Lost,
    /// The command was ended by `--at-most`.
    AtMost,
    /// `run` failed in some other way.
    Failed,
    /// The command exists but cannot be executed.
    NotExecutable,
    /// There is no such command.
    NotFound,
    /// The child's code, or that of `-E`.
    Code(u8),
    /// The child died of this signal.
    Signal(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::RunUsage => 64,
            Self::StoreUnreachable => 69,
            Self::NotAcquired => 75,
            Self::Config => 78,
            Self::Lost => 79,
            Self::AtMost => 124,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Code(code) => code,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }

    /// The code of an error in a command that answers a question.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error {
            Error::Busy { .. } | Error::Lost { .. } => Self::No,
            Error::Invalid(_) | Error::Unsupported(_) => Self::Usage,
            _ => Self::StoreUnreachable,
        }
    }

    /// The code of an error in `run` and `elect`.
    pub(crate) fn of_run_error(error: &Error) -> Self {
        match error {
            Error::Busy { .. } => Self::NotAcquired,
            Error::Lost { .. } => Self::Lost,
            Error::Invalid(_) | Error::Unsupported(_) => Self::RunUsage,
            Error::Unavailable { .. } => Self::StoreUnreachable,
            _ => Self::Failed,
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// Why a command failed: its message and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// What was being done, what went wrong, what to do next; `None` when nothing needs to be added.
    message: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()) }
    }

    /// Ends without a message.
    pub(crate) fn quiet(exit: Exit) -> Self {
        Self { exit, message: None }
    }

    /// The store or the library returned an error while lockfast was `doing` something.
    pub(crate) fn from_error(doing: impl std::fmt::Display, error: &Error) -> Self {
        let advice = match error {
            Error::Unavailable { .. } => "; `lockfast doctor` looks for the cause",
            _ => "",
        };
        Self::new(Exit::of_error(error), format!("{doing}: {error}{advice}"))
    }

    /// The same with the exit codes of `run` and `elect`.
    pub(crate) fn from_run_error(doing: impl std::fmt::Display, error: &Error) -> Self {
        Self { exit: Exit::of_run_error(error), ..Self::from_error(doing, error) }
    }

    /// Writes the message and returns the exit code.
    pub(crate) fn report(self) -> Exit {
        if let Some(message) = self.message {
            tracing::error!("{message}");
        }
        self.exit
    }
}

/// The exit code of a command, after its message if it failed.
pub(crate) fn conclude(outcome: Result<Exit, Failure>) -> Exit {
    outcome.unwrap_or_else(Failure::report)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockfast::Locks;
    use lockfast::store::Name;

    use super::*;

    #[test]
    fn every_way_to_end_has_its_code() {
        let codes = [
            (Exit::Yes, 0),
            (Exit::No, 1),
            (Exit::Usage, 2),
            (Exit::RunUsage, 64),
            (Exit::StoreUnreachable, 69),
            (Exit::NotAcquired, 75),
            (Exit::Config, 78),
            (Exit::Lost, 79),
            (Exit::AtMost, 124),
            (Exit::Failed, 125),
            (Exit::NotExecutable, 126),
            (Exit::NotFound, 127),
            (Exit::Code(7), 7),
            (Exit::Signal(15), 143),
        ];
        for (exit, code) in codes {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[tokio::test]
    async fn every_error_has_an_exit_code_and_one_for_run() {
        let locks = Locks::in_memory();
        let guard = locks.mutex("a").lock().await.unwrap();
        let busy = locks.mutex("a").lock_within(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!((Exit::of_error(&busy), Exit::of_run_error(&busy)), (Exit::No, Exit::NotAcquired));
        locks.break_lock_now("a", guard.fence().unwrap()).await.unwrap();
        guard.lost().await;
        let lost = guard.release().await.unwrap_err();
        assert_eq!((Exit::of_error(&lost), Exit::of_run_error(&lost)), (Exit::No, Exit::Lost));
        let invalid = Name::new("").unwrap_err();
        assert_eq!((Exit::of_error(&invalid), Exit::of_run_error(&invalid)), (Exit::Usage, Exit::RunUsage));
        let unsupported = Error::unsupported("no");
        assert_eq!((Exit::of_error(&unsupported), Exit::of_run_error(&unsupported)), (Exit::Usage, Exit::RunUsage));
        let unavailable = Error::unavailable("asking", "no server");
        assert_eq!(
            (Exit::of_error(&unavailable), Exit::of_run_error(&unavailable)),
            (Exit::StoreUnreachable, Exit::StoreUnreachable)
        );
        locks.shutdown(Duration::from_secs(5)).await.unwrap();
        let closed = locks.mutex("a").lock().await.unwrap_err();
        assert_eq!((Exit::of_error(&closed), Exit::of_run_error(&closed)), (Exit::StoreUnreachable, Exit::Failed));
    }
}
