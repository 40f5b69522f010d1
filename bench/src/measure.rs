//! Clocks, counts and tables for benchmarks.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

#[expect(clippy::disallowed_methods, reason = "a benchmark measures, it does not judge leases")]
pub(crate) fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// The processor time of all threads of this process so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of `figures / baselines`, round by round: a disturbance slows both sides of a round, so their ratio stays.
pub(crate) fn median_ratio(figures: &[f64], baselines: &[f64]) -> f64 {
    let ratios: Vec<_> = figures.iter().zip(baselines).map(|(figure, baseline)| figure / baseline).collect();
    if ratios.is_empty() { f64::NAN } else { median(ratios) }
}

/// The value that this share of all values does not exceed.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// One row of the table: what was measured, its figure, its bar, and whether the figure meets the bar.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) figure: String,
    pub(crate) bar: &'static str,
    /// `None` for a row without a bar.
    pub(crate) is_met: Option<bool>,
}

pub(crate) fn print_rows(rows: &[Row]) {
    let width = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (what, figure, bar) = (width(|row| row.what.len()), width(|row| row.figure.len()), width(|row| row.bar.len()));
    for row in rows {
        let verdict = match row.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        println!("{:what$}  {:>figure$}  {:bar$}  {verdict}", row.what, row.figure, row.bar);
    }
}
