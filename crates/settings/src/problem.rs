//! Problems of a configuration. All problems of a file are reported at once.

use std::fmt;

/// The place of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the table of defaults.
    Default,
    /// On this line of the file, counted from 1.
    Line(usize),
    /// In a file of Erlang terms beside it.
    Terms(TermsFile),
    /// With `--set`, counted from 1.
    Set(usize),
}

/// A file of Erlang terms beside riak.conf; later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TermsFile {
    /// `app.config`, the configuration of Riak 1.x.
    App,
    /// `advanced.config`, for keys that riak.conf does not have.
    Advanced,
}

impl TermsFile {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            TermsFile::App => "app.config",
            TermsFile::Advanced => "advanced.config",
        }
    }
}

impl Place {
    /// The place for a column of a table.
    pub(crate) fn in_short(self) -> String {
        match self {
            Place::Default => "default".to_owned(),
            Place::Line(number) => format!("line {number}"),
            Place::Terms(file) => file.name().to_owned(),
            Place::Set(_) => "--set".to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Default => formatter.write_str("by default"),
            Place::Line(number) => write!(formatter, "on line {number}"),
            Place::Terms(file) => write!(formatter, "in {}", file.name()),
            Place::Set(_) => formatter.write_str("given with --set"),
        }
    }
}

/// One error. Correct the named line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Neither Kvorum nor Riak has the key.
    #[error("unknown key `{key}` {place}{}", suggestion(nearest))]
    UnknownKey {
        /// The name as written.
        key: String,
        /// The place.
        place: Place,
        /// The nearest right names, best first.
        nearest: Vec<String>,
    },
    /// A key of the whole node behind the name of one of several backends.
    #[error(
        "`{key}` {place} is no key of a backend: `{of_node}` is for the whole node, set it under that name"
    )]
    OfWholeNode {
        /// The name as written.
        key: String,
        /// Its place.
        place: Place,
        /// The same without the backend.
        of_node: String,
    },
    /// A user asked about a key that neither Kvorum nor Riak has.
    #[error("unknown key `{key}`{}", suggestion(nearest))]
    NothingToDescribe {
        /// The name as asked.
        key: String,
        /// The nearest right names, best first.
        nearest: Vec<String>,
    },
    /// The value is not of the key's type.
    #[error("bad value for `{key}` {place}: got `{got}`, expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The place.
        place: Place,
        /// The value as it was read.
        got: String,
        /// The expected form.
        expected: String,
    },
    /// The key is known, but its value cannot be honoured.
    #[error("`{key}` {place} cannot be honoured: {reason}; remove it to go on without it")]
    Unsupported {
        /// The key.
        key: String,
        /// Its place.
        place: Place,
        /// The reason.
        reason: &'static str,
    },
    /// A file of Erlang terms that cannot be read.
    #[error("cannot read what is {place}: {reason}")]
    Terms {
        /// The file.
        place: Place,
        /// The place in it, and the defect.
        reason: String,
    },
    /// A line that is not a setting.
    #[error("cannot read `{text}` {place}: expected {expected}")]
    Unreadable {
        /// The place.
        place: Place,
        /// The text.
        text: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A `$(key)` without a value.
    #[error("`{key}` {place} refers to `$({named})`, {why}")]
    Reference {
        /// The key whose value has it.
        key: String,
        /// The place.
        place: Place,
        /// The text in the parentheses.
        named: String,
        /// The error in it.
        why: &'static str,
    },
    /// Values that are valid alone, but conflict.
    #[error("{0}")]
    Conflict(String),
}

fn suggestion(nearest: &[String]) -> String {
    let quoted: Vec<_> = nearest.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "; `kvorum describe` lists all keys".to_owned(),
        [only] => format!(", did you mean {only}?"),
        [front @ .., last] => format!(", did you mean {} or {last}?", front.join(", ")),
    }
}

/// All errors, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        formatter.write_str(&problems.join("\n"))
    }
}

impl std::error::Error for Problems {}
