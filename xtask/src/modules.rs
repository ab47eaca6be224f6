//! The modules of the workspace's crates, the paths between them, and the cycles that these make.
//!
//! The lexer is enough here too: a parser leaves the arguments of macros unread, and many paths
//! stand there.

pub(crate) mod edges;
pub(crate) mod inside;
pub(crate) mod knots;
mod paths;
mod scope;
