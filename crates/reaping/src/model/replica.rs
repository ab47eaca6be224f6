//! A replica of the model: a store with an index, its durable image, and its keeper.
//!
//! Puts are durable at once, removals are not: a crash undoes those since the last put.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_planted_defects::is_planted;

use crate::extent::{BatchName, Extent};
use crate::keeper::{Keeper, KeeperStart};
use crate::keeper_event::{KeeperAnswer, KeeperEffect, KeeperEvent};
use crate::note::Note;
use crate::watermark::{Incarnation, Watermark};

/// The keys of the model.
pub(super) const KEYS: u8 = 16;

/// An object; the later one supersedes the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) order: u64,
    pub(super) is_tombstone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Object,
    sequence: u64,
}

/// The content of a store, and of a backup.
#[derive(Clone, Debug)]
pub(super) struct Image {
    identity: u64,
    entries: BTreeMap<u8, Entry>,
    /// The keys that an index lists.
    index: BTreeSet<u8>,
    sequence: u64,
    note: Note,
}

impl Image {
    pub(super) fn new(identity: u64) -> Self {
        Self {
            identity,
            entries: BTreeMap::new(),
            index: BTreeSet::new(),
            sequence: 0,
            note: Note::default(),
        }
    }

    fn batch(&self, sequence: u64) -> BatchName {
        BatchName {
            store: self.identity,
            sequence,
        }
    }

    fn extent(&self) -> Extent {
        Extent::up_to([self.batch(self.sequence)])
    }

    fn put(&mut self, key: u8, object: Object) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.entries.insert(key, Entry { object, sequence });
        self.index.insert(key);
    }

    fn remove(&mut self, key: u8) {
        self.sequence += 1;
        self.entries.remove(&key);
        if !is_planted!(ReapLeavesIndexEntry) {
            self.index.remove(&key);
        }
    }
}

pub(super) struct Replica {
    image: Image,
    durable: Image,
    keeper: Keeper,
    pub(super) is_complete: bool,
}

impl Replica {
    /// Opens what a store has. It is complete unless its keeper says otherwise.
    pub(super) fn opened(
        image: Image,
        watermark: Option<&Watermark>,
        joined: u64,
        is_complete: bool,
    ) -> Self {
        let start = KeeperStart {
            incarnation: Incarnation(image.identity),
            extent: image.extent(),
            note: image.note.clone(),
            watermark: watermark.cloned(),
            joined,
        };
        let mut effects = Vec::new();
        let keeper = Keeper::open(start, &mut effects);
        let mut replica = Self {
            durable: image.clone(),
            image,
            keeper,
            is_complete,
        };
        replica.carry_out(effects);
        replica
    }

    /// Passes an event to the keeper, and executes its effects.
    pub(super) fn step_keeper(&mut self, event: KeeperEvent) -> Option<KeeperAnswer> {
        let mut effects = Vec::new();
        self.keeper.step(event, &mut effects);
        self.carry_out(effects)
    }

    fn carry_out(&mut self, effects: Vec<KeeperEffect>) -> Option<KeeperAnswer> {
        let mut answer = None;
        for effect in effects {
            match effect {
                KeeperEffect::MarkIncomplete => self.is_complete = false,
                // Objects of the model have no dots.
                KeeperEffect::TakeFreshActor => {}
                KeeperEffect::RemoveHidden(hidden) => self.remove_hidden(&hidden),
                KeeperEffect::Sync(_) => self.sync(),
                KeeperEffect::Store(note) => {
                    self.image.note = note;
                    self.sync();
                }
                KeeperEffect::Answer(given) => answer = Some(given),
            }
        }
        answer
    }

    fn sync(&mut self) {
        self.durable = self.image.clone();
    }

    fn remove_hidden(&mut self, hidden: &Extent) {
        for key in 0..KEYS {
            let entry = self.image.entries.get(&key);
            let batch = entry.map(|it| self.image.batch(it.sequence));
            if batch.is_some_and(|it| hidden.has(it)) {
                self.image.remove(key);
            }
        }
    }

    /// The content of the store, for a backup or to open it again.
    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// The content that a crash leaves.
    pub(super) fn durable(&self) -> &Image {
        &self.durable
    }

    pub(super) fn extent(&self) -> Extent {
        self.image.extent()
    }

    /// The object that the vnode finds under a key.
    pub(super) fn get(&self, key: u8) -> Option<Object> {
        let entry = self.image.entries.get(&key)?;
        let is_shown = self.keeper.shows(self.image.batch(entry.sequence));
        is_shown.then_some(entry.object)
    }

    /// Merges an object of another replica.
    pub(super) fn receive(&mut self, key: u8, object: Object) {
        if self.get(key).is_none_or(|own| own.order < object.order) {
            self.image.put(key, object);
            self.sync();
        }
    }

    /// Removes a tombstone if it may go; true if it did.
    pub(super) fn reap(&mut self, key: u8) -> bool {
        let Some(entry) = self.image.entries.get(&key).copied() else {
            return false;
        };
        let batch = self.image.batch(entry.sequence);
        let may_go = entry.object.is_tombstone && self.keeper.may_reap(batch);
        if may_go {
            self.image.remove(key);
        }
        may_go
    }

    /// The index lists a key that has no entry, or lacks one that has.
    pub(super) fn is_index_wrong(&self) -> bool {
        !self.image.entries.keys().eq(self.image.index.iter())
    }
}
