//! The key directory: the place of each key's record, in about 20 bytes for each key, without the
//! key itself.
//!
//! A key is found by a fingerprint under a secret of the store. Two keys with the same fingerprint
//! have a slot each, and the key in the record decides. The highest bits of the fingerprint select
//! one of the shards, each with a lock of its own: a reader waits for one change of one slot at
//! most, a shard grows while it is read, and a checkpoint copies one shard at a time.
//!
//! Every shard has the table of places with its slots. So a lookup finds slot and segment under one
//! lock, without a reference count that all readers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};

use crate::fingerprint::Fingerprints;
use crate::places::{Place, Places};
use crate::slot::{Packed, SHARD_BITS, Slot, shard_of};
use crate::slot_table::{SlotTable, fill_of};

pub(crate) const SHARDS: usize = 1 << SHARD_BITS;

/// All slots of a store.
pub(crate) struct Keydir {
    shards: Box<[Shard]>,
    len: AtomicU64,
}

/// Aligned so that no two locks share a cache line.
#[repr(align(64))]
struct Shard {
    content: RwLock<Content>,
}

struct Content {
    table: SlotTable,
    places: Arc<Places>,
}

impl Content {
    /// The place of a slot. No slot outlives its place: its key would wrongly be absent.
    fn place_of(&self, packed: Packed) -> &Place {
        match self.places.get(packed.place()) {
            Some(place) => place,
            None => unreachable!("a slot means place {}, which is gone", packed.place()),
        }
    }
}

/// The possible places of a key: at most one, unless fingerprints collide.
pub(crate) struct Candidates {
    pub(crate) first: Option<(Slot, Place)>,
    pub(crate) others: Vec<(Slot, Place)>,
}

/// A change of one key's slot. Both slots have the same fingerprint; at least one is present.
pub(crate) struct Change {
    pub(crate) old: Option<Slot>,
    pub(crate) new: Option<Slot>,
}

impl Change {
    fn shard(&self) -> Option<usize> {
        self.new.or(self.old).map(|slot| slot.shard())
    }
}

impl Keydir {
    pub(crate) fn new(fingerprints: &Fingerprints) -> Self {
        let shard = |number| Shard {
            content: RwLock::new(Content {
                table: SlotTable::new(fill_of(fingerprints.mixed(number))),
                places: Arc::default(),
            }),
        };
        Self {
            shards: (0..SHARDS as u64).map(shard).collect(),
            len: AtomicU64::new(0),
        }
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Memory that the directory takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tables = self.shards.iter().map(|shard| {
            let content = shard.content.read();
            content.table.memory_bytes() + size_of::<Shard>()
        });
        tables.sum::<usize>() as u64
    }

    /// Calls `look` with the first slot of this fingerprint, under the shard's lock: nothing is
    /// cloned, and `look` has to be quick.
    pub(crate) fn look<T>(
        &self,
        fingerprint: u64,
        look: impl FnOnce(Slot, &Place) -> Option<T>,
    ) -> Option<T> {
        let shard = shard_of(fingerprint);
        let content = self.shards[shard].content.read();
        let sought = Packed::sought(fingerprint);
        let packed = content.table.of_fingerprint(sought).next()?;
        look(Slot::unpack(shard, packed), content.place_of(packed))
    }

    /// The slots with this fingerprint, and their places.
    pub(crate) fn candidates(&self, fingerprint: u64) -> Candidates {
        let shard = shard_of(fingerprint);
        let content = self.shards[shard].content.read();
        let slots = content.table.of_fingerprint(Packed::sought(fingerprint));
        let mut found = slots.map(|packed| {
            let place = content.place_of(packed).clone();
            (Slot::unpack(shard, packed), place)
        });
        Candidates {
            first: found.next(),
            others: found.collect(),
        }
    }

    /// The slots with this fingerprint, for an opening, which has the segments itself.
    pub(crate) fn slots_of(&self, fingerprint: u64) -> Vec<Slot> {
        let shard = shard_of(fingerprint);
        let content = self.shards[shard].content.read();
        let slots = content.table.of_fingerprint(Packed::sought(fingerprint));
        slots.map(|packed| Slot::unpack(shard, packed)).collect()
    }

    /// True when exactly this slot is present.
    pub(crate) fn contains(&self, slot: &Slot) -> bool {
        let packed = slot.pack();
        let content = self.shards[slot.shard()].content.read();
        let mut found = content.table.of_fingerprint(packed);
        found.any(|it| it.is_same_record(packed))
    }

    /// Makes changes. A reader sees all changes of one shard at once, and a shard's changes only
    /// when all shards have theirs. `done` gets each change, and true if its old slot was still
    /// present.
    pub(crate) fn change(&self, changes: &[Change], mut done: impl FnMut(&Change, bool)) {
        if let [change] = changes {
            if let Some(shard) = change.shard() {
                let mut content = self.lock_for(shard, change);
                done(change, self.apply(&mut content, change));
            }
            return;
        }
        let mut shards: Vec<usize> = changes.iter().filter_map(Change::shard).collect();
        shards.sort_unstable();
        shards.dedup();
        // Locks are taken in ascending order, and readers hold one at a time.
        let locks = shards
            .iter()
            .map(|shard| self.shards[*shard].content.write());
        let mut contents: Vec<RwLockWriteGuard<'_, Content>> = locks.collect();
        for change in changes {
            let found = change
                .shard()
                .and_then(|shard| shards.binary_search(&shard).ok());
            if let Some(at) = found {
                done(change, self.apply(&mut contents[at], change));
            }
        }
    }

    /// Replaces `old` by `new`; false when `old` is no longer present.
    pub(crate) fn replace(&self, old: &Slot, new: Slot) -> bool {
        let mut content = self.shards[old.shard()].content.write();
        content.table.replace(old.pack(), new.pack())
    }

    /// Removes a slot; false when it is no longer present.
    pub(crate) fn remove(&self, old: &Slot) -> bool {
        let change = Change {
            old: Some(*old),
            new: None,
        };
        let mut was_there = false;
        self.change(&[change], |_, there| was_there = there);
        was_there
    }

    pub(crate) fn insert(&self, new: Slot) {
        let change = Change {
            old: None,
            new: Some(new),
        };
        self.change(&[change], |_, _| {});
    }

    /// Removes slots whose place `keep` refuses, and returns their number. Visits every slot.
    pub(crate) fn retain(&self, mut keep: impl FnMut(u32) -> bool) -> u64 {
        let mut removed = 0;
        for shard in &self.shards {
            let content = shard.content.upgradable_read();
            if content.table.slots().all(|slot| keep(slot.place())) {
                continue;
            }
            let kept = content.table.filtered(|slot| keep(slot.place()));
            removed += (content.table.len() - kept.len()) as u64;
            RwLockUpgradableReadGuard::upgrade(content).table = kept;
        }
        self.len.fetch_sub(removed, Ordering::Relaxed);
        removed
    }

    /// Removes all slots.
    pub(crate) fn clear(&self) {
        self.retain(|_| false);
    }

    /// Some slots, with their places.
    pub(crate) fn sample(&self, count: usize) -> Vec<(Slot, Place)> {
        let mut sample = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            let content = shard.content.read();
            let found = content.table.slots().map(|packed| {
                let place = content.place_of(packed).clone();
                (Slot::unpack(number, packed), place)
            });
            sample.extend(found.take(count - sample.len()));
            if sample.len() >= count {
                break;
            }
        }
        sample
    }

    /// The slots of one shard, in order.
    pub(crate) fn shard(&self, index: usize) -> Vec<Packed> {
        let Some(shard) = self.shards.get(index) else {
            return Vec::new();
        };
        let content = shard.content.read();
        let mut slots = Vec::with_capacity(content.table.len());
        slots.extend(content.table.slots());
        slots
    }

    /// Takes the slots of one empty shard, sorted by fingerprint.
    pub(crate) fn load_shard(&self, index: usize, slots: &[Packed]) {
        if let Some(shard) = self.shards.get(index) {
            let mut content = shard.content.write();
            content.table = content.table.replaced_by(slots);
            self.len.fetch_add(slots.len() as u64, Ordering::Relaxed);
        }
    }

    /// Makes room for `count` slots, spread evenly, in an empty directory.
    pub(crate) fn reserve(&self, count: u64) {
        let each = usize::try_from(count).unwrap_or(0) / SHARDS;
        for shard in &self.shards {
            let mut content = shard.content.write();
            content.table = content.table.replaced_by_room(each);
        }
    }

    /// Calls `visit` with each slot.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Slot)) {
        for (number, shard) in self.shards.iter().enumerate() {
            let content = shard.content.read();
            let slots = content.table.slots();
            slots.for_each(|packed| visit(Slot::unpack(number, packed)));
        }
    }

    /// Gives the table of places to every shard. It must have the places of all slots.
    pub(crate) fn show_places(&self, places: &Arc<Places>) {
        for shard in &self.shards {
            shard.content.write().places = places.clone();
        }
    }

    /// Locks a shard for a change, with room for the new slot. A full shard grows while it is read.
    fn lock_for(&self, shard: usize, change: &Change) -> RwLockWriteGuard<'_, Content> {
        let content = self.shards[shard].content.write();
        if change.old.is_some() || content.table.has_room() {
            return content;
        }
        let content = RwLockWriteGuard::downgrade_to_upgradable(content);
        let grown = content.table.grown();
        let mut content = RwLockUpgradableReadGuard::upgrade(content);
        content.table = grown;
        content
    }

    fn apply(&self, content: &mut Content, change: &Change) -> bool {
        let table = &mut content.table;
        let was_there = match (change.old, change.new) {
            (Some(old), Some(new)) => table.replace(old.pack(), new.pack()),
            (Some(old), None) => table.remove(old.pack()),
            (None, _) => false,
        };
        match change.new {
            Some(new) if !was_there => {
                if !table.has_room() {
                    *table = table.grown();
                }
                table.insert(new.pack());
                self.len.fetch_add(1, Ordering::Relaxed);
            }
            None if was_there => {
                self.len.fetch_sub(1, Ordering::Relaxed);
                if table.is_sparse() {
                    *table = table.filtered(|_| true);
                }
            }
            _ => {}
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use kvorum_segment::Location;

    use super::*;

    fn prints() -> Fingerprints {
        Fingerprints::new((1, 2), None)
    }

    fn slot(fingerprint: u64, offset: u64) -> Slot {
        let at = Location {
            offset,
            front_end: 100,
            len: 1000,
        };
        Slot::new(fingerprint, 1, at)
    }

    #[test]
    fn keys_with_one_fingerprint_have_a_slot_each() {
        let keydir = Keydir::new(&prints());
        keydir.insert(slot(8, 32));
        keydir.insert(slot(8, 64));
        assert_eq!(keydir.slots_of(8).len(), 2);
        assert!(keydir.replace(&slot(8, 32), slot(8, 96)));
        assert!(!keydir.replace(&slot(8, 32), slot(8, 128)));
        assert!(keydir.remove(&slot(8, 64)));
        assert_eq!(keydir.slots_of(8), [slot(8, 96)]);
        assert!(keydir.contains(&slot(8, 96)) && !keydir.contains(&slot(8, 64)));
        assert_eq!(keydir.len(), 1);
    }

    #[test]
    fn several_changes_are_made_and_reported_one_by_one() {
        let keydir = Keydir::new(&prints());
        keydir.insert(slot(8, 32));
        let change = |old: Option<Slot>, new: Option<Slot>| Change { old, new };
        let far = 1 << 60;
        let changes = [
            change(Some(slot(8, 32)), Some(slot(8, 64))),
            change(Some(slot(far, 32)), Some(slot(far, 64))),
            change(Some(slot(9 << 20, 32)), None),
            change(None, Some(slot(16, 64))),
        ];
        let mut seen = Vec::new();
        keydir.change(&changes, |_, was_there| seen.push(was_there));
        assert_eq!(seen, [true, false, false, false]);
        assert_eq!(keydir.len(), 3);
        assert!(keydir.contains(&slot(far, 64)));
        keydir.clear();
        assert_eq!((keydir.len(), keydir.slots_of(8).len()), (0, 0));
    }

    #[test]
    fn a_loaded_shard_is_what_was_saved() {
        let (from, to) = (Keydir::new(&prints()), Keydir::new(&prints()));
        for number in 0..10_000u64 {
            from.insert(slot(prints().of(&number.to_le_bytes()), 8 * number + 32));
        }
        for shard in 0..SHARDS {
            to.load_shard(shard, &from.shard(shard));
        }
        assert_eq!((from.len(), to.len()), (10_000, 10_000));
        from.for_each(|slot| assert!(to.contains(&slot)));
    }

    #[test]
    fn a_slot_is_found_while_its_shard_grows_and_shrinks() {
        let keydir = Keydir::new(&prints());
        let of = |number: u64| slot(prints().of(&number.to_le_bytes()), 8 * number + 32);
        (0..200).for_each(|number| keydir.insert(of(number)));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut rounds = 0;
                while rounds == 0 || !is_over.load(Ordering::Acquire) {
                    for number in 0..200 {
                        let found = keydir.slots_of(of(number).fingerprint());
                        assert_eq!(found, [of(number)]);
                    }
                    rounds += 1;
                }
            });
            for _ in 0..3 {
                (200..20_000).for_each(|number| keydir.insert(of(number)));
                let removed = (200..20_000).filter(|number| keydir.remove(&of(*number)));
                assert_eq!(removed.count(), 19_800);
            }
            is_over.store(true, Ordering::Release);
            assert!(reader.join().is_ok());
        });
        assert_eq!(keydir.len(), 200);
        assert!(keydir.memory_bytes() < 200 * 32 + 64 * 1024);
    }

    /// The calculated maximum of memory, for 64 stores with 1 to 12 million keys.
    #[test]
    fn the_directory_takes_at_most_24_bytes_a_key_at_any_size() {
        // One store with a 64th of the keys; stores differ only in their secrets.
        let prints = prints();
        let keydir = Keydir::new(&prints);
        let mut worst = 0.0f64;
        for number in 0..12_000_000 / 64u64 {
            keydir.insert(slot(prints.of(&number.to_le_bytes()), 8 * number + 32));
            if number >= 1_000_000 / 64 && number % 1024 == 0 {
                let each = keydir.memory_bytes() as f64 / keydir.len() as f64;
                worst = worst.max(each);
            }
        }
        assert!(worst < 21.5, "{worst}");
    }
}
