//! The modules of the workspace's crates, the paths between them, and the cycles that these make.
//!
//! The lexer is enough here too: a parser skips the arguments of macros, which have many paths.

pub(crate) mod edges;
pub(crate) mod inside;
pub(crate) mod knots;
mod paths;
mod scope;
