//! Compares log hints with their records in the value log and in the store's own segments.
//!
//! Each entry's record is read. Records missing from a hint are not detected: that would mean
//! reading the whole log for every store.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use kvorum_backend::{Result, StoreId};
use kvorum_disk::Reading;
use kvorum_segment::{Location, ScanOptions, Scanned, SegmentError, SegmentReader, StoredFront};
use kvorum_storage_errors::IntoBackend;

use super::log_in_files::{FoundLog, LogInFiles};
use super::{Finding, KEYS_SHOWN_MAX, StoreCheck};
use kvorum_value_log::LoggedFront;

use crate::anatomy::{StoreFile, key_shown};
use crate::hint_table::HintError;
use crate::key_table::{KeyEntry, OWN};
use crate::log_hint::{BoundTo, LogHint, log_hint_number};
use crate::meta::Meta;

/// Entries that are sorted by the places of their records and compared together, about 150 bytes
/// each.
const ENTRIES_AT_ONCE: usize = 64 << 10;

/// The segments of a log hint's records: open, or `None` if the segment need not exist.
struct Records<'a> {
    store: u64,
    log: Option<&'a (dyn LogInFiles + 'a)>,
    opened: BTreeMap<u32, Option<SegmentReader>>,
    /// Unreadable ranges of the log's segments that were searched.
    damaged: BTreeMap<u32, Vec<(u64, u64)>>,
}

/// Errors of a log hint.
#[derive(Default)]
struct Wrong {
    count: u64,
    keys: Vec<String>,
    /// Keys by missing segments of the log.
    missing: BTreeMap<u32, (u64, Vec<String>)>,
}

impl StoreCheck<'_> {
    /// Checks every checksum in log hints, and their entries; the store will rewrite wrong hints.
    pub(super) fn check_log_hints(&mut self, meta: &Meta) -> Result<()> {
        let mut hints = Vec::new();
        for entry in self.disk.list(self.directory).into_backend()? {
            let Some(number) = log_hint_number(&entry.name) else {
                continue;
            };
            match self.open_log_hint(meta, number, &entry.name) {
                Ok(hint) => hints.extend(hint.map(|hint| (entry.name, hint))),
                // The log hint was merged with others.
                Err(_) if self.is_gone(&entry.name)? => {}
                Err(error) => return Err(error),
            }
        }
        if hints.is_empty() {
            return Ok(());
        }
        let found = (self.find_log)(meta.value_log)?;
        let log = match &found {
            FoundLog::Here(log) => Some(&**log),
            FoundLog::Another | FoundLog::NotChecked => None,
        };
        self.note_unchecked_log(meta, &found, &hints[0].0);
        let mut records = Records {
            store: meta.identity,
            log,
            opened: BTreeMap::new(),
            damaged: BTreeMap::new(),
        };
        for (name, hint) in &hints {
            self.compare_log_hint(name, hint, &mut records)?;
        }
        Ok(())
    }

    /// Notes that entries in the log cannot be compared without the log.
    fn note_unchecked_log(&mut self, meta: &Meta, found: &FoundLog<'_>, first: &str) {
        let spoken = format!("log hints name the value log {:#018x}", meta.value_log);
        match found {
            FoundLog::Here(_) => {}
            FoundLog::Another => {
                let what = format!("{spoken}, and the one here is another");
                self.found.find(first, 0, 0, what);
            }
            FoundLog::NotChecked => {
                let note = format!("{spoken}, which was not among the checked files");
                self.found.notes.push(note);
            }
        }
    }

    /// Opens a log hint with right checksums that openings would use.
    fn open_log_hint(&mut self, meta: &Meta, number: u32, name: &str) -> Result<Option<LogHint>> {
        if !self.check_pieces(StoreFile::LogHint, name)? {
            return Ok(None);
        }
        let bound = BoundTo {
            store: meta.identity,
            log_id: meta.value_log,
        };
        match LogHint::open(self.disk, self.directory, number, bound) {
            Ok(Some(hint)) => return Ok(Some(hint)),
            Ok(None) => {
                let note = format!("{name} is of another store, log or version, and of no use");
                self.found.notes.push(note);
            }
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(HintError::Newer) => {
                let note = format!("{name} is of a newer version and was not compared");
                self.found.notes.push(note);
            }
            Err(why) => {
                self.found.find(name, 0, 0, format!("not usable: {why}"));
            }
        }
        Ok(None)
    }

    fn compare_log_hint(
        &mut self,
        name: &str,
        hint: &LogHint,
        records: &mut Records<'_>,
    ) -> Result<()> {
        let mut wrong = Wrong::default();
        let mut by_segment: BTreeMap<u32, u64> = BTreeMap::new();
        let mut scan = hint.table.scan();
        loop {
            let mut batch = match scan.some(ENTRIES_AT_ONCE) {
                Ok(batch) => batch,
                Err(HintError::Disk(error)) => return Err((&error).into()),
                Err(error) => {
                    let what = error.to_string();
                    self.found.find(name, 0, hint.table.len(), what);
                    return Ok(());
                }
            };
            if batch.is_empty() {
                break;
            }
            for entry in &batch {
                *by_segment.entry(entry.segment).or_default() += 1;
            }
            let (right, misplaced): (Vec<_>, Vec<_>) =
                batch.drain(..).partition(|entry| is_in_part(hint, entry));
            misplaced.iter().for_each(|entry| wrong.add(entry));
            self.compare_records(right, records, &mut wrong)?;
        }
        self.compare_counts(name, hint, by_segment);
        self.report_wrong(name, hint.table.len(), wrong);
        Ok(())
    }

    fn compare_counts(&mut self, name: &str, hint: &LogHint, by_segment: BTreeMap<u32, u64>) {
        let entries: u64 = by_segment.values().sum();
        if entries != hint.entries {
            let what = format!("{entries} entries, where its header has {}", hint.entries);
            self.found.find(name, 0, hint.table.len(), what);
        }
        for (number, entries) in by_segment {
            let parts = hint.parts_of(number).iter();
            let said: u64 = parts.map(|part| part.entries).sum();
            if entries != said {
                let segment = segment_shown(number);
                let what = format!("{entries} entries of {segment}, where its header has {said}");
                self.found.find(name, 0, hint.table.len(), what);
            }
        }
    }

    /// Reads the records of these entries, in the order of their places.
    fn compare_records(
        &self,
        mut batch: Vec<KeyEntry>,
        records: &mut Records<'_>,
        wrong: &mut Wrong,
    ) -> Result<()> {
        batch.sort_unstable_by_key(|entry| (entry.segment, entry.at.offset));
        for entry in &batch {
            self.compare_record(entry, records, wrong)?;
        }
        Ok(())
    }

    fn compare_record(
        &self,
        entry: &KeyEntry,
        records: &mut Records<'_>,
        wrong: &mut Wrong,
    ) -> Result<()> {
        let number = entry.segment;
        if number & OWN != 0 {
            return self.compare_own(entry, wrong);
        }
        let Some(log) = records.log else {
            return Ok(());
        };
        let Some(reader) = records.reader(log, number)? else {
            if !log.is_accounted_for(number) {
                wrong.add_missing(entry);
            }
            return Ok(());
        };
        let front = whole(reader.read_front(entry.at, Reading::MayBlock))?;
        let front = front.and_then(|front| of_store(front, records.store));
        if !is_said(front, entry) && !records.is_damaged(&reader, number, entry.at)? {
            wrong.add(entry);
        }
        Ok(())
    }

    fn compare_own(&self, entry: &KeyEntry, wrong: &mut Wrong) -> Result<()> {
        let Some(segment) = self.segments.get(&(entry.segment & !OWN)) else {
            // The segment was merged, or is being written.
            return Ok(());
        };
        let front = whole(segment.reader.read_front(entry.at, Reading::MayBlock))?;
        if !is_said(front, entry) && !segment.is_damaged_at(entry.at.offset) {
            wrong.add(entry);
        }
        Ok(())
    }

    fn report_wrong(&mut self, name: &str, len: u64, wrong: Wrong) {
        let finding = |what: String, keys: Vec<String>| Finding {
            file: name.to_owned(),
            offset: 0,
            len,
            what,
            keys,
        };
        if wrong.count > 0 {
            let what = format!("{} entries differ from their records", wrong.count);
            self.found.findings.push(finding(what, wrong.keys));
        }
        for (number, (count, keys)) in wrong.missing {
            let segment = segment_shown(number);
            let what = format!("{segment} is not there, of which it has {count} entries");
            self.found.findings.push(finding(what, keys));
        }
    }
}

impl Records<'_> {
    fn reader(&mut self, log: &dyn LogInFiles, number: u32) -> Result<Option<SegmentReader>> {
        if let Some(known) = self.opened.get(&number) {
            return Ok(known.clone());
        }
        // Entries are sorted by segment, so one is open at a time.
        self.opened.clear();
        let reader = log.segment(number)?;
        self.opened.insert(number, reader.clone());
        Ok(reader)
    }

    /// True when the record at this place cannot be read, which the check of the log reports.
    fn is_damaged(&mut self, reader: &SegmentReader, number: u32, at: Location) -> Result<bool> {
        let ranges = match self.damaged.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(damaged_ranges(reader)?),
        };
        let mut ranges = ranges.iter();
        Ok(ranges.any(|(from, to)| (*from..*to).contains(&at.offset)))
    }
}

impl Wrong {
    fn add(&mut self, entry: &KeyEntry) {
        self.count += 1;
        show_key(&mut self.keys, entry);
    }

    fn add_missing(&mut self, entry: &KeyEntry) {
        let (count, keys) = self.missing.entry(entry.segment).or_default();
        *count += 1;
        show_key(keys, entry);
    }
}

fn show_key(keys: &mut Vec<String>, entry: &KeyEntry) {
    if keys.len() < KEYS_SHOWN_MAX {
        keys.push(key_shown(&entry.key));
    }
}

fn is_in_part(hint: &LogHint, entry: &KeyEntry) -> bool {
    let mut parts = hint.parts_of(entry.segment).iter();
    parts.any(|part| (part.from..part.to).contains(&entry.at.offset))
}

fn damaged_ranges(reader: &SegmentReader) -> Result<Vec<(u64, u64)>> {
    let options = ScanOptions::durable_to(u64::MAX);
    let mut ranges = Vec::new();
    for scanned in reader.scan(options).into_backend()? {
        if let Scanned::Damage(damage) = scanned.into_backend()? {
            ranges.push((damage.offset, damage.offset + damage.len));
        }
    }
    Ok(ranges)
}

/// A front of the log without the log's prefix; `None` if the record is another store's.
fn of_store(stored: StoredFront, store: u64) -> Option<StoredFront> {
    let logged = LoggedFront::of(stored)?;
    (logged.store == StoreId(store)).then_some(logged.stored)
}

/// `None` if there is no whole record.
fn whole(front: std::result::Result<StoredFront, SegmentError>) -> Result<Option<StoredFront>> {
    match front {
        Ok(front) => Ok(Some(front)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error).into_backend(),
    }
}

/// True when a record agrees with an entry.
fn is_said(front: Option<StoredFront>, entry: &KeyEntry) -> bool {
    let segment = entry.segment;
    let found = front.and_then(|front| KeyEntry::of(&front));
    found.is_some_and(|found| KeyEntry { segment, ..found } == *entry)
}

fn segment_shown(number: u32) -> String {
    match number & OWN {
        0 => format!("segment {number} of the value log"),
        _ => format!("segment {}", number & !OWN),
    }
}
