//! The contents of a sealed segment in a small file beside it, so that opening does not read the
//! segment.
//!
//! The segment decides: a file that does not match it is ignored, and the segment is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvorum_backend::{Result, Sequence, StoreId};
use kvorum_disk::{Disk, read_file};

use crate::log_segment::Holding;
use crate::small_file;

pub(crate) const MAGIC: [u8; 8] = *b"KVvalues";
const HOLDING_BYTES: usize = 24;
const EXTENSION: &str = "contents";

/// The contents of a sealed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) log_id: u64,
    pub(crate) number: u32,
    /// The length of the segment's file with its seal, in bytes.
    pub(crate) file_len: u64,
    /// The end of its last record. Bytes.
    pub(crate) data_end: u64,
    /// The stores in it, and their batches.
    pub(crate) holders: BTreeMap<StoreId, Holding>,
}

/// The file beside a segment.
pub(crate) fn contents_path(segment: &Path) -> PathBuf {
    segment.with_extension(EXTENSION)
}

impl Contents {
    /// Encodes the file:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVvalues"
    ///      8     1  format version, 1
    ///      9     3  zero
    ///     12     8  log id
    ///     20     4  number of the segment
    ///     24     8  length of the segment's file
    ///     32     8  where its last record ends
    ///     40     4  stores (n)
    ///     44  n*24  for each: identity (8), its first batch (8), its last batch (8)
    ///   44+n*24  4  masked CRC-32C of all before
    /// ```
    fn encode(&self) -> Vec<u8> {
        let mut out = small_file::begin(&MAGIC, self.log_id);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.file_len.to_le_bytes());
        out.extend_from_slice(&self.data_end.to_le_bytes());
        small_file::push_count(&mut out, self.holders.len());
        for (store, holding) in &self.holders {
            out.extend_from_slice(&store.0.to_le_bytes());
            out.extend_from_slice(&holding.first.0.to_le_bytes());
            out.extend_from_slice(&holding.last.0.to_le_bytes());
        }
        small_file::sealed(out)
    }

    /// `None` for anything that is not a whole file of this version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let decoded = small_file::decode(bytes, &MAGIC, |log_id, reader| {
            let (number, file_len, data_end) = (reader.u32()?, reader.u64()?, reader.u64()?);
            let stores = reader.u32()? as usize;
            if reader.remaining() != stores * HOLDING_BYTES {
                return Ok(None);
            }
            let mut holders = BTreeMap::new();
            for _ in 0..stores {
                let store = StoreId(reader.u64()?);
                let holding = Holding {
                    first: Sequence(reader.u64()?),
                    last: Sequence(reader.u64()?),
                    is_needed: true,
                };
                holders.insert(store, holding);
            }
            Ok(Some(Self {
                log_id,
                number,
                file_len,
                data_end,
                holders,
            }))
        });
        decoded?.ok()
    }

    /// Writes the file beside its segment; returns its length.
    pub(crate) fn write(&self, disk: &dyn Disk, segment: &Path) -> Result<u64> {
        small_file::write(disk, &contents_path(segment), &self.encode())
    }

    /// Reads the file beside a segment; `None` when it is missing or does not match the segment.
    pub(crate) fn read(
        disk: &dyn Disk,
        segment: &Path,
        log_id: u64,
        number: u32,
        file_len: u64,
    ) -> Option<Self> {
        let bytes = read_file(disk, &contents_path(segment), small_file::FILE_BYTES_MAX).ok()?;
        let contents = Self::decode(&bytes)?;
        let is_ours = contents.log_id == log_id && contents.number == number;
        (is_ours && contents.file_len == file_len).then_some(contents)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn contents() -> Contents {
        let holding = |first, last| Holding {
            first: Sequence(first),
            last: Sequence(last),
            is_needed: true,
        };
        Contents {
            log_id: 0x0102,
            number: 3,
            file_len: 400,
            data_end: 300,
            holders: [(StoreId(5), holding(6, 7)), (StoreId(8), holding(9, 9))].into(),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = contents().encode();
        let store = [
            ("identity of a store", 8),
            ("its first batch", 8),
            ("its last batch", 8),
        ];
        let head = [
            ("magic \"KVvalues\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("log id", 8),
            ("number of the segment", 4),
            ("length of the segment's file", 8),
            ("end of its last record", 8),
            ("stores", 4),
        ];
        let checksum = [("masked CRC-32C of all before", 4)];
        let drawing = [&head[..], &store, &store, &checksum].concat();
        assert_bytes("contents.hex", &drawing, &bytes);
        assert_eq!(Contents::decode(&bytes), Some(contents()));
    }

    #[test]
    fn any_flip_or_cut_is_refused() {
        let good = contents().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            assert_eq!(Contents::decode(&bad), None, "byte {at}");
            assert_eq!(Contents::decode(&good[..at]), None, "cut at {at}");
        }
    }
}
