//! Large sets in pages, at a vnode: read whole, changed page by page, and brought up to date by the updates
//! of other replicas.
//!
//! An update reads the object, whose value is the head of the set, and the pages of the members
//! concerned. It writes these in one batch. Every other operation takes the whole object: all pages
//! are read, and a write replaces all of them.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Durability, Durable, ReadAt, Reading, StoredEntry};
use kvorum_data_types::{Operation, PageSource, PagedSetError};
use kvorum_encoding::{StorageKey, page_key};
use kvorum_object::{Clock, Head, Merged, Object, ObjectTag, Resolution, Stored};
use kvorum_planted_defects::is_planted;
use kvorum_ring::Epoch;

use crate::data_type_update::{DataTypeUpdate, NotApplied};
use crate::operating::failure_of;
use crate::paged_object::{NotUpdated, PagedObject, PagedUpdate};
use crate::replica_request::ReplicaReply;
use crate::stored_form::object_of;
use crate::value_facts::ValueFacts;
use crate::vnode::{Interrupted, Vnode};
use crate::writing::{NewEntry, Old, object_time, update_failure};

/// More pages than this are not read on the thread that received the request.
const PAGES_INLINE_MAX: u32 = 16;

/// The pages of an object, as the store has them.
struct StoredPages<'a> {
    vnode: &'a Vnode,
    key: &'a StorageKey,
    at: ReadAt,
}

impl PageSource for StoredPages<'_> {
    type Error = Interrupted;

    fn page(&mut self, number: u32) -> Result<Option<Bytes>, Interrupted> {
        let key = StorageKey::from_encoded(page_key(self.key.as_bytes(), number));
        let looked_up = self.vnode.backend.get(&key, self.at);
        let found = self.vnode.looked_up(looked_up)?;
        Ok(found.map(|page| page.body))
    }
}

/// An object in pages that could not be assembled.
enum NotWhole {
    Interrupted(Interrupted),
    /// The parts do not fit: they are damaged, or a write has changed them meanwhile.
    Differs(String),
}

impl Vnode {
    /// The object of an entry. The caller holds the key's lock, if the object is in pages.
    pub(crate) fn object_in(
        &self,
        key: &StorageKey,
        entry: StoredEntry,
        at: ReadAt,
    ) -> Result<Arc<Object>, Interrupted> {
        let (tag, is_in_pages) = (entry.fields.tag, entry.fields.tag.is_in_pages());
        let object = object_of(tag, &entry.head, entry.body);
        let object = object.map_err(|error| self.damaged(key, &error))?;
        if !is_in_pages {
            return Ok(object);
        }
        self.assemble(key, object, at).map_err(|error| match error {
            NotWhole::Interrupted(interrupted) => interrupted,
            NotWhole::Differs(detail) => self.damaged(key, &detail).into(),
        })
    }

    /// Reads an object for a caller that does not hold the key's lock.
    pub(crate) fn read_unlocked(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<Arc<Object>>, Interrupted> {
        let Some(entry) = self.find_entry(key, at)? else {
            return Ok(None);
        };
        if !entry.fields.tag.is_in_pages() {
            return self.object_in(key, entry, at).map(Some);
        }
        if let Ok(object) = object_of(entry.fields.tag, &entry.head, entry.body) {
            match self.assemble(key, object, at) {
                Ok(object) => return Ok(Some(object)),
                Err(NotWhole::Interrupted(interrupted)) => return Err(interrupted),
                Err(NotWhole::Differs(_)) => {}
            }
        }
        let _turn = match at.reading {
            Reading::MayBlock => self.key_locks.lock(key),
            Reading::CachedOnly => self
                .key_locks
                .try_lock(key)
                .ok_or(Interrupted::WouldBlock)?,
        };
        self.read_object(key, at)
    }

    fn assemble(
        &self,
        key: &StorageKey,
        object: Arc<Object>,
        at: ReadAt,
    ) -> Result<Arc<Object>, NotWhole> {
        let paged = PagedObject::of(Arc::unwrap_or_clone(object));
        let paged = paged.map_err(|error| NotWhole::Differs(error.to_string()))?;
        if at.reading == Reading::CachedOnly && paged.set.page_count() > PAGES_INLINE_MAX {
            return Err(NotWhole::Interrupted(Interrupted::WouldBlock));
        }
        let whole = paged.assemble(&mut self.pages(key, at));
        whole.map(Arc::new).map_err(|error| match error {
            PagedSetError::Source { source, .. } => NotWhole::Interrupted(source),
            other => NotWhole::Differs(other.to_string()),
        })
    }

    fn pages<'a>(&'a self, key: &'a StorageKey, at: ReadAt) -> StoredPages<'a> {
        StoredPages {
            vnode: self,
            key,
            at,
        }
    }

    /// The object in pages under a key, without its pages; `None` for an object that is stored whole, and for
    /// an unreadable one.
    fn read_paged(&self, key: &StorageKey, at: ReadAt) -> Result<Option<PagedObject>, Interrupted> {
        let entry = match self.find_entry(key, at) {
            Ok(Some(entry)) if entry.fields.tag.is_in_pages() => entry,
            Err(Interrupted::WouldBlock) => return Err(Interrupted::WouldBlock),
            Ok(_) | Err(Interrupted::Failed(_)) => return Ok(None),
        };
        let object = object_of(entry.fields.tag, &entry.head, entry.body);
        let paged = object.map(|it| PagedObject::of(Arc::unwrap_or_clone(it)));
        Ok(paged.ok().and_then(Result::ok))
    }

    /// Carries out an operation on a set in pages. `None` if the whole object is needed: it is not
    /// in pages, will no longer be, or is damaged. The caller holds the key's lock.
    pub(crate) fn update_in_pages(
        &self,
        key: &StorageKey,
        old: &Old,
        update: &DataTypeUpdate,
        durability: Durability,
        at: ReadAt,
    ) -> Result<Option<ReplicaReply>, Interrupted> {
        let Operation::Set(changes) = &update.operation else {
            return Ok(None);
        };
        if old.pages == 0 || !self.keeps_pages {
            return Ok(None);
        }
        let Some(paged) = self.read_paged(key, at)? else {
            return Ok(None);
        };
        let dot = self.next_dot(key, &Clock::new(), old.head.as_ref());
        let begun = self.work_begins();
        let (change, now) = ((&changes[..], update.context.as_ref()), object_time(at.now));
        let updated = paged.update(change, (dot, now), &mut self.pages(key, at));
        let (updated, pages, delta) = match updated {
            Ok(updated) => updated,
            Err(NotUpdated::Set(PagedSetError::Operation(error))) => {
                return Err(failure_of(NotApplied::Operation(error)).into());
            }
            Err(NotUpdated::Set(PagedSetError::Source {
                source: Interrupted::WouldBlock,
                ..
            })) => return Err(Interrupted::WouldBlock),
            Err(NotUpdated::Object(error)) => return Err(update_failure(error).into()),
            Err(NotUpdated::Set(_)) => return Ok(None),
        };
        if !updated.set.is_large() {
            return Ok(None);
        }
        let measured = begun.map(|(stopwatch, began)| (stopwatch, began, stopwatch.clock.now()));
        let size = updated.size();
        self.check_limits(key, size, old.head.as_ref().map(Head::size), at.now)?;
        let entry = NewEntry::in_pages(&updated, pages, update.tag);
        let durable = self.write_entry(key, old, entry, durability)?;
        if let Some((stopwatch, began, ended)) = measured {
            let facts = ValueFacts::of_paged(&updated.set);
            stopwatch
                .meter
                .value_changed(facts, ended.since(began), ended);
        }
        Ok(Some(ReplicaReply::Updated {
            update: Arc::new(PagedUpdate {
                object: Arc::new(updated.object),
                delta,
            }),
            durable,
        }))
    }

    /// Carries out an update that another replica made on a set in pages. It is applied only if the
    /// result equals the other replica's, to the last member; otherwise the whole object is needed.
    pub(crate) fn follow(
        &self,
        key: &StorageKey,
        (update, resolution, tag): (&PagedUpdate, Resolution, ObjectTag),
        durability: Durability,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        if !self.keeps_pages {
            return Ok(ReplicaReply::NeedsWhole);
        }
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let old = Old::of(self.find_head(key, at)?, at.reading);
        let Some(head) = &old.head else {
            return Ok(ReplicaReply::NeedsWhole);
        };
        let incoming = Object::clone(&update.object);
        let is_next = incoming.clock().descends(head.clock());
        let merged = kvorum_object::merge_into_stored(Stored::Head(head), incoming, resolution);
        let object = match merged {
            Ok(Merged::Unchanged) => return self.received_before(durability),
            Ok(Merged::Changed(object)) if is_next && old.pages > 0 => object,
            Ok(Merged::Changed(_)) | Err(_) => return Ok(ReplicaReply::NeedsWhole),
        };
        let (Some(stored), Ok(expected)) = (self.read_paged(key, at)?, PagedObject::of(object))
        else {
            return Ok(ReplicaReply::NeedsWhole);
        };
        let joined = stored
            .set
            .join(update.delta.clone(), &mut self.pages(key, at));
        let joined = match joined {
            Ok(joined) => joined,
            Err(PagedSetError::Source {
                source: Interrupted::WouldBlock,
                ..
            }) => return Err(Interrupted::WouldBlock),
            // A gap or damage: merging the whole object repairs either.
            Err(_) => return Ok(ReplicaReply::NeedsWhole),
        };
        let expected = match joined.head == expected.set {
            true => expected,
            false if is_planted!(UpdateTakenUnchecked) => PagedObject {
                object: expected.object.with_value(joined.head.encode()),
                set: joined.head,
            },
            false => return Ok(ReplicaReply::NeedsWhole),
        };
        self.note_overtaken(key, expected.object.clock());
        let entry = NewEntry::in_pages(&expected, joined.pages, tag);
        let durable = self.write_entry(key, &old, entry, durability)?;
        Ok(ReplicaReply::Received { durable })
    }

    /// The answer when the stored object has seen all of an incoming one.
    fn received_before(&self, durability: Durability) -> Result<ReplicaReply, Interrupted> {
        let durable = match durability {
            Durability::Buffered => Durable::Already,
            // The stored object may not be durable yet.
            _ => self.put_nothing(durability)?,
        };
        Ok(ReplicaReply::Received { durable })
    }
}
