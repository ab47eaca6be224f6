//! The hash of one entry, which leaves combine.
//!
//! ```text
//! h0  = XXH3-64 of the key, seed HASH_VERSION
//! hi  = XXH3-64 of (actor u64, counter u64), seed h(i-1)      each entry of the clock, by ascending actor
//! h   = XXH3-64 of (body hash u64, is tombstone u8), seed of the last hi
//! leaf hash = high half of h, exclusive or its low half; 1 in place of 0
//! ```
//!
//! All numbers are little-endian. A change of this drawing needs a new [`HASH_VERSION`]: trees of
//! two versions cannot be compared, since all their entries would seem to differ.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version of the drawing above. Trees carry it.
pub const HASH_VERSION: u8 = 1;

/// The number that one entry contributes to its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeafHash(u32);

impl LeafHash {
    /// The hash of an entry, from its storage key, the dots of its clock by ascending actor, the
    /// hash of its body in the head, and the flag of a tombstone.
    pub fn new(
        key: &[u8],
        clock: impl IntoIterator<Item = (u64, u64)>,
        body_hash: u64,
        is_tombstone: bool,
    ) -> Self {
        Self::of_entry(entry_hash(key, clock, body_hash, is_tombstone))
    }

    /// The part of an [`entry_hash`] that leaves combine.
    pub fn of_entry(hash: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = hash.to_le_bytes();
        let half = u32::from_le_bytes([a, b, c, d]) ^ u32::from_le_bytes([e, f, g, h]);
        Self(half.max(1))
    }

    /// The 32 bits.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The whole hash of an entry, `h` in the drawing above: equal for equal key, clock, body and kind.
pub fn entry_hash(
    key: &[u8],
    clock: impl IntoIterator<Item = (u64, u64)>,
    body_hash: u64,
    is_tombstone: bool,
) -> u64 {
    let of_key = xxh3_64_with_seed(key, u64::from(HASH_VERSION));
    let of_clock = clock.into_iter().fold(of_key, with_dot);
    let mut end = [0; 9];
    end[..8].copy_from_slice(&body_hash.to_le_bytes());
    end[8] = u8::from(is_tombstone);
    xxh3_64_with_seed(&end, of_clock)
}

/// A hash of the entry that differs for each seed. If trees are made for each comparison with a new
/// seed, leaf hashes that collide by chance differ the next time.
pub fn seeded_hash(entry_hash: u64, seed: u64) -> u64 {
    xxh3_64_with_seed(&entry_hash.to_le_bytes(), seed)
}

fn with_dot(so_far: u64, (actor, counter): (u64, u64)) -> u64 {
    let mut dot = [0; 16];
    dot[..8].copy_from_slice(&actor.to_le_bytes());
    dot[8..].copy_from_slice(&counter.to_le_bytes());
    xxh3_64_with_seed(&dot, so_far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_entry_counts() {
        let hash = |key: &[u8], clock: &[(u64, u64)], body, is_tombstone| {
            LeafHash::new(key, clock.iter().copied(), body, is_tombstone)
        };
        let all = [
            hash(b"k", &[(1, 1), (2, 5)], 9, false),
            hash(b"l", &[(1, 1), (2, 5)], 9, false),
            hash(b"k", &[(1, 1)], 9, false),
            hash(b"k", &[(1, 2), (2, 5)], 9, false),
            hash(b"k", &[(3, 1), (2, 5)], 9, false),
            hash(b"k", &[(2, 5), (1, 1)], 9, false),
            hash(b"k", &[(1, 1), (2, 5)], 8, false),
            hash(b"k", &[(1, 1), (2, 5)], 9, true),
            hash(b"k", &[], 9, false),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
    }

    #[test]
    fn each_seed_gives_another_hash() {
        let hash = entry_hash(b"k", [(1, 1)], 9, false);
        let seeded = [seeded_hash(hash, 0), seeded_hash(hash, 1), hash];
        assert!(seeded[0] != seeded[1] && !seeded[..2].contains(&seeded[2]));
        assert_ne!(seeded_hash(hash ^ 1, 1), seeded[1]);
    }

    #[test]
    fn the_hash_of_this_version_stays_as_it_is() {
        let hash = LeafHash::new(b"key", [(1, 2), (3, 4)], 5, false);
        assert_eq!((HASH_VERSION, hash.get()), (1, PINNED));
    }

    const PINNED: u32 = 3_394_131_316;
}
