//! Messages on standard error: one line for each, `lockfast: ..` for people or JSON for programs. Our own messages and the
//! library's share one subscriber, so `-v`, `-q` and `--log-format` apply to all of them.

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
use crate::out::escape_controls;
use crate::stderr::Stderr;

/// The target of the library's messages; the program's own targets begin with `lockfast` too.
const LIBRARY_TARGET: &str = "lockfast::client";

/// Starts to show messages.
pub(crate) fn start(globals: &Globals, format: LogFormat) {
    let level = match (globals.quiet, globals.verbose) {
        (true, _) => Level::ERROR,
        (_, 0) => Level::INFO,
        (_, 1) => Level::DEBUG,
        _ => Level::TRACE,
    };
    // The library's errors and infos, like a lost lock or an ended patience, are reported by the commands themselves.
    let is_verbose = globals.verbose > 0;
    let is_shown = filter_fn(move |event| {
        is_verbose || *event.level() == Level::WARN || !event.target().starts_with(LIBRARY_TARGET)
    });
    // A message that cannot be formatted must not cause another message.
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(|| Stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => subscriber.event_format(Line).finish().with(is_shown).init(),
        LogFormat::Json => {
            subscriber.json().with_timer(Utc).with_target(false).flatten_event(true).finish().with(is_shown).init();
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
        let mut text = EventText::default();
        event.record(&mut text);
        writeln!(writer, "lockfast: {}{}", escape_controls(&text.message), escape_controls(&text.fields))
    }
}

#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
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
