//! Opening a value log: its segments, their contents, and the end of the newest one.
//!
//! The small file beside a sealed segment lists its contents. The few segments without one, left by
//! a crash, are read. The newest of those with records may be torn: it is cut behind its last whole
//! batch, and the rest is made durable before the first append to a later segment. All others were
//! synced before their successors were begun, so an error in them is damage. A missing number
//! without a note that it was dropped is damage as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result, Sequence, StoreId};
use kvorum_disk::{Disk, OpenMode, create_directory_durably};
use kvorum_segment::{
    FILE_HEADER_BYTES, ResumeAt, ScanEnd, ScanOptions, Scanned, SegmentAnatomy, SegmentError,
    SegmentId, SegmentReader, SegmentWriter, Tail, file_name, list_segments,
};

use crate::contents::{Contents, contents_path};
use crate::dropped::{Dropped, Settled, in_words};
use crate::error::{from_disk, from_segment};
use crate::identity::Identity;
use crate::log_segment::{Holding, LogSegment, SEGMENT_KIND};
use crate::record::split_front;

/// The directory for damaged files, below the log's.
pub(crate) const LOST_NAME: &str = "lost";

/// Findings and results of opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueLogOpening {
    /// Segments that were read from end to end, because their lists of contents are missing.
    pub segments_read: u64,
    /// Bytes behind the last whole batch that a crash cut short; they were never acknowledged.
    pub torn_bytes: u64,
    /// Descriptions of damaged durable places. Their contents may be lost.
    pub damage: Vec<String>,
}

/// An opened directory.
pub(crate) struct Opened {
    pub(crate) identity: Identity,
    pub(crate) segments: BTreeMap<u32, Arc<LogSegment>>,
    /// The numbers that were dropped, and those that are missing.
    pub(crate) dropped: Settled,
    /// The highest number that any file has, or had according to a note; 0 for none.
    pub(crate) newest_file: u32,
    /// The torn end that could not be cut for want of space.
    pub(crate) torn: Option<TornEnd>,
    pub(crate) report: ValueLogOpening,
}

/// Opens the log in `directory`; `log_id` is for a log that begins now.
pub(crate) fn open(disk: &dyn Disk, directory: &Path, log_id: u64) -> Result<Opened> {
    let found = disk.info(directory).map_err(|error| from_disk(&error))?;
    let mut identity = Identity::read(disk, directory)?;
    let numbers = match found {
        Some(_) => list_segments(disk, directory).map_err(|error| from_segment(&error))?,
        None => Vec::new(),
    };
    let noted = Dropped::read(disk, directory)?;
    let mut damage = Vec::new();
    if let Some(it) = &identity
        && is_of_another_log(disk, directory, &numbers, it.log_id)?
    {
        let (path, log) = (Identity::path(directory), it.log_id);
        let path = path.display();
        damage.push(format!(
            "{path} is of another log ({log:#018x}), of which no segment is here; the segments count"
        ));
        identity = None;
    }
    let known = known_id(disk, directory, identity.as_ref(), &numbers, noted.as_ref())?;
    let log_id = known.unwrap_or(log_id);
    let mut opening = Opening {
        disk,
        directory,
        log_id,
        torn: None,
        report: ValueLogOpening {
            damage,
            ..ValueLogOpening::default()
        },
    };
    let mut foreign = Vec::new();
    let mut files = Vec::new();
    for number in numbers {
        let number = u32::try_from(number).map_err(|_| {
            let detail = format!("segment {number} of the value log: numbers have 32 bits");
            BackendError::new(ErrorKind::Corrupt, detail)
        })?;
        match opening.open_file(number)? {
            Some(file) => files.push(file),
            None => foreign.push(number),
        }
    }
    let segments = opening.read_segments(files)?;
    let there = segments.keys().copied().collect();
    let dropped = Dropped::settle(noted, log_id, &there, &foreign.into_iter().collect());
    let reports = dropped.news.ranges().map(in_words);
    let reports = reports.map(|what| format!("{}: {what}", directory.display()));
    opening.report.damage.extend(reports);
    Ok(Opened {
        identity: identity.unwrap_or(Identity {
            log_id,
            erased: Default::default(),
        }),
        segments,
        newest_file: dropped.known.newest,
        dropped,
        torn: opening.torn,
        report: opening.report,
    })
}

/// The id of the log in `directory`; `None` if an opening would begin a new one. Nothing is
/// written.
///
/// # Errors
/// Those of the disk; [`ErrorKind::NewerFormat`].
pub fn find_log_id(disk: &dyn Disk, directory: &Path) -> Result<Option<u64>> {
    let found = disk.info(directory).map_err(|error| from_disk(&error))?;
    if found.is_none() {
        return Ok(None);
    }
    let numbers = list_segments(disk, directory).map_err(|error| from_segment(&error))?;
    let noted = Dropped::read(disk, directory)?;
    let identity = match Identity::read(disk, directory)? {
        Some(it) if is_of_another_log(disk, directory, &numbers, it.log_id)? => None,
        identity => identity,
    };
    known_id(disk, directory, identity.as_ref(), &numbers, noted.as_ref())
}

/// The log's id by its identity file, or else by its segments or by its note of dropped segments.
fn known_id(
    disk: &dyn Disk,
    directory: &Path,
    identity: Option<&Identity>,
    numbers: &[u64],
    noted: Option<&Dropped>,
) -> Result<Option<u64>> {
    if let Some(identity) = identity {
        return Ok(Some(identity.log_id));
    }
    let by_segments = log_id_of(disk, directory, numbers)?;
    Ok(by_segments.or(noted.map(|it| it.log_id)))
}

/// True if segments exist and all whole ones belong to another log: the identity file was restored
/// from elsewhere. With its id, every segment would be moved away.
fn is_of_another_log(
    disk: &dyn Disk,
    directory: &Path,
    numbers: &[u64],
    log_id: u64,
) -> Result<bool> {
    let mut is_any_whole = false;
    for number in numbers {
        let path = directory.join(file_name(*number));
        let header = SegmentAnatomy::header_id(disk, &path).map_err(|error| from_disk(&error))?;
        match header {
            Some(header) if header.log_id == log_id => return Ok(false),
            header => is_any_whole |= header.is_some(),
        }
    }
    Ok(is_any_whole)
}

/// The log's identity by its newest segment whose header is whole.
pub(crate) fn log_id_of(disk: &dyn Disk, directory: &Path, numbers: &[u64]) -> Result<Option<u64>> {
    for number in numbers.iter().rev() {
        let id = SegmentId {
            log_id: 0,
            number: *number,
            kind: SEGMENT_KIND,
        };
        let path = directory.join(file_name(*number));
        let reader = SegmentReader::open(disk, &path, id).map_err(|error| from_segment(&error))?;
        match reader.check_header() {
            Ok(_) => return Ok(Some(0)),
            Err(SegmentError::Foreign {
                got_log,
                got_number,
                ..
            }) if got_number == *number => return Ok(Some(got_log)),
            Err(SegmentError::Damaged { .. } | SegmentError::Foreign { .. }) => {}
            Err(error) => return Err(from_segment(&error)),
        }
    }
    Ok(None)
}

/// The newest segment after a crash, which has to be cut and made durable.
pub(crate) struct TornEnd {
    path: PathBuf,
    id: SegmentId,
    at: ResumeAt,
    rewrite_from: u64,
}

impl TornEnd {
    /// Cuts the segment behind its last whole batch, and makes the rest durable.
    pub(crate) fn end(&self, disk: &dyn Disk) -> std::result::Result<(), SegmentError> {
        let from = Some(self.rewrite_from);
        let mut writer = SegmentWriter::resume(disk, &self.path, self.id, self.at, from)?;
        match writer.seal() {
            // The segment stays without a seal: the next opening reads it once more.
            Err(error) if from_segment(&error).kind() == ErrorKind::Full => Ok(()),
            sealed => sealed.map(drop),
        }
    }
}

struct Opening<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    log_id: u64,
    torn: Option<TornEnd>,
    report: ValueLogOpening,
}

/// A segment's file.
struct File {
    number: u32,
    path: PathBuf,
    reader: SegmentReader,
    is_header_whole: bool,
    contents: Option<Contents>,
}

/// The result of reading a segment.
struct Read {
    holders: BTreeMap<StoreId, Holding>,
    at: ResumeAt,
    end: Option<ScanEnd>,
    damage: Vec<String>,
}

impl Opening<'_> {
    /// Opens a file; one of another log is moved away.
    fn open_file(&mut self, number: u32) -> Result<Option<File>> {
        let path = self.directory.join(file_name(u64::from(number)));
        let id = self.id(number);
        let reader =
            SegmentReader::open(self.disk, &path, id).map_err(|error| from_segment(&error))?;
        let is_header_whole = match reader.check_header() {
            Ok(_) => true,
            Err(SegmentError::Damaged { .. }) => false,
            Err(error @ SegmentError::Foreign { .. }) => {
                self.report.damage.push(error.to_string());
                self.put_aside(&path)?;
                return Ok(None);
            }
            Err(error) => return Err(from_segment(&error)),
        };
        let file_len = reader.file_len().map_err(|error| from_segment(&error))?;
        let contents = Contents::read(self.disk, &path, self.log_id, number, file_len);
        Ok(Some(File {
            number,
            path,
            reader,
            is_header_whole,
            contents,
        }))
    }

    /// Newest first: until one has records, each may be a new segment that a crash cut short.
    fn read_segments(&mut self, files: Vec<File>) -> Result<BTreeMap<u32, Arc<LogSegment>>> {
        let mut segments = BTreeMap::new();
        let mut is_proven = false;
        for file in files.into_iter().rev() {
            let (number, segment) = (file.number, self.read_file(&file, is_proven)?);
            is_proven |= segment.has_records();
            segments.insert(number, Arc::new(segment));
        }
        Ok(segments)
    }

    fn read_file(&mut self, file: &File, is_proven: bool) -> Result<LogSegment> {
        let segment =
            |end| LogSegment::found(file.number, file.path.clone(), file.reader.clone(), end);
        if let Some(contents) = &file.contents {
            let segment = segment(contents.data_end);
            segment.set_holders(contents.holders.clone());
            segment.set_listed();
            return Ok(segment);
        }
        self.report.segments_read += 1;
        let mut read = read(&file.reader, is_proven)?;
        let end = read.end.map_or(FILE_HEADER_BYTES, |end| end.clean_to);
        if !is_proven && !matches!(read.end.map(|end| end.tail), Some(Tail::Sealed(_))) {
            self.end_torn(file, &read)?;
        }
        // An empty file was being created at the crash.
        let is_begun = file
            .reader
            .file_len()
            .map_err(|error| from_segment(&error))?
            > 0;
        if !file.is_header_whole && is_begun && (is_proven || read.at.records > 0) {
            read.damage.push("the header of the file".to_owned());
        }
        // A segment without records counts as empty, wherever its file ends.
        let segment = segment(if read.at.records > 0 || is_proven {
            end
        } else {
            FILE_HEADER_BYTES
        });
        if !read.damage.is_empty() {
            segment.set_damaged();
            let path = file.path.display();
            let reports = read.damage.iter().map(|what| format!("{path}: {what}"));
            self.report.damage.extend(reports);
        }
        segment.set_holders(read.holders);
        Ok(segment)
    }

    /// Durably cuts everything behind a segment's header, and the header too if it is torn.
    fn cut_all(&self, file: &File) -> Result<()> {
        let kept = if file.is_header_whole {
            FILE_HEADER_BYTES
        } else {
            0
        };
        let cut = || {
            let file = self.disk.open(&file.path, OpenMode::ReadWrite)?;
            if file.len()? <= kept {
                return Ok(());
            }
            file.truncate(kept)?;
            file.sync()
        };
        cut().map_err(|error| from_disk(&error))
    }

    /// Durably cuts a segment behind its last whole batch.
    fn end_torn(&mut self, file: &File, read: &Read) -> Result<()> {
        let Some(end) = read.end else {
            return Ok(());
        };
        if let Tail::Torn { len } = end.tail {
            self.report.torn_bytes += len;
        }
        if read.at.records == 0 {
            // Its records were never synced. The file is kept, empty, for its number: otherwise
            // a later segment would seem to prove parts of a batch whose sequence is issued again.
            return self.cut_all(file);
        }
        let torn = TornEnd {
            path: file.path.clone(),
            id: self.id(file.number),
            at: ResumeAt {
                end: end.clean_to,
                ..read.at
            },
            rewrite_from: end.durable_to.clamp(FILE_HEADER_BYTES, end.clean_to),
        };
        match torn.end(self.disk).map_err(|error| from_segment(&error)) {
            // The cut has to precede all other writes.
            Err(error) if error.kind() == ErrorKind::Full => self.torn = Some(torn),
            ended => ended?,
        }
        Ok(())
    }

    fn id(&self, number: u32) -> SegmentId {
        SegmentId {
            log_id: self.log_id,
            number: u64::from(number),
            kind: SEGMENT_KIND,
        }
    }

    /// Moves a file out of the way of later openings; on a full disk it stays and is skipped.
    fn put_aside(&self, path: &Path) -> Result<()> {
        let lost = self.directory.join(LOST_NAME);
        let name = path.file_name().unwrap_or_default();
        let moved = create_directory_durably(self.disk, &lost)
            .and_then(|()| self.disk.rename(path, &lost.join(name)))
            .and_then(|()| self.disk.sync_directory(&lost))
            .and_then(|()| self.disk.sync_directory(self.directory));
        match moved {
            Err(error) if error.kind() != kvorum_disk::ErrorKind::NoSpace => Err(from_disk(&error)),
            _ => Ok(()),
        }
    }
}

/// Removes small files of missing segments.
pub(crate) fn remove_orphans(
    disk: &dyn Disk,
    directory: &Path,
    segments: &BTreeMap<u32, Arc<LogSegment>>,
) -> Result<()> {
    if segments.is_empty() {
        return Ok(());
    }
    let known: Vec<PathBuf> = segments
        .values()
        .map(|it| contents_path(&it.path))
        .collect();
    let extension = known.first().and_then(|path| path.extension());
    let entries = disk.list(directory).map_err(|error| from_disk(&error))?;
    for entry in entries {
        let path = directory.join(entry.name);
        if path.extension() == extension && !known.contains(&path) {
            disk.remove_file(&path).map_err(|error| from_disk(&error))?;
        }
    }
    Ok(())
}

fn read(reader: &SegmentReader, is_proven: bool) -> Result<Read> {
    let options = ScanOptions::durable_to(if is_proven { u64::MAX } else { 0 });
    let mut read = Read {
        holders: BTreeMap::new(),
        at: ResumeAt::default(),
        end: None,
        damage: Vec::new(),
    };
    let mut scan = reader.scan(options).map_err(|error| from_segment(&error))?;
    for scanned in scan.by_ref() {
        let record = match scanned.map_err(|error| from_segment(&error))? {
            Scanned::Record(record) => record,
            Scanned::Damage(damage) => {
                read.damage.push(damage.to_string());
                continue;
            }
        };
        let at = &mut read.at;
        let sequence = record.head.sequence;
        at.sequence_min = match at.records {
            0 => sequence,
            _ => at.sequence_min.min(sequence),
        };
        at.sequence_max = at.sequence_max.max(sequence);
        at.records += 1;
        match split_front(&record.head.front) {
            Some((store, _)) => Holding::note(&mut read.holders, store, Sequence(sequence)),
            None => {
                let offset = record.head.location.offset;
                let what = format!("the record at {offset} names no store");
                read.damage.push(what);
            }
        }
    }
    read.end = scan.end();
    Ok(read)
}
