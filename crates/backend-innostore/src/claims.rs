//! Room that rewrites in progress may take, counted for all stores of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that rewrites in progress may write, for all stores of a node.
#[derive(Default)]
pub(crate) struct Claims(AtomicU64);

impl Claims {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The claim of one rewrite. It ends with the rewrite.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    bytes: u64,
}

impl Claim {
    pub(crate) fn new(claims: Arc<Claims>, bytes: u64) -> Self {
        claims.0.fetch_add(bytes, Ordering::AcqRel);
        Self { claims, bytes }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
