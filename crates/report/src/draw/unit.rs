//! Units: the text of a value on an axis and in a sentence.

use super::scale_kind::ScaleKind;

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds since the run's start.
    Seconds,
    /// Operations per second.
    Rate,
    /// A latency in microseconds, shown in milliseconds.
    Microseconds,
    /// Processor time of one operation, in microseconds.
    CpuTime,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    ByteRate,
    /// Cores kept busy.
    Cores,
    /// A part of a whole, from 0 to 1.
    Share,
    /// A plain number.
    Number,
}

/// Decimal prefixes with their powers of a thousand.
const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];

/// A non-breaking space between a number and its unit.
const BLANK: char = '\u{a0}';

impl Unit {
    /// The unit's name in the page's script.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Rate => "rate",
            Self::Microseconds => "microseconds",
            Self::CpuTime => "cpu-time",
            Self::Bytes => "bytes",
            Self::ByteRate => "byte-rate",
            Self::Cores => "cores",
            Self::Share => "share",
            Self::Number => "number",
        }
    }

    /// A value in a sentence: three or four digits and the unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Seconds => duration(value),
            Self::Rate => format!("{}{BLANK}ops/s", grouped(value)),
            Self::Microseconds => microseconds(value),
            Self::CpuTime => format!("{}{BLANK}\u{b5}s", grouped(value)),
            Self::Bytes => prefixed(value, "B"),
            Self::ByteRate => prefixed(value, "B/s"),
            Self::Cores => format!("{}{BLANK}cores", digits(value)),
            Self::Share => format!("{}{BLANK}%", digits(100.0 * value)),
            Self::Number => grouped(value),
        }
    }

    /// A tick's text; `largest` is the greatest tick of the axis, whose unit all of them share.
    pub fn tick(self, value: f64, largest: f64, kind: ScaleKind) -> String {
        if kind == ScaleKind::Logarithmic {
            return self.text(value);
        }
        match self {
            Self::Seconds => clock(value, largest),
            Self::Microseconds => with_unit(value / 1e3, "ms"),
            Self::Bytes => with_prefix_of(value, largest, "B"),
            Self::ByteRate => with_prefix_of(value, largest, "B/s"),
            Self::Rate | Self::Number => grouped(value),
            Self::Cores => plain(value),
            Self::Share | Self::CpuTime => self.text(value),
        }
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        format!("{}{BLANK}{unit}", plain(value))
    }
}

/// A length of time, in its two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round();
    if seconds < 0.0 {
        format!("-{}", duration(-seconds))
    } else if seconds < 60.0 {
        format!("{}{BLANK}s", digits(seconds))
    } else if whole < 3600.0 {
        two_units((whole / 60.0).floor(), "min", whole % 60.0, "s")
    } else {
        let minutes = (whole / 60.0).round();
        two_units((minutes / 60.0).floor(), "h", minutes % 60.0, "min")
    }
}

fn two_units(large: f64, large_unit: &str, small: f64, small_unit: &str) -> String {
    if small == 0.0 {
        format!("{large}{BLANK}{large_unit}")
    } else {
        format!("{large}{BLANK}{large_unit}{BLANK}{small}{BLANK}{small_unit}")
    }
}

/// A place on a time axis, in one unit for the whole axis, which its greatest tick determines.
fn clock(seconds: f64, largest: f64) -> String {
    let (divisor, unit) = if largest < 120.0 {
        (1.0, "s")
    } else if largest < 7200.0 {
        (60.0, "min")
    } else {
        (3600.0, "h")
    };
    with_unit(seconds / divisor, unit)
}

/// Latencies of every size have one unit: a column that mixes microseconds and seconds cannot be
/// compared at a glance.
fn microseconds(value: f64) -> String {
    format!("{}{BLANK}ms", grouped(value / 1e3))
}

/// The power of a thousand that leaves one to three digits before the point.
fn prefix_of(value: f64) -> (f64, &'static str) {
    let mut divisor = 1.0;
    let mut prefix = PREFIXES[0];
    for next in &PREFIXES[1..] {
        if value.abs() < divisor * 1000.0 {
            break;
        }
        divisor *= 1000.0;
        prefix = next;
    }
    (divisor, prefix)
}

fn prefixed(value: f64, unit: &str) -> String {
    let (divisor, prefix) = prefix_of(value);
    format!("{}{BLANK}{prefix}{unit}", digits(value / divisor))
}

fn with_prefix_of(value: f64, largest: f64, unit: &str) -> String {
    let (divisor, prefix) = prefix_of(largest);
    with_unit(value / divisor, &format!("{prefix}{unit}"))
}

/// A number with three significant digits and no trailing zeros; whole numbers have no point.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 || value == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 0.1 {
        2
    } else {
        3
    };
    plain_to(value, decimals)
}

/// The shortest text of a number, to nine decimals: for ticks, which are round.
fn plain(value: f64) -> String {
    plain_to(value, 9)
}

fn plain_to(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    if text == "-0" { "0" } else { text }.to_owned()
}

/// A count, in words if it has too many digits to read.
pub(crate) fn counted(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{}{BLANK}billion", digits(value / 1e9)),
        value if value >= 1e7 => format!("{}{BLANK}million", digits(value / 1e6)),
        value => grouped(value),
    }
}

/// A ratio to a base, which may be too small to show.
pub(crate) fn times(ratio: f64) -> String {
    if ratio > 0.0 && ratio < 0.001 {
        "\u{d7}<0.001".to_owned()
    } else {
        format!("\u{d7}{}", digits(ratio))
    }
}

/// A number with its thousands separated: three digits below a hundred, else whole.
pub(crate) fn grouped(value: f64) -> String {
    if value.abs() < 100.0 {
        return digits(value);
    }
    let text = format!("{value:.0}");
    let (sign, figures) = text
        .strip_prefix('-')
        .map_or(("", text.as_str()), |rest| ("-", rest));
    let mut grouped = sign.to_owned();
    for (index, figure) in figures.chars().enumerate() {
        if index > 0 && (figures.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(figure);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unit: Unit, value: f64) -> String {
        unit.text(value).replace(BLANK, " ")
    }

    fn tick(unit: Unit, value: f64, largest: f64) -> String {
        unit.tick(value, largest, ScaleKind::Linear)
            .replace(BLANK, " ")
    }

    #[test]
    fn values_are_written_for_people() {
        for (unit, value, expected) in [
            (Unit::Rate, 12_345.6, "12,346 ops/s"),
            (Unit::Rate, 7.25, "7.25 ops/s"),
            (Unit::Microseconds, 850.0, "0.85 ms"),
            (Unit::Microseconds, 41.0, "0.041 ms"),
            (Unit::Microseconds, 1_234.0, "1.23 ms"),
            (Unit::Microseconds, 12_000_000.0, "12,000 ms"),
            (Unit::Bytes, 0.0, "0 B"),
            (Unit::Bytes, 1_500.0, "1.5 kB"),
            (Unit::Bytes, 123_456_789.0, "123 MB"),
            (Unit::ByteRate, 2e9, "2 GB/s"),
            (Unit::Cores, 1.375, "1.38 cores"),
            (Unit::Seconds, 0.25, "0.25 s"),
            (Unit::Seconds, 90.0, "1 min 30 s"),
            (Unit::Seconds, 3_600.0, "1 h"),
            (Unit::Seconds, 86_399.9, "24 h"),
            (Unit::Share, 0.9414, "94.1 %"),
            (Unit::Number, 1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(text(unit, value), expected);
        }
    }

    #[test]
    fn the_ticks_of_an_axis_share_one_unit() {
        assert_eq!(tick(Unit::Seconds, 0.0, 180.0), "0");
        assert_eq!(tick(Unit::Seconds, 60.0, 180.0), "1 min");
        assert_eq!(tick(Unit::Seconds, 90.0, 100.0), "90 s");
        assert_eq!(tick(Unit::Seconds, 43_200.0, 86_400.0), "12 h");
        assert_eq!(tick(Unit::Bytes, 5e8, 2e9), "0.5 GB");
        assert_eq!(tick(Unit::Microseconds, 500.0, 2_000.0), "0.5 ms");
        assert_eq!(tick(Unit::Cores, 0.5, 2.0), "0.5");
        assert_eq!(tick(Unit::Rate, 20_000.0, 60_000.0), "20,000");
    }

    #[test]
    fn ratios_are_never_reported_as_nothing() {
        assert_eq!(times(0.0), "\u{d7}0");
        assert_eq!(times(0.0004), "\u{d7}<0.001");
        assert_eq!(times(1.666), "\u{d7}1.67");
        assert_eq!(counted(2_159_566_776.0), "2.16\u{a0}billion");
        assert_eq!(counted(9_999_999.0), "9,999,999");
    }

    #[test]
    fn thousands_are_kept_apart() {
        assert_eq!(grouped(100.0), "100");
        assert_eq!(grouped(1_000.0), "1,000");
        assert_eq!(grouped(-1_234_567.0), "-1,234,567");
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(-0.0001), "0");
    }
}
