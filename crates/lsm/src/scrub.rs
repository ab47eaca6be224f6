//! Scrubbing: tables and blob files are read again now and then, past every cache. What is damaged is
//! noted as if a reader had met it.

use std::sync::Arc;

use kvorum_backend::{Result, ScrubFile, StepOutcome, Task, Timestamp};
use kvorum_sst::{DamageSink, NoCache, ReadContext, ScanItem, ScanOptions, Table, TableScan};

use crate::error::{IntoBackend, from_sst};
use crate::store::Store;
use crate::upkeep::Upkeep;

/// A file that is being read.
pub(crate) struct ScrubJob {
    scan: TableScan,
    is_blob: bool,
}

impl Store {
    pub(crate) fn scrub_due(&self, upkeep: &mut Upkeep, now: Timestamp) -> Option<Task> {
        let period = self.settings.scrub_period?;
        let version = self.version.load();
        let tables = version.tables().filter(|it| it.table.is_some());
        let blobs = version.blobs.values().filter(|it| it.table.is_some());
        let mut files: Vec<ScrubFile> = tables
            .map(|it| (it.number, it.file_len))
            .chain(blobs.map(|it| (it.number, it.file_len)))
            .map(|(number, bytes)| ScrubFile { number, bytes })
            .collect();
        files.sort_by_key(|it| it.number);
        let (disk, directory) = (&*self.disk, &*self.directory);
        upkeep.scrub.due(disk, directory, &files, Some(period), now)
    }

    /// Reads a part of a file, for as long as that is due.
    pub(crate) fn scrub_step(
        &self,
        upkeep: &mut Upkeep,
        number: u64,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let is_due = |upkeep: &mut Upkeep| {
            let due = self.scrub_due(upkeep, now);
            due.is_some_and(|task| task.subject == number)
        };
        let Some((table, is_blob)) = self.table_numbered(number).filter(|_| is_due(upkeep)) else {
            return Ok(StepOutcome::nothing_left());
        };
        let file = ScrubFile {
            number,
            bytes: table.file_len(),
        };
        let open = || {
            let scan = TableScan::new(table, ScanOptions::default());
            Ok(ScrubJob { scan, is_blob })
        };
        let read = |job: &mut ScrubJob| self.read_again(job, budget_bytes);
        let (disk, directory) = (&*self.disk, &*self.directory);
        let (cost_bytes, is_read) = upkeep.scrub.step(disk, directory, file, open, read)?;
        Ok(StepOutcome {
            cost_bytes,
            is_done: is_read || !is_due(upkeep),
        })
    }

    fn table_numbered(&self, number: u64) -> Option<(Arc<Table>, bool)> {
        let version = self.version.load();
        let table = version.tables().find(|it| it.number == number);
        if let Some(table) = table.and_then(|it| it.table.clone()) {
            return Some((table, false));
        }
        let blob = version.blobs.values().find(|it| it.number == number);
        blob.and_then(|it| it.table.clone()).map(|it| (it, true))
    }

    fn read_again(&self, job: &mut ScrubJob, budget_bytes: u64) -> Result<(u64, bool)> {
        let folds = self.read_side.for_folds();
        let context = ReadContext {
            cache: &NoCache,
            sink: if job.is_blob {
                &self.read_side.blobs
            } else {
                &self.read_side.tables
            },
            ..folds
        };
        let before = job.scan.bytes_read();
        loop {
            let item = job.scan.advance(&context);
            let read = job.scan.bytes_read() - before;
            match item {
                Ok(ScanItem::Entry) if read >= budget_bytes.max(1) => return Ok((read, false)),
                Ok(ScanItem::Entry) => {}
                // It was told to the sink.
                Ok(ScanItem::Gap(_)) => self.count_corrupt_read(),
                Ok(ScanItem::End) => {
                    let checked = self.check_structure(job, context.sink)?;
                    return Ok((read + checked, true));
                }
                Err(error) if error.is_damage() => {
                    self.count_corrupt_read();
                    return Ok((read, true));
                }
                Err(error) => return Err(from_sst(&error)),
            }
        }
    }

    /// What the scan did not come by. Returns the bytes that were read.
    fn check_structure(&self, job: &ScrubJob, sink: &dyn DamageSink) -> Result<u64> {
        let checked = job.scan.table().check_structure(sink).into_backend()?;
        (0..checked.damaged).for_each(|_| self.count_corrupt_read());
        Ok(checked.bytes)
    }
}
