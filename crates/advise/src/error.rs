//! What cannot be used as input.

/// A problem with what was given, or with the built-in tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdviseError {
    /// A built-in table is wrong: report a bug.
    #[error("built-in table {table}: {reason}")]
    Table {
        /// Which one.
        table: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No engine has this name.
    #[error("no backend is called {name}; known are {known}")]
    UnknownEngine {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The engine is known, and its costs are not.
    #[error("backend {name} is not built in yet, so there are no figures of it")]
    NoCosts {
        /// The engine.
        name: String,
    },
    /// No fact has this name.
    #[error("no fact is called {name}; known are {known}")]
    UnknownFact {
        /// What was said.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A value is not of its fact's kind.
    #[error("{name} cannot be {value}: {expected} is expected")]
    BadValue {
        /// The fact.
        name: String,
        /// What was said.
        value: String,
        /// What can be said.
        expected: &'static str,
    },
    /// A file is not what it was taken for.
    #[error("not {expected}: {reason}")]
    BadInput {
        /// What it was taken for.
        expected: &'static str,
        /// Why it is not.
        reason: String,
    },
}
