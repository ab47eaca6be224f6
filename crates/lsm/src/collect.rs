//! Collection of a blob file: live bodies are written to a new file under their old numbers, and no
//! key is rewritten.
//!
//! The tables alone decide which bodies are live. Newer entries in memory may be lost in a crash,
//! and the old body would then be needed again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use kvorum_backend::{Result, StepOutcome, Task, TaskKind, Unreadable, Urgency};
use kvorum_sst::{ScanItem, ScanOptions, TableScan};
use kvorum_storage_errors::IntoBackend;

use crate::Body;
use crate::blob::{BlobFile, BlobWriter, blob_path, ordinal_of, split_blob};
use crate::files::sync_directory;
use crate::in_tables::newest_in_tables;
use crate::install::{blob_record, open_blob};
use crate::scarcity::garbage_percent_where_scarce;
use crate::store::Store;
use crate::version::{LevelTable, Version};
use crate::written_blob::{self, WrittenBlob};

/// The collection in progress, and the files that are not collected.
#[derive(Default)]
pub(crate) struct Collecting {
    job: Option<CollectJob>,
    /// Unreadable blob files, and files of which unreadable entries may need nearly everything.
    /// They are not tried again before the next opening.
    uncollectable: BTreeSet<u64>,
    /// Blob files whose collections failed.
    unreadable: Unreadable,
}

/// A collection in progress.
struct CollectJob {
    file: u64,
    scan: TableScan,
    writer: Option<BlobWriter>,
    /// The new file goes to the slow directory.
    to_slow: bool,
    /// The new file, when all is written.
    written: Option<WrittenBlob>,
}

impl Collecting {
    /// The collection in progress, or the next one.
    pub(crate) fn due(&self, store: &Store, version: &Version, urgency: Urgency) -> Option<Task> {
        let running = self.job.as_ref().map(|it| it.file);
        let file = running.or_else(|| self.next(store, version))?;
        let blob = version.blobs.get(&file);
        Some(Task {
            kind: TaskKind::Collect,
            subject: file,
            urgency,
            cost_bytes: blob.map_or(0, |it| 2 * it.worked_bytes()),
        })
    }

    /// The blob file with the largest share of garbage, if that is enough; otherwise a file that
    /// belongs in the other directory.
    fn next(&self, store: &Store, version: &Version) -> Option<u64> {
        let used = version.blob_use();
        let percent = u64::from(garbage_percent(store).clamp(1, 100));
        let live = |it: &Arc<BlobFile>| used.get(&it.file).copied().unwrap_or(0);
        let garbage = |it: &Arc<BlobFile>| it.block_bytes.saturating_sub(live(it));
        let headroom = store.intake.headroom();
        let has_room = |it: &Arc<BlobFile>| {
            !headroom.is_scarce() || live(it).min(it.block_bytes) <= headroom.available
        };
        version
            .blobs
            .values()
            .filter(|it| !self.uncollectable.contains(&it.file))
            .filter(|it| it.table.is_some() && garbage(it) * 100 > it.block_bytes * percent)
            .filter(|it| has_room(it))
            .max_by_key(|it| garbage(it))
            .map(|it| it.file)
            .or_else(|| self.misplaced(store, version))
    }

    fn misplaced(&self, store: &Store, version: &Version) -> Option<u64> {
        store.slow.as_ref()?;
        let is_misplaced = |it: &BlobFile| {
            let table = it.table.as_ref();
            table.is_some_and(|table| {
                store.lies_slow(table) != is_slow_blob(store, version, it.file)
            })
        };
        let mut blobs = version.blobs.values();
        let blob =
            blobs.find(|it| !self.uncollectable.contains(&it.file) && is_misplaced(it.as_ref()))?;
        Some(blob.file)
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        file: u64,
        budget_bytes: u64,
    ) -> Result<StepOutcome> {
        if self.job.is_none() {
            let version = store.version.load_full();
            if self.next(store, &version) != Some(file) {
                return Ok(StepOutcome::nothing_left());
            }
            let Some(blob) = version.blobs.get(&file) else {
                return Ok(StepOutcome::nothing_left());
            };
            let to_slow = is_slow_blob(store, &version, file);
            self.job = CollectJob::start(blob, to_slow);
        }
        let Some(job) = self.job.as_mut().filter(|it| it.file == file) else {
            return Ok(StepOutcome::nothing_left());
        };
        let outcome = job.step(store, budget_bytes);
        if let Err(error) = &outcome
            && let Some(job) = self.job.take()
        {
            store.remove_files(job.output_paths(store));
            if self.unreadable.failed(file, error) {
                self.uncollectable.insert(file);
            }
        }
        let (cost_bytes, is_done) = outcome?;
        if is_done && let Some(job) = self.job.take() {
            self.install(store, job)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// Replaces the old file by the rewritten one, or by none if no body is live: entries that
    /// still name the file are hidden by newer entries.
    fn install(&mut self, store: &Store, mut job: CollectJob) -> Result<()> {
        let file = job.file;
        let Some(old) = store.version.load().blobs.get(&file).cloned() else {
            store.remove_files(job.output_paths(store));
            return Ok(());
        };
        let blob = match job.written.take() {
            Some(written) => {
                sync_directory(&*store.disk, &store.directory)
                    .map_err(|error| store.fail_unless_full(error))?;
                Some(open_blob(store, &written, file)?)
            }
            None => None,
        };
        let left = blob.as_ref().map_or(0, |it| it.block_bytes);
        let lies_slow = |it: &BlobFile| it.table.as_ref().is_some_and(|it| store.lies_slow(it));
        let is_moved = blob
            .as_ref()
            .is_some_and(|it| lies_slow(it) != lies_slow(&old));
        if left > old.block_bytes / 10 * 9 && !is_moved {
            self.uncollectable.insert(file);
        }
        let changed = blob.as_ref().map(blob_record);
        store.change_manifest(|manifest| {
            manifest.blobs.retain(|it| it.file != file);
            manifest.blobs.extend(changed);
        })?;
        store.change_version(|version| {
            let mut blobs = (*version.blobs).clone();
            blobs.remove(&file);
            blobs.extend(blob.map(|it| (file, Arc::new(it))));
            version.blobs = Arc::new(blobs);
        });
        store.retire_files([blob_path(&store.directory, old.number)]);
        Ok(())
    }

    /// Abandons the collection; its file is removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        if let Some(job) = self.job.take() {
            store.remove_files(job.output_paths(store));
        }
    }
}

impl CollectJob {
    /// `None` for a file that cannot be opened.
    fn start(blob: &BlobFile, to_slow: bool) -> Option<Self> {
        let table = Arc::clone(blob.table.as_ref()?);
        let options = ScanOptions {
            read_ahead_bytes: 256 << 10,
            ..ScanOptions::default()
        };
        Some(Self {
            file: blob.file,
            scan: TableScan::new(table, options),
            writer: None,
            to_slow,
            written: None,
        })
    }

    /// The new file, finished or not.
    fn output_paths(&self, store: &Store) -> Vec<PathBuf> {
        let writing = self.writer.as_ref().map(BlobWriter::number);
        let written = self.written.as_ref().map(WrittenBlob::number);
        let number = writing.or(written);
        number
            .map(|it| blob_path(&store.directory, it))
            .into_iter()
            .collect()
    }

    /// Reads and copies bodies until this many bytes were read and written.
    fn step(&mut self, store: &Store, budget_bytes: u64) -> Result<(u64, bool)> {
        let mut cost = 0;
        while cost < budget_bytes.max(1) {
            let context = kvorum_sst::ReadContext {
                sink: &store.read_side.blobs,
                ..store.read_side.for_folds()
            };
            match self.scan.advance(&context).into_backend()? {
                // The block's contents are lost, and were reported.
                ScanItem::Gap(_) => {}
                ScanItem::Entry => cost += self.take(store)?,
                ScanItem::End => {
                    // There is no file if no body is live.
                    let writer = self.writer.take();
                    let written = writer.map(|it| WrittenBlob::finish(store, it));
                    self.written = written.transpose()?;
                    return Ok((cost, true));
                }
            }
        }
        Ok((cost, false))
    }

    /// Copies the body at the scan's position if it is live, and returns the cost.
    fn take(&mut self, store: &Store) -> Result<u64> {
        let value = self.scan.value_bytes();
        let bytes = value.len() as u64;
        let parts = ordinal_of(self.scan.key()).zip(split_blob(&value));
        let Some((ordinal, (key, body))) = parts else {
            return Ok(bytes);
        };
        let version = store.version.load();
        let context = store.read_side.at(kvorum_disk::Reading::MayBlock);
        let newest = match newest_in_tables(&version, &key, &context) {
            Ok(newest) => newest,
            // The body stays if its use is unknown.
            Err(error) if error.kind() == kvorum_backend::ErrorKind::Corrupt => {
                self.keep(store, ordinal, &key, &body)?;
                return Ok(2 * bytes);
            }
            Err(error) => return Err(error),
        };
        let is_used = newest.and_then(|it| it.value).is_some_and(|value| {
            matches!(value.body, Body::Blob(at) if (at.file, at.ordinal) == (self.file, ordinal))
        });
        if !is_used {
            return Ok(bytes);
        }
        self.keep(store, ordinal, &key, &body)?;
        Ok(2 * bytes)
    }

    fn keep(&mut self, store: &Store, ordinal: u64, key: &[u8], body: &[u8]) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let begun = written_blob::begin(store, Some(self.file), self.to_slow)?;
                self.writer.insert(begun)
            }
        };
        writer.add_as(ordinal, key, body)?;
        Ok(())
    }
}

/// The garbage allowed in a blob file at present.
fn garbage_percent(store: &Store) -> u8 {
    let set = store.settings.blob_garbage_percent;
    garbage_percent_where_scarce(&store.intake.headroom()).map_or(set, |it| set.min(it))
}

/// True when a blob file belongs in the slow directory, as all tables that use it do.
fn is_slow_blob(store: &Store, version: &Version, file: u64) -> bool {
    let uses = |it: &LevelTable| it.properties.blobs.iter().any(|it| it.file == file);
    let levels = version.levels.iter().enumerate();
    let mut fast = levels.filter(|(level, _)| !store.is_slow_level(*level));
    store.slow.is_some() && !fast.any(|(_, tables)| tables.iter().any(uses))
}
