//! Status figures of a store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{FoldFilter, Lease, Status, Timestamp};
use kvorum_ordered_tree::{ScanRange, ScanStep, TreeView};

use crate::store::Store;
use crate::tree::OpenTree;
use crate::version::Version;
use crate::view::View;

/// Keys are counted in stores of at most this many entries, and estimated in larger stores.
const COUNTED_ENTRIES_MAX: u64 = 2_000;

impl OpenTree {
    /// Sizes, counts and the backlog. A count of keys covers the range `counted`.
    pub(crate) fn status(&self, counted: &ScanRange) -> Status {
        let store = &*self.store;
        let version = store.version.load_full();
        let files = store.manifest.lock().files.clone();
        let disk_bytes: u64 = files.iter().map(|it| it.len).sum();
        let live_bytes: u64 = files.iter().map(|it| it.live_bytes).sum();
        let dirty_bytes = version.dirty_bytes();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &store.counters;
        let doubts = store.losses.doubts.all().len();
        let root = version.tree.root();
        let height = root.map_or(0, |root| u64::from(root.level) + 1);
        Status {
            engine: "innostore",
            keys: self.keys(&version, counted),
            live_bytes,
            garbage_bytes: disk_bytes.saturating_sub(live_bytes),
            disk_bytes,
            files: files.len() as u64,
            memory_bytes: dirty_bytes,
            pinned_bytes: pinned_bytes(store, &version),
            backlog_bytes: dirty_bytes,
            put_bytes: read(&counters.put_bytes),
            written_bytes: read(&counters.written_bytes),
            corrupt_reads: read(&counters.corrupt_reads),
            lost: store.losses.ranges(),
            details: vec![
                ("tree_keys", version.tree.keys().to_string()),
                ("tree_height", height.to_string()),
                ("dirty_bytes", dirty_bytes.to_string()),
                ("rewrites", read(&counters.rewrites).to_string()),
                ("files_left", read(&counters.files_left).to_string()),
                ("cache_bytes", store.shared.cache.bytes().to_string()),
                ("ranges_in_doubt", doubts.to_string()),
            ],
        }
    }

    fn keys(&self, version: &Version, counted: &ScanRange) -> u64 {
        let in_memory: u64 = version.overlays().map(|it| it.entries()).sum();
        let entries = version.tree.keys() + in_memory;
        if entries > COUNTED_ENTRIES_MAX {
            return entries;
        }
        let mut keys = 0;
        let view = View::take(&self.store, Lease::Unlimited);
        let filter = FoldFilter::unexpired(Timestamp(0));
        let scanned = view.scan(counted, &filter, &mut |_| {
            keys += 1;
            ScanStep::Next
        });
        scanned.map_or(entries, |_| keys)
    }
}

/// Bytes on disk that only snapshots keep.
fn pinned_bytes(store: &Store, version: &Version) -> u64 {
    let mut pinned = BTreeMap::new();
    for held in store.pins.versions() {
        let files = held.tree.files().iter();
        let gone = files.filter(|(number, _)| !version.tree.files().contains_key(number));
        pinned.extend(gone.map(|(number, file)| (*number, file.bytes())));
    }
    pinned.values().sum()
}
