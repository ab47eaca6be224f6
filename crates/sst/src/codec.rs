//! How a block is compressed.
//!
//! The codec stands in each block, so that a change of setting needs no rewriting. A block that does
//! not shrink by a sixteenth is stored as it is. The segment log has the like for its records, which
//! it keeps to itself; a block differs in that its raw length stands in its frame.

/// Blocks below this are stored as they are.
const COMPRESSED_BYTES_MIN: usize = 128;
/// What is tried first of a block large enough to make the whole try expensive.
const SAMPLE_BYTES: usize = 4096;
const SAMPLED_BYTES_MIN: usize = 4 * SAMPLE_BYTES;

/// How new blocks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: fast both ways.
    Lz4,
    /// Zstandard at this level (1 to 19): smaller and slower.
    Zstd(i32),
}

/// How a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    Plain,
    /// An LZ4 block without a length.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

impl Codec {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Plain),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Restores `raw_len` bytes of a compressed block whose checksum was checked.
    pub(crate) fn restore(self, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, String> {
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

/// Compresses blocks for one writer.
pub(crate) struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        Self {
            compression,
            zstd: None,
        }
    }

    /// The compressed form, or `None` where storing the bytes as they are is better.
    pub(crate) fn compress(&mut self, raw: &[u8]) -> Option<(Codec, Vec<u8>)> {
        if raw.len() < COMPRESSED_BYTES_MIN || self.compression == Compression::None {
            return None;
        }
        if raw.len() >= SAMPLED_BYTES_MIN && !sample_shrinks(raw) {
            return None;
        }
        let (codec, packed) = match self.compression {
            Compression::None => return None,
            Compression::Lz4 => (Codec::Lz4, lz4_flex::block::compress(raw)),
            Compression::Zstd(level) => (Codec::Zstd, self.zstd(raw, level)?),
        };
        shrinks(packed.len(), raw.len()).then_some((codec, packed))
    }

    /// `None` when the library fails, which it has no reason to: the block is then stored plain.
    fn zstd(&mut self, raw: &[u8], level: i32) -> Option<Vec<u8>> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(level).ok();
        }
        self.zstd.as_mut()?.compress(raw).ok()
    }
}

fn shrinks(packed_len: usize, raw_len: usize) -> bool {
    packed_len <= raw_len - raw_len / 16
}

fn sample_shrinks(raw: &[u8]) -> bool {
    // From the middle: headers at the front are rarely like the rest.
    let start = raw.len() / 2;
    let sample = &raw[start..start + SAMPLE_BYTES];
    shrinks(lz4_flex::block::compress(sample).len(), sample.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_is_restored() {
        let text = b"a value that repeats itself, ".repeat(1000);
        for compression in [Compression::Lz4, Compression::Zstd(3)] {
            for raw in [&text[..200], &text] {
                let (codec, packed) = Compressor::new(compression).compress(raw).unwrap();
                assert!(packed.len() < raw.len());
                assert_eq!(codec.restore(&packed, raw.len()).unwrap(), raw);
                assert!(codec.restore(&packed, raw.len() - 1).is_err());
            }
        }
    }

    #[test]
    fn noise_and_small_blocks_are_left_alone() {
        let mut state = 7u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()[7]
        })
        .take(50_000)
        .collect();
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
            for len in [10, 1000, 50_000] {
                assert!(
                    Compressor::new(compression)
                        .compress(&noise[..len])
                        .is_none()
                );
            }
        }
    }
}
