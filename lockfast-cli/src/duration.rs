//! Durations as people write and read them.

use std::time::Duration;

/// Reads `90`, `1.5s`, `250ms`, `1m30s`, `2h`, `1d12h`: a bare number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let refusal = || {
        format!("{text:?} is not a duration; write seconds (`90`), or numbers with units: `250ms`, `1m30s`, `2h`, `1d`")
    };
    let mut rest = text.trim();
    let (mut total_seconds, mut is_bare) = (0.0, false);
    if rest.is_empty() {
        return Err(refusal());
    }
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..number_len].parse().map_err(|_| refusal())?;
        rest = &rest[number_len..];
        let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit_seconds = match &rest[..unit_len] {
            "" if total_seconds == 0.0 => {
                is_bare = true;
                1.0
            }
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return Err(refusal()),
        };
        rest = &rest[unit_len..];
        total_seconds += number * unit_seconds;
        if is_bare && !rest.is_empty() {
            return Err(refusal());
        }
    }
    Duration::try_from_secs_f64(total_seconds).map_err(|_| refusal())
}

/// At most two units: `0s`, `250ms`, `42s`, `3m12s`, `2h5m`, `3d4h`.
pub(crate) fn brief(span: Duration) -> String {
    let seconds = span.as_secs();
    let in_units = |count: u64, unit: &str, rest: u64, rest_unit: &str| match rest {
        0 => format!("{count}{unit}"),
        _ => format!("{count}{unit}{rest}{rest_unit}"),
    };
    match seconds {
        0 if span.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => in_units(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => in_units(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => in_units(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_seconds_and_units_add_up() {
        for (text, millis) in [
            ("0", 0),
            ("90", 90_000),
            ("1.5", 1_500),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_duration_is_refused_with_examples() {
        for text in ["", "s", "-1", "5x", "1 m", "5m3", "1e400", "..", "ten", "1m 30s"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("1m30s"), "{refused}");
        }
    }

    #[test]
    fn a_duration_is_shown_in_at_most_two_units() {
        let brief = |millis| super::brief(Duration::from_millis(millis));
        assert_eq!([brief(0), brief(250), brief(42_900)], ["0s", "250ms", "42s"]);
        assert_eq!([brief(192_000), brief(7_500_000), brief(273_600_000)], ["3m12s", "2h5m", "3d4h"]);
        assert_eq!([brief(60_000), brief(3_600_000)], ["1m", "1h"]);
    }
}
