//! Erasing a store: all contents are removed, and later puts belong to a store of another identity.

use std::sync::atomic::Ordering;

use kvorum_backend::{Result, StoreId};

use crate::Lsm;
use crate::blob::blob_path;
use crate::files::{sync_directory, table_path};
use crate::journal::journal_path;
use crate::log::log_path;
use crate::memtable::Memtable;
use crate::version::Version;

impl Lsm {
    /// Removes all contents. Open snapshots end as if their leases had run out.
    pub fn erase(&self) -> Result<()> {
        let store = &*self.store;
        let mut jobs = self.upkeep.jobs.lock();
        store.intake.check_writable()?;
        jobs.abandon(store);
        jobs.scrub.forget(&*store.disk, &store.directory);
        let doubts = &store.read_side.doubts;
        let (doubted, _) = doubts.record(|_| true);
        doubts.clear();
        // Puts wait for the device here: there is nothing left to put them to.
        let mut writer = store.writer.lock();
        let sequence = writer.last_sequence;
        let erased = StoreId(store.identity());
        if let Some(log) = &store.log {
            log.announce_erasure(erased)?;
        }
        let first_log = store.take_number();
        let identity = (store.draw)();
        store
            .change_manifest(|manifest| {
                manifest.erased = manifest.identity;
                manifest.identity = identity;
                manifest.sequence = sequence;
                manifest.first_log = first_log;
                manifest.has_extras = false;
                // As in a new store: no table refers to the log yet.
                manifest.value_log = 0;
                manifest.tables.clear();
                manifest.blobs.clear();
                manifest.journal.clear();
            })
            .inspect_err(|_| doubts.restore(&doubted))?;
        store.identity.store(identity, Ordering::Release);
        store.has_extras.store(false, Ordering::Release);
        let old = store.version.load_full();
        let levels = old.levels.len();
        let memtable = Memtable::new(first_log, store.settings.memtable_bytes);
        let mut empty = Version::empty(levels, memtable);
        empty.flushes = old.flushes + 1;
        store.replace_version(empty);
        writer.log = None;
        writer.uncovered.clear();
        writer.settled.clear();
        let logs: Vec<u64> = writer
            .unsynced
            .drain(..)
            .map(|(number, _)| number)
            .collect();
        store.durable.fetch_max(sequence, Ordering::AcqRel);
        drop(writer);
        let held: u64 = old.memtables().map(|it| it.held_bytes()).sum();
        store.shared.memory.subtract(held);
        store.pins.release_all();
        store.read_side.lost.clear(&*store.disk);
        let directory = &store.directory;
        let tables = old.tables().map(|it| table_path(directory, it.number));
        let blobs = old.blobs.values();
        let blobs = blobs.map(|it| blob_path(directory, it.number));
        let journal = old.journal.iter();
        let journal = journal.map(|it| journal_path(directory, it.number));
        let logs = logs.iter().map(|it| log_path(directory, *it));
        store.remove_files(tables.chain(blobs).chain(journal).chain(logs));
        drop(old);
        store.replaced.release_unread();
        sync_directory(&*store.disk, directory)?;
        match &store.log {
            Some(log) => log.forget(erased, StoreId(identity)),
            None => Ok(()),
        }
    }
}
