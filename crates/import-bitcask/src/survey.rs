//! The first half of an import: every record of every partition, from hint files where they can be
//! believed and from the data files themselves elsewhere, into the index.

use std::collections::BTreeSet;

use bytes::Bytes;
use kvorum_disk::{DiskError, OpenMode};
use kvorum_encoding::StorageKey;
use kvorum_import::{
    Finding, Findings, ImportError, Progress, SpreadWriter, StateDirectory, System,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::data_file::{self, Scanned};
use crate::file_window::FileWindow;
use crate::hint_file;
use crate::index::{self, IndexEntry};
use crate::record::ValueKind;
use crate::riak_key::decode_key;
use crate::source::FilePlace;
use crate::state::{Stage, State};

/// Types beyond this many are not named beforehand if the server misses them.
const BUCKET_TYPES_MAX: usize = 1000;
/// Progress is told after so many records.
const RECORDS_A_TICK: u64 = 4096;

/// A survey in progress.
pub(crate) struct Survey<'a> {
    pub(crate) system: &'a System,
    pub(crate) directory: &'a StateDirectory,
    pub(crate) state: &'a mut State,
    pub(crate) findings: &'a mut Findings,
    pub(crate) progress: &'a Progress,
}

/// What the records of one file go through.
struct Intake<'a> {
    file_number: u32,
    place: FilePlace<'a>,
    state: &'a mut State,
    findings: &'a mut Findings,
    writer: &'a mut SpreadWriter,
    types: &'a mut BTreeSet<String>,
    progress: &'a Progress,
    /// Bytes of the files before.
    bytes_before: u64,
    failure: Option<ImportError>,
}

impl Survey<'_> {
    /// Surveys the stores that are left. Blocks.
    pub(crate) fn run(self) -> Result<(), ImportError> {
        let Stage::Survey { stores: done } = self.state.stage else {
            return Ok(());
        };
        let index = self.directory.index();
        let disk = self.system.disk.clone();
        kvorum_disk::create_directory_durably(&*disk, &index)?;
        let mut writer = SpreadWriter::resume(disk.clone(), &index, &self.state.index_lens);
        let mut types: BTreeSet<String> = self.state.bucket_types.iter().cloned().collect();
        let source = self.state.source.clone();
        let mut bytes_before = 0;
        for (number, place) in source.files().into_iter().enumerate() {
            let ends_store = source.files().get(number + 1).map(|next| next.store_number)
                != Some(place.store_number);
            if place.store_number >= done {
                let mut intake = Intake {
                    file_number: u32::try_from(number).unwrap_or(u32::MAX),
                    place,
                    state: self.state,
                    findings: self.findings,
                    writer: &mut writer,
                    types: &mut types,
                    progress: self.progress,
                    bytes_before,
                    failure: None,
                };
                let taken = intake.take_file(self.system);
                intake.conclude(taken)?;
            }
            bytes_before += place.file.data_len;
            self.progress.set(bytes_before, self.state.counts);
            if ends_store && place.store_number >= done {
                self.state.index_lens = writer.flush()?;
                self.state.bucket_types = types.iter().cloned().collect();
                self.state.findings_len = self.findings.len();
                self.state.stage = Stage::Survey {
                    stores: place.store_number + 1,
                };
                self.directory.save(&*disk, self.state)?;
            }
        }
        writer.sync()
    }
}

impl Intake<'_> {
    fn take_file(&mut self, system: &System) -> Result<(), DiskError> {
        let data_path = self.place.data_path();
        let data = system.disk.open(&data_path, OpenMode::Read)?;
        let mut window = FileWindow::new(data, self.place.file.data_len);
        let covered = match self.place.file.hint_len {
            Some(len) if !self.state.choices.ignore_hints => self.take_hints(system, len),
            _ => 0,
        };
        data_file::scan(&mut window, covered, &mut |scanned| self.take(scanned))
    }

    /// Takes what the hint file names, and returns how far into the data file that reaches. A hint
    /// file that cannot be read is one that cannot be believed.
    fn take_hints(&mut self, system: &System, len: u64) -> u64 {
        let path = self.place.hint_path();
        let outcome = system.disk.open(&path, OpenMode::Read).and_then(|file| {
            let mut window = FileWindow::new(file, len);
            match hint_file::verify(&mut window, self.place.file.data_len)? {
                Ok(covered) => Ok(Some((covered, window))),
                Err(_doubt) => Ok(None),
            }
        });
        let Ok(Some((covered, mut window))) = outcome else {
            self.state.counts.hints_doubted += 1;
            return 0;
        };
        let walked = hint_file::walk(&mut window, &mut |_, entry, key| {
            let indexed = IndexEntry {
                key_hash: 0,
                offset: entry.offset,
                value_digest: 0,
                file: self.file_number,
                is_tombstone: entry.is_tombstone,
                total_len: entry.total_len,
                timestamp: entry.timestamp,
            };
            self.take_record(indexed, key);
        });
        // It could be read a moment ago. Taking a record twice does no harm.
        if !matches!(walked, Ok(Ok(()))) {
            self.state.counts.hints_doubted += 1;
            return 0;
        }
        self.state.counts.hints_used += 1;
        covered
    }

    fn take(&mut self, scanned: Scanned<'_>) {
        let record = match scanned {
            Scanned::Record(record) => record,
            Scanned::Damage { offset, len } => {
                return self.unreadable(
                    offset,
                    Some(len),
                    "damaged; what was here is lost".to_owned(),
                );
            }
            Scanned::GivenUp { offset, len } => {
                let reason = "damaged, and too much like records to be searched for the next one";
                return self.unreadable(offset, Some(len), reason.to_owned());
            }
            Scanned::TornTail { offset, len } => {
                self.state.counts.torn_tails += 1;
                let reason = "the file ends within a record, as after a crash";
                return self.note(offset, Some(len), reason.to_owned());
            }
        };
        if record.kind == ValueKind::LooksDeleted {
            self.state.counts.look_deleted += 1;
            let reason =
                "a value that begins as a deletion mark does; bitcask hides it, it is imported";
            self.note(record.offset, None, reason.to_owned());
        }
        let indexed = IndexEntry {
            key_hash: 0,
            offset: record.offset,
            value_digest: record.value_digest,
            file: self.file_number,
            is_tombstone: record.kind == ValueKind::Tombstone,
            total_len: u32::try_from(record.header.total_len()).unwrap_or(u32::MAX),
            timestamp: record.header.timestamp,
        };
        self.take_record(indexed, record.key);
    }

    fn take_record(&mut self, mut entry: IndexEntry, key: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        self.state.counts.records += 1;
        self.state.counts.deletion_marks += u64::from(entry.is_tombstone);
        if self.state.counts.records.is_multiple_of(RECORDS_A_TICK) {
            let done = self.bytes_before + entry.offset;
            self.progress.set(done, self.state.counts);
        }
        let address = match decode_key(&Bytes::copy_from_slice(key)) {
            Ok(address) => address,
            Err(error) => {
                let len = u64::from(entry.total_len);
                return self.unreadable(entry.offset, Some(len), format!("key: {error}"));
            }
        };
        if !address.bucket_type.is_default() && self.types.len() < BUCKET_TYPES_MAX {
            let name = String::from_utf8_lossy(address.bucket_type.as_bytes());
            if !self.types.contains(&*name) {
                self.types.insert(name.into_owned());
            }
        }
        entry.key_hash = xxh3_128(StorageKey::from_address(&address).as_bytes());
        if let Err(error) = index::add(self.writer, &entry) {
            self.failure = Some(error);
        }
    }

    fn unreadable(&mut self, offset: u64, len: Option<u64>, reason: String) {
        self.state.counts.unreadable += 1;
        self.note(offset, len, reason);
    }

    fn note(&mut self, offset: u64, len: Option<u64>, reason: String) {
        let finding = Finding {
            file: self.place.data_path(),
            offset,
            len,
            object: None,
            reason,
        };
        if let Err(error) = self.findings.add(finding) {
            self.failure.get_or_insert(error);
        }
    }

    /// A source that fails to be read is something to report; our own files are not.
    fn conclude(mut self, taken: Result<(), DiskError>) -> Result<(), ImportError> {
        if let Err(error) = taken {
            self.unreadable(0, None, format!("the rest of the file: {error}"));
        }
        self.failure.map_or(Ok(()), Err)
    }
}
