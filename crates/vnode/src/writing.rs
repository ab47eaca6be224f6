//! Writes of a vnode: one read, one decision and one batch, under the key's lock.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Durable, ErrorKind, IndexEntry, Lookup, OldEntry, ReadAt, Reading, Sequence,
    StoredHead, Timestamp, Write,
};
use kvorum_encoding::{StorageKey, key_segment, page_key};
use kvorum_object::{
    ActorId, Clock, Dot, Head, LimitExceeded, LimitLevel, Merged, Object, ObjectSize, ObjectTag,
    Resolution, Stored, UpdateError,
};
use kvorum_planted_defects::is_planted;
use kvorum_ring::Epoch;
use kvorum_tictac::LeafHash;

use crate::change_observer::{Change, ChangeObserver as _};
use crate::dot_source::{Lane, Overtaken};
use crate::limit_log;
use crate::metering::VnodeWork;
use crate::paged_object::{PagedObject, Pages};
use crate::reading::FoundHead;
use crate::replica_request::{ClientUpdate, Condition, ReplicaFailure, ReplicaReply};
use crate::stored_form::{
    InPages, Incoming, body_hash_of, encode, fields_of, fields_of_page, head_of, in_pages,
};
use crate::tree_building::{hash_of, hash_of_head};
use crate::vnode::{Interrupted, Vnode};

/// For writes outside any ring.
const ANY_EPOCH: Epoch = Epoch::new(u64::MAX);

/// The entry that a write replaces, as found under the key's lock.
pub(crate) struct Old {
    pub(crate) head: Option<Head>,
    /// The number of pages that its value is in.
    pub(crate) pages: u32,
    /// For the store, which need not look for it again.
    entry: OldEntry,
}

impl Old {
    pub(crate) fn of(found: Option<FoundHead>, reading: Reading) -> Self {
        let place = found.as_ref().and_then(|found| found.place);
        Self {
            pages: found.as_ref().map_or(0, |found| found.pages),
            head: found.map(|found| found.head),
            entry: OldEntry { place, reading },
        }
    }

    /// An entry that was not read.
    fn unread(reading: Reading) -> Self {
        Self::of(None, reading)
    }
}

/// An object that is about to be stored.
pub(crate) struct NewEntry<'a> {
    /// One in pages has the head of its set for its value.
    object: &'a Object,
    tag: ObjectTag,
    in_pages: Option<InPages>,
    /// The pages that change.
    pages: Pages,
}

impl<'a> NewEntry<'a> {
    fn whole(object: &'a Object, tag: ObjectTag) -> Self {
        Self {
            object,
            tag,
            in_pages: None,
            pages: Pages::new(),
        }
    }

    /// An object in pages, of which these have changed.
    pub(crate) fn in_pages(paged: &'a PagedObject, pages: Pages, tag: ObjectTag) -> Self {
        Self {
            object: &paged.object,
            tag,
            in_pages: Some(paged.in_pages()),
            pages,
        }
    }

    fn page_count(&self) -> u32 {
        self.in_pages.map_or(0, |it| it.count)
    }
}

impl Vnode {
    /// Applies a client's write and gives it its dot.
    pub(crate) fn coordinate(
        &self,
        key: &StorageKey,
        update: &ClientUpdate,
        durability: Durability,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        self.check_writable()?;
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let old = match self.writes_unread(update.resolution) {
            true => Old::unread(at.reading),
            false => self.old_to_update(key, update, at)?,
        };
        let head = old.head.as_ref();
        check_condition(&update.condition, head)?;
        let stored = self.stored_to_update(key, update, head, at)?;
        let dot = self.next_dot(key, &update.context, head);
        let write = kvorum_object::Write {
            context: &update.context,
            content: update.content.clone(),
            dot,
            now: object_time(at.now),
            resolution: update.resolution,
        };
        let is_merge = head.is_some_and(|head| !update.context.descends(head.clock()));
        let work = is_merge.then(|| VnodeWork::merge_of_content(&update.content));
        let object = self.merging(work, || kvorum_object::update(stored, write));
        let object = object.map_err(update_failure)?;
        self.check_limits(key, object.size(), head.map(Head::size), at.now)?;
        let durable = self.write(key, &old, &object, update.tag, durability)?;
        Ok(ReplicaReply::Stored {
            object: Arc::new(object),
            durable,
        })
    }

    /// True when a write need not read the entry that it replaces. Trees and observers need that entry.
    fn writes_unread(&self, resolution: Resolution) -> bool {
        resolution == Resolution::WrittenOnce && self.trees.is_none() && self.observers.is_empty()
    }

    /// Said before anything is done, so that another replica can be asked to coordinate.
    pub(crate) fn check_writable(&self) -> Result<(), ReplicaFailure> {
        match self.unwritable.get() {
            Some(detail) => Err(ReplicaFailure::Unwritable(detail.clone())),
            None => Ok(()),
        }
    }

    /// Merges an object that another replica made.
    pub(crate) fn store(
        &self,
        key: &StorageKey,
        incoming: &Incoming<'_>,
        durability: Durability,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let old = match self.writes_unread(incoming.resolution) {
            true => Old::unread(at.reading),
            false => Old::of(self.find_head(key, at)?, at.reading),
        };
        let stored = match &old.head {
            None => Stored::Absent,
            Some(head) if !incoming.needs_body_of(head) => Stored::Head(head),
            Some(_) => whole(self.read_object(key, at)?),
        };
        self.take_in(key, &old, stored, incoming, durability)
    }

    /// Like [`Vnode::store`], over an object that may be damaged: unreadable parts are replaced.
    pub(crate) fn mend(
        &self,
        key: &StorageKey,
        incoming: &Incoming<'_>,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let stored = self.unless_damaged(key, self.read_object(key, at))?;
        let stored = whole(stored);
        let old = self.old_to_mend(key, at);
        let durability = Durability::Buffered;
        self.take_in(key, &old, stored, incoming, durability)
    }

    /// Removes a tombstone that every replica holds, unless it was superseded.
    pub(crate) fn reap(
        &self,
        key: &StorageKey,
        clock: &Clock,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let old = Old::of(self.find_head(key, at)?, at.reading);
        let is_meant = |head: &Head| head.is_tombstone() && head.clock() == clock;
        if old.head.as_ref().is_some_and(is_meant) && !self.keeps_tombstones() {
            // A removal that a crash undoes leaves the tombstone, which is as good.
            self.remove(key, &old, Durability::Buffered)?;
        }
        Ok(ReplicaReply::Reaped)
    }

    /// Removes a tombstone that a batch wrote, unless something has been written since; true if it is gone
    /// by that.
    pub(crate) fn reap_written(
        &self,
        key: &StorageKey,
        written_by: Sequence,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<bool, Interrupted> {
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let Some(found) = self.find_head(key, at)? else {
            return Ok(false);
        };
        let is_meant = found.head.is_tombstone() && found.sequence == written_by;
        if !is_meant || self.keeps_tombstones() {
            return Ok(false);
        }
        let old = Old::of(Some(found), at.reading);
        self.remove(key, &old, Durability::Buffered)?;
        Ok(true)
    }

    /// Removes the entry under a key if it is hidden. Trees do not have it, and observers are not shown it.
    pub(crate) fn remove_hidden(&self, key: &StorageKey, at: ReadAt) -> Result<(), Interrupted> {
        let _turn = self.take_turn(key, ANY_EPOCH, at.reading)?;
        let Some(stored) = self.stored_head(key, at)? else {
            return Ok(());
        };
        if !self.hides(stored.sequence) {
            return Ok(());
        }
        let old = OldEntry {
            place: stored.place,
            reading: at.reading,
        };
        // Pages of a damaged head are removed when they are met.
        let pages = in_pages(stored.fields.tag, &stored.head).unwrap_or_default();
        let mut batch = Batch::of(Write::Remove {
            key: key.clone(),
            old,
        });
        batch
            .writes
            .extend(removals(key, 0..pages.count, at.reading));
        let _durable = self.put(&batch, Durability::Buffered)?;
        Ok(())
    }

    /// Removes a hidden page, unless the present object of its key has it.
    pub(crate) fn remove_hidden_page_of(
        &self,
        (key, number): (&StorageKey, u32),
        at: ReadAt,
    ) -> Result<(), Interrupted> {
        let _turn = self.take_turn(key, ANY_EPOCH, at.reading)?;
        let count = match self.stored_head(key, at)? {
            None => 0,
            Some(stored) => {
                let pages = in_pages(stored.fields.tag, &stored.head);
                pages.map_or(u32::MAX, |pages| pages.count)
            }
        };
        if number < count {
            return Ok(());
        }
        let batch = Batch {
            writes: removals(key, number..number.saturating_add(1), at.reading).collect(),
        };
        let _durable = self.put(&batch, Durability::Buffered)?;
        Ok(())
    }

    /// The stored head, hidden or not.
    fn stored_head(&self, key: &StorageKey, at: ReadAt) -> Result<Option<StoredHead>, Interrupted> {
        match self.backend.head(key, at).map_err(ReplicaFailure::from)? {
            Lookup::Found(stored) => Ok(Some(stored)),
            Lookup::Absent => Ok(None),
            Lookup::WouldBlock => Err(Interrupted::WouldBlock),
        }
    }

    /// Removes the entry under a key if it is still of this version; true when nothing is left. For
    /// entries that have found another home. Blocks.
    ///
    /// This vnode's writes to it are not here any more, and a later write that has not seen them would
    /// claim to have: such a write comes under a fresh actor.
    pub fn forget(
        &self,
        key: &StorageKey,
        clock: &Clock,
        durability: Durability,
        now: Timestamp,
    ) -> Result<bool, ReplicaFailure> {
        let reading = Reading::MayBlock;
        let forgotten = self.forget_version(key, clock, durability, ReadAt { reading, now });
        forgotten.map_err(Interrupted::into_failure)
    }

    fn forget_version(
        &self,
        key: &StorageKey,
        clock: &Clock,
        durability: Durability,
        at: ReadAt,
    ) -> Result<bool, Interrupted> {
        let _turn = self.take_turn(key, ANY_EPOCH, at.reading)?;
        let old = Old::of(self.find_head(key, at)?, at.reading);
        let Some(head) = &old.head else {
            return Ok(true);
        };
        if head.clock() != clock {
            return Ok(false);
        }
        if self.dots.has_written(self.lane(key), clock) {
            self.take_fresh_actor();
        }
        self.remove(key, &old, durability)?;
        Ok(true)
    }

    /// The entry that a client's write replaces. A write without a condition goes over a damaged one: if it
    /// were refused, a key with one replica could never be written again. A condition needs an object that
    /// can be read.
    fn old_to_update(
        &self,
        key: &StorageKey,
        update: &ClientUpdate,
        at: ReadAt,
    ) -> Result<Old, Interrupted> {
        let found = self.find_head(key, at);
        let found = match update.condition {
            Condition::Always => self.unless_damaged(key, found)?,
            _ => found?,
        };
        Ok(Old::of(found, at.reading))
    }

    /// The part of the stored object that the write needs.
    ///
    /// Not even the clock of a damaged body counts: a clock that covers siblings which are not there
    /// would make other replicas drop them as well.
    fn stored_to_update<'a>(
        &self,
        key: &StorageKey,
        update: &ClientUpdate,
        head: Option<&'a Head>,
        at: ReadAt,
    ) -> Result<Stored<'a>, Interrupted> {
        let Some(head) = head else {
            return Ok(Stored::Absent);
        };
        if !kvorum_object::update_needs_body(head, &update.context, update.resolution) {
            return Ok(Stored::Head(head));
        }
        let object = self.read_object(key, at);
        Ok(whole(match update.condition {
            Condition::Always => self.unless_damaged(key, object)?,
            _ => object?,
        }))
    }

    pub(crate) fn unless_damaged<T>(
        &self,
        key: &StorageKey,
        read: Result<Option<T>, Interrupted>,
    ) -> Result<Option<T>, Interrupted> {
        match read {
            Err(Interrupted::Failed(ReplicaFailure::Damaged(detail))) => {
                tracing::warn!(
                    event = "damaged_entry_replaced",
                    partition = self.partition.number(),
                    key = ?key,
                    detail,
                );
                // The present actor may have written the lost entry, and a clock that counts from its
                // first dot would claim to have seen that: other replicas would drop their copies.
                self.change_actor("lost an entry");
                Ok(None)
            }
            read => read,
        }
    }

    /// The entry that is about to be replaced, damaged or not: its head is for observers alone.
    fn old_to_mend(&self, key: &StorageKey, at: ReadAt) -> Old {
        let found = match self.backend.head(key, at) {
            Ok(Lookup::Found(found)) => Some(found),
            Ok(Lookup::Absent | Lookup::WouldBlock) | Err(_) => None,
        };
        let entry = OldEntry {
            place: found.as_ref().and_then(|found| found.place),
            reading: at.reading,
        };
        let pages = found.as_ref().and_then(|found| {
            let pages = in_pages(found.fields.tag, &found.head);
            pages.ok()
        });
        let found = found.filter(|found| !self.hides(found.sequence));
        let head = found.and_then(|found| head_of(found.fields.tag, &found.head).ok());
        Old {
            head,
            pages: pages.unwrap_or_default().count,
            entry,
        }
    }

    /// The caller has the key's turn.
    fn take_in(
        &self,
        key: &StorageKey,
        old: &Old,
        stored: Stored<'_>,
        incoming: &Incoming<'_>,
        durability: Durability,
    ) -> Result<ReplicaReply, Interrupted> {
        let Incoming {
            object: incoming,
            resolution,
            tag,
        } = *incoming;
        self.note_overtaken(key, incoming.clock());
        let stomps = is_planted!(DeliveryOrderDecides);
        let overwrites = is_planted!(RepairOverwritesSibling) && durability == Durability::Buffered;
        let stored = match resolution {
            _ if overwrites => Stored::Absent,
            Resolution::NewestWins if stomps => Stored::Absent,
            _ => stored,
        };
        let resolution = match is_planted!(SiblingsDropped) {
            true => Resolution::NewestWins,
            false => resolution,
        };
        let is_merge = clock_of(&stored).is_some_and(|stored| {
            let incoming = incoming.clock();
            !incoming.descends(stored) && !stored.descends(incoming)
        });
        let work = is_merge.then(|| VnodeWork::merge_of(incoming));
        let merged = self.merging(work, || {
            kvorum_object::merge_into_stored(stored, incoming.clone(), resolution)
        });
        let durable = match merged.map_err(update_failure)? {
            Merged::Changed(object) => self.write(key, old, &object, tag, durability)?,
            Merged::Unchanged if durability == Durability::Buffered => Durable::Already,
            // The stored object may not be durable yet; an empty batch takes a place behind it.
            Merged::Unchanged => self.put_nothing(durability)?,
        };
        Ok(ReplicaReply::Received { durable })
    }

    /// Goes on under a fresh actor if a clock of another replica has dots of the present one that this vnode
    /// does not remember.
    pub(crate) fn note_overtaken(&self, key: &StorageKey, incoming: &Clock) {
        if self.dots.is_overtaken_by(self.lane(key), incoming) {
            self.change_actor("overtaken");
        }
    }

    /// Takes a place behind all writes so far.
    pub(crate) fn put_nothing(&self, durability: Durability) -> Result<Durable, Interrupted> {
        self.put(&Batch::default(), durability)
    }

    /// Runs `merge`; reports it as `work` if it merges concurrent objects.
    fn merging<T>(&self, work: Option<VnodeWork>, merge: impl FnOnce() -> T) -> T {
        let Some(work) = work else {
            return merge();
        };
        let begun = self.work_begins();
        let merged = merge();
        if work == VnodeWork::Merge {
            self.counts.merges.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((stopwatch, began)) = begun {
            stopwatch.stop(work, began);
        }
        merged
    }

    /// The key's lock, once the vnode may write at all. The epoch is checked under it, so that
    /// [`Vnode::await_earlier_writes`] waits for all writes of an older one.
    pub(crate) fn take_turn(
        &self,
        key: &StorageKey,
        epoch: Epoch,
        reading: Reading,
    ) -> Result<parking_lot::MutexGuard<'_, ()>, Interrupted> {
        let turn = match reading {
            Reading::CachedOnly if !self.dots.is_ready() => return Err(Interrupted::WouldBlock),
            // The holder may be waiting for a device.
            Reading::CachedOnly => self
                .key_locks
                .try_lock(key)
                .ok_or(Interrupted::WouldBlock)?,
            Reading::MayBlock => {
                self.make_ready()?;
                self.key_locks.lock(key)
            }
        };
        self.check_epoch(epoch)?;
        Ok(turn)
    }

    /// Waits until every write that was let in under an earlier epoch than the present one is visible:
    /// a snapshot taken then has all of them. Blocks.
    pub fn await_earlier_writes(&self) {
        self.key_locks.await_holders();
    }

    fn make_ready(&self) -> Result<(), ReplicaFailure> {
        if self.dots.is_ready() {
            return Ok(());
        }
        let renewed = self.leases.renew();
        renewed.map_err(|error| ReplicaFailure::Storage(format!("take the dot lease: {error}")))
    }

    fn lane(&self, key: &StorageKey) -> Lane {
        Lane::of(key, self.place_bytes)
    }

    pub(crate) fn next_dot(&self, key: &StorageKey, context: &Clock, stored: Option<&Head>) -> Dot {
        let seen = [context, stored.map_or(context, Head::clock)];
        let lane = self.lane(key);
        loop {
            let dot = self.dots.next_beyond(self.backend.identity(), lane, &seen);
            match dot {
                Ok(dot) => return dot,
                Err(Overtaken) => self.change_actor("overtaken"),
            }
        }
    }

    /// Goes on under a fresh actor: this vnode's record of the present one's dots is incomplete.
    pub(crate) fn change_actor(&self, reason: &'static str) {
        let (former, actor) = self.take_fresh_actor();
        tracing::warn!(
            event = "actor_changed",
            partition = self.partition.number(),
            reason,
            former = %former,
            actor = %actor,
        );
    }

    /// The former actor and the one that follows it.
    fn take_fresh_actor(&self) -> (ActorId, ActorId) {
        let (former, actor) = (self.dots.actor(), self.leases.fresh_actor());
        self.dots.change_actor(self.backend.identity(), actor);
        (former, actor)
    }

    pub(crate) fn check_limits(
        &self,
        key: &StorageKey,
        size: ObjectSize,
        stored: Option<ObjectSize>,
        now: Timestamp,
    ) -> Result<(), ReplicaFailure> {
        let limits = &self.settings.limits;
        let verdict = limits.judge_write(size, stored);
        limit_log::warn(key, size, &verdict, limits, now);
        if verdict.size != LimitLevel::Within {
            self.counts.size_warnings.fetch_add(1, Ordering::Relaxed);
        }
        if verdict.siblings != LimitLevel::Within {
            self.counts.sibling_warnings.fetch_add(1, Ordering::Relaxed);
        }
        match verdict.refusal {
            None => Ok(()),
            Some(LimitExceeded::TooLarge { got, allowed }) => Err(ReplicaFailure::ObjectTooLarge {
                bytes: got,
                bytes_max: allowed,
            }),
            Some(LimitExceeded::TooManySiblings { got, allowed }) => {
                Err(ReplicaFailure::TooManySiblings {
                    siblings: got,
                    siblings_max: allowed,
                })
            }
        }
    }

    /// Writes an object over an old one. The caller has the key's turn.
    pub(crate) fn write(
        &self,
        key: &StorageKey,
        old: &Old,
        object: &Object,
        tag: ObjectTag,
        durability: Durability,
    ) -> Result<Durable, Interrupted> {
        let split = match self.keeps_pages {
            true => PagedObject::split(object),
            false => None,
        };
        match split {
            None => self.write_entry(key, old, NewEntry::whole(object, tag), durability),
            Some((paged, pages)) => {
                let entry = NewEntry::in_pages(&paged, pages, tag);
                self.write_entry(key, old, entry, durability)
            }
        }
    }

    /// Writes an entry over an old one, with its pages. The caller has the key's turn.
    pub(crate) fn write_entry(
        &self,
        key: &StorageKey,
        old: &Old,
        entry: NewEntry<'_>,
        durability: Durability,
    ) -> Result<Durable, Interrupted> {
        let (page_count, reading) = (entry.page_count(), old.entry.reading);
        let NewEntry {
            object,
            tag,
            in_pages,
            pages,
        } = entry;
        let encoded = encode(object, tag, in_pages);
        let fields = fields_of(key, object, tag, in_pages);
        let hash = match &self.trees {
            None => None,
            Some(_) => {
                let body_hash = body_hash_of(fields.tag, &encoded.head);
                let body_hash = body_hash.map_err(|it| ReplicaFailure::Internal(it.to_string()))?;
                let is_tombstone = object.is_tombstone();
                Some(hash_of(key, object.clock(), body_hash, is_tombstone))
            }
        };
        let write = Write::Put {
            key: key.clone(),
            fields,
            head: encoded.head,
            body: encoded.body,
            index_entries: self.index_entries(object, tag),
            old: old.entry,
        };
        let write = match is_planted!(TombstoneReapedEarly) {
            true if object.is_tombstone() => Write::remove(key.clone()),
            _ => write,
        };
        let mut batch = Batch::of(write);
        let written = pages.into_iter().filter(|(_, page)| page.is_some());
        batch.writes.extend(written.map(|(number, page)| {
            let body = page.unwrap_or_default();
            put_of_page((key, number), body, reading)
        }));
        batch
            .writes
            .extend(removals(key, page_count..old.pages, reading));
        let durable = self.put(&batch, durability)?;
        let is_passed_over =
            is_planted!(TreeUnchangedByRepair) && durability == Durability::Buffered;
        if !is_passed_over {
            self.change_tree(key, old, hash);
        }
        let (old, new) = (old.head.as_ref(), Some(object));
        self.show(&Change { key, old, new });
        Ok(durable)
    }

    /// Removes an old object. The caller has the key's turn.
    fn remove(
        &self,
        key: &StorageKey,
        old: &Old,
        durability: Durability,
    ) -> Result<(), Interrupted> {
        let mut batch = Batch::of(Write::Remove {
            key: key.clone(),
            old: old.entry,
        });
        let reading = old.entry.reading;
        batch.writes.extend(removals(key, 0..old.pages, reading));
        let _durable = self.put(&batch, durability)?;
        self.change_tree(key, old, None);
        let (old, new) = (old.head.as_ref(), None);
        self.show(&Change { key, old, new });
        Ok(())
    }

    /// Takes a change that the store has accepted into the tree of its key.
    fn change_tree(&self, key: &StorageKey, old: &Old, new: Option<u64>) {
        let Some(trees) = &self.trees else {
            return;
        };
        let old = old.head.as_ref().map(|head| hash_of_head(key, head));
        if is_planted!(TreeUnchangedByOverwrite) && old.is_some() && new.is_some() {
            return;
        }
        let (old, new) = (old.map(LeafHash::of_entry), new.map(LeafHash::of_entry));
        trees.changed(key, key_segment(key.as_bytes()), old, new);
    }

    /// Shows a change that the store has accepted.
    fn show(&self, change: &Change<'_>) {
        self.counts.changed(change);
        for observer in &self.observers {
            observer.changed(change);
        }
    }

    fn index_entries(&self, object: &Object, tag: ObjectTag) -> Vec<IndexEntry> {
        if !self.has_indexes {
            return Vec::new();
        }
        let terms = tag.index_terms(object).into_iter();
        let entries = terms.map(|(field, term)| IndexEntry { field, term });
        entries.collect()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Durable, Interrupted> {
        let receipt = self.backend.put(batch, durability);
        receipt.map(|receipt| receipt.durable).map_err(|error| {
            if may_have_effect(error.kind())
                && let Some(trees) = &self.trees
            {
                trees.note_doubt();
            }
            match error.kind() {
                ErrorKind::WouldBlock => return Interrupted::WouldBlock,
                ErrorKind::Failed => {
                    self.unwritable.get_or_init(|| error.to_string());
                }
                ErrorKind::Full => self.note_disk_full(),
                _ => {}
            }
            ReplicaFailure::from(error).into()
        })
    }
}

/// False for a failure of a put after which nothing is stored.
fn may_have_effect(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::Unread | ErrorKind::Exhausted | ErrorKind::TooLarge
    )
}

fn page_key_of(key: &StorageKey, number: u32) -> StorageKey {
    StorageKey::from_encoded(page_key(key.as_bytes(), number))
}

/// A page of an object.
fn put_of_page((key, number): (&StorageKey, u32), body: Bytes, reading: Reading) -> Write {
    Write::Put {
        key: page_key_of(key, number),
        fields: fields_of_page(key),
        head: Bytes::new(),
        body,
        index_entries: Vec::new(),
        old: unplaced(reading),
    }
}

/// Removals of pages of an object.
fn removals(
    key: &StorageKey,
    numbers: Range<u32>,
    reading: Reading,
) -> impl Iterator<Item = Write> + '_ {
    numbers.map(move |number| Write::Remove {
        key: page_key_of(key, number),
        old: unplaced(reading),
    })
}

fn unplaced(reading: Reading) -> OldEntry {
    OldEntry {
        place: None,
        reading,
    }
}

fn whole(object: Option<Arc<Object>>) -> Stored<'static> {
    // There is no other reference yet: it is moved, not copied.
    object.map_or(Stored::Absent, |object| {
        Stored::Object(Arc::unwrap_or_clone(object))
    })
}

fn clock_of<'a>(stored: &'a Stored<'_>) -> Option<&'a Clock> {
    match stored {
        Stored::Absent => None,
        Stored::Head(head) => Some(head.clock()),
        Stored::Object(object) => Some(object.clock()),
    }
}

fn check_condition(condition: &Condition, stored: Option<&Head>) -> Result<(), ReplicaFailure> {
    let live = stored.filter(|head| !head.is_tombstone());
    match (condition, live) {
        (Condition::Always, _) | (Condition::Absent, None) => Ok(()),
        (Condition::Absent, Some(_)) => Err(ReplicaFailure::ConditionFound),
        (Condition::Version(_), None) => Err(ReplicaFailure::ConditionAbsent),
        (Condition::Version(expected), Some(head)) if head.clock() == expected => Ok(()),
        (Condition::Version(_), Some(_)) => Err(ReplicaFailure::ConditionModified),
        (Condition::NothingBeyond(seen), live) => match stored {
            Some(head) if !seen.descends(head.clock()) => Err(match live {
                Some(_) => ReplicaFailure::ConditionModified,
                None => ReplicaFailure::ConditionAbsent,
            }),
            _ => Ok(()),
        },
    }
}

pub(crate) fn object_time(time: Timestamp) -> kvorum_object::Timestamp {
    kvorum_object::Timestamp::from_micros(time.0)
}

pub(crate) fn update_failure(error: UpdateError) -> ReplicaFailure {
    ReplicaFailure::Internal(error.to_string())
}
