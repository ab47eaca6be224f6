//! Opening a store: from the checkpoint and the tail behind it, or else from the hints, or else
//! from the data. A damaged source is set aside, and the next one is read.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{LostRange, Result, SUSPECT_NAME, StoreId, mark_suspect, newer_format};
use kvorum_disk::{Disk, EntryKind, remove_if_there};
use kvorum_planted_defects::is_planted;
use kvorum_segment::{
    FILE_HEADER_BYTES, ScanEnd, ScanOptions, Scanned, SegmentError, SegmentReader,
    Tail as ScanTail, file_name, list_segments,
};
use kvorum_storage_errors::{IntoBackend, from_segment};

use kvorum_value_log::{UNKNOWN_SEQUENCES, ValueLog, Whereabouts};

use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, CheckpointError, Covered, PlaceNumber};
use crate::fingerprint::Fingerprints;
use crate::found_segment::Found;
use crate::hint::{HintedSegment, hint_path};
use crate::hint_table::HintError;
use crate::keydir::Keydir;
use crate::log_hint::BoundTo;
use crate::lost::LostLog;
use crate::meta::Meta;
use crate::places::Place;
use crate::segment::{KIND_MERGED, Segment, segment_id};
use crate::segment_files::WriteSide;
use crate::segment_stats::SegmentStats;
use crate::segments::{Catalog, SegmentEntry};
use crate::shared::{SharedEntry, Standing};
use crate::shared_place::{SharedPlace, lost_name};
use crate::tail::Tail;

/// The result of opening.
pub(crate) struct Recovered {
    pub(crate) catalog: Catalog,
    pub(crate) keydir: Keydir,
    pub(crate) writer: WriteSide,
    pub(crate) lost: LostLog,
    pub(crate) torn_bytes: u64,
    /// Bytes of records that the checkpoint does not cover.
    pub(crate) tail_bytes: u64,
    /// The number of these records.
    pub(crate) tail_records: u64,
    /// The last batch of the checkpoint; 0 without one.
    pub(crate) covered: u64,
    /// Removals in the store's own files, as in [`crate::log_share::LogShare::hidden`].
    pub(crate) hidden: BTreeMap<(u64, u64), u64>,
}

/// An open segment of this log, before slots can refer to it.
struct Opened {
    reader: SegmentReader,
    is_merged: bool,
    has_header: bool,
}

/// The state of an opening.
pub(crate) struct Recovery<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) directory: &'a Path,
    pub(crate) meta: &'a Meta,
    pub(crate) fingerprints: Fingerprints,
    pub(crate) lost: LostLog,
    /// The value log, if the store has one.
    pub(crate) log: Option<&'a ValueLog>,
}

/// Places in missing segments of the log: the segment's number, and the number of slots that refer
/// to it.
#[derive(Default)]
struct MissingPlaces {
    by_index: BTreeMap<u32, (u32, Cell<u64>)>,
}

impl MissingPlaces {
    fn add(&mut self, index: u32, number: u32) {
        self.by_index.insert(index, (number, Cell::new(0)));
    }

    fn count(&self, place: u32) {
        if let Some((_, slots)) = self.by_index.get(&place) {
            slots.set(slots.get() + 1);
        }
    }
}

/// The places of the checkpoint's slots.
#[derive(Default)]
struct KnownPlaces {
    /// The places of all segments of the store's own, by their numbers.
    own: BTreeMap<u32, u32>,
    /// Existing segments of the log.
    shared: Vec<Arc<SharedPlace>>,
}

impl Recovery<'_> {
    pub(crate) fn run(mut self) -> Result<Recovered> {
        self.remove_leftovers()?;
        let opened = self.open_segments()?;
        let (covered, keydir, known) = self.load_checkpoint(&opened)?;
        let places = &known.own;
        self.report_missing(&covered, &opened);
        let mut tail = Tail::new(self.fingerprints);
        let mut found = self.read_segments(opened, places, &covered, &mut tail)?;
        self.cut_behind_gap(&mut found, &covered)?;
        for it in found.values_mut() {
            std::mem::take(&mut it.entries)
                .into_iter()
                .for_each(|newest| tail.add(newest));
        }
        let tail_records = tail.len();
        let numbers: Vec<u32> = places
            .keys()
            .copied()
            .filter(|it| found.contains_key(it))
            .collect();
        let own = found.values().map(|it| Place::Own(it.segment.clone()));
        let shared = known.shared.iter().cloned().map(Place::Shared);
        let by_place: BTreeMap<u32, Place> = own.chain(shared).map(|it| (it.index(), it)).collect();
        let hidden = if self.log.is_some() {
            tail.removals()
        } else {
            BTreeMap::new()
        };
        let place_of = |place| by_place.get(&place).cloned();
        tail.replay(&keydir, place_of)
            .map_err(|error| from_segment(&error))?;
        if numbers.len() < places.len() {
            keydir.retain(|place| by_place.contains_key(&place));
        }
        let shared = known.shared;
        let mut recovered = self.assemble(found, shared, keydir, &covered, tail_records)?;
        recovered.hidden = hidden;
        Ok(recovered)
    }

    fn path(&self, number: u32) -> std::path::PathBuf {
        self.directory.join(file_name(u64::from(number)))
    }

    /// Removes files under temporary names and retired files.
    fn remove_leftovers(&self) -> Result<()> {
        let mut is_changed = false;
        for entry in self.disk.list(self.directory).into_backend()? {
            if entry.kind == EntryKind::File && entry.name.ends_with(".tmp") {
                let path = self.directory.join(&entry.name);
                self.disk.remove_file(&path).into_backend()?;
            }
        }
        for number in &self.meta.retired {
            for path in [self.path(*number), hint_path(self.directory, *number)] {
                is_changed |= remove_if_there(self.disk, &path).into_backend()?;
            }
        }
        if is_changed {
            self.disk.sync_directory(self.directory).into_backend()?;
        }
        Ok(())
    }

    /// Opens the files of this log.
    fn open_segments(&mut self) -> Result<BTreeMap<u32, Opened>> {
        let mut opened = BTreeMap::new();
        for number in list_segments(self.disk, self.directory).into_backend()? {
            let Ok(number) = u32::try_from(number) else {
                continue;
            };
            let id = segment_id(self.meta.identity, number, false);
            let path = self.path(number);
            let reader = SegmentReader::open(self.disk, &path, id).into_backend()?;
            let (kind, has_header) = match reader.check_header() {
                Ok(kind) => (kind, true),
                Err(SegmentError::Damaged { .. }) => (0, false),
                Err(SegmentError::Foreign { got_log, .. }) => {
                    self.put_foreign_aside(number, got_log, reader.file_len().into_backend()?)?;
                    continue;
                }
                Err(error) => return Err(from_segment(&error)),
            };
            let it = Opened {
                reader,
                is_merged: kind == KIND_MERGED,
                has_header,
            };
            opened.insert(number, it);
        }
        Ok(opened)
    }

    /// Removes a file of the log before an erasure, and leaves files of other logs alone.
    fn put_foreign_aside(&mut self, number: u32, got_log: u64, len: u64) -> Result<()> {
        if got_log == self.meta.erased {
            self.disk.remove_file(&self.path(number)).into_backend()?;
            return self.remove_hint(number);
        }
        self.report(
            &file_name(u64::from(number)),
            0,
            len,
            "a segment of another log",
        );
        Ok(())
    }

    fn remove_hint(&self, number: u32) -> Result<()> {
        let hint = hint_path(self.directory, number);
        remove_if_there(self.disk, &hint).into_backend().map(drop)
    }

    /// The checkpoint's contents, its slots, and the places of segments.
    fn load_checkpoint(
        &mut self,
        opened: &BTreeMap<u32, Opened>,
    ) -> Result<(Covered, Keydir, KnownPlaces)> {
        let loaded = Checkpoint::open(self.disk, self.directory, self.meta.identity);
        let mut missing = MissingPlaces::default();
        let loaded = loaded.and_then(|checkpoint| {
            let keydir = Keydir::new(&self.fingerprints);
            let places = &checkpoint.places;
            let mut known = KnownPlaces::default();
            let mut is_there = vec![false; places.keys().max().map_or(0, |it| *it as usize + 1)];
            for (index, number) in places {
                is_there[*index as usize] = match number {
                    PlaceNumber::Own(number) if opened.contains_key(number) => {
                        known.own.insert(*number, *index);
                        true
                    }
                    PlaceNumber::Own(_) => false,
                    PlaceNumber::Shared(number) => {
                        match self.log_segment(&checkpoint.covered, *number) {
                            Whereabouts::Here(segment) => {
                                let shared = SharedPlace::new(*index, segment);
                                known.shared.push(Arc::new(shared));
                                true
                            }
                            Whereabouts::LetGo => false,
                            Whereabouts::Missing => {
                                missing.add(*index, *number);
                                false
                            }
                        }
                    }
                };
            }
            // Slots in dropped segments of the log are leftovers: their records were copied to the
            // store's own files, or superseded.
            let keep = |place: u32| {
                let is_there = is_there.get(place as usize).copied().unwrap_or(false);
                if !is_there {
                    missing.count(place);
                }
                is_there
            };
            checkpoint.load(&keydir, keep)?;
            Ok((checkpoint.covered, keydir, known))
        });
        match loaded {
            Ok((mut covered, keydir, known)) => {
                if self
                    .log
                    .is_some_and(|log| log.log_id() != covered.log.log_id)
                {
                    covered.log = crate::shared::CoveredLog::default();
                }
                self.report_missing_in_log(&covered, &missing);
                return Ok((covered, keydir, known.with_all(opened)));
            }
            Err(CheckpointError::Missing) => {}
            Err(CheckpointError::Disk(error)) => return Err((&error).into()),
            Err(CheckpointError::Newer(version)) => {
                let path = self.directory.join(CHECKPOINT_NAME);
                return Err(newer_format(&path, version, version - 1));
            }
            Err(CheckpointError::Unusable(why)) => {
                let path = self.directory.join(CHECKPOINT_NAME);
                let len = self.disk.info(&path).into_backend()?.map_or(0, |it| it.len);
                let held = format!("a copy of the key directory ({why}); nothing is lost");
                self.report(CHECKPOINT_NAME, 0, len, &held);
            }
        }
        let keydir = Keydir::new(&self.fingerprints);
        let known = KnownPlaces::default().with_all(opened);
        Ok((Covered::default(), keydir, known))
    }

    /// A segment of the log in the checkpoint. The loss of the whole log was reported earlier.
    fn log_segment(&self, covered: &Covered, number: u32) -> Whereabouts {
        match self.log.filter(|log| log.log_id() == covered.log.log_id) {
            Some(log) => log.whereabouts(StoreId(self.meta.identity), number),
            None => Whereabouts::LetGo,
        }
    }

    fn report_missing_in_log(&mut self, covered: &Covered, missing: &MissingPlaces) {
        for (number, slots) in missing.by_index.values() {
            let records = slots.get();
            // The loss of covered removals and superseded records has no effect.
            if records > 0 {
                let stats = covered.log.segments.get(number);
                let len = stats.map_or(0, |stats| stats.data_end);
                let held = format!("{records} records in a missing segment of the value log");
                self.report(&lost_name(*number), 0, len, &held);
            }
        }
    }

    fn report_missing(&mut self, covered: &Covered, opened: &BTreeMap<u32, Opened>) {
        for (number, stats) in &covered.segments {
            if !opened.contains_key(number) && !self.meta.retired.contains(number) {
                let held = format!("a missing segment of {} records", stats.records);
                let name = file_name(u64::from(*number));
                self.report(&name, 0, stats.data_end, &held);
            }
        }
    }

    /// Reads the segments from the newest to the oldest: proof that a newer segment was synced
    /// proves the same of older ones.
    fn read_segments(
        &mut self,
        opened: BTreeMap<u32, Opened>,
        places: &BTreeMap<u32, u32>,
        covered: &Covered,
        tail: &mut Tail,
    ) -> Result<BTreeMap<u32, Found>> {
        let mut found = BTreeMap::new();
        let mut is_proven = false;
        for (number, opened) in opened.into_iter().rev() {
            let has_header = opened.has_header;
            let Some(&place) = places.get(&number) else {
                unreachable!("segment {number} was opened, and was given no place");
            };
            let segment = Segment::new(opened.reader, number, place, opened.is_merged);
            let base = covered.segments.get(&number).copied();
            let is_later_proven = is_proven && !segment.is_merged;
            let it = self.read_segment(segment, base, is_later_proven, tail)?;
            let is_aborted_creation =
                !has_header && base.is_none() && !it.is_sealed && it.stats.records == 0;
            if is_aborted_creation {
                self.disk.remove_file(&self.path(number)).into_backend()?;
                continue;
            }
            if !has_header {
                let name = file_name(u64::from(number));
                self.report(&name, 0, FILE_HEADER_BYTES, "the header of the file");
            }
            if !it.segment.is_merged {
                is_proven |= it.is_proven || it.end.durable_to > FILE_HEADER_BYTES;
            }
            found.insert(number, it);
        }
        Ok(found)
    }

    fn read_segment(
        &mut self,
        segment: Arc<Segment>,
        base: Option<SegmentStats>,
        is_later_proven: bool,
        tail: &mut Tail,
    ) -> Result<Found> {
        let from = base.map_or(0, |base| base.data_end);
        let file_len = segment.reader.file_len().into_backend()?;
        if file_len < from {
            let name = file_name(u64::from(segment.number));
            self.report(
                &name,
                file_len,
                from - file_len,
                "records behind the end of the file",
            );
        }
        let from = match base.is_some() && is_planted!(StaleHintTrusted) {
            true => file_len.max(from),
            false => from,
        };
        let options = ScanOptions {
            from,
            durable_to: if is_later_proven { u64::MAX } else { from },
            until: None,
        };
        let mut scan = segment.reader.scan(options).into_backend()?;
        let mut it = Found {
            stats: base.unwrap_or_default(),
            is_sealed: scan.seal().is_some(),
            is_proven: is_later_proven || scan.seal().is_some(),
            end: ScanEnd {
                clean_to: from,
                tail: ScanTail::Open,
                durable_to: from,
            },
            entries: Vec::new(),
            first_sequence: 0,
            tail_bytes: 0,
            segment,
        };
        self.attach_hint(&it.segment, scan.seal())?;
        if base.is_none() && self.read_hint(&mut it, scan.seal(), tail)? {
            return Ok(it);
        }
        for scanned in scan.by_ref() {
            match scanned.into_backend()? {
                Scanned::Record(record) => it.take(&record, tail),
                Scanned::Damage(damage) => {
                    let name = file_name(u64::from(it.segment.number));
                    self.report(&name, damage.offset, damage.len, &damage.found);
                }
            }
        }
        it.end = scan.end().unwrap_or(it.end);
        it.close();
        Ok(it)
    }

    /// Opens the hint of a sealed segment for later folds; removes a wrong one.
    fn attach_hint(&mut self, segment: &Segment, seal: Option<kvorum_segment::Seal>) -> Result<()> {
        let path = hint_path(self.directory, segment.number);
        let Some(info) = self.disk.info(&path).into_backend()? else {
            return Ok(());
        };
        let why = match seal {
            None => "of a segment that is not finished".to_owned(),
            Some(seal) => {
                let expected = HintedSegment::of(&segment.reader.id(), seal);
                match expected.open_hint(self.disk, &path) {
                    Ok(hint) => {
                        *segment.hint.write() = Some(Arc::new(hint));
                        return Ok(());
                    }
                    Err(HintError::Disk(error)) => return Err((&error).into()),
                    Err(HintError::Earlier) => return self.remove_hint(segment.number),
                    Err(error) => error.to_string(),
                }
            }
        };
        let name = format!("{:010}.hint", segment.number);
        self.report(&name, 0, info.len, &held_by_hint(&why));
        self.remove_hint(segment.number)
    }

    /// Takes the keys of a sealed segment from its hint; false without a usable hint.
    fn read_hint(
        &mut self,
        it: &mut Found,
        seal: Option<kvorum_segment::Seal>,
        tail: &mut Tail,
    ) -> Result<bool> {
        let hint = it.segment.hint.read().clone();
        let (Some(hint), Some(seal)) = (hint, seal) else {
            return Ok(false);
        };
        let mut stats = SegmentStats::default();
        let mut scan = hint.scan();
        loop {
            match scan.next() {
                Ok(Some(entry)) => {
                    stats.count_entry(&entry);
                    tail.add(tail.newest_of(&entry, &it.segment));
                }
                Ok(None) => break,
                Err(HintError::Disk(error)) => return Err((&error).into()),
                Err(error) => {
                    *it.segment.hint.write() = None;
                    let name = format!("{:010}.hint", it.segment.number);
                    let held = held_by_hint(&error.to_string());
                    self.report(&name, 0, hint.len(), &held);
                    self.remove_hint(it.segment.number)?;
                    return Ok(false);
                }
            }
        }
        it.stats = SegmentStats {
            data_end: seal.data_end,
            records: seal.records,
            sequence_min: seal.sequence_min,
            sequence_max: seal.sequence_max,
            ..stats
        };
        it.tail_bytes = it.stats.data_bytes();
        Ok(true)
    }

    /// Cuts segments behind a gap. Unsealed segments of puts may end anywhere after a crash. If a
    /// batch is missing between two segments, the later segments were not durable either: the store
    /// then has every batch up to the gap, and none behind it.
    fn cut_behind_gap(&self, found: &mut BTreeMap<u32, Found>, covered: &Covered) -> Result<()> {
        let mut last_sequence = covered.sequence.max(self.meta.sequence);
        let mut is_gap_possible = false;
        let mut cut = Vec::new();
        for (number, it) in found.iter() {
            if it.segment.is_merged {
                continue;
            }
            let is_gap = is_gap_possible
                && it.first_sequence > 0
                && it.first_sequence > last_sequence + 1
                && !it.is_proven;
            if is_gap || !cut.is_empty() {
                cut.push(*number);
                continue;
            }
            last_sequence = last_sequence.max(it.stats.sequence_max);
            is_gap_possible = !it.is_proven;
        }
        for number in cut {
            found.remove(&number);
            self.disk.remove_file(&self.path(number)).into_backend()?;
            self.disk.sync_directory(self.directory).into_backend()?;
        }
        Ok(())
    }

    fn assemble(
        self,
        found: BTreeMap<u32, Found>,
        shared: Vec<Arc<SharedPlace>>,
        keydir: Keydir,
        covered: &Covered,
        tail_records: u64,
    ) -> Result<Recovered> {
        let suspect = self.directory.join(SUSPECT_NAME);
        let is_suspect = self.disk.info(&suspect).into_backend()?.is_some();
        let mut recovered = Recovered {
            catalog: Catalog::new(),
            keydir,
            writer: WriteSide {
                next_segment: covered.next_segment.max(self.meta.next_segment).max(1),
                ..WriteSide::default()
            },
            torn_bytes: 0,
            tail_bytes: 0,
            tail_records,
            covered: covered.sequence,
            hidden: BTreeMap::new(),
            lost: self.lost,
        };
        let mut sequence = covered.sequence.max(self.meta.sequence);
        let last_appended = found.iter().rev().find(|(_, it)| !it.segment.is_merged);
        let last_appended = last_appended.map(|(number, _)| *number);
        let side = &mut recovered.writer;
        for (number, it) in found {
            sequence = sequence.max(it.stats.sequence_max);
            side.next_segment = side.next_segment.max(number + 1);
            recovered.tail_bytes += it.tail_bytes;
            if let ScanTail::Torn { len } = it.end.tail {
                recovered.torn_bytes += len;
            }
            if !it.is_sealed {
                let path = self.directory.join(file_name(u64::from(number)));
                let rewrite_from = is_suspect.then_some(it.end.durable_to);
                let writer = it
                    .resume(self.disk, &path, rewrite_from)
                    // An earlier run may not have synced the pages that the page cache returns.
                    .inspect_err(|_| mark_suspect(self.disk, self.directory))?;
                let is_prepared = it.stats.records == 0
                    && side.active.is_some()
                    && last_appended == Some(number)
                    && !covered.segments.contains_key(&number);
                if is_prepared {
                    side.prepared = Some(writer);
                    continue;
                }
                side.unsynced.push((number, writer.sync_handle()));
                let last = if it.segment.is_merged {
                    Some(writer)
                } else {
                    side.active.replace(writer)
                };
                side.retiring.extend(last);
            }
            let entry = SegmentEntry::new(it.segment, it.stats, it.is_sealed);
            recovered.catalog.add_segment(entry);
        }
        if is_suspect {
            self.disk.remove_file(&suspect).into_backend()?;
        }
        // Without the checkpoint, no record with the last sequence may be left: the log drops
        // segments that no store needs. A checkpoint that is unreadable now may be used later.
        if covered.sequence == 0 && self.meta.value_log != 0 {
            sequence += UNKNOWN_SEQUENCES;
        }
        recover_log(&mut recovered, shared, covered);
        let log = self.log.filter(|_| recovered.covered > 0);
        let bound = log.map(|log| BoundTo {
            store: self.meta.identity,
            log_id: log.log_id(),
        });
        let (catalog, lost) = (&mut recovered.catalog, &mut recovered.lost);
        catalog.open_log_hints(self.disk, self.directory, lost, bound)?;
        recovered.catalog.count_all_live(&recovered.keydir);
        recovered.keydir.show_places(&recovered.catalog.places);
        recovered.catalog.last_sequence = sequence;
        recovered.writer.last_sequence = sequence;
        Ok(recovered)
    }

    fn report(&mut self, file: &str, offset: u64, len: u64, held: &str) {
        let range = LostRange::new(file, offset, len, held);
        self.lost.add(self.disk, range);
    }
}

impl KnownPlaces {
    /// Gives a place to every segment without one.
    fn with_all(mut self, opened: &BTreeMap<u32, Opened>) -> Self {
        let own = self.own.values().copied();
        let taken: BTreeSet<u32> = own.chain(self.shared.iter().map(|it| it.index)).collect();
        let mut free = (0..).filter(|place| !taken.contains(place));
        for number in opened.keys() {
            if self.own.contains_key(number) {
                continue;
            }
            self.own.extend(free.next().map(|place| (*number, place)));
        }
        self
    }
}

/// Restores the log's segments from the checkpoint: counts, removals, and the records that slots
/// point to. Garbage records are left out: no later snapshot can see them.
fn recover_log(recovered: &mut Recovered, shared: Vec<Arc<SharedPlace>>, covered: &Covered) {
    let catalog = &mut recovered.catalog;
    for place in shared {
        let stats = covered.log.segments.get(&place.number()).copied();
        catalog.add_shared(SharedEntry::new(place, stats.unwrap_or_default()));
    }
    catalog.log_starts.clone_from(&covered.log.starts);
    let entries = catalog.shared.values();
    let by_index = entries.map(|entry| (entry.place.index, Vec::new()));
    let mut by_index: BTreeMap<u32, Vec<Standing>> = by_index.collect();
    if by_index.is_empty() {
        return;
    }
    for (number, standing) in &covered.log.removals {
        let entry = catalog.shared.get(number);
        if let Some(found) = entry.and_then(|entry| by_index.get_mut(&entry.place.index)) {
            found.push(*standing);
        }
    }
    recovered.keydir.for_each(|slot| {
        if let Some(found) = by_index.get_mut(&slot.place()) {
            found.push(Standing::new(slot.offset(), false));
        }
    });
    for entry in catalog.shared.values_mut() {
        // In ascending order they take the least memory.
        let mut found = by_index.remove(&entry.place.index).unwrap_or_default();
        found.sort_unstable_by_key(|standing| standing.offset());
        found.into_iter().for_each(|standing| entry.stand(standing));
    }
}

fn held_by_hint(why: &str) -> String {
    format!("the keys of a segment ({why}); they are read from the segment, nothing is lost")
}
