//! Division of a node's memory for an engine over merge trees.

use kvorum_backend_leveldb::Shared;

/// Memory of a machine if the system does not report it: Riak's value.
pub(super) const MEMORY_BYTES_UNKNOWN: u64 = 2_684_354_560;
/// The minimum: an empty store needs room for some blocks.
const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// All write buffers together may take this part of the memory; the block cache has the rest.
const WRITE_BUFFERS_PERCENT: u64 = 40;
/// While one write buffer of a partition is written to a table, the next one fills.
const WRITE_BUFFERS_EACH: u64 = 2;

/// The limits in the settings of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Percentage of the memory of the machine or the container.
    pub(super) percent_max: u8,
    /// The same in bytes; the smaller applies.
    pub(super) bytes_max: Option<u64>,
    /// Upper bound in bytes on both.
    pub(super) limit: u64,
    /// The smallest and the largest size at which a store writes a buffer to a table, in bytes.
    pub(super) buffer: (u64, u64),
}

/// The engine's memory by use on a node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// The block cache.
    pub(super) cache: u64,
    /// All write buffers together.
    pub(super) write_buffers: u64,
    /// The smallest and the largest size at which a store writes a buffer to a table, in bytes.
    pub(super) write_buffer: (u64, u64),
}

impl Memory {
    /// `machine` is the memory of the machine or the container, if that is known.
    pub(super) fn of(allowed: Allowance, machine: Option<u64>, partitions: u64) -> Self {
        let share = machine.map(|bytes| bytes / 100 * u64::from(allowed.percent_max));
        let most = match (share, allowed.bytes_max) {
            (Some(share), Some(most)) => share.min(most),
            (share, most) => share.or(most).unwrap_or(MEMORY_BYTES_UNKNOWN),
        };
        let most = most.min(allowed.limit).max(MEMORY_BYTES_MIN);
        let wanted = allowed
            .buffer
            .1
            .saturating_mul(WRITE_BUFFERS_EACH * partitions);
        let write_buffers = wanted.min(most / 100 * WRITE_BUFFERS_PERCENT);
        Self {
            cache: most - write_buffers,
            write_buffers,
            write_buffer: allowed.buffer,
        }
    }

    /// The size of one store's buffer, by a random number.
    pub(super) fn buffer_of(&self, drawn: u64) -> u64 {
        let (least, most) = self.write_buffer;
        least + drawn % (most - least + 1)
    }

    /// The cache and the budget, of these sizes.
    pub(super) fn shared(&self) -> Shared {
        Shared::new(self.cache, self.write_buffers)
    }
}
