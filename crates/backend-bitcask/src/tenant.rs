//! A store as a tenant of the value log.

use std::sync::Arc;

use kvorum_backend::{Result, Sequence, StepBudget, StepOutcome, StoreId};
use kvorum_value_log::{HeldSegments, LogSegment, LoggedRecord, SegmentUse, Tenant};

use crate::Bitcask;
use crate::log_use;
use crate::upkeep::Upkeep;

impl Tenant for Bitcask {
    fn store_id(&self) -> StoreId {
        StoreId(self.store.home.identity())
    }

    fn covered(&self) -> Sequence {
        Sequence(self.store.log.covered())
    }

    fn known(&self) -> Sequence {
        Sequence(self.store.files.writer.lock().last_sequence)
    }

    fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()> {
        self.store.replay(segment, sequence, records)
    }

    fn usage(&self) -> Vec<SegmentUse> {
        log_use::usage(&self.store.files)
    }

    fn held(&self) -> Vec<Arc<HeldSegments>> {
        self.store.log.holds.all()
    }

    fn own_bytes(&self) -> u64 {
        self.store.contents.catalog.read().own_bytes()
    }

    /// Data in memory stay in the log, or are written to a checkpoint that replaces another.
    fn unwritten_bytes(&self) -> u64 {
        0
    }

    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64> {
        let mut upkeep = self.writable_upkeep()?;
        log_use::relocate(&self.store.files, &mut upkeep.copies, records)
    }

    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome> {
        let mut upkeep = self.writable_upkeep()?;
        let Upkeep {
            checkpoints,
            copies,
            ..
        } = &mut *upkeep;
        log_use::settle(&self.store.files, checkpoints, copies, segment, budget)
    }
}
