//! Durations as riak.conf writes them: `500ms`, `1h`, `1w2d`, or a bare number in the key's unit.

use std::time::Duration;

/// The unit that a bare number has for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths of a second.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
}

impl Unit {
    /// As written in configuration: `ms`, `s`.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Minutes => "m",
        }
    }
}

/// Reads a duration; `None` when the text is not one.
pub(crate) fn parse(text: &str, bare: Unit) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return term(text, bare.symbol());
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        total = total.checked_add(term(number, unit)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// One number with its unit; the number may have a fraction, the unit is one of cuttlefish's.
fn term(number: &str, unit: &str) -> Option<Duration> {
    let milliseconds: u64 = match unit {
        "f" => 14 * 86_400_000,
        "w" => 7 * 86_400_000,
        "d" => 86_400_000,
        "h" => 3_600_000,
        "m" => 60_000,
        "s" => 1_000,
        "ms" => 1,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Nine digits resolve a nanosecond of the smallest unit; more have no meaning.
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole = Duration::from_millis(whole.parse::<u64>().ok()?.checked_mul(milliseconds)?);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(milliseconds) * 1_000_000
        / u128::from(scale);
    whole.checked_add(Duration::from_nanos(u64::try_from(part).ok()?))
}

/// Writes a duration in the largest unit that divides it.
pub(crate) fn render(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (size, unit) in [
        (7 * 86_400_000, "w"),
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if milliseconds > 0 && milliseconds.is_multiple_of(size) {
            return format!("{}{unit}", milliseconds / size);
        }
    }
    format!("{milliseconds}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_riak_conf_is_read() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("3m", 180_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1w", 604_800_000),
            ("1f", 1_209_600_000),
            ("1w2d", 777_600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("0s", 0),
        ] {
            assert_eq!(
                parse(text, Unit::Seconds),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bare_number_has_the_unit_of_its_key() {
        assert_eq!(parse("3", Unit::Seconds), Some(Duration::from_secs(3)));
        assert_eq!(
            parse("3", Unit::Milliseconds),
            Some(Duration::from_millis(3))
        );
        assert_eq!(parse("3", Unit::Minutes), Some(Duration::from_secs(180)));
    }

    #[test]
    fn anything_else_is_no_duration() {
        for text in [
            "",
            "s",
            "1",
            "-1",
            "1x",
            "1h 5",
            "1.s",
            "99999999999999999w",
            "1.5",
        ] {
            let read = parse(text, Unit::Seconds);
            assert!(read.is_none() || text == "1", "{text} was read as {read:?}");
        }
    }

    #[test]
    fn rendering_reads_back_as_the_same_duration() {
        for milliseconds in [0, 1, 999, 1000, 90_000, 3_600_000, 604_800_000] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse(&render(duration), Unit::Seconds), Some(duration));
        }
    }
}
