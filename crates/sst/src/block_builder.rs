//! Writing a block of entries.

use std::ops::RangeInclusive;

use kvorum_encoding::put_varint;

use crate::filter::hash_key;

/// A bucket of the hash index that no key falls into.
pub(crate) const BUCKET_EMPTY: u8 = 0xff;
/// A bucket that keys of several restart points fall into.
pub(crate) const BUCKET_SHARED: u8 = 0xfe;
/// Blocks with more restart points have no hash index.
const HASHED_RESTARTS_MAX: usize = 0xfd;
/// Blocks with fewer restart points have no hash index either, since they need hardly any search.
/// Measured on blocks of 4 KB with 16 keys to a restart point (`examples/table_reads`): a hit saves
/// 2 % of its instructions with values of 100 bytes, and 5 % with values of 10 bytes, for 1.25
/// bytes a key.
const HASHED_RESTARTS_MIN: usize = 4;
const RESTARTS_HASHED: RangeInclusive<usize> = HASHED_RESTARTS_MIN..=HASHED_RESTARTS_MAX;
/// Buckets for each 4 keys: more buckets are shared less often, and take a byte each.
const BUCKETS_PER_4_KEYS: usize = 5;

/// Gathers entries in key order.
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    /// The hash of each key and its restart point, if the block gets a hash index.
    hashes: Vec<(u64, u8)>,
    last_key: Vec<u8>,
    entries: u32,
    restart_interval: u32,
    has_hash_index: bool,
}

impl BlockBuilder {
    pub(crate) fn new(restart_interval: u32, has_hash_index: bool) -> Self {
        Self {
            bytes: Vec::new(),
            restarts: Vec::new(),
            hashes: Vec::new(),
            last_key: Vec::new(),
            entries: 0,
            restart_interval: restart_interval.max(1),
            has_hash_index,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The present size of the block, without the hash index.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 8
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let is_restart = self.entries.is_multiple_of(self.restart_interval);
        let shared = if is_restart {
            let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
            self.restarts.push(at);
            0
        } else {
            shared_len(&self.last_key, key)
        };
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (key.len() - shared) as u64);
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.entries += 1;
        if self.has_hash_index {
            let restart = u8::try_from(self.restarts.len() - 1).unwrap_or(u8::MAX);
            self.hashes.push((hash_key(key), restart));
        }
    }

    /// Completes the block, returns its payload and starts the next block:
    ///
    /// ```text
    /// size     field
    ///          entries, each: varint bytes shared with the key before (0 at a restart point),
    ///          varint further key bytes, varint value length, key bytes, value bytes
    /// 4*r      offsets of the restart points
    /// h        hash index: the restart point of the keys in each bucket, 0xff none, 0xfe several
    /// 4        number of buckets (h)
    /// 4        number of restart points (r)
    /// ```
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for restart in &self.restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let buckets = self.hash_index();
        bytes.extend_from_slice(&buckets);
        let counts = [buckets.len(), self.restarts.len()];
        for count in counts {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        self.restarts.clear();
        self.hashes.clear();
        self.last_key.clear();
        self.entries = 0;
        self.bytes.reserve(bytes.len());
        bytes
    }

    fn hash_index(&self) -> Vec<u8> {
        let is_indexed = self.has_hash_index && RESTARTS_HASHED.contains(&self.restarts.len());
        if !is_indexed {
            return Vec::new();
        }
        let mut buckets = vec![BUCKET_EMPTY; self.hashes.len() * BUCKETS_PER_4_KEYS / 4 + 1];
        for (hash, restart) in &self.hashes {
            let bucket = bucket_of(*hash, buckets.len());
            let slot = &mut buckets[bucket];
            *slot = match *slot {
                BUCKET_EMPTY => *restart,
                same if same == *restart => same,
                _ => BUCKET_SHARED,
            };
        }
        buckets
    }
}

/// The bucket of a hash, from its lower half; the filter uses the upper half.
pub(crate) fn bucket_of(hash: u64, buckets: usize) -> usize {
    let scaled = ((hash & 0xffff_ffff) * buckets as u64) >> 32;
    usize::try_from(scaled).unwrap_or(0)
}

pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let same = 8 * words.take_while(|(a, b)| a == b).count();
    let rest = a[same..].iter().zip(&b[same..]);
    same + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let mut builder = BlockBuilder::new(2, false);
        for (key, value) in [("abc", "1"), ("abd", "22"), ("b", "")] {
            builder.add(key.as_bytes(), value.as_bytes());
        }
        let entry = [
            ("bytes shared with the key before", 1),
            ("further key bytes", 1),
            ("value length", 1),
        ];
        let rest = |key, value| [("key bytes", key), ("value bytes", value)];
        let index = [
            ("offset of a restart point", 4),
            ("offset of a restart point", 4),
            ("number of buckets", 4),
            ("number of restart points", 4),
        ];
        let drawing = [
            &entry[..],
            &rest(3, 1),
            &entry,
            &rest(1, 2),
            &entry,
            &rest(1, 0),
            &index,
        ];
        assert_bytes("block_builder.hex", &drawing.concat(), &builder.finish());
        assert!(builder.is_empty());
    }

    #[test]
    fn the_bytes_that_keys_share_are_counted() {
        assert_eq!(shared_len(b"", b"a"), 0);
        assert_eq!(shared_len(b"abcdefghij", b"abcdefghik"), 9);
        assert_eq!(shared_len(b"abcdefgh", b"abcdefghi"), 8);
        assert_eq!(shared_len(b"xbc", b"abc"), 0);
    }
}
