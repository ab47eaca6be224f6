//! The error in a text that is no Erlang term.

use crate::term::Position;

/// Text that is no Erlang term: the position, the expected and the actual text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: expected {expected}, got {got}", position.line, position.column)]
pub struct SyntaxError {
    /// The position of the first error.
    pub position: Position,
    /// The text that could be there.
    pub expected: String,
    /// The text that is there.
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
