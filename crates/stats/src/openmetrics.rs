//! OpenMetrics text: the form in which Prometheus and similar systems read statistics.
//!
//! Not written by a metrics library: a library would own the counters, which have Riak's names here
//! as well. The grammar is small and tested below.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::RangeInclusive;

use crate::histogram::{Histogram, Unit};
use crate::reading::Reading;
use crate::registry::Stats;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "kvorum_";

/// The kind of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases; its sample's name ends in `_total`.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Facts about the process as labels; its sample's name ends in `_info` and its value is 1.
    Info,
}

/// A text that grows by one metric family at a time.
#[derive(Debug, Default)]
pub struct MetricsText {
    text: String,
    families: BTreeSet<String>,
}

impl MetricsText {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a family with its samples, each with its labels. The name gets the prefix `kvorum_`.
    /// The name and the labels' names may have letters, digits and underscores; any other character
    /// becomes an underscore. A family that is present already is not added again.
    pub fn family<'a, V: std::fmt::Display>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], V)>,
    ) {
        let (word, suffix) = match kind {
            MetricKind::Counter => ("counter", "_total"),
            MetricKind::Gauge => ("gauge", ""),
            MetricKind::Info => ("info", "_info"),
        };
        let Some(name) = self.begin(name, word, None, help) else {
            return;
        };
        for (labels, value) in samples {
            self.put(format_args!("{name}{suffix}{} {value}\n", Labels(labels)));
        }
    }

    /// Adds a family of one gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(MetricKind::Gauge, name, help, [(&[][..], value)]);
    }

    /// Adds a family of one counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, total: impl std::fmt::Display) {
        self.family(MetricKind::Counter, name, help, [(&[][..], total)]);
    }

    /// Adds all figures that the node records.
    pub fn stats(&mut self, stats: &Stats) {
        stats.visit(|reading, help| match reading {
            Reading::Counter { name, counter, .. } => {
                self.counter(name, help, counter.total());
            }
            Reading::Total { name, total, .. } => {
                self.counter(name, help, total.total());
            }
            Reading::Gauge { name, gauge } => {
                self.gauge(name, help, gauge.get());
            }
            Reading::Histogram {
                name,
                unit,
                histogram,
                ..
            } => {
                self.histogram(name, unit, help, histogram);
            }
        });
    }

    /// Adds a histogram since the start.
    pub fn histogram(&mut self, name: &str, unit: Unit, help: &str, histogram: &Histogram) {
        self.histograms(name, unit, help, [(&[][..], histogram)]);
    }

    /// Adds a family of histograms since the start, each with its labels. A family that is present
    /// already is not added again.
    pub fn histograms<'a>(
        &mut self,
        name: &str,
        unit: Unit,
        help: &str,
        samples: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], &'a Histogram)>,
    ) {
        let name = with_unit(name, unit.word());
        let Some(name) = self.begin(&name, "histogram", unit.word(), help) else {
            return;
        };
        for (labels, histogram) in samples {
            self.put_histogram(&name, unit, labels, histogram);
        }
    }

    fn put_histogram(
        &mut self,
        name: &str,
        unit: Unit,
        labels: &[(&str, &str)],
        histogram: &Histogram,
    ) {
        let (powers, scale) = unit.shown();
        let totals = histogram.totals();
        for power in powers {
            // Values are whole: below 2^power is the same as up to 2^power - 1.
            let bound = scaled((1 << power) - 1, scale);
            let below = totals.below_power[power];
            let labels = Bounded(labels, &bound);
            self.put(format_args!("{name}_bucket{labels} {below}\n"));
        }
        let (all, labels) = (Bounded(labels, "+Inf"), Labels(labels));
        let count = totals.count;
        self.put(format_args!("{name}_bucket{all} {count}\n"));
        self.put(format_args!("{name}_count{labels} {count}\n"));
        let sum = scaled(totals.sum, scale);
        self.put(format_args!("{name}_sum{labels} {sum}\n"));
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }

    fn begin(&mut self, name: &str, kind: &str, unit: Option<&str>, help: &str) -> Option<String> {
        let name = format!("{PREFIX}{}", Name(name));
        if !self.families.insert(name.clone()) {
            return None;
        }
        self.put(format_args!("# TYPE {name} {kind}\n"));
        if let Some(unit) = unit {
            self.put(format_args!("# UNIT {name} {unit}\n"));
        }
        self.put(format_args!("# HELP {name} {}\n", Escaped(help)));
        Some(name)
    }

    fn put(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.text.write_fmt(line);
    }
}

/// A name that ends in its unit, once.
fn with_unit(name: &str, unit: Option<&str>) -> String {
    match unit {
        Some(unit) if !name.ends_with(&format!("_{unit}")) => format!("{name}_{unit}"),
        _ => name.to_owned(),
    }
}

/// A float is recognizable as one: `le` has to be a canonical float.
fn scaled(value: u64, scale: f64) -> String {
    format!("{:?}", value as f64 * scale)
}

/// A name with everything but letters, digits and underscores replaced.
struct Name<'a>(&'a str);

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fits = |character: char| character.is_ascii_alphanumeric() || character == '_';
        self.0
            .chars()
            .try_for_each(|character| f.write_char(if fits(character) { character } else { '_' }))
    }
}

/// A text in which characters that would end it are escaped.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '"' => f.write_str("\\\""),
            other => f.write_char(other),
        })
    }
}

impl Unit {
    /// The word at the end of a family's name.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Microseconds => Some("seconds"),
            Self::Bytes => Some("bytes"),
            Self::Things => None,
        }
    }

    /// The powers of two that bound the buckets, and the factor from a value to the unit.
    fn shown(self) -> (RangeInclusive<usize>, f64) {
        match self {
            // 16 microseconds to 67 seconds.
            Self::Microseconds => (4..=26, 1e-6),
            // 64 bytes to 1 GiB.
            Self::Bytes => (6..=30, 1.0),
            Self::Things => (0..=12, 1.0),
        }
    }
}

/// Labels of a histogram's sample, followed by its bound.
struct Bounded<'a>(&'a [(&'a str, &'a str)], &'a str);

impl std::fmt::Display for Bounded<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(labels, bound) = *self;
        f.write_char('{')?;
        for (name, value) in labels {
            write!(f, "{}=\"{}\",", Name(name), Escaped(value))?;
        }
        write!(f, "le=\"{bound}\"}}")
    }
}

struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl std::fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        for (at, (name, value)) in self.0.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            write!(f, "{open}{}=\"{}\"", Name(name), Escaped(value))?;
        }
        f.write_char('}')
    }
}

#[cfg(test)]
#[path = "openmetrics_test.rs"]
mod tests;
