//! Numbers in the order of keys, so that a search rarely has to read the keys themselves.
//!
//! The keys of one memtable have much in common: a bucket, a part of their names. So each key is
//! compared with one of them, the reference. A key's rank is one number in the node: the direction
//! and the position of the first difference from the reference, and the bytes from there on. Two
//! keys of one rank are compared whole.
//!
//! Among keys above the reference, an earlier difference comes later; among keys below it, an
//! earlier difference comes first:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | 1: below the reference, 2: begins with it, 3: above it; 0: nothing is known |
//! | 2 | number of equal bytes, big-endian; above the reference all bits are inverted |
//! | 13 | the next bytes of the key, zeros behind its end |

use std::cmp::Ordering as Compared;

/// A key's position, as precisely as 16 bytes allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank(u128);

/// Comparing with a longer reference would cost more than it saves.
const REFERENCE_BYTES_MAX: usize = 1024;
const WINDOW_AT: usize = 3;

/// A key, or its beginning.
#[derive(Clone, Debug)]
pub(super) struct Reference(Box<[u8]>);

impl Reference {
    pub(super) fn new(key: &[u8]) -> Self {
        Self(key[..key.len().min(REFERENCE_BYTES_MAX)].into())
    }

    pub(super) fn rank(&self, key: &[u8]) -> Rank {
        let reference = &self.0[..];
        let pairs = reference.iter().zip(key);
        let same = pairs.take_while(|(one, other)| one == other).count();
        // At most `REFERENCE_BYTES_MAX`, which fits.
        let same_bytes = u16::try_from(same).unwrap_or(u16::MAX);
        let is_above = || key.get(same) > reference.get(same);
        let (side, order) = match same == reference.len() {
            true => (2, same_bytes),
            false if is_above() => (3, !same_bytes),
            false => (1, same_bytes),
        };
        let mut bytes = [0; 16];
        bytes[0] = side;
        bytes[1..WINDOW_AT].copy_from_slice(&order.to_be_bytes());
        let rest = &key[same..];
        let taken = rest.len().min(bytes.len() - WINDOW_AT);
        bytes[WINDOW_AT..WINDOW_AT + taken].copy_from_slice(&rest[..taken]);
        Rank(u128::from_be_bytes(bytes))
    }
}

impl Rank {
    /// The rank of all keys while there is no reference.
    pub(super) const UNKNOWN: Self = Self(0);

    /// The order of two keys; equal if their ranks do not decide.
    pub(super) fn compare(self, other: Self) -> Compared {
        match self == Self::UNKNOWN || other == Self::UNKNOWN {
            true => Compared::Equal,
            false => self.0.cmp(&other.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few different bytes, so that keys share prefixes and are prefixes of each other.
        #[test]
        fn ranks_never_contradict_keys(
            keys in proptest::collection::vec("[\\x00ab]{0,24}", 2..20),
            reference in "[\\x00ab]{0,9}",
        ) {
            let reference = Reference::new(reference.as_bytes());
            for one in &keys {
                for other in &keys {
                    let (one, other) = (one.as_bytes(), other.as_bytes());
                    let ranks = reference.rank(one).compare(reference.rank(other));
                    prop_assert!(ranks == Compared::Equal || ranks == one.cmp(other));
                }
            }
        }
    }

    #[test]
    fn keys_with_much_in_common_have_ranks_of_their_own() {
        let key = |number: u32| format!("a bucket of some length/key-{number:012}").into_bytes();
        for reference in [0, 17, 500, 999] {
            let reference = Reference::new(&key(reference));
            let ranks = (0..1_000).map(|it| reference.rank(&key(it)).0);
            assert!(ranks.is_sorted_by(|one, other| one < other));
        }
        let long = Reference::new(&[7; 5_000]);
        assert_eq!(long.rank(&[7; 4_000]), long.rank(&[7; 5_000]));
    }

    #[test]
    fn an_unknown_rank_decides_nothing() {
        let known = Reference::new(b"").rank(b"");
        assert_eq!(known.compare(Rank::UNKNOWN), Compared::Equal);
        assert_ne!(known, Rank::UNKNOWN);
    }
}
