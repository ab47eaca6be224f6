//! What is wrong with a text that is no Erlang term.

use crate::term::Position;

/// Text that is no Erlang term: where, what was expected there, what stands there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: expected {expected}, got {got}", position.line, position.column)]
pub struct SyntaxError {
    /// Where the text stops making sense.
    pub position: Position,
    /// What could stand there.
    pub expected: String,
    /// What does stand there.
    pub got: String,
}

impl SyntaxError {
    pub(crate) fn new(
        position: Position,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        Self {
            position,
            expected: expected.into(),
            got: got.into(),
        }
    }
}
