//! Reading a segment from end to end, damage included.
//!
//! At the end of a file, a record torn by a crash and a corrupt record look alike. The torn one was
//! never promised and is cut; the corrupt one is reported, and the records behind it are served.
//! Three facts distinguish them: a sealed segment was once whole; each record has the synced length
//! of its segment at the time of its writing, below which damage is corruption; and the caller may
//! have further proof (a checkpoint, or a later segment). Damage that no fact proves to be
//! corruption is cut.

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use kvorum_disk::Reading;

use crate::reader::{check_front, stored_front, stored_record};
use crate::record::{
    Purpose, RECORD_HEADER_BYTES, RecordHeader, aligned, decode_header, find_header,
};
use crate::seal::SEAL_BYTES;
use crate::torn_end::is_of_seal_or_mark;
use crate::{
    FILE_HEADER_BYTES, RECORD_ALIGN_BYTES, Result, Seal, SegmentReader, StoredFront, StoredRecord,
};

/// Bytes of one read.
const WINDOW_BYTES: u64 = 512 << 10;
/// The fewest bytes of one read: less would mean many reads.
const WINDOW_BYTES_MIN: u64 = 16 << 10;
const ALIGN: usize = 8;
const _: () = assert!(ALIGN as u64 == RECORD_ALIGN_BYTES);

/// The start of a scan, and facts from its caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanOptions {
    /// The start of the first record to read; any offset before the first record means that record.
    pub from: u64,
    /// All bytes below were certainly durable, and damage there is corruption. [`u64::MAX`] means
    /// all records up to any end: zeros up to the end of the file are then the end, and so are the
    /// remains of a seal or a mark after a power cut.
    pub durable_to: u64,
    /// The end of a record at which the scan stops as at the end of the file, for reading while a
    /// writer appends.
    pub until: Option<u64>,
}

impl ScanOptions {
    /// Options for all records, of which those below `durable_to` were certainly durable.
    pub fn durable_to(durable_to: u64) -> Self {
        Self {
            durable_to,
            ..Self::default()
        }
    }
}

/// An item of a scan.
#[derive(Clone, Debug)]
pub enum Scanned {
    /// A whole record, checked.
    Record(StoredRecord),
    /// Bytes that were durable and are wrong.
    Damage(Damage),
}

/// A range of a segment that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its first byte.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// The finding as text.
    pub found: String,
    /// The readable rest of the range.
    pub remains: Remains,
}

/// The readable rest of a damaged range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing: the contents and the number of records are unknown.
    Nothing,
    /// The header of the range's only record, with its sequence.
    Header {
        /// The writer's order.
        sequence: u64,
    },
    /// The front of the range's only record, of which the back is damaged.
    Front(StoredFront),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}: {}", self.len, self.offset, self.found)
    }
}

/// The end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// A seal.
    Sealed(Seal),
    /// The end behind the last record, or reserved zeros.
    Open,
    /// Unpromised bytes: a record or a batch that a crash cut short.
    Torn {
        /// The number of bytes.
        len: u64,
    },
}

/// The result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// The end of the whole records: a writer continues here.
    pub clean_to: u64,
    /// The kind of the end.
    pub tail: Tail,
    /// All bytes below this are proven to have been durable.
    pub durable_to: u64,
}

/// An iterator over the records of a segment. A batch that a crash cut short is left out as a
/// whole.
pub struct Scan {
    reader: SegmentReader,
    window: Bytes,
    window_at: u64,
    /// The number of bytes of one read.
    window_bytes: u64,
    position: u64,
    /// The end of records: the seal, or the end of the file.
    limit: u64,
    /// Damage below this is corruption.
    durable_to: u64,
    seal: Option<Seal>,
    batch: Vec<StoredRecord>,
    /// The offset of bad bytes that were read again: a device may return wrong data once, and a cut
    /// would be final.
    read_again_at: Option<u64>,
    /// The scan is just behind damage, where a batch may begin in its middle.
    is_behind_damage: bool,
    ready: VecDeque<Scanned>,
    end: Option<ScanEnd>,
}

/// The finding at one place.
enum Found {
    Record(StoredRecord, u64),
    Mark(u64),
    Seal,
    /// Zeros or the end of the file.
    Nothing,
    /// No record; `next` is the start of the following record if the header is right.
    Bad {
        found: String,
        next: Option<u64>,
        remains: Remains,
    },
}

impl Found {
    fn unknown(found: &str) -> Self {
        Self::Bad {
            found: found.to_owned(),
            next: None,
            remains: Remains::Nothing,
        }
    }
}

impl SegmentReader {
    /// Reads all records in order, and distinguishes torn tails from corruption.
    pub fn scan(&self, options: ScanOptions) -> Result<Scan> {
        Scan::new(self.clone(), options)
    }
}

impl Scan {
    fn new(reader: SegmentReader, options: ScanOptions) -> Result<Self> {
        let file_len = reader.file_len()?;
        let limit = options.until.map_or(file_len, |until| until.min(file_len));
        let from = aligned(options.from.max(FILE_HEADER_BYTES));
        let durable_to = options
            .until
            .map_or(options.durable_to, |until| options.durable_to.min(until));
        let mut scan = Self::over(reader, from, limit, durable_to);
        if limit == file_len
            && let Some(seal) = scan.find_seal()?
        {
            scan.limit = seal.data_end;
            scan.durable_to = u64::MAX;
            scan.seal = Some(seal);
        }
        Ok(scan)
    }

    fn over(reader: SegmentReader, position: u64, limit: u64, durable_to: u64) -> Self {
        Self {
            reader,
            window: Bytes::new(),
            window_at: 0,
            window_bytes: WINDOW_BYTES,
            position,
            limit,
            durable_to,
            seal: None,
            batch: Vec::new(),
            read_again_at: None,
            is_behind_damage: false,
            ready: VecDeque::new(),
            end: None,
        }
    }

    /// Sets the number of bytes of one read, within bounds, for callers that work in steps.
    pub fn set_read_ahead(&mut self, bytes: u64) {
        self.window_bytes = bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES);
    }

    /// Reads about this many bytes to find damage. Returns their number, and true at the end.
    pub fn check(&mut self, bytes: u64, mut damaged: impl FnMut(Damage)) -> Result<(u64, bool)> {
        let mut read_bytes = 0;
        while read_bytes < bytes || read_bytes == 0 {
            match self.next().transpose()? {
                None => return Ok((read_bytes, true)),
                Some(Scanned::Record(record)) => read_bytes += record.head.location.len,
                Some(Scanned::Damage(damage)) => {
                    read_bytes += damage.len;
                    damaged(damage);
                }
            }
        }
        Ok((read_bytes, false))
    }

    /// The end of the segment, once the iterator is exhausted.
    pub fn end(&self) -> Option<ScanEnd> {
        self.end
    }

    /// The seal, if there is one; it is read at the start.
    pub fn seal(&self) -> Option<Seal> {
        self.seal
    }

    /// The bytes read so far.
    pub fn read_to(&self) -> u64 {
        self.position
    }

    fn find_seal(&mut self) -> Result<Option<Seal>> {
        let Some(at) = self.limit.checked_sub(SEAL_BYTES) else {
            return Ok(None);
        };
        if at % RECORD_ALIGN_BYTES != 0 {
            return Ok(None);
        }
        let seal = match self.look_at(at)? {
            Found::Seal => self.seal_at(at)?,
            _ => None,
        };
        Ok(seal.filter(|seal| seal.data_end == at))
    }

    fn seal_at(&mut self, at: u64) -> Result<Option<Seal>> {
        let bytes = self.bytes(at, SEAL_BYTES)?;
        let front = bytes.get(RECORD_HEADER_BYTES..);
        Ok(front.and_then(Seal::decode))
    }

    /// Reads on until an item is ready or the end is known.
    fn advance(&mut self) -> Result<()> {
        let at = self.position;
        if at >= self.limit {
            self.finish(at, self.seal.map_or(Tail::Open, Tail::Sealed));
            return Ok(());
        }
        match self.look_at(at)? {
            Found::Record(record, next) => {
                if self.is_orphan(&record) {
                    let len = self.limit.saturating_sub(at);
                    self.finish(at, Tail::Torn { len });
                } else {
                    self.position = next;
                    self.take(record);
                }
                Ok(())
            }
            Found::Mark(next) => {
                self.position = next;
                Ok(())
            }
            Found::Seal => {
                // Only a seal at the very end of the file is valid; another one was written without
                // the cut that should have followed.
                let seal = self.seal_at(at)?.filter(|seal| seal.data_end == at);
                self.finish(at, seal.map_or(Tail::Open, Tail::Sealed));
                Ok(())
            }
            Found::Bad { .. } | Found::Nothing if self.read_again_at != Some(at) => {
                self.read_again_at = Some(at);
                self.window = Bytes::new();
                Ok(())
            }
            Found::Nothing => {
                let found = "zeros where a record should be".to_owned();
                self.meet_damage(at, found, None, Remains::Nothing)
            }
            Found::Bad {
                found,
                next,
                remains,
            } => self.meet_damage(at, found, next, remains),
        }
    }

    /// Decides between corruption, torn tail and end when there is no record at `at`.
    fn meet_damage(
        &mut self,
        at: u64,
        found: String,
        next: Option<u64>,
        remains: Remains,
    ) -> Result<()> {
        let resumes_at = match next {
            Some(next) if self.is_record(next)? => Some(next),
            _ => self.find_record(aligned(at + 1))?,
        };
        if at >= self.durable_to
            && let Some(resumes_at) = resumes_at
        {
            self.durable_to = self.durable_to.max(self.latest_mark(resumes_at)?);
        }
        let damage_end = resumes_at.unwrap_or(self.limit.min(self.durable_to));
        let is_zero = resumes_at.is_none() && self.is_zero_to_end(at)?;
        let is_end_unknown = self.seal.is_none() && self.durable_to > self.limit;
        let is_end = is_end_unknown && resumes_at.is_none() && self.is_end_torn_at(at, is_zero)?;
        let is_damage = at < self.durable_to && damage_end > at && !is_end;
        if is_damage {
            self.flush_batch();
            self.is_behind_damage = true;
            self.ready.push_back(Scanned::Damage(Damage {
                offset: at,
                len: damage_end - at,
                found,
                remains: match next {
                    Some(next) if next == aligned(damage_end) => remains,
                    _ => Remains::Nothing,
                },
            }));
            self.position = aligned(damage_end);
            return Ok(());
        }
        let tail = if is_zero {
            Tail::Open
        } else {
            let len = self.limit.saturating_sub(at);
            Tail::Torn { len }
        };
        self.finish(at, tail);
        Ok(())
    }

    /// True when the bytes from here to the end of the file are possible although all records were
    /// durable: zeros, or a part of a seal or a mark.
    fn is_end_torn_at(&mut self, at: u64, is_zero: bool) -> Result<bool> {
        if is_zero {
            return Ok(true);
        }
        let len = SEAL_BYTES.min(self.limit.saturating_sub(at));
        let bytes = self.bytes(at, len)?;
        Ok(is_of_seal_or_mark(&bytes, at) && self.is_zero_to_end(at + len)?)
    }

    /// True for the rest of a batch whose start was overwritten after its append had failed.
    fn is_orphan(&self, record: &StoredRecord) -> bool {
        record.head.batch.is_continued()
            && self.batch.is_empty()
            && !self.is_behind_damage
            && record.head.location.offset >= self.durable_to
    }

    fn take(&mut self, record: StoredRecord) {
        let place = record.head.batch;
        if !place.is_continued() {
            // A batch without an end in front of another batch was abandoned by its writer.
            self.drop_or_flush_batch();
        }
        self.batch.push(record);
        if !place.continues() {
            self.is_behind_damage = false;
            self.flush_batch();
        }
    }

    fn flush_batch(&mut self) {
        let records = self.batch.drain(..).map(Scanned::Record);
        self.ready.extend(records);
    }

    fn drop_or_flush_batch(&mut self) {
        let is_promised = self
            .batch
            .first()
            .is_some_and(|first| first.head.location.offset < self.durable_to);
        if is_promised {
            self.flush_batch();
        } else {
            self.batch.clear();
        }
    }

    fn finish(&mut self, at: u64, tail: Tail) {
        let begun_at = self.batch.first().map(|first| first.head.location.offset);
        let end = match begun_at {
            Some(begun_at) if begun_at >= self.durable_to => ScanEnd {
                clean_to: begun_at,
                tail: Tail::Torn {
                    len: self.limit.saturating_sub(begun_at),
                },
                durable_to: self.durable_to,
            },
            _ => ScanEnd {
                clean_to: at,
                tail,
                durable_to: self.durable_to,
            },
        };
        self.drop_or_flush_batch();
        self.end = Some(end);
    }

    fn look_at(&mut self, at: u64) -> Result<Found> {
        let bytes = self.bytes(at, RECORD_HEADER_BYTES as u64)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Found::Nothing);
        }
        let Some(header) = decode_header(&bytes, self.reader.seed(), at) else {
            return Ok(Found::unknown("no record header"));
        };
        let end = at + header.len();
        if end > self.limit {
            return Ok(Found::unknown("record beyond the end of the segment"));
        }
        let whole = self.bytes(at, header.len())?;
        // The header may have been read again, and the checksum covers only these bytes.
        if decode_header(&whole, self.reader.seed(), at) != Some(header) {
            return Ok(Found::unknown("no record header"));
        }
        Ok(self.judge(&header, whole, at, aligned(end)))
    }

    fn judge(&mut self, header: &RecordHeader, whole: Bytes, at: u64, next: u64) -> Found {
        let bad = |error: crate::SegmentError, remains| Found::Bad {
            found: error.to_string(),
            next: Some(next),
            remains,
        };
        if whole.len() as u64 != header.len() {
            return Found::unknown("record cut short");
        }
        if let Err(error) = check_front(header, &whole, at, self.reader.path()) {
            let remains = match header.purpose {
                Purpose::Data => Remains::Header {
                    sequence: header.sequence,
                },
                Purpose::Mark | Purpose::Seal => Remains::Nothing,
            };
            return bad(error, remains);
        }
        self.durable_to = self.durable_to.max(header.synced_to.min(at));
        match header.purpose {
            Purpose::Mark => Found::Mark(next),
            Purpose::Seal => Found::Seal,
            Purpose::Data => match stored_record(header, whole.clone(), at, self.reader.path()) {
                Ok(record) => Found::Record(record, next),
                Err(error) => bad(error, Remains::Front(stored_front(header, whole, at))),
            },
        }
    }

    fn is_record(&mut self, at: u64) -> Result<bool> {
        let is_record = matches!(
            self.look_at(at)?,
            Found::Record(..) | Found::Mark(_) | Found::Seal
        );
        Ok(is_record)
    }

    /// The first place at or behind `from` with a whole record.
    fn find_record(&mut self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at + RECORD_HEADER_BYTES as u64 <= self.limit {
            let rest = self.limit - at;
            let bytes = self.bytes(at, rest.min(WINDOW_BYTES))?;
            match find_header(&bytes, self.reader.seed(), at) {
                Some(index) => {
                    let found_at = at + index as u64;
                    if self.is_record(found_at)? {
                        return Ok(Some(found_at));
                    }
                    at = found_at + RECORD_ALIGN_BYTES;
                }
                None => {
                    let step = bytes.len().saturating_sub(RECORD_HEADER_BYTES) / ALIGN * ALIGN;
                    at += (step as u64).max(RECORD_ALIGN_BYTES);
                }
            }
        }
        Ok(None)
    }

    /// The highest synced-to of the records at or behind `from`.
    fn latest_mark(&self, from: u64) -> Result<u64> {
        let mut ahead = Self::over(self.reader.clone(), from, self.limit, 0);
        let mut at = Some(from);
        while let Some(here) = at {
            at = match ahead.look_at(here)? {
                Found::Record(_, next) | Found::Mark(next) => Some(next),
                Found::Bad {
                    next: Some(next), ..
                } if ahead.is_record(next)? => Some(next),
                _ => ahead.find_record(here + RECORD_ALIGN_BYTES)?,
            };
        }
        Ok(ahead.durable_to)
    }

    fn is_zero_to_end(&mut self, from: u64) -> Result<bool> {
        let mut at = from;
        while at < self.limit {
            let bytes = self.bytes(at, (self.limit - at).min(WINDOW_BYTES))?;
            if bytes.is_empty() {
                return Ok(true);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Returns `len` bytes at `at`, or fewer at the end of the file.
    fn bytes(&mut self, at: u64, len: u64) -> Result<Bytes> {
        let end = at.saturating_add(len);
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || end > window_end {
            self.fill(at, len)?;
        }
        let start = index_of(at.saturating_sub(self.window_at)).min(self.window.len());
        let stop = index_of(end.saturating_sub(self.window_at)).min(self.window.len());
        Ok(self.window.slice(start..stop))
    }

    fn fill(&mut self, at: u64, len: u64) -> Result<()> {
        let rest = self.reader.file_len()?.saturating_sub(at);
        let len = index_of(len.max(self.window_bytes).min(rest));
        let mut window = BytesMut::zeroed(len);
        // The start of a record that did not fit the window is not read twice.
        let start = index_of(at.wrapping_sub(self.window_at)).min(self.window.len());
        let kept = self.window.slice(start..);
        let kept = &kept[..kept.len().min(len)];
        window[..kept.len()].copy_from_slice(kept);
        let read = self.reader.file().read_at(
            &mut window[kept.len()..],
            at + kept.len() as u64,
            Reading::MayBlock,
        )?;
        window.truncate(kept.len() + read);
        self.window = window.freeze();
        self.window_at = at;
        Ok(())
    }
}

/// A distance as an index, within a window or within a record that fits the file.
fn index_of(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}

impl Iterator for Scan {
    type Item = Result<Scanned>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if self.end.is_some() {
                return None;
            }
            if let Err(error) = self.advance() {
                // A failure of the disk ends the scan: another read would only repeat the failure.
                self.end = Some(ScanEnd {
                    clean_to: self.position,
                    tail: Tail::Open,
                    durable_to: self.durable_to,
                });
                return Some(Err(error));
            }
        }
    }
}
