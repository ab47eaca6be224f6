//! Writing log hints in steps: the rules for when one is due, the sources, and the removal.
//!
//! A log hint is written once there are enough records without one, in the log or in the store's
//! unfinished segment for collected records. Many log hints of about one size are merged into one,
//! so that a walk need not read too many. A log hint with mostly entries of dropped segments is
//! rewritten without them, and one with no other entries is removed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Result, StepBudget, StepOutcome, Task, TaskKind};
use kvorum_disk::{Reading, remove_if_there};
use kvorum_segment::{Scan, ScanOptions, Scanned};
use kvorum_storage_errors::{IntoBackend, from_segment};
use kvorum_value_log::ValueLog;

use crate::hint_table::HintError;
use crate::key_table::{KeyEntry, KeyTable, KeyTableBuilder, OWN};
use crate::key_walk::{Keys, Next};
use crate::log_hint::{BoundTo, HintedPart, LogHint, LogHintWriter, log_hint_path};
use crate::places::Place;
use crate::segment_files::SegmentFiles;
use crate::segments::Catalog;
use crate::shared::Standing;

/// The subject of tasks that write log hints: no segment of the store has this number.
pub(crate) const LOG_HINT_SUBJECT: u32 = 0;
/// The most records of a log hint, whose keys are in memory meanwhile.
const RECORDS_MAX: usize = 64 << 10;
/// The assumed cost of reading a front, in bytes.
const FRONT_BYTES: u64 = 256;
/// The approximate bytes of an entry in a log hint.
const ENTRY_BYTES: u64 = 40;

/// The log hint in progress, one at a time.
#[derive(Default)]
pub(crate) struct LogHints {
    job: Option<LogHintJob>,
}

/// A log hint in progress.
struct LogHintJob {
    parts: Vec<HintedPart>,
    /// The log hints that it replaces.
    replaces: Vec<Arc<LogHint>>,
    phase: Phase,
    /// The number of records read for it from a segment of the store's own.
    scanned: u64,
}

enum Phase {
    Scanning(Box<Scan>, KeyTableBuilder),
    Reading(VecDeque<(Place, Standing)>, KeyTableBuilder),
    Writing(Box<Writing>),
}

struct Writing {
    number: u32,
    /// The segments of its parts; entries of other segments are left out.
    segments: BTreeSet<u32>,
    sources: Vec<Source>,
    writer: LogHintWriter,
}

/// A source of a log hint.
struct Source {
    keys: Keys,
    /// The log hint with these keys.
    hint: Option<Arc<LogHint>>,
    current: Option<KeyEntry>,
}

/// The next work.
enum Wanted {
    /// Some log hints are wrong, or without existing segments.
    Removal,
    /// A segment of the store's own has this many bytes without a log hint.
    Scanning(u32, u64),
    /// This many records in the log are without a log hint.
    Writing(u64),
    Merging(Vec<Arc<LogHint>>),
}

impl LogHints {
    pub(crate) fn abandon(&mut self) {
        self.job = None;
    }

    pub(crate) fn due(&self, files: &SegmentFiles, catalog: &Catalog) -> Option<Task> {
        files.log.log.as_ref()?;
        let cost_bytes = match (&self.job, Self::wanted(files, catalog)) {
            (Some(job), _) => job.cost_bytes(),
            (None, Some(Wanted::Removal)) => 0,
            (None, Some(Wanted::Scanning(_, bytes))) => bytes,
            (None, Some(Wanted::Writing(records))) => records * (FRONT_BYTES + ENTRY_BYTES),
            (None, Some(Wanted::Merging(hints))) => {
                2 * hints.iter().map(|it| it.table.len()).sum::<u64>()
            }
            (None, None) => return None,
        };
        Some(Task::normal(
            TaskKind::Hint,
            u64::from(LOG_HINT_SUBJECT),
            cost_bytes,
        ))
    }

    fn wanted(files: &SegmentFiles, catalog: &Catalog) -> Option<Wanted> {
        if catalog.log_hints.iter().any(|it| catalog.is_useless(it)) {
            return Some(Wanted::Removal);
        }
        if !files.home.has_room_for_hints() {
            return None;
        }
        let records_min = files.home.settings.log_hint_records_min.max(1);
        let mut own = catalog.segments.iter();
        let own = own.find(|(_, entry)| {
            let is_damaged = entry.segment.is_damaged.load(Ordering::Relaxed);
            let unhinted = entry.stats.records.saturating_sub(entry.hinted_records);
            let is_behind = entry.hinted_to < entry.stats.data_end;
            !entry.is_sealed && !is_damaged && is_behind && unhinted >= records_min
        });
        if let Some((number, entry)) = own {
            let bytes = entry.stats.data_end.saturating_sub(entry.hinted_to);
            return Some(Wanted::Scanning(*number, bytes));
        }
        let readable = catalog.shared.values().filter(|it| !it.is_damaged);
        let unhinted: usize = readable.map(|it| it.unhinted).sum();
        if unhinted as u64 >= records_min {
            return Some(Wanted::Writing(unhinted as u64));
        }
        Self::to_be_merged(files, catalog).map(Wanted::Merging)
    }

    /// Log hints that are due to become one.
    fn to_be_merged(files: &SegmentFiles, catalog: &Catalog) -> Option<Vec<Arc<LogHint>>> {
        let hints = &catalog.log_hints;
        let many = files.home.settings.log_hints_merged.max(2);
        let mut entries_max = files.home.settings.log_hint_records_min.max(1);
        // Each step includes log hints of the next larger size.
        while hints.len() >= many && entries_max < u64::MAX {
            entries_max = entries_max.saturating_mul(many as u64);
            let small = hints.iter().filter(|it| it.entries < entries_max);
            if small.clone().count() >= many {
                return Some(small.cloned().collect());
            }
        }
        let is_outdated = |hint: &&Arc<LogHint>| catalog.entries_there(hint) * 2 < hint.entries;
        let outdated = hints.iter().find(is_outdated)?;
        Some(vec![outdated.clone()])
    }

    /// Continues a log hint, or begins one.
    pub(crate) fn step(&mut self, files: &SegmentFiles, budget: StepBudget) -> Result<StepOutcome> {
        self.remove_useless(files)?;
        let job = match self.job.take() {
            Some(job) => Some(job),
            None => Self::begin(files)?,
        };
        let Some(mut job) = job else {
            return Ok(StepOutcome::nothing_left());
        };
        let mut cost_bytes = 0;
        let is_over = |cost_bytes: u64| cost_bytes > 0 && cost_bytes >= budget.bytes;
        if let Phase::Scanning(scan, builder) = &mut job.phase {
            scan.set_read_ahead(budget.bytes / 2);
            let mut is_read = false;
            while !is_read && !is_over(cost_bytes) {
                let scanned = match builder.len() < RECORDS_MAX {
                    true => scan.next(),
                    false => None,
                };
                match scanned.transpose().into_backend()? {
                    Some(Scanned::Record(record)) => {
                        cost_bytes += record.head.location.len;
                        job.scanned += 1;
                        let part = &mut job.parts[0];
                        part.to = record.head.location.next_offset();
                        if let Some(entry) = KeyEntry::of(&record.head) {
                            builder.push(&KeyEntry {
                                segment: part.number,
                                ..entry
                            });
                        }
                    }
                    Some(Scanned::Damage(_)) => {
                        files.contents.mark_damaged(job.parts[0].number & !OWN);
                        return Ok(StepOutcome::done(cost_bytes.max(1)));
                    }
                    None => is_read = true,
                }
            }
            if is_read {
                let table = std::mem::take(builder).finish();
                Self::begin_writing_table(files, &mut job, table)?;
            }
        }
        if let Phase::Reading(rest, builder) = &mut job.phase {
            while !is_over(cost_bytes)
                && let Some((place, standing)) = rest.pop_front()
            {
                cost_bytes += FRONT_BYTES;
                if !Self::gather_front(files, &place, standing, builder)? {
                    // A hint would lack the damaged records, so folds read the records themselves.
                    Self::mark_logged_damaged(files, &place);
                    return Ok(StepOutcome::done(cost_bytes));
                }
            }
            if rest.is_empty() {
                let table = std::mem::take(builder).finish();
                Self::begin_writing_table(files, &mut job, table)?;
            }
        }
        if let Phase::Writing(writing) = &mut job.phase {
            let (read, begin) = (cost_bytes, writing.writer.len());
            while !is_over(cost_bytes) {
                match writing.write_key() {
                    Ok(false) => return Self::finish(files, job, cost_bytes),
                    Ok(true) => cost_bytes = read + writing.writer.len() - begin,
                    Err(HintError::Disk(error)) => return Err((&error).into()),
                    // A log hint to be merged, which its reader has marked as wrong.
                    Err(_) => {
                        return Ok(StepOutcome::done(cost_bytes.max(1)));
                    }
                }
            }
        }
        self.job = Some(job);
        Ok(StepOutcome::partial(cost_bytes))
    }

    fn begin_writing_table(
        files: &SegmentFiles,
        job: &mut LogHintJob,
        table: KeyTable,
    ) -> Result<()> {
        let sources = vec![Source::new(Keys::of_table(table), None)];
        if let Some(writing) = Self::begin_writing(files, &job.parts, sources)? {
            job.phase = Phase::Writing(Box::new(writing));
        }
        Ok(())
    }

    /// Takes the front of a record; false when it is damaged.
    fn gather_front(
        files: &SegmentFiles,
        place: &Place,
        standing: Standing,
        builder: &mut KeyTableBuilder,
    ) -> Result<bool> {
        let Place::Shared(shared) = place else {
            return Ok(true);
        };
        match place.read_front(standing.location(), Reading::MayBlock) {
            Ok(front) => {
                if let Some(entry) = KeyEntry::of(&front) {
                    builder.push(&KeyEntry {
                        segment: shared.number(),
                        ..entry
                    });
                }
                Ok(true)
            }
            Err(error) if error.is_damage() => {
                files.home.count_corrupt(&error);
                Ok(false)
            }
            Err(error) => Err(from_segment(&error)),
        }
    }

    fn mark_logged_damaged(files: &SegmentFiles, place: &Place) {
        if let Place::Shared(shared) = place
            && let Some(entry) = files
                .contents
                .catalog
                .write()
                .shared
                .get_mut(&shared.number())
        {
            entry.is_damaged = true;
        }
    }

    fn begin(files: &SegmentFiles) -> Result<Option<LogHintJob>> {
        let catalog = files.contents.catalog.read();
        match Self::wanted(files, &catalog) {
            Some(Wanted::Scanning(number, _)) => {
                let Some(entry) = catalog.segments.get(&number) else {
                    return Ok(None);
                };
                let options = ScanOptions {
                    from: entry.hinted_to,
                    until: Some(entry.stats.data_end),
                    ..ScanOptions::durable_to(u64::MAX)
                };
                let segment = entry.segment.clone();
                let parts = vec![HintedPart {
                    number: OWN | number,
                    from: entry.hinted_to,
                    to: entry.hinted_to,
                    entries: 0,
                }];
                // A scan begins with a read, during which puts would wait for the catalog.
                drop(catalog);
                let scan = segment.reader.scan(options).into_backend()?;
                Ok(Some(LogHintJob {
                    parts,
                    replaces: Vec::new(),
                    phase: Phase::Scanning(Box::new(scan), KeyTableBuilder::default()),
                    scanned: 0,
                }))
            }
            Some(Wanted::Writing(_)) => {
                let (parts, standings) = catalog.unhinted_records(RECORDS_MAX);
                Ok(Some(LogHintJob {
                    parts,
                    replaces: Vec::new(),
                    phase: Phase::Reading(standings, KeyTableBuilder::default()),
                    scanned: 0,
                }))
            }
            Some(Wanted::Merging(hints)) => {
                let parts = hints.iter().flat_map(|hint| hint.parts.iter().copied());
                let is_there = |part: &HintedPart| catalog.is_spoken_of(part);
                let mut parts: Vec<HintedPart> = parts.filter(is_there).collect();
                parts.sort_unstable_by_key(|part| (part.number, part.from));
                drop(catalog);
                let sources = hints.iter().map(|hint| {
                    let keys = Keys::Hint(Box::new(hint.table.scan()));
                    Source::new(keys, Some(hint.clone()))
                });
                let sources = sources.collect();
                let writing = Self::begin_writing(files, &parts, sources)?;
                Ok(writing.map(|writing| LogHintJob {
                    parts,
                    replaces: hints,
                    phase: Phase::Writing(Box::new(writing)),
                    scanned: 0,
                }))
            }
            Some(Wanted::Removal) | None => Ok(None),
        }
    }

    /// `None` when one of the sources is damaged.
    fn begin_writing(
        files: &SegmentFiles,
        parts: &[HintedPart],
        mut sources: Vec<Source>,
    ) -> Result<Option<Writing>> {
        for source in &mut sources {
            match source.advance() {
                Ok(()) => {}
                Err(HintError::Disk(error)) => return Err((&error).into()),
                Err(_) => return Ok(None),
            }
        }
        let number = {
            let mut catalog = files.contents.catalog.write();
            catalog.next_log_hint += 1;
            catalog.next_log_hint - 1
        };
        let bound = Self::bound(files);
        let writer = LogHintWriter::create(&*files.home.disk, &files.home.directory, number, bound);
        let writer = writer.into_backend()?;
        Ok(Some(Writing {
            number,
            segments: parts.iter().map(|part| part.number).collect(),
            sources,
            writer,
        }))
    }

    fn finish(files: &SegmentFiles, job: LogHintJob, cost_bytes: u64) -> Result<StepOutcome> {
        let Phase::Writing(writing) = job.phase else {
            unreachable!("a log hint of {:?} ends unwritten", job.parts);
        };
        // Its records must be durable before it.
        files.sync_all()?;
        let (number, begin) = (writing.number, writing.writer.len());
        let len = writing.writer.finish(&*files.home.disk, &job.parts);
        let len = len.into_backend()?;
        files.home.count_written(len);
        let bound = Self::bound(files);
        match LogHint::open(&*files.home.disk, &files.home.directory, number, bound) {
            Ok(Some(hint)) => {
                let replaces: Vec<u32> = job.replaces.iter().map(|it| it.number).collect();
                let mut catalog = files.contents.catalog.write();
                catalog.change_log_hints(Some(hint), |it| !replaces.contains(&it.number));
                if replaces.is_empty() {
                    catalog.count_unhinted(&job.parts, job.scanned);
                }
                drop(catalog);
                Self::remove_log_hints(files, &replaces)?;
            }
            Err(HintError::Disk(error)) => return Err((&error).into()),
            // The new log hint is wrong, and will be rewritten.
            Ok(None) | Err(_) => Self::remove_log_hints(files, &[number])?,
        }
        Ok(StepOutcome::done(cost_bytes + len.saturating_sub(begin)))
    }

    /// Removes log hints that are wrong or without existing segments. Their records then have no
    /// log hint.
    fn remove_useless(&mut self, files: &SegmentFiles) -> Result<()> {
        let useless: Vec<Arc<LogHint>> = {
            let catalog = files.contents.catalog.read();
            let hints = catalog.log_hints.iter();
            let useless = hints.filter(|it| catalog.is_useless(it));
            useless.cloned().collect()
        };
        if useless.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u32> = useless.iter().map(|it| it.number).collect();
        self.job.take_if(|job| {
            let mut replaced = job.replaces.iter();
            replaced.any(|it| numbers.contains(&it.number))
        });
        let mut catalog = files.contents.catalog.write();
        catalog.change_log_hints(None, |it| !numbers.contains(&it.number));
        for hint in &useless {
            catalog.count_unhinted(&hint.parts, 0);
        }
        drop(catalog);
        Self::remove_log_hints(files, &numbers)
    }

    fn bound(files: &SegmentFiles) -> BoundTo {
        BoundTo {
            store: files.home.identity(),
            log_id: files.log.log.as_ref().map_or(0, ValueLog::log_id),
        }
    }

    fn remove_log_hints(files: &SegmentFiles, numbers: &[u32]) -> Result<()> {
        for number in numbers {
            let path = log_hint_path(&files.home.directory, *number);
            remove_if_there(&*files.home.disk, &path).into_backend()?;
        }
        Ok(())
    }
}

impl LogHintJob {
    /// The approximate remaining work.
    fn cost_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Scanning(scan, _) => scan.read_to().max(1),
            Phase::Reading(rest, _) => rest.len() as u64 * (FRONT_BYTES + ENTRY_BYTES) + 1,
            Phase::Writing(_) => self.replaces.iter().map(|it| it.table.len()).sum::<u64>() + 1,
        }
    }
}

impl Writing {
    /// Writes the entries of the next key; false when there are no more.
    fn write_key(&mut self) -> std::result::Result<bool, HintError> {
        let newest = self.next_key()?;
        for entry in &newest {
            self.writer.push(entry)?;
        }
        Ok(!newest.is_empty())
    }

    /// The newest entries of the next key in existing segments; none behind the last key. A copy
    /// has the sequence of its original, and both are kept: either segment may be dropped first.
    fn next_key(&mut self) -> std::result::Result<Vec<KeyEntry>, HintError> {
        let mut newest: Vec<KeyEntry> = Vec::new();
        while newest.is_empty() {
            let currents = self.sources.iter().filter_map(|it| it.current.as_ref());
            let Some(key) = currents.map(|entry| &entry.key).min().cloned() else {
                break;
            };
            for source in &mut self.sources {
                while let Some(entry) = source.current.take_if(|entry| entry.key == key) {
                    source.advance()?;
                    if !self.segments.contains(&entry.segment) {
                        continue;
                    }
                    let known = newest.first().map_or(0, |newest| newest.sequence);
                    if entry.sequence > known {
                        newest.clear();
                    }
                    if entry.sequence >= known {
                        newest.push(entry);
                    }
                }
            }
        }
        Ok(newest)
    }
}

impl Source {
    fn new(keys: Keys, hint: Option<Arc<LogHint>>) -> Self {
        Self {
            keys,
            hint,
            current: None,
        }
    }

    fn advance(&mut self) -> std::result::Result<(), HintError> {
        self.current = match self.keys.next() {
            Ok(Next::Entry(entry)) => Some(entry),
            Ok(Next::End | Next::NotGathered(_)) => None,
            Err(HintError::Disk(error)) => return Err(HintError::Disk(error)),
            Err(error) => {
                if let Some(hint) = &self.hint {
                    hint.set_wrong();
                }
                return Err(error);
            }
        };
        Ok(())
    }
}
