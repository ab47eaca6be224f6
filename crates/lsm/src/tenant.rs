//! The store's side of the value log: its use of segments, and its replay after a crash.
//!
//! Two kinds of data need a segment: batches that are in no table yet, and entries of tables with
//! bodies there. The first are counted while they are put ([`crate::log_backlog`]), the second by the
//! tables' properties. A segment whose bodies were copied ([`crate::relocation`]) stays named by
//! tables until these are merged: the copies hide those entries, so it is enough to remember the
//! finished segments. That does not outlive a restart: either the log has dropped such a segment by
//! then, or it is collected once more, and nothing is found in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{ErrorKind, Result, Sequence, StepBudget, StepOutcome, StoreId, Timestamp};
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, OrderedTree};
use kvorum_value_log::{HeldSegments, LogSegment, LoggedRecord, SegmentUse, Tenant};
use parking_lot::MutexGuard;

use crate::Lsm;
use crate::log::decode_logged;
use crate::logged::{lost_name, taken_bytes};
use crate::rebuilding::lost_tables;
use crate::store::{Store, WriteSide};

/// The number of sums over tables made without a lock before puts have to wait for one.
const SUMS_WITHOUT_LOCK: usize = 3;

impl Tenant for Lsm {
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
        replay(&self.store, segment, sequence.0, records);
        self.flush_what_is_full()
    }

    fn usage(&self) -> Vec<SegmentUse> {
        // Files that are no longer needed are removed after this report, and must not stay open.
        self.store.replaced.release_unread();
        usage_of_log(&self.store)
    }

    fn held(&self) -> Vec<Arc<HeldSegments>> {
        self.store.holds.all()
    }

    fn own_bytes(&self) -> u64 {
        self.store.version.load().file_bytes()
    }

    fn unwritten_bytes(&self) -> u64 {
        let version = self.store.version.load();
        version.memtables().map(|it| it.payload_bytes()).sum()
    }

    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64> {
        self.upkeep.relocate(records)
    }

    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome> {
        self.upkeep.settle(segment, budget)
    }
}

impl Lsm {
    /// Due tasks are not run during replay. On a full disk memory has to suffice.
    fn flush_what_is_full(&self) -> Result<()> {
        let store = &*self.store;
        let is_full = |bytes: u64| {
            bytes >= store.settings.memtable_bytes || store.shared.memory.wants_flush(bytes)
        };
        while is_full(store.version.load().memtable.bytes()) {
            let flush = &mut self.upkeep.jobs.lock().flush;
            match flush.step(store, u64::MAX, Timestamp(0), true) {
                Err(error) if error.kind() == ErrorKind::Full => return Ok(()),
                flushed => _ = flushed?,
            }
        }
        store.replaced.release_unread();
        Ok(())
    }
}

/// Takes a logged batch that is in no table, at its place. A known one is skipped: the log may be
/// read again. A batch without records stands for a loss in the log, with unknown keys.
fn replay(store: &Store, segment: &Arc<LogSegment>, sequence: u64, records: &[LoggedRecord]) {
    let mut writer = store.writer.lock();
    let is_known = sequence <= writer.last_sequence;
    let is_behind_gap = sequence > writer.last_sequence + 1;
    if records.is_empty() || is_behind_gap {
        // The log has reported its losses.
        let everything = KeyRange::everything();
        store.read_side.doubts.open(DoubtKind::Lost, everything);
    }
    if is_known {
        return;
    }
    let version = store.version.load();
    version.memtable.keep_segment(segment);
    let (mut bytes, keeping) = (0, store.keeping());
    for record in records {
        match decode_logged(record, keeping) {
            Ok(None) => {}
            Ok(Some(op)) => {
                let at = record.place();
                bytes += version.memtable.apply_logged(&op, sequence, &at, keeping);
            }
            Err(_) => note_undecodable(store, record),
        }
    }
    store.shared.memory.add(bytes);
    let taken = records.iter().map(|it| taken_bytes(&it.place())).sum();
    writer.uncovered.add(segment.number(), sequence, taken);
    writer.last_sequence = sequence;
    store.show_up_to(sequence);
    store.durable.fetch_max(sequence, Ordering::AcqRel);
}

fn note_undecodable(store: &Store, record: &LoggedRecord) {
    let at = record.place();
    store.read_side.lost.note(kvorum_backend::LostRange {
        file: lost_name(at.segment),
        offset: at.record.offset,
        len: at.record.len,
        held: "a write with a good checksum that does not decode".to_owned(),
    });
    let everything = KeyRange::everything();
    store.read_side.doubts.open(DoubtKind::Lost, everything);
}

/// The store's use of the log. Puts wait, so that the place of each appended batch counts.
fn usage_of_log(store: &Store) -> Vec<SegmentUse> {
    let (writer, named) = named_segments(store);
    let mut usage = BTreeMap::new();
    for (number, live_bytes) in named {
        if !writer.settled.contains(&number) {
            usage.insert(number, of_tables(number, live_bytes));
        }
    }
    let in_memory: u64 = store.version.load().memtables().map(|it| it.bytes()).sum();
    for (number, bytes) in writer.uncovered.iter() {
        let used = usage.entry(number).or_insert(of_tables(number, 0));
        used.live_bytes += bytes;
        used.settle_bytes = in_memory;
        used.is_passing = true;
    }
    for number in held_segments(store) {
        usage.entry(number).or_insert(of_tables(number, 0));
    }
    usage.into_values().collect()
}

/// Bytes of each segment that tables name, with the writer's lock, under which they do not change.
/// There may be many tables, so the sums are made before, as long as the tables do not change
/// meanwhile.
fn named_segments(store: &Store) -> (MutexGuard<'_, WriteSide>, BTreeMap<u32, u64>) {
    for _ in 0..SUMS_WITHOUT_LOCK {
        let version = store.version.load_full();
        let named = version.segment_use();
        let writer = store.writer.lock();
        if Arc::ptr_eq(&version, &store.version.load()) {
            return (writer, named);
        }
    }
    let writer = store.writer.lock();
    let named = store.version.load().segment_use();
    (writer, named)
}

/// Keeps the segments of the value log that the store needs now, for a copy of the store.
pub(crate) fn hold_log(store: &Store) -> Option<Arc<HeldSegments>> {
    let log = store.log.as_ref()?;
    // The call for usage takes the writer's lock as well, and puts wait: the segment that is
    // appended to now is the oldest that later batches can be in.
    let (writer, named) = named_segments(store);
    let from = log.newest_segment();
    let named = named.into_keys();
    let mut older: BTreeSet<u32> = named.filter(|it| !writer.settled.contains(it)).collect();
    older.extend(writer.uncovered.segments());
    Some(store.holds.add(HeldSegments { older, from }))
}

/// Segments for copies in progress, and for rebuilding lost tables.
fn held_segments(store: &Store) -> BTreeSet<u32> {
    let Some(log) = &store.log else {
        return BTreeSet::new();
    };
    let newest = log.newest_segment();
    let held = store.holds.all();
    let held = held.iter().flat_map(|it| it.before(newest));
    let journal = match lost_tables(store, &store.version.load()).next() {
        Some(_) => log.segments_of(StoreId(store.identity())),
        None => Vec::new(),
    };
    held.chain(journal).collect()
}

fn of_tables(segment: u32, live_bytes: u64) -> SegmentUse {
    SegmentUse {
        segment,
        live_bytes,
        settle_bytes: 0,
        is_passing: false,
    }
}
