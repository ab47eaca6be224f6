//! The modules of the workspace's crates, the paths between them, and the cycles of these paths.
//!
//! The lexer is enough here too: a parser would skip the arguments of macros, which have many
//! paths.

pub(crate) mod edges;
pub(crate) mod inside;
pub(crate) mod knots;
mod paths;
mod scope;
