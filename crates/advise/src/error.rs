//! Errors of input that cannot be used.

/// A problem with the input, or with the built-in tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdviseError {
    /// A built-in table is wrong: report a bug.
    #[error("built-in table {table}: {reason}")]
    Table {
        /// The table.
        table: &'static str,
        /// The reason.
        reason: String,
    },
    /// No engine has this name.
    #[error("no backend is called {name}; there are {known}")]
    UnknownEngine {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The engine is known, but its costs are not.
    #[error("backend {name} is not built in yet, so there are no figures of it")]
    NoCosts {
        /// The engine.
        name: String,
    },
    /// No fact has this name.
    #[error("no fact is called {name}; there are {known}")]
    UnknownFact {
        /// The name that was given.
        name: String,
        /// The known names.
        known: String,
    },
    /// A value is not of its fact's kind.
    #[error("{name} cannot be {value}: {expected} is expected")]
    BadValue {
        /// The fact.
        name: String,
        /// The value that was given.
        value: String,
        /// The values that are accepted.
        expected: &'static str,
    },
    /// A file is not of the expected form.
    #[error("not {expected}: {reason}")]
    BadInput {
        /// The form that was expected.
        expected: &'static str,
        /// The reason.
        reason: String,
    },
}
