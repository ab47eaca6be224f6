//! Gathers the newest record of each key while a store is opened.
//!
//! Keys are distinguished by two hashes of 64 bits, under the store's secret: comparing the keys
//! themselves would cost a read of the disk for every overwritten record.

use std::collections::BTreeMap;

use hashbrown::HashTable;

use kvorum_segment::SegmentError;

use crate::entry::key_of;
use crate::fingerprint::Fingerprints;
use crate::key_table::KeyEntry;
use crate::keydir::Keydir;
use crate::places::Place;
use crate::segment::Segment;
use crate::slot::Slot;

/// The fields of a record that decide which is the newest of its key, and its slot.
pub(crate) struct Newest {
    check: u64,
    sequence: u64,
    removal: bool,
    segment: u32,
    slot: Slot,
}

/// The newest records of all keys that were read.
pub(crate) struct Tail {
    fingerprints: Fingerprints,
    entries: HashTable<Newest>,
}

impl Tail {
    pub(crate) fn new(fingerprints: Fingerprints) -> Self {
        Self {
            fingerprints,
            entries: HashTable::new(),
        }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// These fields of a segment's record.
    pub(crate) fn newest_of(&self, entry: &KeyEntry, segment: &Segment) -> Newest {
        let fingerprint = self.fingerprints.of(&entry.key);
        Newest {
            check: self.fingerprints.check_of(&entry.key),
            sequence: entry.sequence,
            removal: entry.removal,
            segment: segment.number,
            slot: Slot::new(fingerprint, segment.place, entry.at),
        }
    }

    pub(crate) fn add(&mut self, newest: Newest) {
        let fingerprint = newest.slot.fingerprint();
        let same = |it: &Newest| it.slot.fingerprint() == fingerprint && it.check == newest.check;
        match self.entries.find_mut(fingerprint, same) {
            // A merge leaves a removal with the same sequence in place of an expired entry.
            Some(known) if rank(&newest) > rank(known) => *known = newest,
            Some(_) => {}
            None => {
                let hash = |it: &Newest| it.slot.fingerprint();
                self.entries.insert_unique(fingerprint, newest, hash);
            }
        }
    }

    /// The sequences of the newest removals, by fingerprint and check of their keys.
    pub(crate) fn removals(&self) -> BTreeMap<(u64, u64), u64> {
        let removals = self.entries.iter().filter(|it| it.removal);
        removals
            .map(|it| ((it.slot.fingerprint(), it.check), it.sequence))
            .collect()
    }

    /// Replays the gathered records over a key directory. `place_of` finds the segment of a place.
    pub(crate) fn replay(
        self,
        keydir: &Keydir,
        place_of: impl Fn(u32) -> Option<Place>,
    ) -> Result<(), SegmentError> {
        let is_fresh = keydir.len() == 0;
        if is_fresh {
            keydir.reserve(self.entries.len() as u64);
        }
        let fingerprints = self.fingerprints;
        for newest in self.entries {
            let old = if is_fresh {
                None
            } else {
                find_old(keydir, &newest, &fingerprints, &place_of)?
            };
            match old {
                Some((_, sequence)) if sequence > newest.sequence => {}
                Some((old, _)) if newest.removal => {
                    keydir.remove(&old);
                }
                Some((old, _)) => {
                    keydir.replace(&old, newest.slot);
                }
                None if newest.removal => {}
                None => keydir.insert(newest.slot),
            }
        }
        Ok(())
    }
}

fn rank(it: &Newest) -> (u64, bool, u32) {
    (it.sequence, it.removal, it.segment)
}

/// The slot of the same key, and the sequence of its record. If there is none, a slot with an
/// unreadable record counts as the key's, with sequence 0.
fn find_old(
    keydir: &Keydir,
    newest: &Newest,
    fingerprints: &Fingerprints,
    place_of: &impl Fn(u32) -> Option<Place>,
) -> Result<Option<(Slot, u64)>, SegmentError> {
    let mut unreadable = None;
    for slot in keydir.slots_of(newest.slot.fingerprint()) {
        let Some(place) = place_of(slot.place()) else {
            unreadable = Some((slot, 0));
            continue;
        };
        let reading = kvorum_disk::Reading::MayBlock;
        match place.read_front(slot.location(), reading) {
            Ok(front) => {
                let key = key_of(&front.front).unwrap_or_default();
                if fingerprints.check_of(key) == newest.check {
                    return Ok(Some((slot, front.sequence)));
                }
            }
            Err(error) if error.is_damage() => unreadable = Some((slot, 0)),
            Err(error) => return Err(error),
        }
    }
    Ok(unreadable)
}
