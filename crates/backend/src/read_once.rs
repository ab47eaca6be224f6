//! Recent reads from files, for caches that keep an item at its second read.
//!
//! Most reads of a large store are not repeated soon: a copy costs more than the read did, and
//! evicts items that are read often.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most reads that are recorded.
const SLOTS_MAX: usize = 1 << 20;

/// Recorded reads: each slot has the tag of its last read. If two items share a tag, one of them is
/// kept at its first read, which is harmless. Takes eight bytes per slot.
pub struct ReadOnce {
    slots: usize,
    /// Allocated by the first read: an idle node needs none.
    tags: OnceLock<Box<[AtomicU64]>>,
}

impl ReadOnce {
    /// A record of about this many reads, and at most a million.
    pub fn new(slots: usize) -> Self {
        Self {
            slots: slots.clamp(1, SLOTS_MAX),
            tags: OnceLock::new(),
        }
    }

    /// Notes a read, by a hash of the item; true when the slot's last read was of the same item.
    pub fn again(&self, hash: u64) -> bool {
        let tags = self
            .tags
            .get_or_init(|| (0..self.slots).map(|_| AtomicU64::new(0)).collect());
        let slot = usize::try_from((hash >> 32) % tags.len() as u64).unwrap_or(0);
        // Zero means that the slot has no read.
        let tag = hash | 1;
        tags[slot].swap(tag, Ordering::Relaxed) == tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_reading_is_recognized_until_another_takes_its_slot() {
        let once = ReadOnce::new(1);
        assert!(!once.again(6 << 32) && once.again(6 << 32));
        assert!(!once.again(8 << 32) && !once.again(6 << 32));
    }
}
