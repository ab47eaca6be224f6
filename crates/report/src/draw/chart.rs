//! The content of a chart, before it is drawn.

use super::scale::Scale;

/// A chart: lines over a common axis.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Its name, unique in the document.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Title of the vertical axis.
    pub y_title: String,
    /// The horizontal axis.
    pub x: Scale,
    /// The vertical axis.
    pub y: Scale,
    /// The lines, the most important first.
    pub lines: Vec<Line>,
    /// Stretches of the horizontal axis that are marked.
    pub bands: Vec<Band>,
    /// The same data as a table.
    pub table: Vec<Column>,
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its ink.
    pub ink: Ink,
    /// Places on the horizontal axis, ascending.
    pub x: Vec<f64>,
    /// Values at these places; `None` is a gap.
    pub y: Vec<Option<f64>>,
}

/// The look of a line, according to its role: the style sheet has the colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// The main line of a chart.
    Main,
    /// Failures.
    Failure,
    /// A second line beside the main one.
    Second,
    /// A rank among latencies, from the mean (0) to the longest (4).
    Rank(usize),
    /// A run among several, by its number.
    Run(usize),
}

/// A stretch of the horizontal axis that is marked, such as a stall.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Text that is shown when the pointer rests on the stretch.
    pub text: String,
    /// The line to which the stretch belongs, if there are several.
    pub ink: Option<Ink>,
}

/// A column of a chart's table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its head.
    pub head: String,
    /// Its values, as measured.
    pub values: Vec<Option<f64>>,
}

/// Number of runs with distinct colours.
const RUN_COLOURS: usize = 8;

impl Ink {
    /// The classes of the style sheet.
    pub fn class(self) -> String {
        match self {
            Self::Main => "ink-main".to_owned(),
            Self::Failure => "ink-failure".to_owned(),
            Self::Second => "ink-second".to_owned(),
            Self::Rank(rank) => format!("ink-rank-{rank}"),
            // Beyond the palette the colours are repeated, dashed.
            Self::Run(run) if run < RUN_COLOURS => format!("ink-run-{run}"),
            Self::Run(run) => format!("ink-run-{} ink-dashed", run % RUN_COLOURS),
        }
    }
}

impl Line {
    /// Its known values.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        self.y.iter().flatten().copied()
    }

    /// The last known value.
    pub fn last(&self) -> Option<f64> {
        self.y.iter().rev().find_map(|value| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_beyond_the_palette_look_unlike_those_within() {
        let classes: std::collections::BTreeSet<String> =
            (0..16).map(|run| Ink::Run(run).class()).collect();
        assert_eq!(classes.len(), 16);
    }
}
