//! Reads of a vnode: objects and heads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{EntryPlace, ErrorKind, Lookup, ReadAt, Sequence, StoredEntry, StoredHead};
use kvorum_encoding::StorageKey;
use kvorum_object::{Head, Object};

use crate::replica_request::{Detail, ReplicaFailure, ReplicaReply};
use crate::stored_form::{head_of, in_pages};
use crate::vnode::{Interrupted, Vnode};

/// A stored head, and the facts that a write over it needs.
pub(crate) struct FoundHead {
    /// The batch that wrote the entry.
    pub(crate) sequence: Sequence,
    pub(crate) head: Head,
    /// The entry's place in the store.
    pub(crate) place: Option<EntryPlace>,
    /// The number of pages that hold its value.
    pub(crate) pages: u32,
}

impl Vnode {
    pub(crate) fn get(
        &self,
        key: &StorageKey,
        detail: Detail,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let found = match detail {
            Detail::Head => {
                let found = self.find_head(key, at)?;
                self.counts.heads.fetch_add(1, Ordering::Relaxed);
                found.map(|found| Arc::new(found.head.into_object_without_values()))
            }
            Detail::Whole => {
                let object = self.read_unlocked(key, at)?;
                self.counts.gets.fetch_add(1, Ordering::Relaxed);
                object
            }
        };
        Ok(match found {
            Some(object) => ReplicaReply::Found(object),
            None => ReplicaReply::NotFound,
        })
    }

    /// The stored head.
    pub(crate) fn find_head(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<FoundHead>, Interrupted> {
        let looked_up = self.backend.head(key, at);
        let Some(stored) = self.looked_up(looked_up)? else {
            return Ok(None);
        };
        let StoredHead {
            sequence,
            head: stored,
            fields,
            place,
            ..
        } = stored;
        if self.hides(sequence) {
            return Ok(None);
        }
        let head = head_of(fields.tag, &stored);
        let head = head.map_err(|error| self.damaged(key, &error))?;
        let in_pages = in_pages(fields.tag, &stored);
        let in_pages = in_pages.map_err(|error| self.damaged(key, &error))?;
        Ok(Some(FoundHead {
            sequence,
            head,
            place,
            pages: in_pages.count,
        }))
    }

    /// The stored object. The caller holds the key's lock.
    pub(crate) fn read_object(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<Arc<Object>>, Interrupted> {
        match self.find_entry(key, at)? {
            None => Ok(None),
            Some(entry) => self.object_in(key, entry, at).map(Some),
        }
    }

    /// The stored entry, unless it is hidden.
    pub(crate) fn find_entry(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<StoredEntry>, Interrupted> {
        let looked_up = self.backend.get(key, at);
        let found = self.looked_up(looked_up)?;
        Ok(found.filter(|entry| !self.hides(entry.sequence)))
    }

    pub(crate) fn looked_up<T>(
        &self,
        looked_up: kvorum_backend::Result<Lookup<T>>,
    ) -> Result<Option<T>, Interrupted> {
        match looked_up {
            Ok(Lookup::Found(found)) => Ok(Some(found)),
            Ok(Lookup::Absent) => Ok(None),
            Ok(Lookup::WouldBlock) => Err(Interrupted::WouldBlock),
            Err(error) => {
                if error.kind() == ErrorKind::Corrupt {
                    self.counts.damaged_reads.fetch_add(1, Ordering::Relaxed);
                }
                Err(ReplicaFailure::from(error).into())
            }
        }
    }

    #[cold]
    pub(crate) fn damaged(&self, key: &StorageKey, error: &dyn fmt::Display) -> ReplicaFailure {
        self.counts.damaged_reads.fetch_add(1, Ordering::Relaxed);
        ReplicaFailure::Damaged(format!(
            "partition {} {key:?}: {error}",
            self.partition.number()
        ))
    }
}
