//! Reads of a vnode: objects and heads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{EntryPlace, ErrorKind, Lookup, ReadAt, Sequence, StoredEntry, StoredHead};
use kvorum_encoding::StorageKey;
use kvorum_object::{Head, Object};

use crate::replica_request::{Detail, ReplicaFailure, ReplicaReply};
use crate::stored_form::{head_of, object_of};
use crate::vnode::{Interrupted, Vnode};

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
                found.map(|(head, _)| Arc::new(head.into_object_without_values()))
            }
            Detail::Whole => {
                let object = self.read_object(key, at)?;
                self.counts.gets.fetch_add(1, Ordering::Relaxed);
                object
            }
        };
        Ok(match found {
            Some(object) => ReplicaReply::Found(object),
            None => ReplicaReply::NotFound,
        })
    }

    /// The stored head, and where the store has it.
    pub(crate) fn find_head(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<(Head, Option<EntryPlace>)>, Interrupted> {
        let found = self.find_written(key, at)?;
        Ok(found.map(|(_, head, place)| (head, place)))
    }

    /// As [`Vnode::find_head`], with the batch that wrote the entry.
    pub(crate) fn find_written(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<(Sequence, Head, Option<EntryPlace>)>, Interrupted> {
        let looked_up = self.backend.head(key, at);
        let Some(stored) = self.looked_up(looked_up)? else {
            return Ok(None);
        };
        let StoredHead {
            sequence,
            head,
            fields,
            place,
            ..
        } = stored;
        if self.hides(sequence) {
            return Ok(None);
        }
        let head = head_of(fields.tag, &head);
        let head = head.map_err(|error| self.damaged(key, &error))?;
        Ok(Some((sequence, head, place)))
    }

    pub(crate) fn read_object(
        &self,
        key: &StorageKey,
        at: ReadAt,
    ) -> Result<Option<Arc<Object>>, Interrupted> {
        let looked_up = self.backend.get(key, at);
        let Some(stored) = self.looked_up(looked_up)? else {
            return Ok(None);
        };
        let StoredEntry {
            sequence,
            head,
            body,
            fields,
        } = stored;
        if self.hides(sequence) {
            return Ok(None);
        }
        let object = object_of(fields.tag, &head, body);
        Ok(Some(object.map_err(|error| self.damaged(key, &error))?))
    }

    fn looked_up<T>(
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
    fn damaged(&self, key: &StorageKey, error: &kvorum_object::DecodeError) -> ReplicaFailure {
        self.counts.damaged_reads.fetch_add(1, Ordering::Relaxed);
        ReplicaFailure::Damaged(format!(
            "partition {} {key:?}: {error}",
            self.partition.number()
        ))
    }
}
