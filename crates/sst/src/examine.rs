//! Reading a whole table once, from its first byte to its last, for checks and repairs.
//!
//! Frames are read in the order of the file and in large pieces, the fastest way on a device. The
//! index is not used: the frames prove the index.

use std::path::Path;

use bytes::Bytes;
use kvorum_disk::{Disk, OpenMode, Reading};
use kvorum_encoding::ByteReader;

use crate::footer::{FILE_HEADER_BYTES, FOOTER_BYTES, Footer, check_file_header, header_id};
use crate::frame::{ChecksumSeed, FRAME_HEADER_BYTES, FrameReader, decode_frame_header};
use crate::salvage::next_frame;
use crate::window::Window;
use crate::{Block, BlockCursor, BlockHandle, Part, Properties, Result, SstError, TableId};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// The most bad ranges of a table that are listed one by one.
const BAD_RANGES_MAX: usize = 1_000;

/// A range of wrong bytes in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRange {
    /// The first byte.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// The finding as text.
    pub found: String,
}

/// The result of reading a whole table.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// The length of the read part of the file, in bytes.
    pub file_len: u64,
    /// The properties in the file, if readable.
    pub properties: Option<Properties>,
    /// The writer finished the file: the parts at its end exist.
    pub is_finished: bool,
    /// Bytes of whole data blocks with their frames.
    pub data_bytes: u64,
    /// Entries in whole data blocks; 0 if they were not requested.
    pub entries: u64,
    /// Damaged ranges, in the order of the file. Empty for a whole table.
    pub bad: Vec<BadRange>,
}

/// The callback for the entries passed: key and value.
pub type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// Reads a table and checks every byte up to `len_max`. Entries are decompressed if `each` is
/// given. `progress` gets the number of bytes read.
///
/// # Errors
/// Those of the disk, [`SstError::Foreign`] and [`SstError::NewerFormat`]. Damage is not an error.
pub fn examine(
    disk: &dyn Disk,
    path: &Path,
    id: TableId,
    len_max: u64,
    each: Option<&mut EachEntry<'_>>,
    progress: &dyn Fn(u64),
) -> Result<Examination> {
    let file = disk.open(path, OpenMode::Read)?;
    let file_len = file.len()?.min(len_max);
    let reader = FrameReader {
        has_bad_sectors: true,
        ..FrameReader::new(file, &id, file_len)
    };
    let mut examiner = Examiner {
        reader,
        id,
        window: Window::default(),
        each,
        last_key: None,
        found: Examination {
            file_len,
            ..Examination::default()
        },
    };
    examiner.header()?;
    // A cut file may have blocks in the place of its footer.
    let to = match examiner.has_footer()? {
        true => file_len.saturating_sub(FOOTER_BYTES),
        false => file_len,
    };
    examiner.frames(to, progress)?;
    if to == file_len {
        examiner.no_footer();
    } else if examiner.found.properties.is_none() && examiner.found.bad.is_empty() {
        examiner.bad(to, FOOTER_BYTES, "a table without properties");
    }
    Ok(examiner.found)
}

/// The store that a table names in its header. A damaged header is valid if the first block proves
/// it.
pub fn claimed_store(disk: &dyn Disk, path: &Path, number: u64) -> Result<Option<u64>> {
    let file = disk.open(path, OpenMode::Read)?;
    let file_len = file.len()?;
    let reader = FrameReader::new(file, &TableId { store: 0, number }, file_len);
    let header_len = usize::try_from(FILE_HEADER_BYTES).unwrap_or(usize::MAX);
    let header = reader.read_readable(0, header_len, Reading::MayBlock)?;
    if let Some(id) = header_id(&header, path) {
        return Ok((id.number == number).then_some(id.store));
    }
    let frame = reader.read_readable(FILE_HEADER_BYTES, FRAME_HEADER_BYTES, Reading::MayBlock)?;
    let store = header.get(12..20).and_then(|it| it.try_into().ok());
    let Some(store) = store.map(u64::from_le_bytes) else {
        return Ok(None);
    };
    let seed = ChecksumSeed::of(&TableId { store, number });
    let is_proven = decode_frame_header(&frame, seed, FILE_HEADER_BYTES).is_some();
    Ok(is_proven.then_some(store))
}

struct Examiner<'a, 'e> {
    reader: FrameReader,
    id: TableId,
    window: Window,
    each: Option<&'a mut EachEntry<'e>>,
    last_key: Option<Vec<u8>>,
    found: Examination,
}

impl Examiner<'_, '_> {
    fn bad(&mut self, offset: u64, len: u64, found: impl Into<String>) {
        if self.found.bad.len() < BAD_RANGES_MAX {
            self.found.bad.push(BadRange {
                offset,
                len,
                found: found.into(),
            });
        }
    }

    fn header(&mut self) -> Result<()> {
        let len = usize::try_from(FILE_HEADER_BYTES).unwrap_or(usize::MAX);
        let check = || {
            let bytes = self.reader.read_readable(0, len, Reading::MayBlock)?;
            check_file_header(&bytes, &self.id, self.reader.path())
        };
        let checked = match check() {
            Err(SstError::Damaged { .. }) => check(),
            checked => checked,
        };
        match checked {
            Err(error @ SstError::Damaged { .. }) => {
                let len = FILE_HEADER_BYTES.min(self.reader.file_len);
                self.bad(0, len, error.to_string());
                Ok(())
            }
            checked => checked,
        }
    }

    fn frames(&mut self, to: u64, progress: &dyn Fn(u64)) -> Result<()> {
        let (mut at, mut reported) = (FILE_HEADER_BYTES, 0);
        loop {
            let (reader, window) = (&self.reader, &mut self.window);
            let next = next_frame(reader, window, at..to, READ_BYTES, Reading::MayBlock)?;
            let start = next.map_or(to, |(_, handle)| handle.offset);
            if at < start {
                self.bad(at, start - at, "no block begins in it");
            }
            let Some((part, handle)) = next else {
                break;
            };
            self.frame(part, handle)?;
            at = handle.end();
            if at - reported >= READ_BYTES as u64 {
                progress(at - reported);
                reported = at;
            }
        }
        progress(self.reader.file_len.saturating_sub(reported));
        Ok(())
    }

    fn frame(&mut self, part: Part, handle: BlockHandle) -> Result<()> {
        let len = usize::try_from(handle.len).unwrap_or(usize::MAX);
        let reader = &self.reader;
        if self.window.held(handle.offset, len).is_none() {
            let wanted = len.max(READ_BYTES);
            self.window
                .fill(reader, handle.offset, wanted, Reading::MayBlock)?;
        }
        let held = self.window.held(handle.offset, len);
        let opened = held.and_then(|bytes| reader.open_frame(&bytes, handle, part).ok());
        let payload = match opened {
            Some(payload) => payload,
            // A device may return wrong data once.
            None => match reader.read_block(handle, part, Reading::MayBlock) {
                Ok(payload) => payload,
                Err(error @ SstError::Damaged { .. }) => {
                    self.bad(handle.offset, u64::from(handle.len), error.to_string());
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        match part {
            Part::Data => {
                self.found.data_bytes += u64::from(handle.len);
                self.entries(payload, handle);
            }
            Part::Properties => match Properties::decode(&mut ByteReader::new(&payload)) {
                Ok(properties) => {
                    self.found.is_finished = true;
                    self.found.properties = Some(properties);
                }
                Err(_) => {
                    let found = "properties with a good checksum that do not decode";
                    self.bad(handle.offset, u64::from(handle.len), found);
                }
            },
            Part::TopIndex => self.found.is_finished = true,
            _ => {}
        }
        Ok(())
    }

    fn entries(&mut self, payload: Bytes, handle: BlockHandle) {
        let Some(each) = &mut self.each else {
            return;
        };
        let passed = Block::of_entries(payload).and_then(|block| {
            let mut cursor = BlockCursor::new(block);
            let mut is_ordered = true;
            while cursor.advance()? {
                let last = self.last_key.get_or_insert_default();
                is_ordered &= self.found.entries == 0 || &last[..] < cursor.key();
                last.clear();
                last.extend_from_slice(cursor.key());
                self.found.entries += 1;
                each(cursor.key(), cursor.value());
            }
            Ok(is_ordered)
        });
        let found = match passed {
            Ok(true) => return,
            Ok(false) => "entries out of order",
            Err(_) => "a block with a good checksum that does not decode",
        };
        self.bad(handle.offset, u64::from(handle.len), found);
    }

    fn has_footer(&mut self) -> Result<bool> {
        let at = self.reader.file_len.saturating_sub(FOOTER_BYTES);
        let len = usize::try_from(FOOTER_BYTES).unwrap_or(usize::MAX);
        for _attempt in 0..2 {
            let bytes = self.reader.read_readable(at, len, Reading::MayBlock)?;
            if Footer::decode(&bytes, &self.id).is_some() {
                self.found.is_finished = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn no_footer(&mut self) {
        let len = FOOTER_BYTES.min(self.reader.file_len);
        let at = self.reader.file_len - len;
        // The start of the footer is known only if everything before it was whole.
        if self
            .found
            .bad
            .last()
            .is_none_or(|it| it.offset + it.len < self.reader.file_len)
        {
            self.bad(at, len, "the footer does not match its checksum");
        }
    }
}
