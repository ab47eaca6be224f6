//! Reading a table with a damaged index, by the kind and length of each block. The owner has the
//! file's length: a missing part at the end is a gap like any other, also if the cut is between two
//! blocks.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use kvorum_disk::Reading;

use crate::block_builder::BlockBuilder;
use crate::footer::FILE_HEADER_BYTES;
use crate::frame::{FRAME_HEADER_BYTES, FrameReader, decode_frame_header};
use crate::partition::{DataEntry, Modified, Partition, separator};
use crate::window::Window;
use crate::{Block, BlockCursor, BlockHandle, Part, Result};

/// Bytes of one read in a walk over frames.
const WALK_BYTES: usize = 128 << 10;

/// An item of a walk over the frames of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    /// `None` for bytes without the start of a frame.
    pub(crate) part: Option<Part>,
    pub(crate) handle: BlockHandle,
}

/// All frames from `from` to `to`. Only their headers are checked. The missing end of a cut file is
/// a range without frames.
pub(crate) fn walk(
    reader: &FrameReader,
    from: u64,
    to: u64,
    reading: Reading,
) -> Result<Vec<Walked>> {
    let mut walked = Vec::new();
    let mut window = Window::default();
    let mut at = from;
    loop {
        let next = next_frame(reader, &mut window, at..to, WALK_BYTES, reading)?;
        let start = next.map_or(to, |(_, handle)| handle.offset);
        if at < start {
            walked.push(bad(at, start));
        }
        let Some((part, handle)) = next else {
            return Ok(walked);
        };
        walked.push(Walked {
            part: Some(part),
            handle,
        });
        at = handle.end();
    }
}

/// The first frame within a range. Only its header is checked. One read has `read_bytes`.
pub(crate) fn next_frame(
    reader: &FrameReader,
    window: &mut Window,
    range: Range<u64>,
    read_bytes: usize,
    reading: Reading,
) -> Result<Option<(Part, BlockHandle)>> {
    for at in range.clone() {
        let bytes = window.bytes(reader, at, FRAME_HEADER_BYTES, read_bytes, reading)?;
        if bytes.len() < FRAME_HEADER_BYTES {
            break;
        }
        let header = decode_frame_header(bytes, reader.seed, at);
        if let Some(header) = header
            && at + u64::from(header.frame_len()) <= range.end
        {
            let handle = BlockHandle {
                offset: at,
                len: header.frame_len(),
            };
            return Ok(Some((header.part, handle)));
        }
    }
    Ok(None)
}

fn bad(from: u64, to: u64) -> Walked {
    let len = u32::try_from(to - from).unwrap_or(u32::MAX);
    Walked {
        part: None,
        handle: BlockHandle { offset: from, len },
    }
}

/// Rebuilds the index of a run of data blocks. `upper` is a key at or behind the last one, if that
/// is known. `None` if the run has no block.
pub(crate) fn rebuild_index(
    reader: &FrameReader,
    from: u64,
    to: u64,
    upper: Option<&[u8]>,
    reading: Reading,
) -> Result<Option<(Block, Bytes)>> {
    Ok(rows_of(reader, from, to, reading)?.finish(None, upper))
}

fn rows_of(reader: &FrameReader, from: u64, to: u64, reading: Reading) -> Result<Rows> {
    let mut rows = Rows::default();
    for walked in walk(reader, from, to, reading)? {
        match walked.part {
            Some(Part::Data) => match first_and_last(reader, walked.handle, reading)? {
                Some((first, last)) => rows.push_block(walked.handle, &first, last),
                None => rows.push_bad(walked.handle),
            },
            Some(_) => {}
            None => rows.push_bad(walked.handle),
        }
    }
    Ok(rows)
}

/// The first and the last key of a data block, or `None` if the block is damaged.
fn first_and_last(
    reader: &FrameReader,
    handle: BlockHandle,
    reading: Reading,
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let payload = match reader.read_block(handle, Part::Data, reading) {
        Err(error) if error.is_damage() => return Ok(None),
        payload => payload?,
    };
    let Ok(block) = Block::of_entries(payload) else {
        return Ok(None);
    };
    let mut cursor = BlockCursor::new(block);
    let mut first = None;
    loop {
        match cursor.advance() {
            Ok(true) => {
                first.get_or_insert_with(|| cursor.key().to_vec());
            }
            Ok(false) => return Ok(first.map(|first| (first, cursor.key().to_vec()))),
            Err(_) => return Ok(None),
        }
    }
}

/// Rows of an index while it is rebuilt.
#[derive(Default)]
struct Rows {
    rows: Vec<(Vec<u8>, BlockHandle)>,
    /// The first readable key.
    first: Option<Vec<u8>>,
    /// A damaged range whose last key is unknown, but before the next block.
    open: Option<BlockHandle>,
}

impl Rows {
    fn push_block(&mut self, handle: BlockHandle, first: &[u8], last: Vec<u8>) {
        self.first.get_or_insert_with(|| first.to_vec());
        if let Some(bad) = self.open.take() {
            self.rows.push((just_before(first), bad));
        }
        if let Some((before, _)) = self.rows.last_mut()
            && &before[..] < first
        {
            *before = separator(before, first);
        }
        self.rows.push((last, handle));
    }

    fn push_bad(&mut self, handle: BlockHandle) {
        match &mut self.open {
            Some(open) => {
                let len = u32::try_from(handle.end() - open.offset).unwrap_or(u32::MAX);
                open.len = len;
            }
            None => self.open = Some(handle),
        }
    }

    /// The rows as an index, with the index's last key. Keys up to `lower` are before the index;
    /// its last key is at most `upper`.
    fn finish(mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<(Block, Bytes)> {
        if let Some(bad) = self.open.take() {
            let behind = match (upper, self.rows.last()) {
                (Some(upper), _) => upper.to_vec(),
                (None, Some((last, _))) => [last, &[0xff; 16][..]].concat(),
                (None, None) => vec![0xff; 16],
            };
            self.rows.push((behind, bad));
        } else if let (Some(upper), Some((last, _))) = (upper, self.rows.last_mut())
            && &last[..] < upper
        {
            *last = upper.to_vec();
        }
        let mut builder = BlockBuilder::new(4, false);
        for (separator, handle) in &self.rows {
            let before = match builder.is_empty() {
                true => lower,
                false => Some(builder.last_key()),
            };
            if before.is_some_and(|before| &separator[..] <= before) {
                continue;
            }
            let modified = Modified::ANY;
            let entry = DataEntry {
                handle: *handle,
                modified,
            };
            builder.add(separator, &entry.encode());
        }
        if builder.is_empty() {
            return None;
        }
        let upper = Bytes::copy_from_slice(builder.last_key());
        let block = Block::of_entries(builder.finish().into()).ok()?;
        Some((block, upper))
    }
}

/// A key before `first` with hardly any keys between the two.
fn just_before(first: &[u8]) -> Vec<u8> {
    let mut key = first.to_vec();
    match key.last_mut() {
        None | Some(0) => {
            key.pop();
        }
        Some(last) => {
            *last -= 1;
            key.extend_from_slice(&[0xff; 32]);
        }
    }
    key
}

/// Rebuilds the top index of a table with `written_len` bytes. The file's end may be missing.
pub(crate) fn rebuild_partitions(
    reader: &FrameReader,
    written_len: u64,
    largest: &[u8],
    reading: Reading,
) -> Result<Vec<Partition>> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut draft = Draft::at(FILE_HEADER_BYTES);
    for walked in walk(reader, FILE_HEADER_BYTES, written_len, reading)? {
        match walked.part {
            Some(Part::SegmentSets) => draft.segment_sets = Some(walked.handle),
            Some(Part::Filter) => draft.filter = Some(walked.handle),
            Some(Part::Index) => {
                draft.index = walked.handle;
                let next = Draft::at(walked.handle.end());
                drafts.push(std::mem::replace(&mut draft, next));
            }
            Some(Part::Data) if draft.is_closed() => {
                // The index between the two partitions is damaged.
                let next = Draft::at(walked.handle.offset);
                drafts.push(std::mem::replace(&mut draft, next));
                draft.data_to = walked.handle.end();
            }
            Some(Part::Properties | Part::Note | Part::TopIndex) => break,
            None => {
                if draft.is_closed() {
                    // The index between the two partitions and an unknown part behind it are
                    // damaged.
                    let next = Draft::at(walked.handle.offset);
                    drafts.push(std::mem::replace(&mut draft, next));
                }
                draft.is_torn = true;
                draft.data_to = walked.handle.end();
            }
            _ => draft.data_to = walked.handle.end(),
        }
    }
    drafts.push(draft);
    let rows = drafts
        .iter()
        .map(|it| rows_of(reader, it.data_from, it.data_to, reading));
    let rows = rows.collect::<Result<Vec<Rows>>>()?;
    let uppers = uppers(&rows, largest);
    let mut partitions: Vec<Partition> = Vec::new();
    for ((draft, rows), upper) in drafts.into_iter().zip(rows).zip(&uppers) {
        let lower = partitions.last().map(|it| &it.separator[..]);
        partitions.extend(draft.finish(rows, lower, upper.as_deref()));
    }
    Ok(partitions)
}

/// For each run of blocks with a damaged end, and for the last run, the last key that the run may
/// have had.
fn uppers(rows: &[Rows], largest: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut upper = largest.to_vec();
    let mut uppers = Vec::with_capacity(rows.len());
    for (at, it) in rows.iter().enumerate().rev() {
        let is_open = it.open.is_some() || at + 1 == rows.len();
        uppers.push(is_open.then(|| upper.clone()));
        if let Some(first) = &it.first {
            upper = just_before(first);
        }
    }
    uppers.reverse();
    uppers
}

/// A partition while its parts are collected.
struct Draft {
    data_from: u64,
    data_to: u64,
    segment_sets: Option<BlockHandle>,
    filter: Option<BlockHandle>,
    index: BlockHandle,
    /// Some of its bytes are in no frame: the boundary of two partitions may have been there.
    is_torn: bool,
}

impl Draft {
    fn at(data_from: u64) -> Self {
        Self {
            data_from,
            data_to: data_from,
            segment_sets: None,
            filter: None,
            index: BlockHandle::default(),
            is_torn: false,
        }
    }

    fn is_closed(&self) -> bool {
        self.segment_sets.is_some() || self.filter.is_some()
    }

    /// A filter is kept only if the index next to it proves that both belong to these blocks.
    fn finish(self, rows: Rows, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<Partition> {
        let (block, separator) = rows.finish(lower, upper)?;
        let has_index = self.index.len > 0 && !self.is_torn;
        Some(Partition {
            separator,
            data_from: self.data_from,
            data_to: self.data_to,
            index: self.index,
            filter: self.filter.filter(|_| has_index),
            segment_sets: None,
            modified: Modified::ANY,
            rebuilt: OnceLock::from(block),
            held: None,
        })
    }
}
