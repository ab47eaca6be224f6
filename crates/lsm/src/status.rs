//! Status figures of a store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{FoldFilter, Lease, Status, Timestamp};
use kvorum_ordered_tree::{ScanRange, ScanStep, TreeView};
use kvorum_sst::Table;

use crate::Lsm;
use crate::merging;
use crate::snapshot::LsmSnapshot;
use crate::store::{Counted, Store};
use crate::version::Version;

/// Keys are counted in stores of at most this many entries, overwritten ones included, and
/// estimated in larger stores.
const COUNTED_ENTRIES_MAX: u64 = 2_000;

impl Lsm {
    /// Sizes, counts and backlog. A count of keys covers the range `counted`, an estimate all keys.
    pub fn status(&self, counted: &ScanRange) -> Status {
        let store = &self.store;
        let version = store.version.load_full();
        let backlog = merging::backlog(store, &version);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let table_bytes: u64 = version.tables().map(|it| it.file_len).sum();
        let blob_bytes: u64 = version.blobs.values().map(|it| it.file_len).sum();
        let journal_bytes: u64 = version.journal.iter().map(|it| it.file_len).sum();
        let blob_blocks: u64 = version.blobs.values().map(|it| it.block_bytes).sum();
        let blob_live: u64 = version.blob_use().values().sum();
        let named = version.segment_use();
        let last = version.levels.iter().rev().find(|it| !it.is_empty());
        let last_bytes: u64 = last.map_or(0, |it| it.iter().map(|it| it.file_len).sum());
        let memtables: u64 = version.memtables().map(|it| it.held_bytes()).sum();
        let tables = version.tables().filter_map(|it| it.table.as_ref());
        let blobs = version.blobs.values().filter_map(|it| it.table.as_ref());
        let opened: Vec<&Arc<Table>> = tables.chain(blobs).collect();
        let tops: u64 = opened.iter().map(|it| it.memory_bytes()).sum();
        let marks: usize = version
            .tables()
            .flat_map(|it| it.properties.marks.iter())
            .count();
        let counters = &store.counters;
        let levels: Vec<String> = version
            .levels
            .iter()
            .map(|it| it.len().to_string())
            .collect();
        let slow = opened.iter().filter(|it| store.lies_slow(it));
        let slow_bytes: u64 = slow.map(|it| it.file_len()).sum();
        let log_files = store.writer.lock().unsynced.len() as u64;
        Status {
            engine: store.settings.name,
            keys: keys(store, &version, counted),
            live_bytes: last_bytes + blob_live.min(blob_blocks),
            garbage_bytes: (table_bytes - last_bytes) + blob_blocks.saturating_sub(blob_live),
            disk_bytes: table_bytes + blob_bytes + journal_bytes,
            files: version.tables().count() as u64
                + (version.blobs.len() + version.journal.len()) as u64
                + log_files,
            memory_bytes: memtables + tops,
            pinned_bytes: pinned_bytes(store, &version),
            backlog_bytes: backlog.bytes,
            put_bytes: read(&counters.put_bytes),
            written_bytes: read(&counters.written_bytes),
            corrupt_reads: read(&counters.corrupt_reads),
            lost: store.read_side.lost.ranges(),
            details: vec![
                ("tables_per_level", levels.join(" ")),
                ("blob_files", version.blobs.len().to_string()),
                ("journal_files", version.journal.len().to_string()),
                ("journal_bytes", journal_bytes.to_string()),
                ("value_log_segments", named.len().to_string()),
                ("value_log_bytes", named.values().sum::<u64>().to_string()),
                ("slow_tier_bytes", slow_bytes.to_string()),
                ("range_marks", marks.to_string()),
                ("memtable_bytes", memtables.to_string()),
                ("frozen_memtables", version.frozen.len().to_string()),
                ("pressure_permille", backlog.pressure_permille.to_string()),
                ("flushes", read(&counters.flushes).to_string()),
                ("merges", read(&counters.merges).to_string()),
                ("moves", read(&counters.moves).to_string()),
                ("torn_tail_bytes", read(&counters.torn_bytes).to_string()),
                ("cache_bytes", store.shared.cache.bytes().to_string()),
            ],
        }
    }
}

fn keys(store: &Arc<Store>, version: &Version, counted: &ScanRange) -> u64 {
    let in_memory: usize = version.memtables().map(|it| it.len()).sum();
    let in_tables: u64 = version.tables().map(|it| it.properties.entries).sum();
    let removals: u64 = version.tables().map(|it| it.properties.removals).sum();
    let entries = in_memory as u64 + in_tables;
    if entries > COUNTED_ENTRIES_MAX {
        return entries.saturating_sub(2 * removals);
    }
    // Most calls find the store unchanged since the last call, and return that count.
    let sequence = store.visible_sequence();
    let before = *store.counted.lock();
    if before.sequence == sequence && before.flushes == version.flushes && sequence > 0 {
        return before.keys;
    }
    let mut keys = 0;
    let snapshot = LsmSnapshot::take(store, Lease::Unlimited);
    let filter = FoldFilter::unexpired(Timestamp(0));
    let scanned = snapshot.scan(counted, &filter, &mut |_| {
        keys += 1;
        ScanStep::Next
    });
    if scanned.is_err() {
        return entries;
    }
    *store.counted.lock() = Counted {
        sequence,
        flushes: version.flushes,
        keys,
    };
    keys
}

/// Bytes on disk that only snapshots keep.
fn pinned_bytes(store: &Store, version: &Version) -> u64 {
    let present: BTreeSet<u64> = version.tables().map(|it| it.number).collect();
    let mut pinned = BTreeSet::new();
    let held = store.pins.versions();
    for it in &held {
        let tables = it.tables().map(|it| (it.number, it.file_len));
        let blobs = it.blobs.values().map(|it| (it.number, it.file_len));
        pinned.extend(tables.filter(|(number, _)| !present.contains(number)));
        let is_gone = |number: u64| !version.blobs.values().any(|it| it.number == number);
        pinned.extend(blobs.filter(|(number, _)| is_gone(*number)));
    }
    pinned.iter().map(|(_, bytes)| bytes).sum()
}
