//! Reading a block: entries with prefix compression, found by restart points or by hash.

use std::cmp::Ordering;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated};

use crate::block_builder::{BUCKET_EMPTY, BUCKET_SHARED, bucket_of, shared_len};

/// A checked and decompressed block in memory, the unit of caches.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    /// The offset of the restart points; 0 in a block without entries.
    restarts_at: usize,
    restarts: usize,
    buckets_at: usize,
    buckets: usize,
}

/// The offsets of one entry's parts in a block.
#[derive(Clone, Copy)]
struct EntryAt {
    shared: usize,
    key_at: usize,
    value_at: usize,
    end: usize,
}

impl Block {
    /// A block without a row of entries.
    pub(crate) fn opaque(bytes: Bytes) -> Self {
        Self {
            bytes,
            restarts_at: 0,
            restarts: 0,
            buckets_at: 0,
            buckets: 0,
        }
    }

    /// A block of entries.
    pub(crate) fn of_entries(bytes: Bytes) -> Result<Self, Truncated> {
        let refused = |offset| Truncated { offset };
        let counts_at = bytes.len().checked_sub(8).ok_or(refused(0))?;
        let mut reader = ByteReader::new(&bytes[counts_at..]);
        let buckets = reader.u32()? as usize;
        let restarts = reader.u32()? as usize;
        let buckets_at = counts_at.checked_sub(buckets).ok_or(refused(counts_at))?;
        let restarts_at = restarts
            .checked_mul(4)
            .and_then(|len| buckets_at.checked_sub(len))
            .ok_or(refused(counts_at))?;
        Ok(Self {
            bytes,
            restarts_at,
            restarts,
            buckets_at,
            buckets,
        })
    }

    /// The memory that the block keeps in use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    pub(crate) fn payload(&self) -> &Bytes {
        &self.bytes
    }

    /// The value of a key whose hash is `hash`.
    pub fn get(&self, key: &[u8], hash: u64) -> Result<Option<Bytes>, Truncated> {
        let restart = match self.bucket(hash) {
            Some(BUCKET_EMPTY) => return Ok(None),
            Some(BUCKET_SHARED) | None => self.restart_before(key)?,
            Some(restart) => usize::from(restart),
        };
        let from = self.restart_offset(restart)?;
        Ok(self
            .find(from, key)?
            .filter(|(_, is_equal)| *is_equal)
            .map(|(at, _)| self.bytes.slice(at.value_at..at.end)))
    }

    /// The value of the first key at or behind `key`: in an index, the block that may have the key.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Result<Option<&[u8]>, Truncated> {
        if self.restarts == 0 {
            return Ok(None);
        }
        let from = self.restart_offset(self.restart_before(key)?)?;
        let found = self.find(from, key)?;
        Ok(found.map(|(at, _)| &self.bytes[at.value_at..at.end]))
    }

    fn bucket(&self, hash: u64) -> Option<u8> {
        if self.buckets == 0 {
            return None;
        }
        let at = self.buckets_at + bucket_of(hash, self.buckets);
        self.bytes.get(at).copied()
    }

    /// The first entry from `from` on with a key at or behind `key`, and true if the keys are
    /// equal.
    ///
    /// No key is assembled: if an entry shares more bytes with its predecessor than the predecessor
    /// with `key`, both are on the same side of `key`.
    fn find(&self, from: usize, key: &[u8]) -> Result<Option<(EntryAt, bool)>, Truncated> {
        let mut matched = 0;
        let mut at = from;
        while at < self.restarts_at {
            let entry = self.entry_at(at)?;
            match entry.shared.cmp(&matched) {
                Ordering::Greater => {}
                Ordering::Less if at != from => return Ok(Some((entry, false))),
                _ => {
                    let suffix = &self.bytes[entry.key_at..entry.value_at];
                    let rest = key.get(matched..).unwrap_or_default();
                    let same = shared_len(suffix, rest);
                    match suffix[same..].cmp(&rest[same..]) {
                        Ordering::Less => matched += same,
                        ordering => return Ok(Some((entry, ordering.is_eq()))),
                    }
                }
            }
            at = entry.end;
        }
        Ok(None)
    }

    /// The last restart point with a key at or before `key`, or the first restart point.
    fn restart_before(&self, key: &[u8]) -> Result<usize, Truncated> {
        let (mut low, mut high) = (0, self.restarts);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry_at(self.restart_offset(middle)?)?;
            if &self.bytes[entry.key_at..entry.value_at] <= key {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn restart_offset(&self, restart: usize) -> Result<usize, Truncated> {
        let at = self.restarts_at + 4 * restart;
        if restart >= self.restarts {
            return Err(Truncated { offset: at });
        }
        let offset = ByteReader::new(&self.bytes[at..]).u32()? as usize;
        if offset < self.restarts_at {
            Ok(offset)
        } else {
            Err(Truncated { offset: at })
        }
    }

    /// Decodes the lengths of an entry; the parts lie within the entries.
    fn entry_at(&self, at: usize) -> Result<EntryAt, Truncated> {
        let entries = &self.bytes[..self.restarts_at];
        let (lens, start) = match entries.get(at..at + 3) {
            // Nearly always, each length is below 128 and takes one byte.
            Some([a, b, c]) if (a | b | c) & 0x80 == 0 => {
                ([usize::from(*a), usize::from(*b), usize::from(*c)], at + 3)
            }
            _ => {
                let mut reader = ByteReader::new(&entries[at..]);
                let refused = || Truncated { offset: at };
                let mut lens = [0; 3];
                for len in &mut lens {
                    *len = usize::try_from(reader.varint()?).map_err(|_| refused())?;
                }
                (lens, at + reader.offset())
            }
        };
        let value_at = start.checked_add(lens[1]);
        let end = value_at.and_then(|value_at| value_at.checked_add(lens[2]));
        match (value_at, end) {
            (Some(value_at), Some(end)) if end <= self.restarts_at => Ok(EntryAt {
                shared: lens[0],
                key_at: start,
                value_at,
                end,
            }),
            _ => Err(Truncated { offset: at }),
        }
    }
}

/// A walk over the entries of a block in order.
#[derive(Clone, Debug)]
pub struct BlockCursor {
    block: Block,
    next: usize,
    key: Vec<u8>,
    value_at: usize,
    value_end: usize,
}

impl BlockCursor {
    /// A cursor before the first entry.
    pub fn new(block: Block) -> Self {
        Self {
            block,
            next: 0,
            key: Vec::new(),
            value_at: 0,
            value_end: 0,
        }
    }

    /// Advances to the next entry; false if there is none.
    pub fn advance(&mut self) -> Result<bool, Truncated> {
        if self.next >= self.block.restarts_at {
            return Ok(false);
        }
        let entry = self.block.entry_at(self.next)?;
        if entry.shared > self.key.len() {
            return Err(Truncated { offset: self.next });
        }
        self.key.truncate(entry.shared);
        let suffix = &self.block.bytes[entry.key_at..entry.value_at];
        self.key.extend_from_slice(suffix);
        (self.value_at, self.value_end) = (entry.value_at, entry.end);
        self.next = entry.end;
        Ok(true)
    }

    /// Moves to the first entry at or behind `key`; false if there is none.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool, Truncated> {
        if self.block.restarts == 0 {
            return Ok(false);
        }
        let restart = self.block.restart_before(key)?;
        self.next = self.block.restart_offset(restart)?;
        self.key.clear();
        while self.advance()? {
            if self.key.as_slice() >= key {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The end of the cursor's entry in the block.
    pub(crate) fn position(&self) -> usize {
        self.next
    }

    /// The key at the cursor.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value at the cursor.
    pub fn value(&self) -> &[u8] {
        &self.block.bytes[self.value_at..self.value_end]
    }

    /// The value as a shared slice of the block.
    pub fn value_bytes(&self) -> Bytes {
        self.block.bytes.slice(self.value_at..self.value_end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::block_builder::BlockBuilder;
    use crate::filter::hash_key;

    fn built(map: &BTreeMap<Vec<u8>, Vec<u8>>, interval: u32, hashed: bool) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval, hashed);
        for (key, value) in map {
            builder.add(key, value);
        }
        builder.finish()
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)];
        proptest::collection::vec(byte, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_block_is_the_map_that_it_was_built_from(
            map in proptest::collection::btree_map(
                keys(), proptest::collection::vec(any::<u8>(), 0..200), 1..60),
            probes in proptest::collection::vec(keys(), 0..20),
            interval in 1u32..20,
            hashed: bool,
        ) {
            let block = Block::of_entries(built(&map, interval, hashed).into()).unwrap();
            let mut cursor = BlockCursor::new(block.clone());
            for (key, value) in &map {
                prop_assert!(cursor.advance().unwrap());
                prop_assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            }
            prop_assert!(!cursor.advance().unwrap());
            for probe in probes.iter().chain(map.keys()) {
                let got = block.get(probe, hash_key(probe)).unwrap();
                prop_assert_eq!(got.as_deref(), map.get(probe).map(|it| &it[..]));
                let mut cursor = BlockCursor::new(block.clone());
                let found = cursor.seek(probe).unwrap();
                let expected = map.range(probe.clone()..).next();
                prop_assert_eq!(found, expected.is_some());
                if let Some((key, _)) = expected {
                    prop_assert_eq!(cursor.key(), &key[..]);
                }
            }
        }

        #[test]
        fn hostile_bytes_are_refused_without_a_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            buckets in 0u32..5,
            restarts in 0u32..5,
        ) {
            bytes.extend_from_slice(&buckets.to_le_bytes());
            bytes.extend_from_slice(&restarts.to_le_bytes());
            let Ok(block) = Block::of_entries(bytes.into()) else { return Ok(()) };
            let _found_or_refused = block.get(b"abc", 7);
            let mut cursor = BlockCursor::new(block);
            let _sought_or_refused = cursor.seek(b"abc");
            while let Ok(true) = cursor.advance() {}
        }
    }
}
