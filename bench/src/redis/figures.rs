//! Figures and their bars, as a table for people, as Markdown and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

/// One measured number: a row of a table. Two trees are compared by the names of their rows (`section`, `what` and `unit`).
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) section: &'static str,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    pub(crate) bar: Option<Bar>,
}

/// The unit of a figure. The variants' names are part of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A ratio: `1.28x`.
    Times,
    Microseconds,
    PerSecond,
    Percent,
    Megabytes,
    /// A whole number.
    Count,
    /// An average per item: `2.00`.
    Each,
}

impl Unit {
    pub(crate) fn format(self, value: f64) -> String {
        if !value.is_finite() {
            // A ratio whose divisor is zero: one task had no turn at all.
            return if value.is_nan() { "not measured".to_owned() } else { "without end".to_owned() };
        }
        match self {
            Self::Times => format!("{value:.2}x"),
            Self::Microseconds if value >= 10_000.0 => format!("{:.1} ms", value / 1e3),
            Self::Microseconds => format!("{value:.1} us"),
            Self::PerSecond if value < 10.0 => format!("{value:.1}/s"),
            Self::PerSecond => format!("{}/s", group_thousands(value)),
            Self::Percent if value < 0.1 && value > 0.0 => format!("{value:.3} %"),
            Self::Percent => format!("{value:.1} %"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Count => group_thousands(value),
            Self::Each => format!("{value:.2}"),
        }
    }
}

fn group_thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value <= -0.5 { format!("-{grouped}") } else { grouped }
}

/// The limit of a figure, and a stretch goal beyond it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    /// Whether the figure has to be at most the limit. Otherwise it has to be at least the limit.
    is_upper: bool,
    limit: f64,
    stretch: Option<f64>,
}

impl Bar {
    pub(crate) fn at_most(limit: f64) -> Self {
        Self { is_upper: true, limit, stretch: None }
    }

    pub(crate) fn at_least(limit: f64) -> Self {
        Self { is_upper: false, limit, stretch: None }
    }

    /// Adds a stretch goal, which is stricter than the limit.
    pub(crate) fn with_stretch(self, stretch: f64) -> Self {
        Self { stretch: Some(stretch), ..self }
    }

    /// A figure that was not measured never meets its bar.
    fn verdict(&self, value: f64) -> &'static str {
        let meets = |limit: f64| if self.is_upper { value <= limit } else { value >= limit };
        match self.stretch {
            _ if value.is_nan() => "no figure",
            _ if !meets(self.limit) => "MISSED",
            Some(stretch) if meets(stretch) => "met, better than asked",
            _ => "met",
        }
    }

    fn label(&self, unit: Unit) -> String {
        let mut label = format!("{} {}", if self.is_upper { "at most" } else { "at least" }, unit.format(self.limit));
        if let Some(stretch) = self.stretch {
            let _ = write!(label, " (better: {})", unit.format(stretch));
        }
        label
    }
}

impl Figure {
    pub(crate) fn new(section: &'static str, what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { section, what: what.into(), value, unit, bar: None }
    }

    pub(crate) fn with_bar(mut self, bar: Bar) -> Self {
        self.bar = Some(bar);
        self
    }

    fn cells(&self) -> [String; 4] {
        let bar = self.bar.map(|bar| bar.label(self.unit)).unwrap_or_default();
        let verdict = self.bar.map(|bar| bar.verdict(self.value)).unwrap_or_default();
        // A figure without a bar is indented under the one with a bar.
        let indent = if self.bar.is_some() { "" } else { "  " };
        [format!("{indent}{}", self.what), self.unit.format(self.value), bar, verdict.to_owned()]
    }
}

/// The figures, grouped by their sections.
fn sections(figures: &[Figure]) -> impl Iterator<Item = &[Figure]> {
    figures.chunk_by(|one, next| one.section == next.section)
}

pub(crate) fn print_table(figures: &[Figure]) {
    let cells: Vec<_> = figures.iter().map(Figure::cells).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (what, figure, bar) = (width(0), width(1), width(2));
    for section in sections(figures) {
        println!("\n{}", section[0].section);
        for row in section {
            let [name, value, limit, verdict] = row.cells();
            println!("  {}", format!("{name:what$}  {value:>figure$}  {limit:bar$}  {verdict}").trim_end());
        }
    }
}

pub(crate) fn print_markdown(machine: &str, figures: &[Figure]) {
    println!("\n{machine}.\n\n| | figure | bar | |\n|---|---:|---|---|");
    for section in sections(figures) {
        println!("| **{}** | | | |", section[0].section);
        for row in section {
            let [name, value, limit, verdict] = row.cells();
            println!("| {} | {value} | {limit} | {verdict} |", name.trim_start());
        }
    }
}

pub(crate) fn as_json(figures: &[Figure]) -> Value {
    let figure = |row: &Figure| {
        let bar = row.bar.map(|bar| json!({ "at_most": bar.is_upper, "limit": bar.limit, "stretch": bar.stretch }));
        let verdict = row.bar.map(|bar| bar.verdict(row.value));
        json!({
            "section": row.section,
            "what": row.what,
            "value": row.value,
            "unit": format!("{:?}", row.unit).to_lowercase(),
            "bar": bar,
            "verdict": verdict,
        })
    };
    Value::Array(figures.iter().map(figure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_on_its_own_side_and_never_by_a_missing_figure() {
        let bar = Bar::at_most(1.25).with_stretch(1.05);
        assert_eq!(bar.verdict(1.26), "MISSED");
        assert_eq!(bar.verdict(1.25), "met");
        assert_eq!(bar.verdict(1.0), "met, better than asked");
        assert_eq!(bar.verdict(f64::NAN), "no figure");
        assert_eq!(Bar::at_least(8.0).verdict(7.9), "MISSED");
        assert_eq!(Bar::at_least(8.0).verdict(8.0), "met");
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(Unit::PerSecond.format(1_234_567.4), "1,234,567/s");
        assert_eq!(Unit::Count.format(100.0), "100");
    }
}
