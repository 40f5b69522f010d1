//! Turns errors of the store into those that callers see: with the names that they wrote, and what was being done. A store knows
//! neither the prefix nor the caller.

use crate::claim::{Demand, Demands};
use crate::error::Error;
use crate::name::Name;

use super::Client;

/// Descriptions that stores use for their verbs. The client's description is more precise, so these are left out.
const VERBS: [&str; 6] = ["acquiring", "renewing", "releasing", "inspecting", "reporting", "asking"];

impl Client {
    /// A name as the user wrote it.
    pub(crate) fn shown<'a>(&self, name: &'a Name) -> &'a str {
        name.as_str().strip_prefix(self.prefix.as_str()).unwrap_or(name.as_str())
    }

    pub(crate) fn title(&self, demands: &Demands) -> String {
        let mut names = demands.iter().map(|demand| self.shown(&demand.name));
        let first = names.next().unwrap_or_default().to_owned();
        names.fold(first, |title, name| title + ", " + name)
    }

    pub(crate) fn doing(&self, what: &str, demands: &Demands) -> String {
        format!("{what} {:?}", self.title(demands))
    }

    /// The error of doing `what` with these demands.
    pub(crate) fn explain(&self, error: Error, what: &str, demands: &Demands) -> Error {
        self.explain_as(error, || self.doing(what, demands), demands.iter().map(|demand| &demand.name))
    }

    /// The same for calls that are no request for locks.
    pub(crate) fn explain_as<'a>(
        &self,
        error: Error,
        doing: impl FnOnce() -> String,
        names: impl Iterator<Item = &'a Name> + Clone,
    ) -> Error {
        match self.in_written_names(error, names.clone()) {
            Error::Unavailable { doing: step, cause } => {
                let mut shown = names.map(|name| format!("{:?}", self.shown(name)));
                let is_said = VERBS.contains(&step.as_str()) || shown.any(|name| step.contains(&name));
                // Any other step, like connecting, is part of the cause.
                Error::unavailable(doing(), if is_said { cause } else { format!("{step}: {cause}") })
            }
            other => other,
        }
    }

    /// An error about a request, with the names that the user wrote.
    pub(crate) fn in_users_words(&self, error: Error, demands: &[Demand]) -> Error {
        self.in_written_names(error, demands.iter().map(|demand| &demand.name))
    }

    pub(crate) fn in_written_names<'a>(&self, error: Error, names: impl Iterator<Item = &'a Name>) -> Error {
        if self.prefix.is_empty() {
            return error;
        }
        let names: Vec<_> = names.map(|name| (format!("{name:?}"), format!("{:?}", self.shown(name)))).collect();
        let written = |text: String| names.iter().fold(text, |text, (stored, shown)| text.replace(stored, shown));
        match error {
            Error::Unavailable { doing, cause } => Error::Unavailable { doing: written(doing), cause: written(cause) },
            Error::Invalid(text) => Error::Invalid(written(text)),
            Error::Unsupported(text) => Error::Unsupported(written(text)),
            other => other,
        }
    }
}
