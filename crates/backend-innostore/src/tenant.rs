//! The store's side of the log: its use of segments, and its replay after a crash.
//!
//! Only batches that are in memory alone need the log: the tree has all others whole. So nothing of
//! the log is ever copied; a segment is dropped when its entries in memory were moved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    ErrorKind, LostRange, Result, Sequence, StepBudget, StepOutcome, StoreId, Timestamp,
};
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, OrderedTree};
use kvorum_segment::file_name;
use kvorum_value_log::{HeldSegments, LogSegment, LoggedRecord, SegmentUse, Tenant};

use crate::records::op_of;
use crate::store::Store;
use crate::tree::OpenTree;
use crate::write::taken_bytes;

impl Tenant for OpenTree {
    fn store_id(&self) -> StoreId {
        StoreId(self.store.identity())
    }

    fn covered(&self) -> Sequence {
        self.flushed()
    }

    fn known(&self) -> Sequence {
        Sequence(self.store.writer.lock().last_sequence)
    }

    fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()> {
        self.store.intake.check_writable()?;
        let covered = self.flushed();
        replay(&self.store, covered, segment, sequence.0, records);
        self.flush_what_is_full()
    }

    fn usage(&self) -> Vec<SegmentUse> {
        // Puts wait, so that the place of each appended batch counts.
        let writer = self.store.writer.lock();
        let version = self.store.version.load();
        let mut bytes = BTreeMap::<u32, u64>::new();
        for overlay in version.overlays() {
            for (segment, taken) in overlay.segments() {
                *bytes.entry(segment).or_default() += taken;
            }
        }
        drop(writer);
        let settle_bytes = version.dirty_bytes();
        let in_memory = |(segment, live_bytes)| SegmentUse {
            segment,
            live_bytes,
            settle_bytes,
            is_passing: true,
        };
        let mut usage: BTreeMap<u32, SegmentUse> =
            bytes.into_iter().map(|it| (it.0, in_memory(it))).collect();
        for segment in self.held_segments() {
            usage.entry(segment).or_insert(SegmentUse {
                segment,
                live_bytes: 0,
                settle_bytes: 0,
                is_passing: false,
            });
        }
        usage.into_values().collect()
    }

    fn held(&self) -> Vec<Arc<HeldSegments>> {
        self.store.holds.all()
    }

    fn own_bytes(&self) -> u64 {
        let manifest = self.store.manifest.lock();
        manifest.files.iter().map(|it| it.len).sum()
    }

    fn unwritten_bytes(&self) -> u64 {
        let version = self.store.version.load();
        version.overlays().map(|it| it.payload_bytes()).sum()
    }

    fn relocate(&self, _records: &[LoggedRecord]) -> Result<u64> {
        // Entries in memory are not copied from the log, and there are no others.
        self.store.intake.check_writable().map(|()| 0)
    }

    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome> {
        let store = &*self.store;
        let mut jobs = self.jobs.lock();
        store.intake.check_writable()?;
        let mut cost_bytes = 0;
        while has_some_of(store, segment) {
            let left = budget.bytes.saturating_sub(cost_bytes);
            if left == 0 {
                return Ok(StepOutcome::partial(cost_bytes));
            }
            let step = jobs.flush(store, left, Timestamp(0))?;
            cost_bytes += step.cost_bytes.max(1);
        }
        store.log.sync()?;
        Ok(StepOutcome::done(cost_bytes))
    }
}

impl OpenTree {
    /// Due tasks are not run during replay. On a full disk memory has to suffice.
    fn flush_what_is_full(&self) -> Result<()> {
        let store = &*self.store;
        while store.version.load().dirty_bytes() >= store.settings.dirty_bytes_max {
            match self.flush_all() {
                Err(error) if error.kind() == ErrorKind::Full => return Ok(()),
                flushed => _ = flushed?,
            }
        }
        Ok(())
    }

    /// Segments that copies under way need.
    fn held_segments(&self) -> BTreeSet<u32> {
        let newest = self.store.log.newest_segment();
        let held = self.store.holds.all();
        held.iter().flat_map(|it| it.before(newest)).collect()
    }
}

fn has_some_of(store: &Store, segment: u32) -> bool {
    let version = store.version.load();
    version
        .overlays()
        .any(|it| it.segments().contains_key(&segment))
}

/// Keeps the segments of the log that the store needs now, for a copy of the store.
pub(crate) fn hold_log(store: &Store) -> Arc<HeldSegments> {
    // The call for usage takes the writer's lock as well, and puts wait: the segment that is
    // appended to now is the oldest that later batches can be in.
    let _puts_wait = store.writer.lock();
    let from = store.log.newest_segment();
    let version = store.version.load();
    let older = version.overlays().flat_map(|it| it.segments().into_keys());
    let older = older.collect();
    store.holds.add(HeldSegments { older, from })
}

/// Takes a logged batch that is not in the tree. A known one is skipped: the log may be read again.
/// A batch without records stands for a loss in the log, with unknown keys.
fn replay(
    store: &Store,
    covered: Sequence,
    segment: &Arc<LogSegment>,
    sequence: u64,
    records: &[LoggedRecord],
) {
    let mut writer = store.writer.lock();
    let is_behind_gap = sequence > writer.last_sequence + 1;
    if records.is_empty() || is_behind_gap {
        // The log has reported its losses.
        let everything = KeyRange::everything();
        store.losses.doubts.open(DoubtKind::Lost, everything);
        store.replays.note_unknown();
    }
    if sequence <= writer.last_sequence {
        return;
    }
    let mut ops = Vec::with_capacity(records.len());
    let mut is_any_unknown = false;
    for record in records {
        match op_of(record) {
            Ok(op) => ops.extend(op),
            Err(_) => {
                is_any_unknown = true;
                note_undecodable(store, record);
            }
        }
    }
    match is_any_unknown {
        true => store.replays.note_unknown(),
        false => {
            let keys = ops.iter().map(|it| &it.key[..]);
            store.replays.note(covered, Sequence(sequence), keys);
        }
    }
    let bytes = records.iter().map(|it| taken_bytes(&it.place())).sum();
    store.take(&ops, sequence, segment.number(), bytes);
    writer.last_sequence = sequence;
    store.visible.store(sequence, Ordering::Release);
    store.durable.fetch_max(sequence, Ordering::AcqRel);
}

fn note_undecodable(store: &Store, record: &LoggedRecord) {
    let at = record.place();
    let file = format!("value_log/{}", file_name(u64::from(at.segment)));
    let held = "a write with a good checksum that does not decode";
    let range = LostRange::new(file, at.record.offset, at.record.len, held);
    store.losses.note_writes(range);
}
