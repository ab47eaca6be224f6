//! The mark at the beginning of a value: its writer, its key, and a checksum.

use bytes::{BufMut as _, Bytes, BytesMut};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MAGIC: u32 = u32::from_le_bytes(*b"KvB2");

/// Bytes of the mark of every value of a verified run; shorter values grow to this length.
pub const MARK_BYTES: usize = 40;

/// Number of the mark's bytes whose hash seeds its checksum.
const SEED_BYTES: usize = 32;

/// The mark of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Hash of the value's key and bucket.
    pub key: u64,
    /// The run that wrote it.
    pub run: u32,
    /// The worker that wrote it.
    pub worker: u32,
    /// The write's number in the run.
    pub sequence: u64,
}

/// The hash of a key in one of the driver's buckets.
pub(super) fn hash(bucket: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, bucket)
}

impl Mark {
    /// The value with the mark in place of its first bytes; numbers are little-endian.
    ///
    /// ```text
    /// offset  width  field
    ///      0      4  magic "KvB2"
    ///      4      4  length of the value, mark included
    ///      8      8  xxh3 of the key, seeded with the bucket's number
    ///     16      4  run
    ///     20      4  worker
    ///     24      8  sequence number of the write in the run
    ///     32      8  xxh3 of what follows, seeded with xxh3 of the 32 bytes before
    ///     40      -  the generated value from its byte 40 on
    /// ```
    pub fn stamp(&self, value: &[u8]) -> Bytes {
        let length = value.len().max(MARK_BYTES);
        let rest = value.get(MARK_BYTES..).unwrap_or_default();
        let mut marked = BytesMut::with_capacity(length);
        marked.put_u32_le(MAGIC);
        marked.put_u32_le(low_word(length as u64));
        marked.put_u64_le(self.key);
        marked.put_u32_le(self.run);
        marked.put_u32_le(self.worker);
        marked.put_u64_le(self.sequence);
        let seed = xxh3_64(&marked);
        marked.put_u64_le(xxh3_64_with_seed(rest, seed));
        marked.put_slice(rest);
        marked.freeze()
    }

    /// The mark of a complete value, or the error in the value.
    pub fn of(value: &[u8]) -> Result<Self, &'static str> {
        let Some((mark, rest)) = value.split_at_checked(MARK_BYTES) else {
            return Err("not_marked");
        };
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(mark.get(at..at + 8).unwrap_or(&[0; 8]));
            u64::from_le_bytes(bytes)
        };
        if low_word(word(0)) != MAGIC {
            return Err("not_marked");
        }
        if low_word(word(0) >> 32) != low_word(value.len() as u64) {
            return Err("wrong_length");
        }
        let seed = xxh3_64(mark.get(..SEED_BYTES).unwrap_or_default());
        if word(SEED_BYTES) != xxh3_64_with_seed(rest, seed) {
            return Err("damaged");
        }
        Ok(Self {
            key: word(8),
            run: low_word(word(16)),
            worker: low_word(word(16) >> 32),
            sequence: word(24),
        })
    }
}

fn low_word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        key: 0x0123_4567_89ab_cdef,
        run: 3,
        worker: 7,
        sequence: 1 << 40,
    };

    #[test]
    fn a_marked_value_keeps_its_length_and_shows_its_mark() {
        for length in [0, 39, 40, 41, 1000] {
            let marked = MARK.stamp(&vec![5; length]);
            assert_eq!(marked.len(), length.max(MARK_BYTES));
            assert_eq!(Mark::of(&marked), Ok(MARK));
        }
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_found() {
        let marked = MARK.stamp(&[5; 64]);
        for at in 0..marked.len() {
            let mut damaged = marked.to_vec();
            damaged[at] ^= 1;
            assert!(Mark::of(&damaged).is_err(), "byte {at}");
            assert!(Mark::of(&marked[..at]).is_err(), "cut {at}");
        }
        assert_eq!(Mark::of(b"short"), Err("not_marked"));
    }
}
