//! The log on disk: one file of records, each synced before the next is written.
//!
//! So a crash can tear only the last record, and any other invalid record is damage. The remains of
//! a torn record may be any bytes, also zeros or its own end. An invalid record counts as torn if
//! no valid record follows it, and if the mark of the log's durable end (`end_mark`) is not behind
//! it. After a failed write the file is not written to again: its content is uncertain, so
//! everything is written to a new file. The log is small, since a cluster changes rarely and
//! snapshots replace old entries. So all of it is also in memory, and the file is rewritten when
//! most of it is obsolete.
//!
//! ```text
//! header, 56 bytes
//! size  field
//! 8     "KvAgree\n"
//! 4     format, 2
//! 16    the node
//! 8     the log's number, drawn when it was begun
//! 8     generation: number of times that the log was rewritten
//! 8     length of the file when it was rewritten: this much was durable from the first moment
//! 4     masked CRC-32C of the 52 bytes before
//!
//! header of format 1, 16 bytes, which earlier versions wrote and opening replaces
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
//! Numbers are little-endian. The content is JSON, because an operator may have to read these few
//! records one day, and because fields can be added.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, OpenMode, read_file, replace_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};
use kvorum_planted_defects::is_planted;
use kvorum_ring::NodeId;
use serde::{Deserialize, Serialize};

use crate::end_mark::{End, EndMarks, MarkFound};
use crate::error::OpenError;
use crate::raft_types::{Entry, LogId, Vote};

pub(crate) const MAGIC: &[u8; 8] = b"KvAgree\n";
const FORMAT: u32 = 2;
const FORMAT_WITHOUT_END: u32 = 1;
const HEADER_BYTES: usize = 56;
const HEADER_BYTES_WITHOUT_END: usize = 16;
pub(crate) const PREFIX_BYTES: usize = 8;
/// A bound on the bytes read at opening: far larger than a log between two snapshots.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;
/// Smaller files are not worth a rewrite.
const REWRITE_BYTES_MIN: u64 = 256 * 1024;
/// The file is rewritten when it is this many times the size of the needed records.
const REWRITE_FACTOR: u64 = 4;

/// One record of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LogRecord {
    /// The vote of this node.
    Vote(Vote),
    /// Entries that follow the ones before.
    Append(Vec<Entry>),
    /// Entries from this index on are void.
    Truncate(u64),
    /// Entries up to this one are in a snapshot.
    Purge(LogId),
    /// Entries up to this one are agreed.
    Committed(Option<LogId>),
}

/// The sum of all records.
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

    /// The shortest records with the same content.
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

/// The place of a log, and the node that it belongs to.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) disk: Arc<dyn Disk>,
    /// The log itself.
    pub(crate) log: PathBuf,
    /// Both files of the mark of its end.
    pub(crate) marks: [PathBuf; 2],
    pub(crate) node: NodeId,
    /// A random number that identifies a log that is begun now.
    pub(crate) drawn: u64,
}

impl Place {
    fn read_marks(&self) -> EndMarks {
        let [beside, apart] = &self.marks;
        EndMarks::read(self.disk.clone(), [beside, apart])
    }
}

/// Identity of a file: the node, the log and the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writing {
    pub(crate) node: NodeId,
    pub(crate) log: u64,
    pub(crate) generation: u64,
    /// Length of the file when it was rewritten.
    begun_bytes: u64,
}

impl Writing {
    fn end(&self, bytes: u64) -> End {
        End {
            node: self.node,
            log: self.log,
            generation: self.generation,
            bytes,
        }
    }
}

/// The open file.
pub(crate) struct LogFile {
    place: Place,
    file: Arc<dyn DiskFile>,
    writing: Writing,
    marks: EndMarks,
    end: u64,
    /// Length that was synced, in bytes.
    durable: u64,
    /// Length of the file when it was last rewritten.
    kept: u64,
    /// A write has failed: the bytes after the end are uncertain.
    is_suspect: bool,
}

impl LogFile {
    /// Creates an empty log.
    pub(crate) fn create(place: Place) -> Result<Self, OpenError> {
        if place.disk.info(&place.log)?.is_some() {
            let file = place.log;
            return Err(OpenError::AlreadyExists { file });
        }
        let writing = Writing {
            node: place.node,
            log: place.drawn,
            generation: 1,
            begun_bytes: HEADER_BYTES as u64,
        };
        // A crash between the two steps leaves marks of a new log without the log.
        place.read_marks().note(writing.end(0));
        replace_file(&*place.disk, &place.log, &header(&writing))?;
        Ok(Self::open(place)?.0)
    }

    /// Opens a log and reads all of it. Cuts off a torn last record, unless the mark of the end shows that
    /// it was durable.
    pub(crate) fn open(place: Place) -> Result<(Self, LogContents), OpenError> {
        let bytes = read_file(&*place.disk, &place.log, FILE_BYTES_MAX)?;
        let marks = place.read_marks();
        let (writing, header_bytes) = read_header(&place.log, &bytes)?;
        check_node(&place, &writing)?;
        check_second_mark(&place, &writing, &marks.found())?;
        let durable = durable_end(&place.log, place.node, &writing, &marks.found())?;
        let (contents, end) = decode(&place.log, &bytes, header_bytes)?;
        let end = end as u64;
        if end < durable {
            return Err(OpenError::CutShort {
                file: place.log,
                whole: end,
                len: bytes.len() as u64,
                durable,
                marks: place.marks.to_vec(),
            });
        }
        let file = place.disk.open(&place.log, OpenMode::ReadWrite)?;
        if end < bytes.len() as u64 {
            file.truncate(end)?;
            file.sync()?;
        }
        let mut log = Self {
            place,
            file,
            writing,
            marks,
            end,
            durable: 0,
            kept: end,
            is_suspect: false,
        };
        log.settle(&contents);
        Ok((log, contents))
    }

    /// Brings the marks up to the end of the log. Rewrites a log of an earlier version, which has
    /// no mark; on a full disk the rewrite waits for the next record.
    fn settle(&mut self, contents: &LogContents) {
        let settled = if self.writing.generation == 0 {
            self.writing.log = self.place.drawn;
            self.writing.node = self.place.node;
            self.marks.note(
                Writing {
                    generation: 1,
                    ..self.writing
                }
                .end(0),
            );
            self.rewrite(contents)
        } else {
            report_marks(&self.marks, self.place.node);
            // The bytes read may not be durable yet.
            self.file.sync().map_err(std::io::Error::other)
        };
        match settled {
            Ok(()) => {
                self.durable = self.end;
                self.mark_end();
            }
            Err(error) => {
                self.is_suspect = !self.is_still_early();
                tracing::warn!(event = "agreed_log_end_not_marked", error = %error);
            }
        }
    }

    /// True when a file of an earlier version could not be rewritten: the log continues in it,
    /// without a mark.
    fn is_still_early(&self) -> bool {
        let bytes = read_file(&*self.place.disk, &self.place.log, FILE_BYTES_MAX);
        let header = bytes.map(|bytes| read_header(&self.place.log, &bytes));
        let is_early = matches!(header, Ok(Ok((found, _))) if found.generation == 0);
        is_early && self.writing.generation == 0
    }

    /// Marks the durable end of the log, for callers whose last record may not have marked it.
    pub(crate) fn mark_end(&mut self) {
        if !self.is_suspect && self.durable > 0 && self.writing.generation > 0 {
            self.marks.note(self.writing.end(self.durable));
        }
    }

    /// Writes a record, makes it durable, and applies it to `contents`. After an error log and
    /// contents are as before, and the caller may try again.
    pub(crate) fn put(
        &mut self,
        record: LogRecord,
        contents: &mut LogContents,
    ) -> std::io::Result<()> {
        if self.is_suspect {
            let mut changed = contents.clone();
            changed.apply(record);
            self.rewrite(&changed)?;
            self.mark_end();
            *contents = changed;
            return Ok(());
        }
        let mut bytes = Vec::new();
        encode(&record, &mut bytes)?;
        let is_unsynced = is_planted!(AgreedBeforeSync) && !matches!(record, LogRecord::Vote(_));
        // A lost `Committed` record loses nothing: the nodes agree on its entry again.
        let is_marked = !is_unsynced && !matches!(record, LogRecord::Committed(_));
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
        if !is_unsynced {
            self.durable = self.end;
        }
        contents.apply(record);
        if self.end > REWRITE_BYTES_MIN && self.end > self.kept * REWRITE_FACTOR {
            // The record is durable, in the old or in the new file. A failed rewrite is tried again
            // with the next record.
            let _rewritten_or_suspect = self.rewrite(contents);
        }
        if is_marked {
            self.mark_end();
        }
        Ok(())
    }

    /// Writes the whole log to a new file.
    fn rewrite(&mut self, contents: &LogContents) -> std::io::Result<()> {
        self.is_suspect = true;
        let mut records = Vec::new();
        for record in contents.records() {
            encode(&record, &mut records)?;
        }
        let len = (HEADER_BYTES + records.len()) as u64;
        let writing = Writing {
            generation: self.writing.generation + 1,
            begun_bytes: len,
            ..self.writing
        };
        let mut bytes = header(&writing);
        bytes.append(&mut records);
        let (disk, path) = (&*self.place.disk, &self.place.log);
        replace_file(disk, path, &bytes).map_err(std::io::Error::other)?;
        let reopened = disk.open(path, OpenMode::ReadWrite);
        self.file = reopened.map_err(std::io::Error::other)?;
        self.writing = writing;
        self.end = len;
        self.durable = len;
        self.kept = self.end.max(REWRITE_BYTES_MIN / REWRITE_FACTOR);
        self.is_suspect = false;
        Ok(())
    }
}

fn check_node(place: &Place, writing: &Writing) -> Result<(), OpenError> {
    if writing.generation > 0 && writing.node != place.node {
        return Err(OpenError::OtherNode {
            file: place.log.clone(),
            got: writing.node,
            expected: place.node,
        });
    }
    Ok(())
}

/// Refuses a log whose second mark, in the data directory, names another node: the log's directory
/// and its card were copied from a different node. The mark beside the log does not show this,
/// since it was copied with the log.
fn check_second_mark(
    place: &Place,
    writing: &Writing,
    marks: &[(PathBuf, MarkFound)],
) -> Result<(), OpenError> {
    let [_, second] = &place.marks;
    let found = marks.iter().find(|(path, _)| path == second);
    let end = found.and_then(|(_, found)| found.end());
    match end.filter(|end| writing.generation > 0 && end.node != place.node) {
        Some(end) => Err(OpenError::MarkOfOtherNode {
            file: place.log.clone(),
            mark: second.clone(),
            got: end.node,
            expected: place.node,
        }),
        None => Ok(()),
    }
}

/// The end that the log of a node has to reach. Skips marks of other logs.
pub(crate) fn durable_end(
    log: &Path,
    node: NodeId,
    writing: &Writing,
    marks: &[(PathBuf, MarkFound)],
) -> Result<u64, OpenError> {
    let mut durable = writing.begun_bytes;
    for (mark, found) in marks {
        // A mark of another node was misplaced here; a mark with a length of 0 belongs to a log
        // whose creation was not completed.
        let Some(end) = found.end().filter(|it| it.node == node && it.bytes > 0) else {
            continue;
        };
        if writing.generation > 0 && end.log != writing.log {
            return Err(OpenError::OtherLog {
                file: log.to_owned(),
                mark: mark.clone(),
            });
        }
        if end.generation > writing.generation {
            return Err(OpenError::Older {
                file: log.to_owned(),
                got: writing.generation,
                expected: end.generation,
                marks: marks.iter().map(|(path, _)| path.clone()).collect(),
            });
        }
        if end.generation == writing.generation {
            durable = durable.max(end.bytes);
        }
    }
    Ok(durable)
}

/// Logs marks that are damaged, missing or another node's; they are rewritten.
fn report_marks(marks: &EndMarks, node: NodeId) {
    for (path, found) in marks.found() {
        let why = match &found {
            MarkFound::End { end, .. } if end.node != node => "it is of another node",
            MarkFound::End { is_half: false, .. } => continue,
            MarkFound::End { is_half: true, .. } => "one of its two slots is damaged",
            MarkFound::Missing => "it is missing",
            MarkFound::Damaged(why) => why,
        };
        tracing::warn!(event = "agreed_log_end_mended", file = %path.display(), why);
    }
}

fn header(writing: &Writing) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(writing.node.as_bytes());
    for number in [writing.log, writing.generation, writing.begun_bytes] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
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

/// The contents of a file after its header, and the end of its last whole record.
pub(crate) fn decode(
    path: &Path,
    bytes: &[u8],
    header_bytes: usize,
) -> Result<(LogContents, usize), OpenError> {
    let damaged = |offset: usize, what: &str| OpenError::Damaged {
        file: path.to_owned(),
        offset: offset as u64,
        what: what.to_owned(),
    };
    let mut contents = LogContents::default();
    let mut at = header_bytes;
    while let Some(content) = whole_record(&bytes[at..]) {
        let record = serde_json::from_slice(content);
        let record = record.map_err(|error| damaged(at, &error.to_string()))?;
        contents.apply(record);
        at += PREFIX_BYTES + content.len();
    }
    // A torn record has no valid record after it.
    let behind = (at + 1..bytes.len()).find(|behind| whole_record(&bytes[*behind..]).is_some());
    match behind {
        None => Ok((contents, at)),
        Some(_) => Err(damaged(
            at,
            "a record with a wrong checksum, with others behind it",
        )),
    }
}

/// The content of a valid record that begins here.
fn whole_record(rest: &[u8]) -> Option<&[u8]> {
    let [a, b, c, d, e, f, g, h] = *rest.first_chunk::<PREFIX_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    let content = rest[PREFIX_BYTES..].get(..length)?;
    // Zeros alone are not a record.
    let is_whole = length > 0
        && mask_checksum(checksum_append(checksum(&rest[..4]), content))
            == u32::from_le_bytes([e, f, g, h]);
    is_whole.then_some(content)
}

/// Length of the header, by the format in it.
pub(crate) fn header_bytes_of(bytes: &[u8]) -> usize {
    match bytes.get(8..12) {
        Some(format) if format == FORMAT_WITHOUT_END.to_le_bytes() => HEADER_BYTES_WITHOUT_END,
        _ => HEADER_BYTES,
    }
}

/// Reads the header and its length. A log of an earlier version has generation 0.
pub(crate) fn read_header(path: &Path, bytes: &[u8]) -> Result<(Writing, usize), OpenError> {
    let damaged = |what: &str| OpenError::Damaged {
        file: path.to_owned(),
        offset: 0,
        what: what.to_owned(),
    };
    let len = header_bytes_of(bytes);
    let Some(header) = bytes.get(..len) else {
        return Err(damaged("the header is cut short"));
    };
    let (content, sum) = header.split_at(len - 4);
    if !content.starts_with(MAGIC) {
        return Err(damaged("it does not begin as an agreed log does"));
    }
    if mask_checksum(checksum(content)).to_le_bytes() != *sum {
        return Err(damaged("the header has a wrong checksum"));
    }
    let number = |at: usize| {
        let bytes = content.get(at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let node = content.get(12..).and_then(|rest| rest.first_chunk::<16>());
    let writing = Writing {
        node: NodeId::from_bytes(node.copied().unwrap_or_default()),
        log: number(28),
        generation: number(36),
        begun_bytes: number(44),
    };
    let got = content.get(8..).and_then(|rest| rest.first_chunk::<4>());
    let got = got.map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if got > FORMAT {
        return Err(OpenError::NewerFormat {
            file: path.to_owned(),
            got,
            newest: FORMAT,
        });
    }
    Ok((writing, len))
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{CrashOptions, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
    use kvorum_golden::assert_bytes;
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

    fn place(disk: impl Disk + 'static) -> Place {
        Place {
            disk: Arc::new(disk),
            log: "log".into(),
            marks: ["end".into(), "log.end".into()],
            node: NodeId::from_bytes([1; 16]),
            drawn: 42,
        }
    }

    fn written(count: usize) -> (MemoryDisk, LogContents) {
        let disk = MemoryDisk::new();
        let mut log = LogFile::create(place(disk.clone())).unwrap();
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
    fn the_bytes_are_as_drawn() {
        let (disk, _) = written(records().len());
        let bytes = read_file(&disk, Path::new("log"), FILE_BYTES_MAX).unwrap();
        let mut drawing = vec![
            ("\"KvAgree\" and a newline", 8),
            ("format, 2", 4),
            ("node", 16),
            ("number of the log", 8),
            ("generation", 8),
            ("length of the file when it was rewritten", 8),
            ("masked CRC-32C of the 52 bytes before", 4),
        ];
        let mut at = HEADER_BYTES;
        while let Some(content) = whole_record(&bytes[at..]) {
            at += PREFIX_BYTES + content.len();
            drawing.extend([
                ("length of the content", 4),
                ("masked CRC-32C of the length and the content", 4),
                ("content", content.len()),
            ]);
        }
        assert_bytes("log_file.hex", &drawing, &bytes);
    }

    #[test]
    fn what_was_put_is_there_after_a_power_cut() {
        for count in 0..=records().len() {
            let (disk, contents) = written(count);
            let image = disk.crash_image(CrashOptions::nothing_unsynced());
            let (_, opened) = LogFile::open(place(image)).unwrap();
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
            let (contents, at) = decode(Path::new("log"), &whole[..end], HEADER_BYTES).unwrap();
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
            let opened = LogFile::open(place(disk.clone()));
            let (mut log, mut contents) = opened.unwrap();
            // The write is done, but not its sync: the record spans several sectors, each of which
            // may be kept or lost.
            disk.cut_after(disk.operations() + 1);
            log.put(long(), &mut contents).unwrap_err();
            let image = disk.crash_image(options);
            let (_, opened) = LogFile::open(place(image)).unwrap();
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
            let opened = LogFile::open(place(faulty.clone()));
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
            let (_, opened) = LogFile::open(place(image)).unwrap();
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
            let header = read_header(Path::new("log"), &flipped);
            let decoded = header.and_then(|(_, len)| decode(Path::new("log"), &flipped, len));
            match decoded {
                Err(_) => {}
                Ok((contents, _)) if at >= start => assert!(same(&contents, &before)),
                // A record whose changed length reaches beyond the end looks torn: the records
                // before it are kept.
                Ok((_, end)) => assert!(end <= at, "byte {at} went unnoticed"),
            }
        }
    }

    fn bytes_of(disk: &MemoryDisk, path: &str) -> Vec<u8> {
        read_file(disk, Path::new(path), FILE_BYTES_MAX).unwrap()
    }

    fn put_back(disk: &MemoryDisk, path: &str, bytes: &[u8]) {
        replace_file(disk, Path::new(path), bytes).unwrap();
    }

    fn open(disk: &MemoryDisk) -> Result<LogContents, OpenError> {
        LogFile::open(place(disk.clone())).map(|(_, contents)| contents)
    }

    /// Regression: a log that had lost its end passed for a torn one, and an acknowledged bucket
    /// type was silently lost.
    #[test]
    fn r21_a_log_that_ends_before_its_durable_end_is_refused_wherever_it_was_cut() {
        for marks in [&["end", "log.end"][..], &["end"], &["log.end"]] {
            let (disk, _) = written(records().len());
            let whole = bytes_of(&disk, "log");
            for path in ["end", "log.end"] {
                if !marks.contains(&path) {
                    disk.remove_file(Path::new(path)).unwrap();
                }
            }
            let kept: Vec<_> = marks
                .iter()
                .map(|path| (path, bytes_of(&disk, path)))
                .collect();
            for len in 0..whole.len() {
                put_back(&disk, "log", &whole[..len]);
                let refused = open(&disk).unwrap_err();
                assert!(
                    refused.to_string().contains("log is damaged"),
                    "{len}: {refused}"
                );
                assert!(
                    refused.to_string().contains("from a backup"),
                    "{len}: {refused}"
                );
                let mut zeroed = whole.clone();
                zeroed[len..].fill(0);
                put_back(&disk, "log", &zeroed);
                open(&disk).unwrap_err();
            }
            // Opening repaired nothing.
            put_back(&disk, "log", &whole);
            for (path, bytes) in kept {
                assert_eq!(bytes_of(&disk, path), bytes);
            }
            open(&disk).unwrap();
        }
    }

    #[test]
    fn r21_an_older_copy_of_the_log_is_refused_and_goes_on_where_the_operator_means_it() {
        let disk = MemoryDisk::new();
        let mut log = LogFile::create(place(disk.clone())).unwrap();
        let mut contents = LogContents::default();
        let mut older = vec![bytes_of(&disk, "log")];
        for (at, record) in records().into_iter().enumerate() {
            if at == 3 {
                log.rewrite(&contents).unwrap();
                log.mark_end();
            }
            if !older.contains(&bytes_of(&disk, "log")) {
                older.push(bytes_of(&disk, "log"));
            }
            log.put(record, &mut contents).unwrap();
        }
        drop(log);
        for bytes in older {
            put_back(&disk, "log", &bytes);
            for path in ["end", "log.end"] {
                let mark = bytes_of(&disk, path);
                disk.remove_file(Path::new(path)).unwrap();
                assert!(open(&disk).is_err());
                put_back(&disk, path, &mark);
            }
            let refused = open(&disk).unwrap_err().to_string();
            assert!(refused.contains("end and log.end are removed"), "{refused}");
            let marks = ["end", "log.end"].map(|path| (path, bytes_of(&disk, path)));
            for (path, _) in &marks {
                disk.remove_file(Path::new(path)).unwrap();
            }
            open(&disk).unwrap();
            for (path, bytes) in marks {
                put_back(&disk, path, &bytes);
            }
        }
    }

    /// The remains of a power cut never count as damage, and every completed record is present.
    #[test]
    fn r21_a_power_cut_anywhere_leaves_a_log_that_opens_with_all_that_was_put() {
        let run = |disk: &MemoryDisk| {
            let mut done = 0;
            let Ok(mut log) = LogFile::create(place(disk.clone())) else {
                return (done, false);
            };
            let mut contents = LogContents::default();
            for (at, record) in records().into_iter().enumerate() {
                if at == 4 && log.rewrite(&contents).is_err() {
                    break;
                }
                if log.put(record, &mut contents).is_err() {
                    break;
                }
                done += 1;
            }
            log.mark_end();
            (done, true)
        };
        let disk = MemoryDisk::new();
        run(&disk);
        let expected: Vec<LogContents> = (0..=records().len()).map(|it| written(it).1).collect();
        for cut in 0..=disk.operations() {
            let disk = MemoryDisk::new();
            disk.cut_after(cut);
            let (done, is_created) = run(&disk);
            let drawn = (0..8).map(|seed| CrashOptions::drawn(cut * 8 + seed));
            for options in CrashOptions::extremes().into_iter().chain(drawn) {
                let image = disk.crash_image(options);
                if !is_created && image.info(Path::new("log")).unwrap().is_none() {
                    continue;
                }
                let mark = Some(Path::new("log.end"));
                let mut found = crate::check::check_directory(&image, Path::new(""), mark);
                // This log has no snapshots.
                found.retain(|it| it.file != Path::new("snapshot"));
                assert_eq!(found, [], "cut at {cut}, {options:?}");
                // Opened twice, with a power cut during the first opening.
                let opening = image.crash_image(CrashOptions::nothing_unsynced());
                opening.cut_after(cut % 7);
                let _cut_or_opened = open(&opening);
                for disk in [&image, &opening.crash_image(options), &image] {
                    let opened = open(disk);
                    let opened = opened.unwrap_or_else(|it| panic!("{it}: {cut} {options:?}"));
                    let is_expected = expected[done..].iter().any(|it| same(it, &opened));
                    assert!(is_expected, "cut at {cut}, {options:?}: {opened:?}");
                }
            }
        }
    }

    fn as_an_earlier_version_wrote(disk: &MemoryDisk) {
        let whole = bytes_of(disk, "log");
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT_WITHOUT_END.to_le_bytes());
        let sum = mask_checksum(checksum(&bytes));
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&whole[HEADER_BYTES..]);
        for path in ["end", "log.end"] {
            disk.remove_file(Path::new(path)).unwrap();
        }
        put_back(disk, "log", &bytes);
    }

    #[test]
    fn a_log_of_an_earlier_version_opens_and_has_its_end_marked_wherever_that_is_cut() {
        let before = || {
            let (disk, contents) = written(records().len());
            as_an_earlier_version_wrote(&disk);
            (disk.crash_image(CrashOptions::nothing_unsynced()), contents)
        };
        let (disk, contents) = before();
        assert!(same(&open(&disk).unwrap(), &contents));
        let operations = disk.operations();
        for cut in 0..=operations {
            let (disk, contents) = before();
            disk.cut_after(cut);
            let _cut_or_opened = open(&disk);
            for options in CrashOptions::extremes() {
                let image = disk.crash_image(options);
                assert!(same(&open(&image).unwrap(), &contents), "{cut} {options:?}");
                let whole = bytes_of(&image, "log");
                put_back(&image, "log", &whole[..whole.len() - 1]);
                assert!(open(&image).is_err(), "{cut} {options:?}");
            }
        }
        // On a full disk the log continues in the old format.
        let (full, mut contents) = before();
        let faulty = FaultyDisk::over_memory(&full);
        let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
        for mark in ["log.tmp", "end.tmp", "log.end.tmp"] {
            let rule = Rule::new(no_space).on(Operation::Write);
            faulty.add_rule(rule.path(Path::new(mark)));
        }
        let mut log = LogFile::open(place(faulty)).unwrap().0;
        log.put(LogRecord::Append(vec![entry(4)]), &mut contents)
            .unwrap();
        log.mark_end();
        drop(log);
        assert!(same(&open(&full).unwrap(), &contents));
        // A log that is put back later is an older copy.
        let (earlier, _) = before();
        put_back(&disk, "log", &bytes_of(&earlier, "log"));
        assert!(matches!(open(&disk), Err(OpenError::Older { .. })));
    }

    #[test]
    fn a_log_of_another_node_or_another_log_of_this_one_is_refused() {
        let (disk, _) = written(3);
        let of_node = |number| Place {
            node: NodeId::from_bytes([number; 16]),
            drawn: u64::from(number),
            ..place(MemoryDisk::new())
        };
        let other = MemoryDisk::new();
        let of_other = Place {
            disk: Arc::new(other.clone()),
            ..of_node(2)
        };
        LogFile::create(of_other).unwrap();
        let (log, mark) = (bytes_of(&disk, "log"), bytes_of(&disk, "end"));
        put_back(&disk, "log", &bytes_of(&other, "log"));
        assert!(matches!(open(&disk), Err(OpenError::OtherNode { .. })));
        put_back(&disk, "log", &log);
        let foreign = bytes_of(&other, "end");
        put_back(&disk, "end", &foreign);
        open(&disk).unwrap();
        let found = crate::check::check_directory(&disk, Path::new(""), Some(Path::new("log.end")));
        assert_eq!(found, []);
        // Simulates a log directory copied from another node.
        put_back(&disk, "log.end", &foreign);
        let refused = open(&disk).unwrap_err();
        assert!(matches!(refused, OpenError::MarkOfOtherNode { .. }));
        assert!(refused.to_string().contains("remove log.end"), "{refused}");
        disk.remove_file(Path::new("log.end")).unwrap();
        open(&disk).unwrap();
        put_back(&disk, "end", &mark);
        let again = MemoryDisk::new();
        let of_again = Place {
            drawn: 43,
            ..place(again.clone())
        };
        LogFile::create(of_again).unwrap();
        put_back(&disk, "log", &bytes_of(&again, "log"));
        assert!(matches!(open(&disk), Err(OpenError::OtherLog { .. })));
    }

    #[test]
    fn a_long_history_is_written_anew() {
        let disk = MemoryDisk::new();
        let mut log = LogFile::create(place(disk.clone())).unwrap();
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
        let (_, opened) = LogFile::open(place(disk)).unwrap();
        assert!(same(&opened, &contents));
    }
}
