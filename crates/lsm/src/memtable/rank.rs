//! Numbers in the order of keys, so that a search rarely has to look at the keys themselves.
//!
//! The keys of one memtable have much in common: a bucket, a part of their names. What the keys of the
//! memtable before had in common is taken off, and the bytes behind it make a number that stands in the
//! node of the list. Keys without it come before or behind all that have it. Two keys of one rank are
//! compared whole.

use std::cmp::Ordering as Compared;

/// Where a key stands, as far as 15 bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u128);

/// Longer ones are not worth their comparison.
const COMMON_BYTES_MAX: usize = 1024;
const WINDOW_BYTES: usize = 15;

/// What most keys are expected to begin with.
#[derive(Clone, Debug, Default)]
pub(super) struct CommonPrefix(Box<[u8]>);

impl CommonPrefix {
    /// What all keys between these two begin with.
    pub(super) fn between(first: &[u8], last: &[u8]) -> Self {
        let same = first
            .iter()
            .zip(last)
            .take_while(|(one, other)| one == other);
        Self(first[..same.count().min(COMMON_BYTES_MAX)].into())
    }

    /// The rank of a key: one byte that tells below, within or above, and the next 15 behind what is
    /// common, zeros behind the end.
    pub(super) fn rank(&self, key: &[u8]) -> Rank {
        let common = &self.0[..];
        let (class, rest) = match key.strip_prefix(common) {
            Some(rest) => (1, rest),
            None if key.cmp(common) == Compared::Less => (0, key),
            None => (2, key),
        };
        let mut bytes = [0; 1 + WINDOW_BYTES];
        bytes[0] = class;
        let taken = rest.len().min(WINDOW_BYTES);
        bytes[1..=taken].copy_from_slice(&rest[..taken]);
        Rank(u128::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few different bytes, so that keys share beginnings and end within each other.
        #[test]
        fn ranks_never_contradict_keys(
            keys in proptest::collection::vec("[\\x00ab]{0,24}", 2..20),
            first in "[\\x00ab]{0,6}",
            last in "[\\x00ab]{0,6}",
        ) {
            let common = CommonPrefix::between(first.as_bytes(), last.as_bytes());
            for one in &keys {
                for other in &keys {
                    let (one, other) = (one.as_bytes(), other.as_bytes());
                    let ranks = common.rank(one).cmp(&common.rank(other));
                    prop_assert!(ranks == Compared::Equal || ranks == one.cmp(other));
                }
            }
        }
    }

    #[test]
    fn what_is_common_is_taken_off() {
        let common = CommonPrefix::between(b"bucket/key-1", b"bucket/key-9");
        assert_eq!(&common.0[..], b"bucket/key-");
        assert!(common.rank(b"bucket/key-1") < common.rank(b"bucket/key-2"));
        assert!(common.rank(b"bucket/a") < common.rank(b"bucket/key-"));
        assert!(common.rank(b"bucket/z") > common.rank(b"bucket/key-~~~~"));
    }
}
