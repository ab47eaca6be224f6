//! Random numbers for identities, from a source that the node passes.

use std::sync::Arc;

/// Draws a random number.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;
