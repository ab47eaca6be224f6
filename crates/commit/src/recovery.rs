//! Recovery: what an earlier run of the node logged goes into the stores that lack it.
//!
//! A store lacks what lies above its durable sequence. It is given those batches in the log's order,
//! an empty batch in place of each one that the log does not have (it was refused, or is damaged), so
//! that every batch gets the sequence that it had. Hence recovery may stop anywhere and begin again,
//! and it does not matter which of the segments that it was done with come back after a crash.
//!
//! Segments go one by one, as soon as their stores are synced: a disk that is nearly full needs room
//! for one of them only. Three kinds stay: what holds batches of a store that is not open (a partition
//! whose disk is missing) waits for it; what is damaged, or belongs to another log, is moved to
//! `lost/` for people to look at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, BackendError, Batch, Durability, ErrorKind, Result, Sequence, StoreId,
};
use kvorum_disk::{Disk, EntryKind, create_directory_durably};
use kvorum_runtime::{PlantedDefect, is_planted};
use kvorum_segment::{
    Scan, ScanOptions, Scanned, SegmentError, SegmentId, SegmentReader, Tail, file_name,
    list_segments,
};

use crate::error::{from_disk, from_segment};
use crate::log_record::{Logged, SEGMENT_KIND, decode};
use crate::segments::FREE_EXTENSION;

/// Where damaged segments go, beside the generations.
const LOST_NAME: &str = "lost";
/// A store that lacks more than this has lost what the log no longer has.
const MISSING_MAX: u64 = 1 << 20;

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Batches read from the log.
    pub batches_read: u64,
    /// Batches that a store lacked and was given.
    pub batches_replayed: u64,
    /// Batches below those that neither their store nor the log has: their puts were refused, or they
    /// are damaged.
    pub batches_missing: u64,
    /// Batches that stay in the log because their store is not open. Not counted: those of stores
    /// that were erased.
    pub batches_of_unknown_stores: u64,
    /// Bytes at the end of the log that a crash cut short; they were never acknowledged. In a file
    /// that was used before they cannot be told from what it held then, and are not counted.
    pub torn_bytes: u64,
    /// Places in the log that were durable and are damaged, in words. What they held may be lost.
    pub damage: Vec<String>,
    /// Stores that could not take what they lack, and why; all of it is still in the log. They have to
    /// be opened anew before this is tried again.
    pub failed: Vec<(StoreId, BackendError)>,
}

/// Reads every log that earlier runs left in `directory`, gives each store what lies above its
/// [`Backend::durable`] sequence, syncs the stores, and removes what nobody needs any more.
///
/// A store is any backend that was just opened, before new writes reach it. It is safe to be
/// interrupted and run again.
///
/// # Errors
/// Those of the disk and of the stores, [`ErrorKind::Full`] among them: the log is as it was, and
/// everything that was acknowledged is still in it. [`ErrorKind::NewerFormat`] for a log of a newer
/// version.
pub fn recover(disk: &dyn Disk, directory: &Path, stores: &[Arc<dyn Backend>]) -> Result<Recovery> {
    let mut report = recover_some(disk, directory, stores, &mut Recovered::default())?;
    match report.failed.pop() {
        Some((_, error)) => Err(error),
        None => Ok(report),
    }
}

/// What this run has recovered, and is not to touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The log that this run writes, if it does already.
    pub running: Option<u64>,
    /// The stores that were recovered: nothing in earlier logs is for them any more.
    pub stores: BTreeSet<StoreId>,
}

/// As [`recover`] for some of the stores that are there, while others are being opened: what the others
/// lack stays. A store that fails is among those then, and does not keep others from being recovered.
/// `recovered` is what came of the calls before this one.
///
/// # Errors
/// Those of reading the log; it may be called again.
pub fn recover_some(
    disk: &dyn Disk,
    directory: &Path,
    stores: &[Arc<dyn Backend>],
    recovered: &mut Recovered,
) -> Result<Recovery> {
    let mut generations = generations(disk, directory)?;
    generations.retain(|(_, log_id)| Some(*log_id) != recovered.running);
    if generations.is_empty() {
        let identities = stores.iter().map(|engine| engine.identity());
        recovered.stores.extend(identities);
        return Ok(Recovery::default());
    }
    let open = stores.iter().map(|engine| {
        let store = OpenStore {
            engine: engine.clone(),
            reached: engine.durable(),
            behind: 0,
        };
        (engine.identity(), store)
    });
    let is_skipped = is_planted(PlantedDefect::ReplaySkipped);
    let mut replay = Replay {
        disk,
        directory,
        stores: open.filter(|_| !is_skipped).collect(),
        recovered: &recovered.stores,
        report: Recovery::default(),
    };
    for (name, log_id) in generations {
        replay.generation(&directory.join(name), log_id)?;
    }
    disk.sync_directory(directory)
        .map_err(|error| from_disk(&error))?;
    let Replay { stores, report, .. } = replay;
    recovered.stores.extend(stores.into_keys());
    Ok(report)
}

/// The logs of earlier runs: directory name and log id. Of one store only the newest can hold what the
/// store lacks: a run begins with a recovery, and older ones hold stores that were not open in it. So
/// their order is moot.
fn generations(disk: &dyn Disk, directory: &Path) -> Result<Vec<(String, u64)>> {
    let found = disk.info(directory).map_err(|error| from_disk(&error))?;
    if found.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(directory).map_err(|error| from_disk(&error))?;
    let named = |name: &str| {
        let log_id = u64::from_str_radix(name, 16).ok()?;
        (format!("{log_id:016x}") == name).then_some(log_id)
    };
    Ok(entries
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::Directory)
        .filter_map(|entry| named(&entry.name).map(|log_id| (entry.name, log_id)))
        .collect())
}

struct Replay<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    stores: BTreeMap<StoreId, OpenStore>,
    /// By earlier calls.
    recovered: &'a BTreeSet<StoreId>,
    report: Recovery,
}

struct OpenStore {
    engine: Arc<dyn Backend>,
    /// It has everything up to here, in the log's numbering.
    reached: Sequence,
    /// By how much its own numbering is behind that: 0, unless it lost what the log no longer has.
    behind: u64,
}

/// A segment of a generation.
struct Segment {
    path: PathBuf,
    reader: SegmentReader,
    /// From its header; absent when that is damaged.
    kind: Option<u8>,
    has_records: bool,
}

/// Segments that stay for stores that are not open, and how many batches of each they hold.
type Waiting<'s> = Vec<(&'s Path, BTreeMap<StoreId, u64>)>;

/// What a segment was found to hold.
#[derive(Default)]
struct Contents {
    /// Stores that are open.
    open: BTreeSet<StoreId>,
    /// Batches of each store that is not.
    unknown: BTreeMap<StoreId, u64>,
    is_damaged: bool,
}

impl Replay<'_> {
    fn generation(&mut self, directory: &Path, log_id: u64) -> Result<()> {
        let mut must_stay = false;
        self.remove_free_files(directory)?;
        let segments = self.open_segments(directory, log_id, &mut must_stay)?;
        // A segment gets its first record after everything before it was synced.
        let newest_used = segments.iter().rposition(|it| it.has_records);
        let mut waiting: Waiting<'_> = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            let is_proven = newest_used.is_some_and(|newest| at < newest);
            let (mut contents, erased) = self.read_segment(segment, is_proven)?;
            for store in std::mem::take(&mut contents.open) {
                let synced = self.stores.get(&store).map(|open| open.engine.sync());
                if let Some(Err(error)) = synced {
                    self.give_up(store, error);
                }
                if !self.stores.contains_key(&store) {
                    contents.unknown.entry(store).or_default();
                }
            }
            if !erased.is_empty() {
                let keepers = self.settle_erasures(directory, &mut waiting, &erased)?;
                for store in keepers {
                    contents.unknown.entry(store).or_default();
                }
            }
            if !contents.unknown.is_empty() {
                waiting.push((&segment.path, contents.unknown));
            } else if contents.is_damaged {
                must_stay |= !self.put_aside(&segment.path)?;
            } else {
                self.remove(&segment.path)?;
            }
        }
        must_stay |= !waiting.is_empty();
        for (_, unknown) in waiting {
            self.report.batches_of_unknown_stores += unknown.values().sum::<u64>();
        }
        let finished = if must_stay {
            self.disk.sync_directory(directory)
        } else {
            self.disk.remove_directory(directory)
        };
        finished.map_err(|error| from_disk(&error))
    }

    /// First of all: what is to be replayed may need the room.
    fn remove_free_files(&self, directory: &Path) -> Result<()> {
        let entries = self.disk.list(directory);
        for entry in entries.map_err(|error| from_disk(&error))? {
            let path = directory.join(entry.name);
            if path.extension().is_some_and(|it| it == FREE_EXTENSION) {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the segments that waited for erased stores only, for certain before the record of the
    /// erasure goes: without it their stores would look as if they were not open. Returns the stores
    /// for which others of those segments stay, and that record with them.
    fn settle_erasures(
        &self,
        directory: &Path,
        waiting: &mut Waiting<'_>,
        erased: &BTreeSet<StoreId>,
    ) -> Result<BTreeSet<StoreId>> {
        let mut keepers = BTreeSet::new();
        let before = waiting.len();
        for (path, mut unknown) in std::mem::take(waiting) {
            let stores = unknown.len();
            unknown.retain(|store, _| !erased.contains(store));
            if unknown.is_empty() {
                self.remove(path)?;
                continue;
            }
            if unknown.len() < stores {
                keepers.extend(unknown.keys());
            }
            waiting.push((path, unknown));
        }
        if waiting.len() < before {
            self.disk
                .sync_directory(directory)
                .map_err(|error| from_disk(&error))?;
        }
        Ok(keepers)
    }

    fn open_segments(
        &mut self,
        directory: &Path,
        log_id: u64,
        must_stay: &mut bool,
    ) -> Result<Vec<Segment>> {
        let numbers = list_segments(self.disk, directory).map_err(|error| from_segment(&error))?;
        let mut segments = Vec::with_capacity(numbers.len());
        for number in numbers {
            let path = directory.join(file_name(number));
            let id = SegmentId {
                log_id,
                number,
                kind: SEGMENT_KIND,
            };
            let reader = SegmentReader::open(self.disk, &path, id);
            let reader = reader.map_err(|error| from_segment(&error))?;
            // A device may err once: what looks damaged is read again.
            let header = reader.check_header();
            let kind = match header {
                Ok(kind) => Some(kind),
                Err(SegmentError::Damaged { .. }) => None,
                Err(error @ SegmentError::Foreign { .. }) => {
                    self.report.damage.push(error.to_string());
                    *must_stay |= !self.put_aside(&path)?;
                    continue;
                }
                Err(error) => return Err(from_segment(&error)),
            };
            let has_records = has_records(&reader).map_err(|error| from_segment(&error))?;
            segments.push(Segment {
                path,
                reader,
                kind,
                has_records,
            });
        }
        Ok(segments)
    }

    /// Replays a segment; returns what it holds and the stores that were erased after all that.
    fn read_segment(
        &mut self,
        segment: &Segment,
        is_proven: bool,
    ) -> Result<(Contents, BTreeSet<StoreId>)> {
        let mut contents = Contents::default();
        let mut erased = BTreeSet::new();
        // Without a header and without records it is what a crash leaves of a new segment.
        if segment.kind.is_none() && (is_proven || segment.has_records) {
            let what = "the header of the file".to_owned();
            self.note_damage(segment, &mut contents, &what);
        }
        let is_fresh = segment.kind == Some(SEGMENT_KIND);
        let options = ScanOptions {
            // In a file that was used before, what stands behind an unsealed end is no damage.
            durable_to: if is_proven && is_fresh { u64::MAX } else { 0 },
            ..ScanOptions::default()
        };
        let scan = segment.reader.scan(options);
        let mut scan: Scan = scan.map_err(|error| from_segment(&error))?;
        for scanned in scan.by_ref() {
            let record = match scanned.map_err(|error| from_segment(&error))? {
                Scanned::Record(record) => record,
                Scanned::Damage(damage) => {
                    self.note_damage(segment, &mut contents, &damage.to_string());
                    continue;
                }
            };
            let back = segment.reader.restore(&record);
            let back: Bytes = back.map_err(|error| from_segment(&error))?;
            let at = record.head.location.offset;
            let sequence = Sequence(record.head.sequence);
            match decode(record.head.kind, &record.head.front, &back) {
                Ok((store, Logged::Erasure)) => {
                    contents.unknown.remove(&store);
                    erased.insert(store);
                }
                Ok((store, Logged::Batch(batch))) => {
                    self.report.batches_read += 1;
                    if self.recovered.contains(&store) {
                        continue;
                    }
                    if !self.stores.contains_key(&store) {
                        *contents.unknown.entry(store).or_default() += 1;
                        continue;
                    }
                    contents.open.insert(store);
                    match self.replay_batch(store, sequence, &batch) {
                        Ok(Ok(())) => {}
                        Ok(Err(refusal)) => {
                            let what = format!("the batch at {at}: {refusal}");
                            self.note_damage(segment, &mut contents, &what);
                        }
                        Err(error) => {
                            *contents.unknown.entry(store).or_default() += 1;
                            self.give_up(store, error);
                        }
                    }
                }
                Err(error) => {
                    let what = format!("the record at {at}: {error}");
                    self.note_damage(segment, &mut contents, &what);
                }
            }
        }
        if let Some(Tail::Torn { len }) = scan.end().map(|end| end.tail)
            && is_fresh
        {
            self.report.torn_bytes += len;
        }
        Ok((contents, erased))
    }

    fn note_damage(&mut self, segment: &Segment, contents: &mut Contents, what: &str) {
        contents.is_damaged = true;
        let path = segment.path.display();
        self.report.damage.push(format!("{path}: {what}"));
    }

    /// Treats a store that fails as one that is not open.
    fn give_up(&mut self, store: StoreId, error: BackendError) {
        self.stores.remove(&store);
        self.report.failed.push((store, error));
    }

    /// Gives a store a batch if it lacks it. The inner error is a batch that the store will never
    /// take.
    fn replay_batch(
        &mut self,
        store: StoreId,
        sequence: Sequence,
        batch: &Batch,
    ) -> Result<std::result::Result<(), String>> {
        let Some(open) = self.stores.get_mut(&store) else {
            return Ok(Ok(()));
        };
        if sequence <= open.reached {
            return Ok(Ok(()));
        }
        let missing = sequence.0 - open.reached.0 - 1;
        self.report.batches_missing += missing;
        let mut outcome = Ok(());
        if missing > MISSING_MAX {
            open.behind += missing;
            outcome = Err(format!(
                "its store lacks the {missing} batches before it, and so does the log"
            ));
        } else {
            for _ in 0..missing {
                open.take(&Batch::default())?;
            }
        }
        open.reached = Sequence(sequence.0 - 1);
        match open.take(batch) {
            Ok(()) => self.report.batches_replayed += 1,
            Err(error) if is_about_batch(error.kind()) => {
                open.take(&Batch::default())?;
                outcome = Err(error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(outcome)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.disk
            .remove_file(path)
            .map_err(|error| from_disk(&error))
    }

    /// Moves a segment where no recovery reads it; false when it has to stay where it is, for want
    /// of space.
    fn put_aside(&self, path: &Path) -> Result<bool> {
        let lost = self.directory.join(LOST_NAME);
        let part = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name).unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let name = format!("{}-{}", part(path.parent()), part(Some(path)));
        let moved = create_directory_durably(self.disk, &lost)
            .and_then(|()| self.disk.rename(path, &lost.join(name)))
            .and_then(|()| self.disk.sync_directory(&lost));
        match moved {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == kvorum_disk::ErrorKind::NoSpace => Ok(false),
            Err(error) => Err(from_disk(&error)),
        }
    }
}

impl OpenStore {
    /// Puts the batch behind what the store has reached.
    fn take(&mut self, batch: &Batch) -> Result<()> {
        let expected = Sequence(self.reached.0 + 1 - self.behind);
        let got = self.engine.put(batch, Durability::Buffered)?.sequence;
        if got != expected {
            let detail = format!("a replayed batch got {got:?}, expected {expected:?}");
            return Err(BackendError::new(ErrorKind::Failed, detail));
        }
        self.reached = self.reached.next();
        Ok(())
    }
}

/// True for errors that are the batch's own: its store is fine without it.
fn is_about_batch(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TooLarge | ErrorKind::Corrupt | ErrorKind::Misuse
    )
}

fn has_records(reader: &SegmentReader) -> std::result::Result<bool, SegmentError> {
    for scanned in reader.scan(ScanOptions::default())? {
        if let Scanned::Record(_) = scanned? {
            return Ok(true);
        }
    }
    Ok(false)
}
