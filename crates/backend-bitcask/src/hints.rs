//! Making hints: a full segment is sealed, then its keys are read and written to a sorted table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Result, StepBudget, StepOutcome, Task, TaskKind};
use kvorum_segment::{Scan, ScanOptions, Scanned};
use kvorum_storage_errors::IntoBackend;

use crate::copies::is_understood;
use crate::hint::{HintedSegment, hint_path};
use crate::hint_table::{HintError, HintTableWriter};
use crate::key_table::{KeyEntry, KeyTable, KeyTableBuilder};
use crate::segment_files::SegmentFiles;
use crate::segments::{Catalog, SegmentEntry};

/// The hint in progress, one at a time.
#[derive(Default)]
pub(crate) struct Hints {
    job: Option<HintJob>,
}

struct HintJob {
    number: u32,
    bound: HintedSegment,
    phase: HintPhase,
}

enum HintPhase {
    Reading(Box<Scan>, KeyTableBuilder),
    /// The number counts the table's written entries.
    Writing(KeyTable, usize, Box<HintTableWriter>),
}

impl Hints {
    /// Tasks for full unsealed segments, and for sealed segments without a hint. `output` is the
    /// segment for copies.
    pub(crate) fn due(files: &SegmentFiles, catalog: &Catalog, output: Option<u32>) -> Vec<Task> {
        let has_room = files.home.has_room_for_hints();
        let mut newest = catalog.segments.iter().rev();
        let active = newest.find(|(_, entry)| !entry.segment.is_merged);
        let active = active.map(|(number, _)| *number);
        let wanting = catalog.segments.iter().filter(|(number, entry)| {
            let number = Some(**number);
            let is_written_to = number == output || (!entry.is_sealed && number == active);
            !is_written_to && (!entry.is_sealed || has_room && wants_hint(entry))
        });
        let task = |(number, entry): (&u32, &SegmentEntry)| {
            Task::normal(TaskKind::Hint, u64::from(*number), entry.stats.data_bytes())
        };
        wanting.map(task).collect()
    }

    /// Seals a full segment, or writes a part of the hint of a sealed one.
    pub(crate) fn step(
        &mut self,
        files: &SegmentFiles,
        number: u32,
        budget: StepBudget,
    ) -> Result<StepOutcome> {
        files.seal_retiring(number)?;
        let under_way = self.job.take().filter(|job| job.number == number);
        let job = match under_way {
            Some(job) => Some(job),
            None => Self::begin(files, number)?,
        };
        let Some(mut job) = job else {
            return Ok(StepOutcome::nothing_left());
        };
        let mut cost_bytes = 0;
        if let HintPhase::Reading(scan, builder) = &mut job.phase {
            match read_keys(scan, builder, budget, &mut cost_bytes)? {
                KeysRead::Some => {}
                KeysRead::Damaged => {
                    // A hint would lack the damaged records, so folds read the segment itself.
                    files.contents.mark_damaged(number);
                    return Ok(StepOutcome::done(cost_bytes));
                }
                KeysRead::All => {
                    let path = hint_path(&files.home.directory, number);
                    let writer = job
                        .bound
                        .create_hint(&*files.home.disk, &path)
                        .into_backend()?;
                    let table = std::mem::take(builder).finish();
                    job.phase = HintPhase::Writing(table, 0, Box::new(writer));
                }
            }
        }
        if let HintPhase::Writing(table, position, writer) = &mut job.phase {
            let (read, begin) = (cost_bytes, writer.len());
            while cost_bytes == 0 || cost_bytes < budget.bytes {
                let Some(entry) = table.get(*position) else {
                    return Self::finish(files, job, cost_bytes);
                };
                writer.push(&entry).into_backend()?;
                *position += 1;
                cost_bytes = read + writer.len() - begin;
            }
        }
        self.job = Some(job);
        Ok(StepOutcome::partial(cost_bytes))
    }

    pub(crate) fn abandon(&mut self) {
        self.job = None;
    }

    /// Releases a removed segment: the file system frees its space after the last reader.
    pub(crate) fn let_go(&mut self, number: u32) {
        self.job.take_if(|job| job.number == number);
    }

    fn begin(files: &SegmentFiles, number: u32) -> Result<Option<HintJob>> {
        let catalog = files.contents.catalog.read();
        let Some(entry) = catalog.segments.get(&number) else {
            return Ok(None);
        };
        if !wants_hint(entry) || !files.home.has_room_for_hints() {
            return Ok(None);
        }
        let options = ScanOptions::durable_to(u64::MAX);
        let segment = entry.segment.clone();
        let bound = HintedSegment::of(&segment.reader.id(), entry.stats.seal());
        // A scan begins with a read, during which puts would wait for the catalog.
        drop(catalog);
        let scan = segment.reader.scan(options).into_backend()?;
        Ok(Some(HintJob {
            number,
            bound,
            phase: HintPhase::Reading(Box::new(scan), KeyTableBuilder::default()),
        }))
    }

    fn finish(files: &SegmentFiles, job: HintJob, cost_bytes: u64) -> Result<StepOutcome> {
        let HintPhase::Writing(_, _, writer) = job.phase else {
            unreachable!("the hint of segment {} ends unwritten", job.number);
        };
        let begin = writer.len();
        let len = writer.finish(&*files.home.disk, &job.bound.note());
        let len = len.into_backend()?;
        files.home.count_written(len);
        let path = hint_path(&files.home.directory, job.number);
        let hint = match job.bound.open_hint(&*files.home.disk, &path) {
            Ok(hint) => Some(Arc::new(hint)),
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(_) => None,
        };
        if let Some(entry) = files.contents.catalog.read().segments.get(&job.number) {
            *entry.segment.hint.write() = hint;
        }
        Ok(StepOutcome::done(cost_bytes + len.saturating_sub(begin)))
    }
}

enum KeysRead {
    /// The budget is used up.
    Some,
    /// The source is at its end.
    All,
    /// Some records cannot be read.
    Damaged,
}

fn read_keys(
    scan: &mut Scan,
    builder: &mut KeyTableBuilder,
    budget: StepBudget,
    cost_bytes: &mut u64,
) -> Result<KeysRead> {
    scan.set_read_ahead(budget.bytes / 2);
    loop {
        if *cost_bytes > 0 && *cost_bytes >= budget.bytes {
            return Ok(KeysRead::Some);
        }
        match scan.next() {
            None => return Ok(KeysRead::All),
            Some(scanned) => match scanned.into_backend()? {
                Scanned::Damage(_) => return Ok(KeysRead::Damaged),
                Scanned::Record(record) => {
                    *cost_bytes += record.head.location.len;
                    if !is_understood(&record.head) {
                        return Ok(KeysRead::Damaged);
                    }
                    if let Some(entry) = KeyEntry::of(&record.head) {
                        builder.push(&entry);
                    }
                }
            },
        }
    }
}

fn wants_hint(entry: &SegmentEntry) -> bool {
    entry.is_sealed
        && entry.segment.hint.read().is_none()
        && !entry.segment.is_damaged.load(Ordering::Relaxed)
}
