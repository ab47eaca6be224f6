//! Values that prove what they are: for which key they were written, and that they are whole.

use bytes::{BufMut as _, Bytes, BytesMut};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MAGIC: u32 = u32::from_le_bytes(*b"KvB1");

/// Bytes in front of every value of a verified run; shorter values grow to this.
pub const MARK_BYTES: usize = 32;

/// Marks the values of one worker and checks those it reads.
#[derive(Debug, Clone)]
pub struct Verifier {
    worker: u32,
    sequence: u64,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    /// The value was written for this key, and nothing is missing or changed.
    Genuine,
    /// The value is something else: `not_marked`, `other_key`, `wrong_length` or `damaged`.
    Wrong(&'static str),
}

impl Verifier {
    /// The verifier of the worker with this id.
    pub fn new(worker: u32) -> Self {
        Self {
            worker,
            sequence: 0,
        }
    }

    /// The value with the mark in place of its first bytes; numbers are little-endian.
    ///
    /// ```text
    /// offset  width  field
    ///      0      4  magic "KvB1"
    ///      4      4  length of the value, mark included
    ///      8      8  xxh3 of the key
    ///     16      4  worker
    ///     20      4  sequence number of the write in the worker, low 32 bits
    ///     24      8  xxh3 of what follows, seeded with xxh3 of the 24 bytes before
    ///     32      -  the generated value from its byte 32 on
    /// ```
    pub fn mark(&mut self, key: &[u8], value: &[u8]) -> Bytes {
        self.sequence = self.sequence.wrapping_add(1);
        let length = value.len().max(MARK_BYTES);
        let rest = value.get(MARK_BYTES..).unwrap_or_default();
        let mut marked = BytesMut::with_capacity(length);
        marked.put_u32_le(MAGIC);
        marked.put_u32_le(low_word(length as u64));
        marked.put_u64_le(xxh3_64(key));
        marked.put_u32_le(self.worker);
        marked.put_u32_le(low_word(self.sequence));
        let seed = xxh3_64(&marked);
        marked.put_u64_le(xxh3_64_with_seed(rest, seed));
        marked.put_slice(rest);
        marked.freeze()
    }

    /// Whether a value that was read under the key is one that was written for it.
    pub fn check(&self, key: &[u8], value: &[u8]) -> Verification {
        let Some((mark, rest)) = value.split_at_checked(MARK_BYTES) else {
            return Verification::Wrong("not_marked");
        };
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(mark.get(at..at + 8).unwrap_or(&[0; 8]));
            u64::from_le_bytes(bytes)
        };
        if low_word(word(0)) != MAGIC {
            return Verification::Wrong("not_marked");
        }
        if low_word(word(0) >> 32) != low_word(value.len() as u64) {
            return Verification::Wrong("wrong_length");
        }
        let seed = xxh3_64(mark.get(..24).unwrap_or_default());
        if word(24) != xxh3_64_with_seed(rest, seed) {
            return Verification::Wrong("damaged");
        }
        if word(8) != xxh3_64(key) {
            return Verification::Wrong("other_key");
        }
        Verification::Genuine
    }
}

fn low_word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_value_keeps_its_length_and_is_genuine() {
        let mut verifier = Verifier::new(7);
        for length in [0, 31, 32, 33, 1000] {
            let marked = verifier.mark(b"key", &vec![5; length]);
            assert_eq!(marked.len(), length.max(MARK_BYTES));
            assert_eq!(verifier.check(b"key", &marked), Verification::Genuine);
        }
    }

    #[test]
    fn every_flipped_byte_every_cut_and_every_other_key_is_found() {
        let mut verifier = Verifier::new(7);
        let marked = verifier.mark(b"key", &[5; 64]);
        assert_eq!(
            verifier.check(b"other", &marked),
            Verification::Wrong("other_key")
        );
        for at in 0..marked.len() {
            let mut damaged = marked.to_vec();
            damaged[at] ^= 1;
            assert_ne!(
                verifier.check(b"key", &damaged),
                Verification::Genuine,
                "byte {at}"
            );
            assert_ne!(
                verifier.check(b"key", &marked[..at]),
                Verification::Genuine,
                "cut {at}"
            );
        }
        assert_eq!(
            verifier.check(b"key", b"short"),
            Verification::Wrong("not_marked")
        );
    }
}
