//! The contents of a store: entries, index entries, and the orders in which they are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Batch, Fields, IndexCounts, IndexEntry, Sequence, Timestamp, Write};
use kvorum_encoding::StorageKey;

use crate::Settings;
use crate::by_key::ByKey;
use crate::entry::{self, Entry, OwnedBytes};
use crate::versioned_map::VersionedMap;

/// The place of an index entry: by bucket, field, term and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexPosition {
    pub(crate) bucket_prefix: Bytes,
    pub(crate) field: Bytes,
    pub(crate) term: Bytes,
    pub(crate) key: StorageKey,
}

/// Everything that one lock guards.
pub(crate) struct Contents {
    /// The newest entry of each key that has one.
    pub(crate) by_key: ByKey,
    pub(crate) entries: VersionedMap<StorageKey, Arc<Entry>>,
    pub(crate) index: VersionedMap<IndexPosition, ()>,
    /// Entries that will expire, by time and then by position in the order of writes.
    by_expiry: BTreeMap<(Timestamp, u64), StorageKey>,
    /// Entries in the order of writes; only for stores with a bound.
    by_age: BTreeMap<u64, StorageKey>,
    pub(crate) last_sequence: Sequence,
    next_position: u64,
    /// The counted bytes of entries.
    pub(crate) memory_bytes: u64,
    /// The counted bytes of old versions that only snapshots see.
    pub(crate) pinned_bytes: u64,
    pub(crate) put_bytes: u64,
    /// Changes of indexes by puts and removals.
    pub(crate) index_counts: IndexCounts,
    pub(crate) evicted: u64,
    pub(crate) expired: u64,
}

/// A write with copied bytes, made before the lock is taken.
pub(crate) struct OwnedWrite {
    key: StorageKey,
    put: Option<OwnedPut>,
}

struct OwnedPut {
    fields: Fields,
    owned: OwnedBytes,
    index_entries: Vec<IndexEntry>,
}

impl OwnedWrite {
    pub(crate) fn of(write: &Write) -> Self {
        match write {
            Write::Put {
                key,
                fields,
                head,
                body,
                index_entries,
                ..
            } => {
                let owned = entry::own(key, head, body);
                Self {
                    key: owned.key(),
                    put: Some(OwnedPut {
                        fields: *fields,
                        owned,
                        index_entries: index_entries.iter().map(entry::own_index_entry).collect(),
                    }),
                }
            }
            Write::Remove { key, .. } => Self {
                key: key.clone(),
                put: None,
            },
        }
    }
}

impl Contents {
    /// Empty contents; `secret` is a random number for hashes.
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            by_key: ByKey::new(secret),
            entries: VersionedMap::default(),
            index: VersionedMap::default(),
            by_expiry: BTreeMap::new(),
            by_age: BTreeMap::new(),
            last_sequence: Sequence::default(),
            next_position: 0,
            memory_bytes: 0,
            pinned_bytes: 0,
            put_bytes: 0,
            index_counts: IndexCounts::default(),
            evicted: 0,
            expired: 0,
        }
    }

    /// Applies a batch, given as owned writes, and returns its sequence. `newest_snapshot` is the
    /// highest sequence that an open snapshot sees.
    pub(crate) fn apply(
        &mut self,
        writes: Vec<OwnedWrite>,
        batch: &Batch,
        settings: &Settings,
        newest_snapshot: Option<Sequence>,
    ) -> Sequence {
        self.last_sequence = self.last_sequence.next();
        for write in writes {
            match write.put {
                Some(put) => self.put(write.key, put, settings, newest_snapshot),
                None => {
                    let gone = self.remove(write.key, newest_snapshot);
                    self.index_counts.deletes += 1;
                    self.index_counts.postings_deleted += gone;
                }
            }
        }
        if let Some(memory_bytes_max) = settings.memory_bytes_max {
            self.evict_until_below(memory_bytes_max, newest_snapshot);
        }
        self.put_bytes += batch.payload_bytes();
        self.last_sequence
    }

    fn put(
        &mut self,
        key: StorageKey,
        put: OwnedPut,
        settings: &Settings,
        newest_snapshot: Option<Sequence>,
    ) {
        self.index_counts.writes += 1;
        self.change_index(&key, &put.index_entries, newest_snapshot);
        let OwnedBytes {
            bytes,
            head_start,
            body_start,
        } = put.owned;
        self.next_position += 1;
        let entry = Arc::new(Entry {
            sequence: self.last_sequence,
            fields: put.fields,
            expires_at: entry::expires_at(&put.fields, settings.ttl),
            memory_bytes: entry::memory_bytes(bytes.len(), &put.index_entries),
            bytes,
            head_start,
            body_start,
            index_entries: put.index_entries,
            position: self.next_position,
        });
        if let Some(expires_at) = entry.expires_at {
            self.by_expiry
                .insert((expires_at, entry.position), key.clone());
        }
        if settings.memory_bytes_max.is_some() {
            self.by_age.insert(entry.position, key.clone());
        }
        self.memory_bytes += entry.memory_bytes;
        self.set(key, Some(entry), newest_snapshot);
    }

    /// Removes a key and returns the number of index entries removed with it.
    fn remove(&mut self, key: StorageKey, newest_snapshot: Option<Sequence>) -> u64 {
        let Some(entry) = self.by_key.get(key.as_bytes()).cloned() else {
            return 0;
        };
        for index_entry in &entry.index_entries {
            let position = IndexPosition::new(&key, index_entry);
            self.index
                .set(position, self.last_sequence, None, newest_snapshot);
        }
        self.set(key, None, newest_snapshot);
        entry.index_entries.len() as u64
    }

    /// Sets a key, and removes its old entry from the orders and the count.
    fn set(
        &mut self,
        key: StorageKey,
        entry: Option<Arc<Entry>>,
        newest_snapshot: Option<Sequence>,
    ) {
        match &entry {
            Some(entry) => self.by_key.set(entry.clone()),
            None => self.by_key.remove(key.as_bytes()),
        }
        let superseded = self
            .entries
            .set(key, self.last_sequence, entry, newest_snapshot);
        if let Some(old) = superseded {
            self.forget(&old.value);
            if old.is_pinned {
                self.pinned_bytes += old.value.memory_bytes;
            }
        }
    }

    fn forget(&mut self, entry: &Entry) {
        self.memory_bytes -= entry.memory_bytes;
        self.by_age.remove(&entry.position);
        if let Some(expires_at) = entry.expires_at {
            self.by_expiry.remove(&(expires_at, entry.position));
        }
    }

    /// Replaces the index entries of a key.
    fn change_index(
        &mut self,
        key: &StorageKey,
        index_entries: &[IndexEntry],
        newest_snapshot: Option<Sequence>,
    ) {
        let before = self.by_key.get(key.as_bytes()).cloned();
        let before = before.as_ref().map_or(&[][..], |it| &it.index_entries);
        if before.is_empty() && index_entries.is_empty() {
            return;
        }
        let before: BTreeSet<&IndexEntry> = before.iter().collect();
        let after: BTreeSet<&IndexEntry> = index_entries.iter().collect();
        let sequence = self.last_sequence;
        for gone in before.difference(&after) {
            let position = IndexPosition::new(key, gone);
            self.index.set(position, sequence, None, newest_snapshot);
            self.index_counts.postings_deleted += 1;
        }
        for added in after.difference(&before) {
            let position = IndexPosition::new(key, added);
            self.index
                .set(position, sequence, Some(()), newest_snapshot);
            self.index_counts.postings_written += 1;
        }
    }

    fn evict_until_below(&mut self, memory_bytes_max: u64, newest_snapshot: Option<Sequence>) {
        while self.memory_bytes > memory_bytes_max {
            let Some((_, key)) = self.by_age.pop_first() else {
                return;
            };
            self.evicted += 1;
            let _not_asked_for = self.remove(key, newest_snapshot);
        }
    }

    /// The number of entries that have expired at `now`, counted up to `most`.
    pub(crate) fn expired_count(&self, now: Timestamp, most: usize) -> usize {
        self.by_expiry.range(..=(now, u64::MAX)).take(most).count()
    }

    /// True when every entry has expired at `now`.
    pub(crate) fn all_expired(&self, now: Timestamp) -> bool {
        let len = self.entries.len();
        len <= self.by_expiry.len() && self.expired_count(now, len) == len
    }

    /// Collects the entry that expired first, if any, and returns its counted bytes. Snapshots lose
    /// the entry too: folds at `now` or later would not show it.
    pub(crate) fn collect_one_expired(&mut self, now: Timestamp) -> Option<u64> {
        let ((expires_at, _), key) = self.by_expiry.first_key_value()?;
        if *expires_at > now {
            return None;
        }
        let key = key.clone();
        let entry = self.entries.take(&key)?;
        self.by_key.remove(key.as_bytes());
        self.forget(&entry);
        for index_entry in &entry.index_entries {
            self.index.take(&IndexPosition::new(&key, index_entry));
        }
        self.expired += 1;
        Some(entry.memory_bytes)
    }

    /// True when there are old versions that no snapshot needs.
    pub(crate) fn has_superseded(&self, oldest_snapshot: Option<Sequence>) -> bool {
        self.entries.has_superseded(oldest_snapshot) || self.index.has_superseded(oldest_snapshot)
    }

    /// Drops one old version of an entry and one of an index entry, and returns their counted
    /// bytes.
    pub(crate) fn drop_one_superseded(&mut self, oldest_snapshot: Option<Sequence>) -> u64 {
        self.index.drop_one_superseded(oldest_snapshot);
        let dropped = self.entries.drop_one_superseded(oldest_snapshot);
        let bytes = dropped.map_or(0, |entry| entry.memory_bytes);
        self.pinned_bytes -= bytes;
        bytes
    }

    /// Empties the store; sequences continue.
    pub(crate) fn erase(&mut self) {
        self.by_key.clear();
        self.entries = VersionedMap::default();
        self.index = VersionedMap::default();
        self.by_expiry.clear();
        self.by_age.clear();
        self.memory_bytes = 0;
        self.pinned_bytes = 0;
        self.evicted = 0;
        self.expired = 0;
    }
}

impl IndexPosition {
    fn new(key: &StorageKey, entry: &IndexEntry) -> Self {
        // A key that is not a storage key has no bucket; its index entries have the empty prefix.
        let prefix_len = key.bucket_prefix_len().unwrap_or(0);
        Self {
            bucket_prefix: key.to_bytes().slice(..prefix_len),
            field: entry.field.clone(),
            term: entry.term.clone(),
            key: key.clone(),
        }
    }
}

/// The counted bytes of a batch's entries.
pub(crate) fn memory_bytes_of(batch: &Batch) -> u64 {
    let counted = |write: &Write| match write {
        Write::Remove { .. } => 0,
        Write::Put {
            key,
            head,
            body,
            index_entries,
            ..
        } => {
            let payload_bytes = key.as_bytes().len() + head.len() + body.len();
            entry::memory_bytes(payload_bytes, index_entries)
        }
    };
    batch.writes.iter().map(counted).sum()
}
