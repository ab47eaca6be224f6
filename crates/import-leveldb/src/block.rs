//! Blocks of tables: checksum, compression, and sorted entries.

use bytes::Bytes;
use kvorum_encoding::{ByteReader, checksum, mask_checksum};
use kvorum_import::inflate_lz4;

/// The bytes of the trailer after a block's contents: compression and checksum.
pub(crate) const TRAILER_BYTES: usize = 5;
/// Maximum inflated length of a block, in bytes. Riak refuses objects above 50 MB unless configured
/// otherwise.
const INFLATED_BYTES_MAX: usize = 512 << 20;
const RESTART_BYTES: usize = 4;

/// The defect of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The bytes are shorter than any block.
    #[error("cut off")]
    Cut,
    /// The bytes have changed since they were written.
    #[error("wrong checksum")]
    Checksum,
    /// The compression is unknown to Basho's LevelDB.
    #[error("unknown compression {kind}")]
    Compression {
        /// The number of the compression.
        kind: u8,
    },
    /// The block cannot be inflated.
    #[error("cannot be inflated")]
    Inflation,
    /// An entry does not fit the block, although the checksum matches.
    #[error("entry at byte {offset} does not fit the block")]
    Entry {
        /// Offset in the inflated block.
        offset: usize,
    },
}

/// Checks and inflates a block with its trailer:
///
/// ```text
/// contents  u8 compression  u32 masked CRC-32C of contents and compression     little-endian
///
/// compression 0   none
///             1   Snappy, one raw block
///             2   Basho: u32 inflated length, then one raw LZ4 block
///             3   Basho: none, because compressing did not pay
/// ```
///
/// # Errors
/// [`BlockError`].
pub fn inflate(block: &Bytes) -> Result<Bytes, BlockError> {
    let (covered, sum) = block.split_last_chunk::<4>().ok_or(BlockError::Cut)?;
    if mask_checksum(checksum(covered)) != u32::from_le_bytes(*sum) {
        return Err(BlockError::Checksum);
    }
    let (kind, contents) = covered.split_last().ok_or(BlockError::Cut)?;
    match *kind {
        0 | 3 => Ok(block.slice(..contents.len())),
        1 => inflate_snappy(contents),
        2 => inflate_lz4(contents, INFLATED_BYTES_MAX).ok_or(BlockError::Inflation),
        kind => Err(BlockError::Compression { kind }),
    }
}

fn inflate_snappy(contents: &[u8]) -> Result<Bytes, BlockError> {
    let len = snap::raw::decompress_len(contents).map_err(|_| BlockError::Inflation)?;
    // Two bytes inflate to at most 64.
    if len > INFLATED_BYTES_MAX.min(contents.len().saturating_mul(64)) {
        return Err(BlockError::Inflation);
    }
    let mut inflated = vec![0; len];
    let written = snap::raw::Decoder::new().decompress(contents, &mut inflated);
    match written == Ok(len) {
        true => Ok(inflated.into()),
        false => Err(BlockError::Inflation),
    }
}

/// The entries of an inflated block, in order:
///
/// ```text
/// block  = entry*  u32 restart*  u32 count of restarts                          little-endian
/// entry  = varint shared  varint unshared  varint length of value  unshared bytes  value
/// ```
///
/// A key consists of the first `shared` bytes of the previous key and the unshared bytes. Restarts
/// are offsets of entries that share nothing; reading from the start needs none of them.
#[derive(Clone, Debug)]
pub struct BlockEntries {
    block: Bytes,
    /// End of the entries.
    end: usize,
    offset: usize,
    key: Vec<u8>,
}

impl BlockEntries {
    /// The entries of a block, from the first on.
    ///
    /// # Errors
    /// [`BlockError::Entry`] if the restarts do not fit the block.
    pub fn new(block: Bytes) -> Result<Self, BlockError> {
        let offset = block.len();
        let end = block
            .split_last_chunk::<RESTART_BYTES>()
            .and_then(|(front, count)| {
                let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
                front.len().checked_sub(count.checked_mul(RESTART_BYTES)?)
            });
        Ok(Self {
            end: end.ok_or(BlockError::Entry { offset })?,
            block,
            offset: 0,
            key: Vec::new(),
        })
    }

    /// The next entry: its key and its value.
    ///
    /// # Errors
    /// [`BlockError::Entry`]; no entry follows it.
    pub fn advance(&mut self) -> Result<Option<(Bytes, Bytes)>, BlockError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let offset = self.offset;
        let read = self.read();
        if read.is_none() {
            self.offset = self.end;
        }
        read.map(Some).ok_or(BlockError::Entry { offset })
    }

    fn read(&mut self) -> Option<(Bytes, Bytes)> {
        let entries = self.block.get(self.offset..self.end)?;
        let mut reader = ByteReader::new(entries);
        // Shared bytes come from the previous key: only the others are checked against the rest.
        let shared = usize::try_from(reader.varint().ok()?).ok()?;
        let unshared = reader.varint_len().ok()?;
        let value_len = reader.varint_len().ok()?;
        if shared > self.key.len() {
            return None;
        }
        let suffix = reader.take(unshared).ok()?;
        let value_at = self.offset + reader.offset();
        reader.take(value_len).ok()?;
        let end = self.offset + reader.offset();
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.offset = end;
        let key = Bytes::copy_from_slice(&self.key);
        Some((key, self.block.slice(value_at..end)))
    }
}
