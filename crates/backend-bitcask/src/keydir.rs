//! The key directory: where the record of each key stands, in 24 bytes a key and no key bytes.
//!
//! A key is found by a 64-bit fingerprint under a secret of the store, so that nobody can choose keys
//! that collide. Two keys may still have one fingerprint: the key in the record decides, and both
//! have their slot. The table is cut into shards by bits of the fingerprint, so that growth moves one
//! shard at a time and a checkpoint copies one shard at a time.

use hashbrown::HashTable;
use kvorum_segment::{Location, RECORD_ALIGN_BYTES};
use siphasher::sip::SipHasher13;

pub(crate) const SHARDS: usize = 64;
/// Bits 0 and up place a slot in its table and the highest 7 tag it; these lie between.
const SHARD_SHIFT: u32 = 48;
/// The unit in which a slot remembers where the front ends.
const FRONT_UNIT_BYTES: u64 = 16;

/// Makes fingerprints of keys.
#[derive(Clone, Copy)]
pub(crate) struct Fingerprints {
    secret: (u64, u64),
    replaced: Option<fn(&[u8]) -> u64>,
}

impl Fingerprints {
    pub(crate) fn new(secret: (u64, u64), replaced: Option<fn(&[u8]) -> u64>) -> Self {
        Self { secret, replaced }
    }

    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        match self.replaced {
            Some(replaced) => replaced(key),
            None => self.keyed(key),
        }
    }

    /// A second hash of a key: together with the fingerprint it stands for the key where many are
    /// compared at once and reading each from disk would take hours.
    pub(crate) fn check_of(&self, key: &[u8]) -> u64 {
        let (k0, k1) = self.secret;
        SipHasher13::new_with_keys(!k1, k0).hash(key)
    }

    fn keyed(&self, key: &[u8]) -> u64 {
        let (k0, k1) = self.secret;
        SipHasher13::new_with_keys(k0, k1).hash(key)
    }
}

/// Where the newest record of a key stands, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) fingerprint: u64,
    pub(crate) segment: u32,
    /// In units of 8 bytes.
    offset: u32,
    /// The length of the record, in bytes.
    len: u32,
    /// Where the front ends, in units of 16 bytes, rounded up; the most there is for longer ones,
    /// which cost a second read.
    front_end: u16,
}

impl Slot {
    pub(crate) fn new(fingerprint: u64, segment: u32, at: Location) -> Self {
        let offset = at.offset / RECORD_ALIGN_BYTES;
        Self {
            fingerprint,
            segment,
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
            len: u32::try_from(at.len).unwrap_or(u32::MAX),
            front_end: u16::try_from(at.front_end.div_ceil(FRONT_UNIT_BYTES)).unwrap_or(u16::MAX),
        }
    }

    pub(crate) fn location(&self) -> Location {
        Location {
            offset: self.offset(),
            front_end: u64::from(self.front_end) * FRONT_UNIT_BYTES,
            len: u64::from(self.len),
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.offset) * RECORD_ALIGN_BYTES
    }

    /// What the record takes in its segment, in bytes.
    pub(crate) fn stored_bytes(&self) -> u64 {
        u64::from(self.len).next_multiple_of(RECORD_ALIGN_BYTES)
    }

    /// The packed parts, for the checkpoint.
    pub(crate) fn to_parts(self) -> (u64, u32, u32, u32, u16) {
        (
            self.fingerprint,
            self.segment,
            self.offset,
            self.len,
            self.front_end,
        )
    }

    pub(crate) fn from_parts(parts: (u64, u32, u32, u32, u16)) -> Self {
        let (fingerprint, segment, offset, len, front_end) = parts;
        Self {
            fingerprint,
            segment,
            offset,
            len,
            front_end,
        }
    }
}

/// All slots of a store.
pub(crate) struct Keydir {
    shards: Vec<HashTable<Slot>>,
    len: u64,
}

impl Keydir {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            len: 0,
        }
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Memory that the tables take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.allocation_size() as u64).sum()
    }

    /// The slots with this fingerprint: one, unless keys collide.
    pub(crate) fn candidates(&self, fingerprint: u64) -> impl Iterator<Item = Slot> + '_ {
        self.shards[shard_of(fingerprint)]
            .iter_hash(fingerprint)
            .filter(move |slot| slot.fingerprint == fingerprint)
            .copied()
    }

    /// True when exactly this slot is there.
    pub(crate) fn contains(&self, slot: &Slot) -> bool {
        self.candidates(slot.fingerprint)
            .any(|it| it.segment == slot.segment && it.offset == slot.offset)
    }

    pub(crate) fn insert(&mut self, slot: Slot) {
        let shard = &mut self.shards[shard_of(slot.fingerprint)];
        shard.insert_unique(slot.fingerprint, slot, |slot| slot.fingerprint);
        self.len += 1;
    }

    /// Puts `new` in the place of `old`; false when `old` is not there any more.
    pub(crate) fn replace(&mut self, old: &Slot, new: Slot) -> bool {
        debug_assert_eq!(old.fingerprint, new.fingerprint);
        let shard = &mut self.shards[shard_of(old.fingerprint)];
        match shard.find_mut(old.fingerprint, same_place(old)) {
            Some(place) => {
                *place = new;
                true
            }
            None => false,
        }
    }

    /// Removes a slot; false when it is not there any more.
    pub(crate) fn remove(&mut self, old: &Slot) -> bool {
        let shard = &mut self.shards[shard_of(old.fingerprint)];
        match shard.find_entry(old.fingerprint, same_place(old)) {
            Ok(entry) => {
                entry.remove();
                self.len -= 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Removes what `keep` refuses and returns how many those were. Visits every slot.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Slot) -> bool) -> u64 {
        let before = self.len;
        self.len = 0;
        for shard in &mut self.shards {
            shard.retain(|slot| keep(slot));
            self.len += shard.len() as u64;
        }
        before - self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.shards.iter().flatten()
    }

    /// The slots of one shard, for a checkpoint.
    pub(crate) fn shard(&self, index: usize) -> impl Iterator<Item = &Slot> {
        self.shards.get(index).into_iter().flatten()
    }

    /// Makes room for `count` slots, spread evenly, so that loading them moves nothing.
    pub(crate) fn reserve(&mut self, count: u64) {
        let each = usize::try_from(count).unwrap_or(0) / SHARDS;
        for shard in &mut self.shards {
            shard.reserve(each, |slot| slot.fingerprint);
        }
    }
}

fn same_place(old: &Slot) -> impl Fn(&Slot) -> bool + '_ {
    |slot| slot.segment == old.segment && slot.offset == old.offset
}

fn shard_of(fingerprint: u64) -> usize {
    usize::from((fingerprint >> SHARD_SHIFT).to_le_bytes()[0]) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(fingerprint: u64, offset: u64) -> Slot {
        let at = Location {
            offset,
            front_end: 100,
            len: 1000,
        };
        Slot::new(fingerprint, 1, at)
    }

    #[test]
    fn a_slot_takes_24_bytes() {
        assert_eq!(size_of::<Slot>(), 24);
    }

    #[test]
    fn keys_with_one_fingerprint_have_a_slot_each() {
        let mut keydir = Keydir::new();
        keydir.insert(slot(7, 32));
        keydir.insert(slot(7, 64));
        assert_eq!(keydir.candidates(7).count(), 2);
        assert!(keydir.replace(&slot(7, 32), slot(7, 96)));
        assert!(!keydir.replace(&slot(7, 32), slot(7, 128)));
        assert!(keydir.remove(&slot(7, 64)));
        assert_eq!(keydir.candidates(7).collect::<Vec<_>>(), [slot(7, 96)]);
        assert_eq!(keydir.len(), 1);
    }

    #[test]
    fn a_location_survives_packing_with_a_rounded_front() {
        let at = slot(1, 4096).location();
        assert_eq!((at.offset, at.len, at.front_end), (4096, 1000, 112));
    }

    #[test]
    fn fingerprints_depend_on_the_secret() {
        let (a, b) = (
            Fingerprints::new((1, 2), None),
            Fingerprints::new((1, 3), None),
        );
        assert_ne!(a.of(b"key"), b.of(b"key"));
        assert_ne!(a.of(b"key"), a.check_of(b"key"));
    }

    #[test]
    fn slots_spread_over_shards() {
        let prints = Fingerprints::new((1, 2), None);
        let mut counts = [0; SHARDS];
        for n in 0..6400u64 {
            counts[shard_of(prints.of(&n.to_le_bytes()))] += 1;
        }
        assert!(counts.iter().all(|count| (50..200).contains(count)));
    }
}
