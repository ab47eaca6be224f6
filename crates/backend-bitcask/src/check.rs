//! A store checked from end to end without being opened: nothing is written, repaired or set aside.
//!
//! Every checksum of every file is computed; a hint is compared with the keys of its segment, and a
//! log hint with its records, including those in the value log if that is available. The key
//! directory of the checkpoint is compared with one rebuilt from the segments, a part of its shards
//! at a time. So the checkpoint's size and `KEYS_AT_ONCE` bound the memory.

mod directory;
mod log_hints;
mod log_in_files;

use std::collections::BTreeMap;
use std::path::Path;

use kvorum_backend::{Belonging, Result};
use kvorum_disk::Disk;
use kvorum_disk::anatomy::{Check, Piece};
use kvorum_segment::{
    FILE_HEADER_BYTES, Scan, ScanOptions, Scanned, Seal, SegmentError, SegmentReader, Tail,
    file_name, list_segments,
};
use kvorum_storage_errors::IntoBackend;

use crate::anatomy::{StoreFile, key_shown};
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, CheckpointError};
use crate::hint::{HintedSegment, hint_path};
use crate::hint_table::{HintError, HintTable};
use crate::key_table::{KeyEntry, KeyTable, KeyTableBuilder};
use crate::meta::{self, Meta};
use crate::segment::segment_id;

pub use self::log_in_files::{FindLog, FoundLog, LogInFiles};

/// The most names that a finding shows.
const KEYS_SHOWN_MAX: usize = 20;

/// Keys of the rebuilt directory in memory at a time, about 100 bytes each.
const KEYS_AT_ONCE: u64 = 1 << 20;

/// Damage at one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the checked directory.
    pub file: String,
    /// The first byte.
    pub offset: u64,
    /// The length, in bytes.
    pub len: u64,
    /// The problem as text.
    pub what: String,
    /// The known affected keys, or some of them if there are many.
    pub keys: Vec<String>,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Whole records in segments.
    pub records: u64,
    /// Keys in the rebuilt directory; 0 without a checkpoint to compare with.
    pub keys: u64,
    /// Slots of the checkpoint that were compared.
    pub slots: u64,
    /// Bytes behind the last whole record after a crash, which were never promised.
    pub torn_bytes: u64,
    /// The damage.
    pub findings: Vec<Finding>,
    /// Remarks that are not damage.
    pub notes: Vec<String>,
}

impl Checked {
    /// Adds the result of another check, with `below` as the name of its directory.
    pub fn add(&mut self, other: Self, below: &str) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.records += other.records;
        self.keys += other.keys;
        self.slots += other.slots;
        self.torn_bytes += other.torn_bytes;
        let named = |name: String| match below {
            "" => name,
            _ => format!("{below}/{name}"),
        };
        for finding in other.findings {
            let file = named(finding.file);
            self.findings.push(Finding { file, ..finding });
        }
        self.notes.extend(other.notes.into_iter().map(named));
    }

    /// Notes damage without keys.
    pub fn find(&mut self, file: &str, offset: u64, len: u64, what: impl Into<String>) {
        self.findings.push(Finding {
            file: file.to_owned(),
            offset,
            len,
            what: what.into(),
            keys: Vec::new(),
        });
    }

    /// Notes the failed checksums of a piece of a file.
    pub fn find_in(&mut self, file: &str, piece: &Piece) {
        for field in &piece.fields {
            if let Check::Bad { got, expected } = &field.check {
                let (offset, len) = (piece.offset(), piece.end() - piece.offset());
                let (title, name) = (&piece.title, &field.name);
                let what = format!("{title}, {name}: got {got}, expected {expected}");
                self.find(file, offset, len, what);
            }
        }
    }
}

/// True when a directory holds a store of this engine.
pub fn is_store(disk: &dyn Disk, directory: &Path) -> kvorum_disk::Result<bool> {
    for name in meta::NAMES {
        if disk.info(&directory.join(name))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub use crate::bitcask::LOCK_NAME;
pub use crate::meta::{find_store, identity_of};

/// Checks a store. If the store is in use (`is_live`), only finished files are read. `progress`
/// gets the bytes of every piece of work; `find_log` returns the value log of the log hints.
///
/// # Errors
/// Those of the disk; damage is returned as the result.
pub fn check_store<'a>(
    disk: &'a dyn Disk,
    directory: &'a Path,
    is_live: bool,
    find_log: FindLog<'a>,
    progress: &'a dyn Fn(u64),
) -> Result<Checked> {
    let mut check = StoreCheck {
        disk,
        directory,
        is_live,
        find_log,
        progress,
        found: Checked::default(),
        segments: BTreeMap::new(),
    };
    check.run()?;
    Ok(check.found)
}

struct StoreCheck<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    /// The store is in use: only finished files are read, the sealed segments and their hints.
    is_live: bool,
    find_log: FindLog<'a>,
    progress: &'a dyn Fn(u64),
    found: Checked,
    segments: BTreeMap<u32, CheckedSegment>,
}

/// A segment that was read.
struct CheckedSegment {
    reader: SegmentReader,
    end: u64,
    records: u64,
    /// Ranges that cannot be read.
    damaged: Vec<(u64, u64)>,
    /// Its hint, if it agrees.
    hint: Option<HintTable>,
}

impl CheckedSegment {
    fn is_damaged_at(&self, offset: u64) -> bool {
        let mut ranges = self.damaged.iter();
        ranges.any(|(start, end)| (*start..*end).contains(&offset))
    }
}

impl StoreCheck<'_> {
    fn run(&mut self) -> Result<()> {
        let read = self.read_meta()?;
        self.check_small_files()?;
        let Some(meta) = read else {
            return Ok(());
        };
        let checkpoint = self.open_checkpoint(&meta)?;
        self.check_segments(&meta, checkpoint.as_ref())?;
        self.check_stray_hints()?;
        self.check_log_hints(&meta)?;
        match checkpoint {
            Some(checkpoint) => self.compare_directories(&meta, &checkpoint),
            None => Ok(()),
        }
    }

    fn read_meta(&mut self) -> Result<Option<Meta>> {
        let belonging = Belonging::by_directory(self.directory);
        let read = meta::read(self.disk, self.directory, &belonging)?;
        for foreign in &read.foreign {
            let what = format!("the copy belongs to {}", foreign.of);
            self.found.find(foreign.name, 0, 0, what);
        }
        // A creation that was cut short has left only the first copy ever written.
        let is_first = read.content.as_ref().is_some_and(|it| it.generation == 1);
        let is_begun = !is_first || meta::name_of_data(self.disk, self.directory)?.is_some();
        for name in read.missing.iter().filter(|_| is_begun) {
            self.found.find(name, 0, 0, "the copy is missing");
        }
        let is_sound =
            read.damaged.is_empty() && read.foreign.is_empty() && read.missing.is_empty();
        if read.is_uneven && is_sound && !self.is_live {
            let note = "the two copies of the store's identity differ; the newer one counts";
            self.found.notes.push(note.to_owned());
        }
        if read.content.is_none() {
            let why = read.refusal.unwrap_or_default();
            let what = format!(
                "no copy of the store's identity counts, and nothing else can be checked: {why}"
            );
            self.found.find(meta::NAMES[0], 0, 0, what);
        }
        Ok(read.content)
    }

    /// Checks every checksum in files that are not segments.
    fn check_small_files(&mut self) -> Result<()> {
        let mut names: Vec<String> = meta::NAMES.map(str::to_owned).to_vec();
        if !self.is_live {
            names.push(CHECKPOINT_NAME.to_owned());
        }
        names.push("lost/index".to_owned());
        for name in names {
            let base = name.rsplit('/').next().unwrap_or(&name);
            if let Some(kind) = StoreFile::of_name(base) {
                self.check_pieces(kind, &name)?;
            }
        }
        Ok(())
    }

    /// Returns true if all pieces are whole.
    fn check_pieces(&mut self, kind: StoreFile, name: &str) -> Result<bool> {
        let path = self.directory.join(name);
        let Some(info) = self.disk.info(&path).into_backend()? else {
            return Ok(true);
        };
        let before = self.found.findings.len();
        let pieces = kind.pieces(self.disk, &path).into_backend()?;
        for piece in pieces {
            self.found.find_in(name, &piece.into_backend()?);
        }
        self.found.files += 1;
        self.read(info.len);
        Ok(before == self.found.findings.len())
    }

    /// True for a file of a store in use that was removed meanwhile.
    fn is_gone(&self, name: &str) -> Result<bool> {
        let path = self.directory.join(name);
        Ok(self.is_live && self.disk.info(&path).into_backend()?.is_none())
    }

    fn read(&mut self, bytes: u64) {
        self.found.bytes += bytes;
        (self.progress)(bytes);
    }

    fn open_checkpoint(&mut self, meta: &Meta) -> Result<Option<Checkpoint>> {
        if self.is_live {
            return Ok(None);
        }
        let why = match Checkpoint::open(self.disk, self.directory, meta.identity) {
            Ok(checkpoint) => return Ok(Some(checkpoint)),
            Err(CheckpointError::Disk(error)) => return Err((&error).into()),
            Err(CheckpointError::Missing) => {
                let note = "no checkpoint to compare with: the next opening reads hints and data";
                self.found.notes.push(note.to_owned());
                return Ok(None);
            }
            Err(CheckpointError::Newer(_)) => "of a newer version",
            Err(CheckpointError::Unusable(why)) => why,
        };
        self.found
            .find(CHECKPOINT_NAME, 0, 0, format!("not usable: {why}"));
        Ok(None)
    }

    /// Checks from the newest to the oldest: proof that a newer segment was synced proves the same
    /// of older ones.
    fn check_segments(&mut self, meta: &Meta, checkpoint: Option<&Checkpoint>) -> Result<()> {
        let numbers = list_segments(self.disk, self.directory).into_backend()?;
        let numbers: Vec<u32> = numbers
            .into_iter()
            .filter_map(|it| it.try_into().ok())
            .collect();
        let mut is_proven = false;
        for number in numbers.iter().rev() {
            if meta.retired.contains(number) {
                self.found
                    .notes
                    .push(format!("segment {number} is retired and awaits removal"));
                continue;
            }
            let covered = checkpoint.and_then(|it| it.covered.segments.get(number));
            let covered_to = covered.map_or(0, |stats| stats.data_end);
            match self.check_segment(meta, *number, covered_to, &mut is_proven) {
                // A merge has removed it.
                Err(_) if self.is_gone(&file_name(u64::from(*number)))? => {}
                checked => checked?,
            }
        }
        let covered = checkpoint.map(|it| &it.covered.segments);
        for (number, stats) in covered.into_iter().flatten() {
            if !numbers.contains(number) && !meta.retired.contains(number) {
                let what = format!("the segment is missing, with {} records", stats.records);
                let name = file_name(u64::from(*number));
                self.found.find(&name, 0, stats.data_end, what);
            }
        }
        Ok(())
    }

    fn check_segment(
        &mut self,
        meta: &Meta,
        number: u32,
        covered_to: u64,
        is_proven: &mut bool,
    ) -> Result<()> {
        let name = file_name(u64::from(number));
        let id = segment_id(meta.identity, number, false);
        let path = self.directory.join(&name);
        let reader = SegmentReader::open(self.disk, &path, id).into_backend()?;
        let durable_to = if *is_proven { u64::MAX } else { covered_to };
        let options = ScanOptions::durable_to(durable_to);
        let mut scan = reader.scan(options).into_backend()?;
        let seal = scan.seal();
        if self.is_live && seal.is_none() {
            let note = format!("{name} is being written and was left out");
            self.found.notes.push(note);
            return Ok(());
        }
        let is_merged = self.check_header(&reader, &name)?;
        let file_len = reader.file_len().into_backend()?;
        if file_len < covered_to {
            let what = "records behind the end of the file are missing";
            self.found
                .find(&name, file_len, covered_to - file_len, what);
        }
        self.found.files += 1;
        let mut table = KeyTableBuilder::default();
        let (records, damaged) = self.read_records(&mut scan, &name, file_len, &mut table)?;
        self.found.records += records;
        let end = scan.end();
        if let Some(Tail::Torn { len }) = end.map(|end| end.tail) {
            self.found.torn_bytes += len;
            self.found
                .notes
                .push(format!("{name} ends in {len} torn bytes"));
        }
        let end_durable = end.map_or(0, |end| end.durable_to);
        if !is_merged && (seal.is_some() || end_durable > FILE_HEADER_BYTES) {
            *is_proven = true;
        }
        let mut segment = CheckedSegment {
            end: end.map_or(0, |end| end.clean_to),
            reader,
            records,
            damaged,
            hint: None,
        };
        self.name_lost_keys(&name, &segment, seal, number)?;
        self.check_hint(&mut segment, number, seal, &table.finish())?;
        self.segments.insert(number, segment);
        Ok(())
    }

    /// Reads a segment to its end; returns the number of whole records, and the unreadable ranges.
    fn read_records(
        &mut self,
        scan: &mut Scan,
        name: &str,
        file_len: u64,
        table: &mut KeyTableBuilder,
    ) -> Result<(u64, Vec<(u64, u64)>)> {
        let (mut records, mut damaged, mut reported_to) = (0, Vec::new(), 0);
        for scanned in scan.by_ref() {
            match scanned.into_backend()? {
                Scanned::Record(record) => {
                    records += 1;
                    let next = record.head.location.next_offset();
                    self.read(next - reported_to);
                    reported_to = next;
                    match KeyEntry::of(&record.head) {
                        Some(entry) => table.push(&entry),
                        None if record.head.kind == crate::entry::KIND_NOTHING => {}
                        None => {
                            let offset = record.head.location.offset;
                            let what = "a whole record that cannot be understood";
                            self.found.find(name, offset, next - offset, what);
                        }
                    }
                }
                Scanned::Damage(damage) => {
                    damaged.push((damage.offset, damage.offset + damage.len));
                    self.found
                        .find(name, damage.offset, damage.len, damage.found);
                }
            }
        }
        self.read(file_len.saturating_sub(reported_to));
        Ok((records, damaged))
    }

    /// Returns true if the segment was written by a merge.
    fn check_header(&mut self, reader: &SegmentReader, name: &str) -> Result<bool> {
        match reader.check_header() {
            Ok(kind) => Ok(kind == crate::segment::KIND_MERGED),
            Err(SegmentError::Disk(error)) => Err((&error).into()),
            Err(error) => {
                self.found
                    .find(name, 0, FILE_HEADER_BYTES, error.to_string());
                Ok(false)
            }
        }
    }

    fn open_hint(
        &self,
        segment: &CheckedSegment,
        number: u32,
        seal: Option<Seal>,
    ) -> Result<std::result::Result<Option<HintTable>, String>> {
        let path = hint_path(self.directory, number);
        if self.disk.info(&path).into_backend()?.is_none() {
            return Ok(Ok(None));
        }
        let Some(seal) = seal else {
            return Ok(Err("of a segment that is not finished".to_owned()));
        };
        let expected = HintedSegment::of(&segment.reader.id(), seal);
        match expected.open_hint(self.disk, &path) {
            Ok(hint) => Ok(Ok(Some(hint))),
            Err(HintError::Disk(error)) => Err((&error).into()),
            Err(HintError::Earlier) => Ok(Ok(None)),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Adds a hint's keys to the ranges that cannot be read.
    fn name_lost_keys(
        &mut self,
        name: &str,
        segment: &CheckedSegment,
        seal: Option<Seal>,
        number: u32,
    ) -> Result<()> {
        if segment.damaged.is_empty() {
            return Ok(());
        }
        let Ok(Some(hint)) = self.open_hint(segment, number, seal)? else {
            return Ok(());
        };
        let mut scan = hint.scan();
        while let Ok(Some(entry)) = scan.next() {
            let hit = |it: &&mut Finding| {
                it.file == name
                    && (it.offset..it.offset + it.len).contains(&entry.at.offset)
                    && it.keys.len() < KEYS_SHOWN_MAX
            };
            if let Some(finding) = self.found.findings.iter_mut().find(hit) {
                finding.keys.push(key_shown(&entry.key));
            }
        }
        Ok(())
    }

    fn check_hint(
        &mut self,
        segment: &mut CheckedSegment,
        number: u32,
        seal: Option<Seal>,
        table: &KeyTable,
    ) -> Result<()> {
        let path = hint_path(self.directory, number);
        if self.disk.info(&path).into_backend()?.is_none() {
            return Ok(());
        }
        let name = format!("{number:010}.hint");
        if !self.check_pieces(StoreFile::Hint, &name)? {
            return Ok(());
        }
        let hint = match self.open_hint(segment, number, seal)? {
            Ok(Some(hint)) => hint,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.found.find(&name, 0, 0, format!("not usable: {why}"));
                return Ok(());
            }
        };
        match differing_keys(&hint, table, segment) {
            Err(why) => self.found.find(&name, 0, hint.len(), why),
            Ok(keys) if keys.is_empty() => segment.hint = Some(hint),
            Ok(keys) => self.found.findings.push(Finding {
                file: name,
                offset: 0,
                len: hint.len(),
                what: "differs from its segment".to_owned(),
                keys,
            }),
        }
        Ok(())
    }

    /// Notes hints without segments, which openings ignore.
    fn check_stray_hints(&mut self) -> Result<()> {
        for entry in self.disk.list(self.directory).into_backend()? {
            let number = entry.name.strip_suffix(".hint");
            let Some(number) = number.and_then(|digits| digits.parse::<u32>().ok()) else {
                continue;
            };
            if !self.segments.contains_key(&number) {
                let note = format!("{} has no segment of its own", entry.name);
                self.found.notes.push(note);
                self.check_pieces(StoreFile::Hint, &entry.name)?;
            }
        }
        Ok(())
    }
}

/// Some of the keys for which hint and segment differ.
fn differing_keys(
    hint: &HintTable,
    table: &KeyTable,
    segment: &CheckedSegment,
) -> std::result::Result<Vec<String>, String> {
    let mut position = 0;
    let mut keys = Vec::new();
    let mut scan = hint.scan();
    while let Some(entry) = scan.next().map_err(|error| error.to_string())? {
        // The segment's entries before this one are missing in the hint.
        while let Some(found) = table.get(position).filter(|found| found.key < entry.key) {
            keys.push(key_shown(&found.key));
            position += 1;
        }
        let found = table.get(position).filter(|found| found.key == entry.key);
        position += usize::from(found.is_some());
        if found.as_ref() != Some(&entry) && !segment.is_damaged_at(entry.at.offset) {
            keys.push(key_shown(&entry.key));
        }
    }
    while let Some(found) = table.get(position) {
        keys.push(key_shown(&found.key));
        position += 1;
    }
    keys.truncate(KEYS_SHOWN_MAX);
    Ok(keys)
}
