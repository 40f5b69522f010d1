//! What the program says on standard error: one line for each message, `lockfast: ..` for people or JSON for machines.
//! Our own messages and the library's go the same way, so `-v`, `-q` and `--log-format` are about all of them.

use std::fmt::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Globals, LogFormat};
use crate::out::plain;
use crate::stderr::Stderr;

/// Where the library's messages come from; the program's own module path begins in the same way.
const LIBRARY: &str = "lockfast::client";

/// From here on, messages are shown.
pub(crate) fn start(globals: &Globals, format: LogFormat) {
    let level = match (globals.quiet, globals.verbose) {
        (true, _) => Level::ERROR,
        (_, 0) => Level::INFO,
        (_, 1) => Level::DEBUG,
        _ => Level::TRACE,
    };
    // What the library says when a lock is lost or waited for in vain, commands say in their own words.
    let in_full = globals.verbose > 0;
    let is_news = filter_fn(move |said| in_full || *said.level() == Level::WARN || !said.target().starts_with(LIBRARY));
    // A message that cannot be formatted is no reason to say more.
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(|| Stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.event_format(Line).finish().with(is_news).init(),
        LogFormat::Json => {
            lines.json().with_timer(Utc).with_target(false).flatten_event(true).finish().with(is_news).init();
        }
    }
}

/// `lockfast: message field=value ..`
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let mut words = Words::default();
        event.record(&mut words);
        writeln!(writer, "lockfast: {}{}", plain(&words.message), plain(&words.fields))
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            name => self.fields += &format!(" {name}={value}"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// The time of day in UTC, for the JSON lines.
struct Utc;

impl tracing_subscriber::fmt::time::FormatTime for Utc {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        let now = jiff::Timestamp::try_from(lockfast::Clock::boot().wall()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(writer, "{now:.3}")
    }
}
