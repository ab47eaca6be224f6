//! Compression of values and blocks, with an early end for incompressible ones.
//!
//! Bytes that do not shrink by a sixteenth are stored unchanged, so that reading pays only for a
//! gain. If the whole attempt would be expensive a sample is compressed first.

/// The least length to compress: below it, the gain is small for the cost of the call.
const COMPRESSED_BYTES_MIN: usize = 128;
/// The length of a sample.
const SAMPLE_BYTES: usize = 4096;
/// The shortest length for which a sample decides.
const SAMPLED_BYTES_MIN: usize = 4 * SAMPLE_BYTES;

/// The compression of new values or blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4 block: compresses about 500 MB/s, restores several GB/s.
    Lz4,
    /// Zstandard at this level (1 to 19): smaller and slower.
    Zstd(i32),
}

impl Compression {
    /// True when an attempt to compress these bytes is worthwhile.
    pub fn tries(self, raw: &[u8]) -> bool {
        self != Self::None && raw.len() >= COMPRESSED_BYTES_MIN
    }

    /// The compressed form; `None` if storing the bytes unchanged is better. `zstd` compresses at a
    /// level with a context of the caller's, since making one costs more than compressing a small
    /// value.
    pub fn pack(
        self,
        raw: &[u8],
        zstd: impl FnOnce(i32) -> Option<Vec<u8>>,
    ) -> Option<(Codec, Vec<u8>)> {
        if !self.tries(raw) || !sample_shrinks(raw) {
            return None;
        }
        let (codec, packed) = match self {
            Self::None => return None,
            Self::Lz4 => (Codec::Lz4, lz4_flex::block::compress(raw)),
            Self::Zstd(level) => (Codec::Zstd, zstd(level)?),
        };
        shrinks(packed.len(), raw.len()).then_some((codec, packed))
    }
}

/// The stored form of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Unchanged.
    Plain,
    /// An LZ4 block without a length.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

impl Codec {
    const ALL: [Self; 3] = [Self::Plain, Self::Lz4, Self::Zstd];

    /// Its number in files.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The codec of a number, or `None` for one that no version has used.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Restores `raw_len` bytes. The caller has checked the checksum of `stored`, so the length is
    /// the written one.
    ///
    /// # Errors
    /// A text about the defect.
    pub fn restore(self, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, String> {
        let restored = match self {
            Self::Plain => stored.to_vec(),
            Self::Lz4 => lz4_flex::block::decompress(stored, raw_len).map_err(|e| e.to_string())?,
            Self::Zstd => zstd::bulk::decompress(stored, raw_len).map_err(|e| e.to_string())?,
        };
        if restored.len() == raw_len {
            Ok(restored)
        } else {
            Err(format!("got {} bytes, expected {raw_len}", restored.len()))
        }
    }
}

fn shrinks(packed_len: usize, raw_len: usize) -> bool {
    packed_len <= raw_len - raw_len / 16
}

fn sample_shrinks(raw: &[u8]) -> bool {
    if raw.len() < SAMPLED_BYTES_MIN {
        return true;
    }
    // From the middle: headers at the front are rarely like the rest.
    let start = raw.len() / 2;
    let sample = &raw[start..start + SAMPLE_BYTES];
    shrinks(lz4_flex::block::compress(sample).len(), sample.len())
}
