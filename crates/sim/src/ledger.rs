//! The answers to clients in a run, and the violations in them.

use std::collections::BTreeMap;

use crate::fault::FaultKind;
use crate::history::History;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) histories: Vec<History>,
    /// A machine has lost data: reads may be stale until everything is repaired.
    pub(crate) is_amnesiac: bool,
    pub(crate) violations: Vec<String>,
    pub(crate) faults: BTreeMap<FaultKind, u64>,
    pub(crate) operations: Operations,
}

/// Number of operations by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads that were answered.
    pub reads: u64,
    /// Strict reads that were checked against all acknowledged strict writes.
    pub checked_reads: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Deletes that were acknowledged.
    pub deletes: u64,
    /// Successful listings.
    pub listings: u64,
    /// Operations on data types that were acknowledged.
    pub updates: u64,
    /// Requests whose outcome the client does not know.
    pub failed: u64,
}

impl Operations {
    /// The number of confirmed operations.
    pub fn acknowledged(&self) -> u64 {
        self.reads + self.writes + self.deletes + self.listings + self.updates
    }
}

impl Ledger {
    pub(crate) fn new(keys: u16, is_reaped: bool) -> Self {
        Self {
            histories: (0..keys).map(|_| History::new(is_reaped)).collect(),
            is_amnesiac: false,
            violations: Vec::new(),
            faults: BTreeMap::new(),
            operations: Operations::default(),
        }
    }
}
