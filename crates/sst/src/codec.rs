//! Compression of blocks.
//!
//! Each block's frame has the codec and the raw length, so that a change of the setting needs no
//! rewriting.

use kvorum_encoding::{Codec, Compression};

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

    /// The compressed form, or `None` if the uncompressed bytes are better.
    pub(crate) fn compress(&mut self, raw: &[u8]) -> Option<(Codec, Vec<u8>)> {
        let Self { compression, zstd } = self;
        compression.pack(raw, |level| {
            // If the library fails, for which it has no reason, the block is stored plain.
            let context = match zstd {
                Some(context) => context,
                None => zstd.insert(zstd::bulk::Compressor::new(level).ok()?),
            };
            context.compress(raw).ok()
        })
    }
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
