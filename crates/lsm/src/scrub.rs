//! Scrubbing: tables and blob files are read again from time to time, past every cache. Damage is
//! noted as if a reader had found it.

use std::sync::Arc;

use kvorum_backend::{Result, ScrubFile, Scrubbing, StepOutcome, Task, Timestamp};
use kvorum_sst::{DamageSink, NoCache, ReadContext, ScanItem, ScanOptions, Table, TableScan};
use kvorum_storage_errors::{IntoBackend, from_sst};

use crate::store::Store;
use crate::version::Version;

/// A file being read.
pub(crate) struct ScrubJob {
    scan: TableScan,
    kind: FileKind,
}

/// The sink for damage of a file.
#[derive(Clone, Copy)]
enum FileKind {
    Table,
    Blob,
    Journal,
}

/// The task of reading a file again, if one is due.
pub(crate) fn due(
    store: &Store,
    scrubbing: &mut Scrubbing<ScrubJob>,
    now: Timestamp,
) -> Option<Task> {
    let period = store.settings.scrub_period?;
    let version = store.version.load();
    let tables = version.tables().filter(|it| it.table.is_some());
    let blobs = version.blobs.values().filter(|it| it.table.is_some());
    let journal = version.journal.iter().filter(|it| it.table.is_some());
    let mut files: Vec<ScrubFile> = tables
        .map(|it| (it.number, it.file_len))
        .chain(blobs.map(|it| (it.number, it.file_len)))
        .chain(journal.map(|it| (it.number, it.file_len)))
        .map(|(number, bytes)| ScrubFile { number, bytes })
        .collect();
    files.sort_by_key(|it| it.number);
    let (disk, directory) = (&*store.disk, &*store.directory);
    scrubbing.due(disk, directory, &files, Some(period), now)
}

/// Reads a part of a file, while the task is due.
pub(crate) fn step(
    store: &Store,
    scrubbing: &mut Scrubbing<ScrubJob>,
    number: u64,
    budget_bytes: u64,
    now: Timestamp,
) -> Result<StepOutcome> {
    let is_due = |scrubbing: &mut Scrubbing<ScrubJob>| {
        let due = due(store, scrubbing, now);
        due.is_some_and(|task| task.subject == number)
    };
    let numbered = table_numbered(&store.version.load(), number);
    let Some((table, kind)) = numbered.filter(|_| is_due(scrubbing)) else {
        return Ok(StepOutcome::nothing_left());
    };
    let file = ScrubFile {
        number,
        bytes: table.file_len(),
    };
    let open = || {
        let scan = TableScan::new(table, ScanOptions::default());
        Ok(ScrubJob { scan, kind })
    };
    let read = |job: &mut ScrubJob| job.read(store, budget_bytes);
    let (disk, directory) = (&*store.disk, &*store.directory);
    let (cost_bytes, is_read) = scrubbing.step(disk, directory, file, open, read)?;
    Ok(StepOutcome {
        cost_bytes,
        is_done: is_read || !is_due(scrubbing),
    })
}

fn table_numbered(version: &Version, number: u64) -> Option<(Arc<Table>, FileKind)> {
    let tables = version
        .tables()
        .map(|it| (it.number, &it.table, FileKind::Table));
    let blobs = version
        .blobs
        .values()
        .map(|it| (it.number, &it.table, FileKind::Blob));
    let journal = version
        .journal
        .iter()
        .map(|it| (it.number, &it.table, FileKind::Journal));
    let mut files = tables.chain(blobs).chain(journal);
    let (_, table, kind) = files.find(|it| it.0 == number)?;
    Some((table.clone()?, kind))
}

impl ScrubJob {
    fn read(&mut self, store: &Store, budget_bytes: u64) -> Result<(u64, bool)> {
        let folds = store.read_side.for_folds();
        let context = ReadContext {
            cache: &NoCache,
            sink: match self.kind {
                FileKind::Table => &store.read_side.tables,
                FileKind::Blob => &store.read_side.blobs,
                FileKind::Journal => &store.read_side.journal,
            },
            ..folds
        };
        let before = self.scan.bytes_read();
        loop {
            let item = self.scan.advance(&context);
            let read = self.scan.bytes_read() - before;
            match item {
                Ok(ScanItem::Entry) if read >= budget_bytes.max(1) => return Ok((read, false)),
                Ok(ScanItem::Entry) => {}
                // The scan has reported it to the sink.
                Ok(ScanItem::Gap(_)) => store.count_corrupt_read(),
                Ok(ScanItem::End) => {
                    let checked = self.check_structure(store, context.sink)?;
                    return Ok((read + checked, true));
                }
                Err(error) if error.is_damage() => {
                    store.count_corrupt_read();
                    return Ok((read, true));
                }
                Err(error) => return Err(from_sst(&error)),
            }
        }
    }

    /// Checks the parts that the scan does not read. Returns the bytes that were read.
    fn check_structure(&self, store: &Store, sink: &dyn DamageSink) -> Result<u64> {
        let checked = self.scan.table().check_structure(sink).into_backend()?;
        (0..checked.damaged).for_each(|_| store.count_corrupt_read());
        Ok(checked.bytes)
    }
}
