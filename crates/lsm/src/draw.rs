//! Random numbers for identities; the node hands in their source.

use std::sync::Arc;

/// Draws a random number.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;
