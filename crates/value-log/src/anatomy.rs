//! The log's files taken apart for display: fronts of records, and the small files.

use std::path::Path;

use kvorum_backend::StoreId;
use kvorum_disk::anatomy::{Dissection, Field, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{checksum, mask_checksum};
use kvorum_segment::{RecordFront, SegmentAnatomy, file_name};

use crate::dropped::{self, Dropped, Numbers};
use crate::error::from_disk;
use crate::identity::Identity;
use crate::opening::log_id_of;
use crate::small_file::FILE_BYTES_MAX;
use crate::{contents, identity, losses};

pub use crate::dropped::in_words;

/// The kind in the headers of the value log's segments.
pub const VALUE_LOG_KIND: u8 = crate::log_segment::SEGMENT_KIND;

/// Kinds of the value log's files other than segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLogFile {
    /// The log's identity, and the stores that were erased.
    Identity,
    /// Contents of a sealed segment.
    Contents,
    /// Numbers of the segments that the log dropped.
    Dropped,
    /// Batches that are known to be lost.
    LostBatches,
}

impl ValueLogFile {
    /// The kind of a file by its first 8 bytes.
    pub fn of_magic(magic: &[u8]) -> Option<Self> {
        [
            Self::Identity,
            Self::Contents,
            Self::Dropped,
            Self::LostBatches,
        ]
        .into_iter()
        .find(|it| it.magic() == magic)
    }

    /// The kind of a file by its name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            identity::NAME => Some(Self::Identity),
            dropped::NAME => Some(Self::Dropped),
            losses::NAME => Some(Self::LostBatches),
            _ if name.ends_with(".contents") => Some(Self::Contents),
            _ => None,
        }
    }

    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Identity => &identity::MAGIC,
            Self::Contents => &contents::MAGIC,
            Self::Dropped => &dropped::MAGIC,
            Self::LostBatches => &losses::MAGIC,
        }
    }

    /// Takes a file apart.
    pub fn piece(self, disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
        let bytes = read_file(disk, path, FILE_BYTES_MAX)?;
        let covered = bytes.len().saturating_sub(4);
        let mut fields = Dissection::new(&bytes, 0);
        fields.magic(self.magic());
        fields.number("format version", 1);
        fields.number("zero", 3);
        fields.identity("log id", 8);
        let row: (&[&str], usize) = match self {
            Self::Identity => {
                fields.number("number of stores", 4);
                (&["erased store"], 8)
            }
            Self::LostBatches => {
                fields.number("number of stores", 4);
                (&["store", "its last batch that is lost"], 8)
            }
            Self::Contents => {
                fields.number("number of the segment", 4);
                fields.number("length of the segment's file", 8);
                fields.number("where its last record ends", 8);
                fields.number("number of stores", 4);
                (&["store", "its first batch", "its last batch"], 8)
            }
            Self::Dropped => {
                fields.number("highest number that had a file", 4);
                fields.number("dropped ranges", 4);
                fields.number("ranges that are missing, behind them", 4);
                (&["first segment", "last segment"], 4)
            }
        };
        let (names, len) = row;
        while fields.position() + len * names.len() <= covered {
            for name in names {
                fields.number(name, len);
            }
        }
        let rest = covered.saturating_sub(fields.position());
        fields.bytes("rest", rest);
        let computed = mask_checksum(checksum(&bytes[..covered]));
        fields.checksum("checksum of the file", computed);
        fields.nothing_more();
        Ok(fields.finish(match self {
            Self::Identity => "identity of the value log",
            Self::Contents => "contents of a segment",
            Self::Dropped => "segments that the value log has dropped",
            Self::LostBatches => "batches that the value log has lost",
        }))
    }
}

/// Segments of a value log that neither exist nor were dropped, as ranges of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingSegments {
    /// Missing segments that the next opening will report.
    pub unreported: Vec<(u32, u32)>,
    /// Missing segments that an opening has reported.
    pub reported: Vec<(u32, u32)>,
}

/// Segments of a value log that is not open.
pub struct KnownSegments {
    there: Numbers,
    /// The same numbers as a list, in order.
    numbers: Vec<u64>,
    /// `None` for a log without a note of dropped segments, or with a damaged one: then no segment
    /// counts as missing.
    noted: Option<Dropped>,
}

impl KnownSegments {
    /// Reads the small files of a log with these segments.
    ///
    /// While the log is in use, segments have to be listed before this call, and the store's
    /// references to segments have to be read before they are listed.
    ///
    /// # Errors
    /// Those of the disk; [`kvorum_backend::ErrorKind::NewerFormat`].
    pub fn read(
        disk: &dyn Disk,
        directory: &Path,
        mut there: &[u64],
    ) -> kvorum_backend::Result<Self> {
        let noted = Dropped::read(disk, directory)?;
        let of_note = noted.as_ref().map(|it| it.log_id);
        // A stray file makes nothing missing below its number.
        while let (Some(log_id), Some((number, below))) = (of_note, there.split_last())
            && is_of_another_log(disk, directory, log_id, *number)?
        {
            there = below;
        }
        let numbers = there.to_vec();
        let there = there.iter().filter_map(|it| u32::try_from(*it).ok());
        Ok(Self {
            there: there.collect(),
            numbers,
            noted,
        })
    }

    /// True for the log of this id, and for a log without a file that names its id.
    ///
    /// # Errors
    /// As for [`KnownSegments::read`].
    pub fn may_be_of(
        &self,
        disk: &dyn Disk,
        directory: &Path,
        log_id: u64,
    ) -> kvorum_backend::Result<bool> {
        let identity = Identity::read(disk, directory)?.map(|it| it.log_id);
        let known = identity.or_else(|| Some(self.noted.as_ref()?.log_id));
        let known = match known {
            Some(known) => Some(known),
            None => log_id_of(disk, directory, &self.numbers)?,
        };
        Ok(known.is_none_or(|known| known == log_id))
    }

    /// The segments that the log lacks.
    pub fn missing(&self) -> MissingSegments {
        let Some(noted) = &self.noted else {
            return MissingSegments::default();
        };
        let missing = noted.missing_beside(&self.there);
        let unreported = missing.without(&noted.missing);
        MissingSegments {
            reported: missing.without(&unreported).ranges().collect(),
            unreported: unreported.ranges().collect(),
        }
    }

    /// False for a segment that neither exists, nor was dropped, nor was reported as missing.
    pub fn is_accounted_for(&self, segment: u32) -> bool {
        let is_noted =
            |noted: &Dropped| noted.dropped.contains(segment) || noted.missing.contains(segment);
        self.there.contains(segment) || self.noted.as_ref().is_none_or(is_noted)
    }
}

fn is_of_another_log(
    disk: &dyn Disk,
    directory: &Path,
    log_id: u64,
    number: u64,
) -> kvorum_backend::Result<bool> {
    let path = directory.join(file_name(number));
    let found = SegmentAnatomy::header_id(disk, &path).map_err(|error| from_disk(&error))?;
    Ok(found.is_some_and(|id| (id.log_id, id.number) != (log_id, number)))
}

/// Takes apart the value log's prefix of an engine's front; `engine` takes apart the rest.
pub fn dissect_value_log_front(
    front: &RecordFront<'_>,
    engine: kvorum_segment::DissectFront,
) -> Option<Vec<Field>> {
    const PREFIX_BYTES: usize = size_of::<StoreId>();
    if front.bytes.len() < PREFIX_BYTES {
        return None;
    }
    let own = front.bytes.slice(PREFIX_BYTES..);
    let mut prefix = Dissection::new(&front.bytes[..PREFIX_BYTES], front.offset);
    prefix.identity("store identity", PREFIX_BYTES);
    let mut fields = prefix.finish("").fields;
    let offset = front.offset + PREFIX_BYTES as u64;
    let inner = RecordFront {
        offset,
        bytes: &own,
        ..*front
    };
    let known = engine(&inner);
    fields.extend(known.unwrap_or_else(|| {
        let mut plain = Dissection::new(&own, offset);
        plain.bytes("engine's front", own.len());
        plain.finish("").fields
    }));
    Some(fields)
}
