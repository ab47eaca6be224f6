//! The server's report at its start about its configuration file.

use std::fmt::Write as _;

use crate::configuration::Configuration;
use crate::line_report::{LineReport, Outcome};

impl Configuration {
    /// The outcome of every setting, one per line, and the warnings.
    pub fn report(&self) -> String {
        let settings: Vec<_> = self
            .lines
            .iter()
            .map(|line| format!("{} = {}", line.name, line.value))
            .collect();
        let width = settings
            .iter()
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0)
            .min(WIDTH);
        let mut text = String::new();
        let places = self.lines.iter().map(|line| line.place.in_short().len());
        let column = places.max().unwrap_or(0).max(COLUMN);
        for (line, setting) in self.lines.iter().zip(&settings) {
            let place = line.place.in_short();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{place:>column$}  {setting:width$}  {}",
                outcome(line)
            );
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "{:>column$}  {warning}", "warning");
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    /// The report in one line: how many settings were honoured, mapped, ignored, overridden.
    pub fn summary(&self) -> String {
        let count = |is: fn(&Outcome) -> bool| self.lines.iter().filter(|l| is(&l.outcome)).count();
        let settings = match self.lines.len() {
            1 => "1 setting".to_owned(),
            count => format!("{count} settings"),
        };
        format!(
            "{settings}: {} honoured, {} mapped, {} ignored, {} overridden",
            count(|outcome| matches!(outcome, Outcome::Honoured)),
            count(|outcome| matches!(outcome, Outcome::MappedTo(_))),
            count(|outcome| matches!(outcome, Outcome::Ignored(_))),
            count(|outcome| matches!(outcome, Outcome::Overridden(_))),
        )
    }
}

/// The width of the column of places, unless a file with a longer name is among them.
const COLUMN: usize = 10;
/// Longer settings push their outcome to the right.
const WIDTH: usize = 60;

fn outcome(line: &LineReport) -> String {
    match &line.outcome {
        Outcome::Honoured => "honoured".to_owned(),
        Outcome::MappedTo(key) => format!("mapped to {key}"),
        Outcome::Ignored(reason) => format!("ignored because {reason}"),
        Outcome::Overridden(place) => format!("overridden {place}"),
    }
}
