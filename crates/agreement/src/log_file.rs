//! The log on disk: one file of records, each synced before the next is written.
//!
//! So a crash can tear the last record only, and whatever else does not check out is damage. What a torn
//! record leaves may be anything, zeros and its own end among them; it is the last one if nothing that
//! checks out comes behind it. A file that has failed to take a record is not written to again: all is
//! written to a new one, since nobody knows what the old one holds. The log
//! is small (a cluster changes rarely, and snapshots end what it has to keep), so all of it is in
//! memory as well, and the file is written anew when most of it is history.
//!
//! ```text
//! header, 16 bytes
//! size  field
//! 8     "KvAgree\n"
//! 4     format, 1
//! 4     masked CRC-32C of the 12 bytes before
//!
//! record, repeated
//! 4     length of the content
//! 4     masked CRC-32C of the length and the content
//! ...   content: a LogRecord as JSON
//! ```
//!
//! Numbers are little-endian. JSON, because these are a few records that an operator may have to read
//! one day, and because fields can be added.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, OpenMode, read_file, replace_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};
use kvorum_runtime::{PlantedDefect, is_planted};
use serde::{Deserialize, Serialize};

use crate::error::OpenError;
use crate::raft_types::{Entry, LogId, Vote};

pub(crate) const MAGIC: &[u8; 8] = b"KvAgree\n";
const FORMAT: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const PREFIX_BYTES: usize = 8;
/// A bound on what is read at opening; far more than a log between two snapshots.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;
/// Below this the file is not worth writing anew.
const REWRITE_BYTES_MIN: u64 = 256 * 1024;
/// Written anew when it is this many times what has to be kept.
const REWRITE_FACTOR: u64 = 4;

/// What the file says, record by record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LogRecord {
    /// Whom this node has voted for.
    Vote(Vote),
    /// Entries follow those before.
    Append(Vec<Entry>),
    /// Entries from this index on never were.
    Truncate(u64),
    /// Entries up to this one are in a snapshot.
    Purge(LogId),
    /// Entries up to this one are agreed.
    Committed(Option<LogId>),
}

/// What all records together say.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogContents {
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    pub(crate) entries: BTreeMap<u64, Entry>,
}

impl LogContents {
    fn apply(&mut self, record: LogRecord) {
        match record {
            LogRecord::Vote(vote) => self.vote = Some(vote),
            LogRecord::Append(entries) => {
                let by_index = entries.into_iter().map(|entry| (entry.log_id.index, entry));
                self.entries.extend(by_index);
            }
            LogRecord::Truncate(from) => {
                self.entries.split_off(&from);
            }
            LogRecord::Purge(upto) => {
                self.purged = self.purged.max(Some(upto));
                self.entries = self.entries.split_off(&(upto.index + 1));
            }
            LogRecord::Committed(committed) => self.committed = committed,
        }
    }

    pub(crate) fn last_log_id(&self) -> Option<LogId> {
        let last = self.entries.values().next_back();
        last.map(|entry| entry.log_id).or(self.purged)
    }

    /// The records that say the same in the shortest way.
    fn records(&self) -> Vec<LogRecord> {
        let mut records = Vec::new();
        records.extend(self.vote.map(LogRecord::Vote));
        records.extend(self.purged.map(LogRecord::Purge));
        if !self.entries.is_empty() {
            let entries = self.entries.values().cloned().collect();
            records.push(LogRecord::Append(entries));
        }
        records.push(LogRecord::Committed(self.committed));
        records
    }
}

/// The open file.
pub(crate) struct LogFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    end: u64,
    /// What the file was when it was last written anew.
    kept: u64,
    /// A write has failed: nobody knows what is behind the end.
    is_suspect: bool,
}

impl LogFile {
    /// Creates an empty log.
    pub(crate) fn create(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, OpenError> {
        if disk.info(path)?.is_some() {
            let file = path.to_owned();
            return Err(OpenError::AlreadyExists { file });
        }
        replace_file(&*disk, path, &header())?;
        Ok(Self::open(disk, path)?.0)
    }

    /// Opens a log and reads all of it. A torn last record is cut off.
    pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<(Self, LogContents), OpenError> {
        let bytes = read_file(&*disk, path, FILE_BYTES_MAX)?;
        let (contents, end) = decode(path, &bytes)?;
        let file = disk.open(path, OpenMode::ReadWrite)?;
        let end = end as u64;
        if end < bytes.len() as u64 {
            file.truncate(end)?;
            file.sync()?;
        }
        let log = Self {
            disk,
            path: path.to_owned(),
            file,
            end,
            kept: end,
            is_suspect: false,
        };
        Ok((log, contents))
    }

    /// Writes a record, makes it durable, and applies it to `contents`. After an error both are as
    /// before, and it may be tried again.
    pub(crate) fn put(
        &mut self,
        record: LogRecord,
        contents: &mut LogContents,
    ) -> std::io::Result<()> {
        if self.is_suspect {
            let mut changed = contents.clone();
            changed.apply(record);
            self.rewrite(&changed)?;
            *contents = changed;
            return Ok(());
        }
        let mut bytes = Vec::new();
        encode(&record, &mut bytes)?;
        let is_unsynced =
            is_planted(PlantedDefect::AgreedBeforeSync) && !matches!(record, LogRecord::Vote(_));
        let written = self.file.write_at(&bytes, self.end);
        let sync = || {
            if is_unsynced {
                Ok(())
            } else {
                self.file.sync()
            }
        };
        if let Err(error) = written.and_then(|()| sync()) {
            self.is_suspect = true;
            return Err(std::io::Error::other(error));
        }
        self.end += bytes.len() as u64;
        contents.apply(record);
        if self.end > REWRITE_BYTES_MIN && self.end > self.kept * REWRITE_FACTOR {
            // The record is durable, in the old file or in the new one. What failed is tried again
            // with the next.
            let _rewritten_or_suspect = self.rewrite(contents);
        }
        Ok(())
    }

    /// All of it in a new file.
    fn rewrite(&mut self, contents: &LogContents) -> std::io::Result<()> {
        self.is_suspect = true;
        let mut bytes = header();
        for record in contents.records() {
            encode(&record, &mut bytes)?;
        }
        replace_file(&*self.disk, &self.path, &bytes).map_err(std::io::Error::other)?;
        let reopened = self.disk.open(&self.path, OpenMode::ReadWrite);
        self.file = reopened.map_err(std::io::Error::other)?;
        self.end = bytes.len() as u64;
        self.kept = self.end.max(REWRITE_BYTES_MIN / REWRITE_FACTOR);
        self.is_suspect = false;
        Ok(())
    }
}

fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    let sum = mask_checksum(checksum(&bytes));
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn encode(record: &LogRecord, out: &mut Vec<u8>) -> std::io::Result<()> {
    let content = serde_json::to_vec(record)?;
    let length = u32::try_from(content.len()).map_err(std::io::Error::other)?;
    let length = length.to_le_bytes();
    let sum = mask_checksum(checksum_append(checksum(&length), &content));
    out.extend_from_slice(&length);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&content);
    Ok(())
}

/// What a file says, and where its last whole record ends.
fn decode(path: &Path, bytes: &[u8]) -> Result<(LogContents, usize), OpenError> {
    let damaged = |offset: usize, what: &str| OpenError::Damaged {
        file: path.to_owned(),
        offset: offset as u64,
        what: what.to_owned(),
    };
    check_header(path, bytes)?;
    let mut contents = LogContents::default();
    let mut at = HEADER_BYTES;
    while let Some(content) = whole_record(&bytes[at..]) {
        let record = serde_json::from_slice(content);
        let record = record.map_err(|error| damaged(at, &error.to_string()))?;
        contents.apply(record);
        at += PREFIX_BYTES + content.len();
    }
    // What the last record of a crash has left has nothing behind it.
    let behind = (at + 1..bytes.len()).find(|behind| whole_record(&bytes[*behind..]).is_some());
    match behind {
        None => Ok((contents, at)),
        Some(_) => Err(damaged(
            at,
            "a record with a wrong checksum, with others behind it",
        )),
    }
}

/// The content of a record that begins here and checks out.
fn whole_record(rest: &[u8]) -> Option<&[u8]> {
    let [a, b, c, d, e, f, g, h] = *rest.first_chunk::<PREFIX_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    let content = rest[PREFIX_BYTES..].get(..length)?;
    // Nothing but zeros is no record.
    let is_whole = length > 0
        && mask_checksum(checksum_append(checksum(&rest[..4]), content))
            == u32::from_le_bytes([e, f, g, h]);
    is_whole.then_some(content)
}

fn check_header(path: &Path, bytes: &[u8]) -> Result<(), OpenError> {
    let damaged = |what: &str| OpenError::Damaged {
        file: path.to_owned(),
        offset: 0,
        what: what.to_owned(),
    };
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(damaged("the header is cut short"));
    };
    let (content, sum) = header.split_at(12);
    if !content.starts_with(MAGIC) {
        return Err(damaged("it does not begin as an agreed log does"));
    }
    let read = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if mask_checksum(checksum(content)) != read(sum) {
        return Err(damaged("the header has a wrong checksum"));
    }
    let got = read(&content[8..]);
    if got > FORMAT {
        return Err(OpenError::NewerFormat {
            file: path.to_owned(),
            got,
            newest: FORMAT,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{CrashOptions, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
    use openraft::{CommittedLeaderId, EntryPayload};

    use super::*;
    use crate::raft_types::{MemberId, Proposal};

    fn entry(index: u64) -> Entry {
        Entry {
            log_id: LogId::new(CommittedLeaderId::new(1, MemberId::from(1)), index),
            payload: EntryPayload::Normal(Proposal(format!("command {index}"))),
        }
    }

    fn records() -> Vec<LogRecord> {
        vec![
            LogRecord::Vote(Vote::new(3, MemberId::from(1))),
            LogRecord::Append(vec![entry(0), entry(1), entry(2)]),
            LogRecord::Committed(Some(entry(1).log_id)),
            LogRecord::Truncate(2),
            LogRecord::Append(vec![entry(2), entry(3)]),
            LogRecord::Purge(entry(0).log_id),
        ]
    }

    fn written(count: usize) -> (MemoryDisk, LogContents) {
        let disk = MemoryDisk::new();
        let mut log = LogFile::create(Arc::new(disk.clone()), Path::new("log")).unwrap();
        let mut contents = LogContents::default();
        for record in records().into_iter().take(count) {
            log.put(record, &mut contents).unwrap();
        }
        (disk, contents)
    }

    fn same(one: &LogContents, other: &LogContents) -> bool {
        format!("{one:?}") == format!("{other:?}")
    }

    #[test]
    fn what_was_put_is_there_after_a_power_cut() {
        for count in 0..=records().len() {
            let (disk, contents) = written(count);
            let image = disk.crash_image(CrashOptions::nothing_unsynced());
            let (_, opened) = LogFile::open(Arc::new(image), Path::new("log")).unwrap();
            assert!(same(&opened, &contents), "after {count} records");
        }
    }

    #[test]
    fn a_torn_last_record_is_cut_off_and_nothing_else() {
        let (_, before) = written(records().len() - 1);
        let (disk, _) = written(records().len());
        let whole = read_file(&disk, Path::new("log"), FILE_BYTES_MAX).unwrap();
        let (shorter, _) = written(records().len() - 1);
        let start = read_file(&shorter, Path::new("log"), FILE_BYTES_MAX)
            .unwrap()
            .len();
        for end in start..whole.len() {
            let (contents, at) = decode(Path::new("log"), &whole[..end]).unwrap();
            assert_eq!(at, start);
            assert!(same(&contents, &before));
        }
    }

    #[test]
    fn r21_a_record_of_which_a_crash_left_anything_at_all_is_cut_off() {
        let long = || LogRecord::Append((4..90).map(entry).collect());
        let drawn = (0..300).map(CrashOptions::drawn);
        for options in CrashOptions::extremes().into_iter().chain(drawn) {
            let (disk, before) = written(records().len());
            let mut after = before.clone();
            after.apply(long());
            let opened = LogFile::open(Arc::new(disk.clone()), Path::new("log"));
            let (mut log, mut contents) = opened.unwrap();
            // The write is done and its sync is not: it is longer than some sectors, of which each
            // may be kept or lost.
            disk.cut_after(disk.operations() + 1);
            log.put(long(), &mut contents).unwrap_err();
            let image = disk.crash_image(options);
            let (_, opened) = LogFile::open(Arc::new(image), Path::new("log")).unwrap();
            assert!(
                same(&opened, &before) || same(&opened, &after),
                "{options:?}"
            );
        }
    }

    #[test]
    fn what_is_put_after_a_write_that_failed_is_all_there() {
        for torn_bytes in [0, 1, 9, 60, 5_000] {
            let (disk, mut contents) = written(records().len());
            let faulty = FaultyDisk::over_memory(&disk);
            let opened = LogFile::open(Arc::new(faulty.clone()), Path::new("log"));
            let mut log = opened.unwrap().0;
            let torn = Fault::TornWrite { bytes: torn_bytes };
            faulty.add_rule(Rule::new(torn).on(Operation::Write).nth(1));
            let long = LogRecord::Append((4..9).map(entry).collect());
            log.put(long.clone(), &mut contents).unwrap_err();
            assert_eq!(contents.last_log_id(), Some(entry(3).log_id));
            let vote = Vote::new(4, MemberId::from(2));
            log.put(LogRecord::Vote(vote), &mut contents).unwrap();
            log.put(long, &mut contents).unwrap();
            let image = disk.crash_image(CrashOptions::nothing_unsynced());
            let (_, opened) = LogFile::open(Arc::new(image), Path::new("log")).unwrap();
            assert!(same(&opened, &contents), "torn after {torn_bytes} bytes");
            assert_eq!(opened.vote, Some(vote));
        }
    }

    #[test]
    fn r21_a_flipped_bit_is_damage_or_tears_the_last_record() {
        let (disk, _) = written(records().len());
        let whole = read_file(&disk, Path::new("log"), FILE_BYTES_MAX).unwrap();
        let (shorter, before) = written(records().len() - 1);
        let start = read_file(&shorter, Path::new("log"), FILE_BYTES_MAX)
            .unwrap()
            .len();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            match decode(Path::new("log"), &flipped) {
                Err(_) => {}
                Ok((contents, _)) if at >= start => assert!(same(&contents, &before)),
                // A length that now reaches beyond the end looks torn: what came before is kept.
                Ok((_, end)) => assert!(end <= at, "byte {at} went unnoticed"),
            }
        }
    }

    #[test]
    fn a_long_history_is_written_anew() {
        let disk = MemoryDisk::new();
        let mut log = LogFile::create(Arc::new(disk.clone()), Path::new("log")).unwrap();
        let mut contents = LogContents::default();
        for index in 0..5_000 {
            log.put(LogRecord::Append(vec![entry(index)]), &mut contents)
                .unwrap();
            if index > 10 {
                log.put(LogRecord::Purge(entry(index - 10).log_id), &mut contents)
                    .unwrap();
            }
        }
        let size = disk.info(Path::new("log")).unwrap().unwrap().len;
        assert!(size <= REWRITE_BYTES_MIN + 1_000, "{size} bytes");
        let (_, opened) = LogFile::open(Arc::new(disk), Path::new("log")).unwrap();
        assert!(same(&opened, &contents));
    }
}
