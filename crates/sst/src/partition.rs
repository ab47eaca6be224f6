//! Partitions: runs of data blocks with an index, a filter and segment sets of their own.

use std::sync::OnceLock;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::{Block, BlockCursor, BlockHandle};

/// The times of last modification in a block or partition, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modified {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Modified {
    pub(crate) const NONE: Self = Self {
        first: u64::MAX,
        last: 0,
    };
    /// The range that excludes no time.
    pub(crate) const ANY: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    pub(crate) fn add(&mut self, time: u64) {
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }

    pub(crate) fn widen(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    pub(crate) fn meets(&self, range: &std::ops::RangeInclusive<u64>) -> bool {
        self.first <= *range.end() && *range.start() <= self.last
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.first);
        put_varint(out, self.last.saturating_sub(self.first));
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let first = reader.varint()?;
        let last = first.saturating_add(reader.varint()?);
        Ok(Self { first, last })
    }
}

/// The row of a data block in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataEntry {
    pub(crate) handle: BlockHandle,
    pub(crate) modified: Modified,
}

impl DataEntry {
    /// Encodes the value in an index, whose key is between the block's last and the next block's
    /// first: varints offset, length, earliest last-modified, span to the latest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_handle(&mut out, self.handle);
        self.modified.encode(&mut out);
        out
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Truncated> {
        let mut reader = ByteReader::new(value);
        Ok(Self {
            handle: take_handle(&mut reader)?,
            modified: Modified::decode(&mut reader)?,
        })
    }
}

/// The row of a partition in the top index.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    /// A key at or behind the partition's last key, and before the next partition's first.
    pub(crate) separator: Bytes,
    /// The start of the first data block.
    pub(crate) data_from: u64,
    /// The end of the data blocks; segment sets, filter and index follow.
    pub(crate) data_to: u64,
    /// The index; of length zero if it has to be rebuilt.
    pub(crate) index: BlockHandle,
    pub(crate) filter: Option<BlockHandle>,
    pub(crate) segment_sets: Option<BlockHandle>,
    pub(crate) modified: Modified,
    /// The index as rebuilt after damage.
    pub(crate) rebuilt: OnceLock<Block>,
    /// The index, if it stays in memory.
    pub(crate) held: Option<Block>,
}

impl Partition {
    /// Encodes the value in the top index under the separator: varints for the start and the end of
    /// the data, then offset and length of index, filter and segment sets (0 0 for none), and the
    /// times of last modification.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.data_from);
        put_varint(&mut out, self.data_to);
        put_handle(&mut out, self.index);
        put_handle(&mut out, self.filter.unwrap_or_default());
        put_handle(&mut out, self.segment_sets.unwrap_or_default());
        self.modified.encode(&mut out);
        out
    }

    pub(crate) fn decode(separator: &[u8], value: &[u8]) -> Result<Self, Truncated> {
        let mut reader = ByteReader::new(value);
        let there = |handle: BlockHandle| (handle.len > 0).then_some(handle);
        Ok(Self {
            separator: Bytes::copy_from_slice(separator),
            data_from: reader.varint()?,
            data_to: reader.varint()?,
            index: take_handle(&mut reader)?,
            filter: there(take_handle(&mut reader)?),
            segment_sets: there(take_handle(&mut reader)?),
            modified: Modified::decode(&mut reader)?,
            rebuilt: OnceLock::new(),
            held: None,
        })
    }
}

/// The partitions that a top index lists.
pub(crate) fn decode_top_index(payload: Bytes) -> Result<Vec<Partition>, Truncated> {
    let mut cursor = BlockCursor::new(Block::of_entries(payload)?);
    let mut partitions = Vec::new();
    while cursor.advance()? {
        partitions.push(Partition::decode(cursor.key(), cursor.value())?);
    }
    Ok(partitions)
}

fn put_handle(out: &mut Vec<u8>, handle: BlockHandle) {
    put_varint(out, handle.offset);
    put_varint(out, u64::from(handle.len));
}

fn take_handle(reader: &mut ByteReader<'_>) -> Result<BlockHandle, Truncated> {
    let offset = reader.varint()?;
    let at = reader.offset();
    let len = u32::try_from(reader.varint()?).map_err(|_| Truncated { offset: at })?;
    Ok(BlockHandle { offset, len })
}

/// A short key that is at or behind `last` and before `next`.
pub(crate) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = crate::block_builder::shared_len(last, next);
    match (last.get(shared), next.get(shared)) {
        (Some(a), Some(b)) if a + 1 < *b && shared + 1 < last.len() => {
            let mut short = last[..=shared].to_vec();
            short[shared] = a + 1;
            short
        }
        _ => last.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn handle(offset: u64, len: u32) -> BlockHandle {
        BlockHandle { offset, len }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let modified = Modified {
            first: 1_000,
            last: 1_007,
        };
        let entry = DataEntry {
            handle: handle(300, 70),
            modified,
        };
        let drawing = [
            ("offset", 2),
            ("length", 1),
            ("earliest last-modified", 2),
            ("span to the latest", 1),
        ];
        let bytes = entry.encode();
        assert_bytes("partition.data_entry.hex", &drawing, &bytes);
        assert_eq!(DataEntry::decode(&bytes), Ok(entry));
        let partition = Partition {
            separator: Bytes::from_static(b"m"),
            data_from: 32,
            data_to: 5_000,
            index: handle(5_300, 80),
            filter: Some(handle(5_000, 300)),
            segment_sets: None,
            modified,
            rebuilt: OnceLock::new(),
            held: None,
        };
        let drawing = [
            ("start of the data", 1),
            ("end of the data", 2),
            ("offset of the index", 2),
            ("its length", 1),
            ("offset of the filter", 2),
            ("its length", 2),
            ("offset of the segment sets: none", 1),
            ("their length", 1),
            ("earliest last-modified", 2),
            ("span to the latest", 1),
        ];
        let bytes = partition.encode();
        assert_bytes("partition.hex", &drawing, &bytes);
        let decoded = Partition::decode(b"m", &bytes).unwrap();
        assert_eq!(decoded.filter, partition.filter);
        assert_eq!(decoded.encode(), bytes);
    }

    #[test]
    fn separators_are_short_and_lie_between() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"abc", b"abd"),
            (b"abcdef", b"axyz"),
            (b"a", b"ab"),
            (b"a\xff\xff", b"b"),
            (b"", b"a"),
            (b"abc", b"abe"),
        ];
        for (last, next) in cases {
            let short = separator(last, next);
            assert!(last <= &short[..] && &short[..] < next, "{last:?} {next:?}");
        }
        assert_eq!(separator(b"abcdef", b"axyz"), b"ac");
    }
}
