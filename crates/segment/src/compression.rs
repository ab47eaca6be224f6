//! Compression of the back of a record.
//!
//! Each record names its codec, so that a log may mix codecs and a change of the setting needs no
//! rewriting. While values do not shrink (images, encrypted data), only one in a few is tried,
//! until one shrinks.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use kvorum_encoding::{Codec, Compression, checksum};
use parking_lot::Mutex;

/// After this many consecutive values without a gain, one in this many is tried.
const PATIENCE: u32 = 16;

/// The back of a record, ready to be appended.
#[derive(Clone, Debug)]
pub struct EncodedBack<'a> {
    pub(crate) bytes: Cow<'a, [u8]>,
    pub(crate) codec: Codec,
    pub(crate) raw_len: u64,
    pub(crate) checksum: u32,
}

impl<'a> EncodedBack<'a> {
    /// An empty back.
    pub fn empty() -> Self {
        Self::plain(&[])
    }

    /// An uncompressed back.
    pub fn plain(bytes: &'a [u8]) -> Self {
        Self::of(Cow::Borrowed(bytes), Codec::Plain, bytes.len() as u64)
    }

    /// An encoded back, from its parts. `checksum` is the CRC-32C of `bytes`.
    pub fn from_parts(bytes: &'a [u8], codec: Codec, raw_len: u64, checksum: u32) -> Self {
        Self {
            bytes: Cow::Borrowed(bytes),
            codec,
            raw_len,
            checksum,
        }
    }

    /// The bytes as stored. `raw` is the source of the encoding, which is shared if it is stored
    /// unchanged.
    pub fn into_bytes(self, raw: &Bytes) -> Bytes {
        match self.bytes {
            Cow::Borrowed(bytes) if bytes.as_ptr() == raw.as_ptr() => raw.slice(..bytes.len()),
            Cow::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
            Cow::Owned(bytes) => bytes.into(),
        }
    }

    /// Its codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The length before compression, in bytes.
    pub fn raw_len(&self) -> u64 {
        self.raw_len
    }

    /// The CRC-32C of the bytes as stored.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// The same back, borrowed, for an append that does not consume the original.
    pub fn by_ref(&self) -> EncodedBack<'_> {
        EncodedBack {
            bytes: Cow::Borrowed(&self.bytes),
            ..*self
        }
    }

    /// The number of bytes to be stored.
    pub fn stored_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn of(bytes: Cow<'a, [u8]>, codec: Codec, raw_len: u64) -> Self {
        let checksum = checksum(&bytes);
        Self {
            bytes,
            codec,
            raw_len,
            checksum,
        }
    }
}

/// Compresses backs. All writers of a log share it, so that compression needs no writer's lock.
pub struct Compressor {
    compression: Compression,
    /// Idle Zstandard contexts: making one costs more than compressing a small value.
    contexts: Mutex<Vec<zstd::bulk::Compressor<'static>>>,
    /// Values in a row that did not shrink, or were not tried.
    in_vain: AtomicU32,
}

impl Compressor {
    /// A compressor with the method `compression` for every value that shrinks.
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            contexts: Mutex::new(Vec::new()),
            in_vain: AtomicU32::new(0),
        }
    }

    /// Encodes a back, compressed where that pays.
    pub fn encode<'a>(&self, raw: &'a [u8]) -> EncodedBack<'a> {
        let is_tried = self.compression.tries(raw) && self.is_worth_a_try();
        let packed = match is_tried {
            true => self.compression.pack(raw, |level| self.zstd(raw, level)),
            false => None,
        };
        match packed {
            Some((codec, packed)) => {
                self.in_vain.store(0, Ordering::Relaxed);
                EncodedBack::of(Cow::Owned(packed), codec, raw.len() as u64)
            }
            None => EncodedBack::plain(raw),
        }
    }

    /// Counts the value as tried in vain; a value that shrinks resets the count. Concurrent threads
    /// may try one value more or less.
    fn is_worth_a_try(&self) -> bool {
        let in_vain = self.in_vain.fetch_add(1, Ordering::Relaxed);
        in_vain < PATIENCE || in_vain.is_multiple_of(PATIENCE)
    }

    /// `None` if the library fails, which is not expected: the value is then stored plain.
    fn zstd(&self, raw: &[u8], level: i32) -> Option<Vec<u8>> {
        let idle = self.contexts.lock().pop();
        let mut context = match idle {
            Some(context) => context,
            None => zstd::bulk::Compressor::new(level).ok()?,
        };
        let packed = context.compress(raw).ok();
        self.contexts.lock().push(context);
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd(3)];

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn what_was_encoded_is_restored() {
        let text = b"a value that repeats itself, ".repeat(1000);
        for raw in [&b""[..], b"short", &text[..300], &text, &noise(5000)] {
            for compression in ALL {
                let back = Compressor::new(compression).encode(raw);
                let restored = back.codec.restore(&back.bytes, raw.len()).unwrap();
                assert_eq!(restored, raw, "{compression:?}");
            }
        }
    }

    #[test]
    fn what_does_not_shrink_is_stored_as_it_is() {
        for len in [64, 1000, 100_000] {
            for compression in ALL {
                let raw = noise(len);
                assert_eq!(
                    Compressor::new(compression).encode(&raw).codec,
                    Codec::Plain
                );
            }
        }
        let text = b"text ".repeat(100);
        assert_eq!(
            Compressor::new(Compression::Lz4).encode(&text).codec,
            Codec::Lz4
        );
        let zstd = Compressor::new(Compression::Zstd(1)).encode(&text).codec;
        assert_eq!(zstd, Codec::Zstd);
    }

    #[test]
    fn where_nothing_shrinks_few_are_tried_until_one_does() {
        let compressor = Compressor::new(Compression::Lz4);
        let text = b"text ".repeat(100);
        let is_packed = |raw: &[u8]| compressor.encode(raw).codec == Codec::Lz4;
        for _ in 0..PATIENCE - 1 {
            assert!(!is_packed(&noise(500)));
        }
        assert!(is_packed(&text), "patience lasts, and begins anew");
        for _ in 0..3 * PATIENCE + 1 {
            assert!(!is_packed(&noise(500)));
        }
        let waited = (0..PATIENCE).take_while(|_| !is_packed(&text)).count();
        assert_eq!(waited, 15, "the next try is the sixteenth");
        assert!(is_packed(&text));
    }

    #[test]
    fn hostile_bytes_are_refused_without_a_panic() {
        for seed in 1..200 {
            let bytes = noise(seed * 3);
            for codec in [Codec::Lz4, Codec::Zstd] {
                let _refused_or_not = codec.restore(&bytes, 1000);
                assert!(codec.restore(&bytes, 1 << 20).is_err());
            }
        }
    }
}
