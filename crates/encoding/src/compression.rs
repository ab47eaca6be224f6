//! Compression of values and blocks, with an early end for what does not shrink.
//!
//! What does not shrink by a sixteenth is stored as it is: reading it back must not pay for nothing. Where
//! the whole try would be expensive a sample is judged first.

/// Less is stored as it is: there is little to gain and much to pay per call.
const COMPRESSED_BYTES_MIN: usize = 128;
/// What is compressed first of bytes so many that the whole try is expensive.
const SAMPLE_BYTES: usize = 4096;
/// From here on a sample decides whether the whole is tried.
const SAMPLED_BYTES_MIN: usize = 4 * SAMPLE_BYTES;

/// How new values or blocks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4 block: some 500 MB/s in, several GB/s out.
    Lz4,
    /// Zstandard at this level (1 to 19): smaller and slower.
    Zstd(i32),
}

impl Compression {
    /// True when it is worth a try to compress these bytes.
    pub fn tries(self, raw: &[u8]) -> bool {
        self != Self::None && raw.len() >= COMPRESSED_BYTES_MIN
    }

    /// The compressed form; `None` where storing the bytes as they are is better. `zstd` compresses at a
    /// level with a context of the caller's, for making one costs more than compressing a small value.
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

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they were given.
    Plain,
    /// An LZ4 block without a length.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

impl Codec {
    const ALL: [Self; 3] = [Self::Plain, Self::Lz4, Self::Zstd];

    /// The number that stands for it in files.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The codec of a number, or `None` for one that no version has used.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Restores `raw_len` bytes. The caller has checked the checksum of `stored`, so the length is
    /// one that we wrote.
    ///
    /// # Errors
    /// What is wrong, in words.
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
