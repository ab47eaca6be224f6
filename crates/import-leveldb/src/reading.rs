//! From records to objects for puts: choosing, decoding, comparing and merging.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kvorum_encoding::Address;
use kvorum_import::riak_object::RiakObject;
use kvorum_import::{Batch, ImportError, Place, reconcile};

use crate::index_check::CheckEntry;
use crate::internal_key::RecordKind;
use crate::merge::{KeyGroup, Merge, StoreRecord};
use crate::riak_key::{IndexKey, StoredKey, decode_key, describe};

/// The most keys of a batch, of any kind, so that there is progress without objects.
const BATCH_KEYS_MAX: usize = 32 << 10;
/// Maximum number of foreign keys reported one by one; the others are counted.
const OTHER_KEYS_REPORTED: u64 = 100;

/// The content read for one batch.
#[derive(Debug, Default)]
pub(crate) struct ReadBatch {
    pub(crate) batch: Batch,
    /// Index entries, found or required.
    pub(crate) checks: Vec<CheckEntry>,
    /// The last key of the batch; `None` at the end.
    pub(crate) last_key: Option<Bytes>,
    /// The approximate number of bytes of the source before the position.
    pub(crate) bytes_done: u64,
}

/// The rules for expired and skipped records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRules {
    /// The present time, in microseconds since the Unix epoch.
    pub(crate) now_micros: u64,
    /// The time to live of values with a time of writing.
    pub(crate) retention: Option<Duration>,
    pub(crate) leave_out_tombstones: bool,
}

impl ReadRules {
    fn is_expired(&self, kind: RecordKind) -> bool {
        match (kind, self.retention) {
            (RecordKind::ExpiresAt(at), _) => at != 0 && at <= self.now_micros,
            (RecordKind::WrittenAt(at), Some(retention)) => {
                let retention = u64::try_from(retention.as_micros()).unwrap_or(u64::MAX);
                at != 0 && at.saturating_add(retention) <= self.now_micros
            }
            _ => false,
        }
    }
}

/// Reads the next batch. Blocks.
pub(crate) fn read_batch(merge: &mut Merge, rules: &ReadRules) -> Result<ReadBatch, ImportError> {
    let mut read = ReadBatch::default();
    while read.batch.keys < BATCH_KEYS_MAX && !read.batch.is_full() {
        let Some(group) = merge.next_key(&mut read.batch)? else {
            break;
        };
        read.last_key = Some(group.key.clone());
        read.batch.keys += 1;
        take_group(group, rules, &mut read);
    }
    read.bytes_done = merge.bytes_done();
    Ok(read)
}

fn take_group(group: KeyGroup, rules: &ReadRules, read: &mut ReadBatch) {
    let counts = &mut read.batch.counts;
    counts.records += group.copies.len() as u64;
    let is_deletion = |copy: &&StoreRecord| copy.record.key.kind == RecordKind::Deletion;
    counts.deletion_marks += group.copies.iter().filter(is_deletion).count() as u64;
    match decode_key(&group.key) {
        Ok(StoredKey::Object(address)) => take_object(address, group, rules, read),
        Ok(StoredKey::Index(entry)) => {
            for copy in live(group.copies, rules).0 {
                read.checks.push(CheckEntry::new(copy.store, &entry, true));
                read.batch.counts.index_entries += 1;
            }
        }
        Ok(StoredKey::Note) => {}
        Err(error) => {
            let (copies, _) = live(group.copies, rules);
            let Some(copy) = copies.first() else {
                return;
            };
            read.batch.counts.other_keys += 1;
            if read.batch.counts.other_keys <= OTHER_KEYS_REPORTED {
                let reason = format!(
                    "a key that is none of Riak's, {}: {error}",
                    describe(&group.key)
                );
                read.batch.note(place_of(copy), None, reason);
            }
        }
    }
}

/// The copies that are neither deleted nor expired, and true if any has expired.
fn live(copies: Vec<StoreRecord>, rules: &ReadRules) -> (Vec<StoreRecord>, bool) {
    let mut has_expired = false;
    let live = copies.into_iter().filter(|copy| {
        let kind = copy.record.key.kind;
        let is_expired = rules.is_expired(kind);
        has_expired |= is_expired;
        kind != RecordKind::Deletion && !is_expired
    });
    let live = live.collect();
    (live, has_expired)
}

fn take_object(address: Address, group: KeyGroup, rules: &ReadRules, read: &mut ReadBatch) {
    let (copies, has_expired) = live(group.copies, rules);
    let counts = &mut read.batch.counts;
    match (copies.is_empty(), has_expired) {
        (true, true) => counts.keys_expired += 1,
        (true, false) => counts.keys_deleted += 1,
        (false, _) => counts.keys += 1,
    }
    let mut replicas: Vec<(Bytes, RiakObject)> = Vec::new();
    let mut first = None;
    let mut expires_at = None;
    for copy in &copies {
        if let RecordKind::ExpiresAt(at @ 1..) = copy.record.key.kind {
            expires_at = expires_at.max(Some(at));
        }
        let value = &copy.record.value;
        let known = replicas.iter().find(|(known, _)| known == value);
        if let Some((_, object)) = known {
            read.batch.counts.equal_copies += 1;
            call_for(copy.store, &address, object, &mut read.checks);
            continue;
        }
        match RiakObject::decode(value) {
            Ok(object) => {
                call_for(copy.store, &address, &object, &mut read.checks);
                first.get_or_insert_with(|| place_of(copy));
                replicas.push((value.clone(), object));
            }
            Err(error) => {
                let name = Some(address.to_string());
                read.batch
                    .unreadable(place_of(copy), name, error.to_string());
            }
        }
    }
    read.batch.counts.merged_objects += u64::from(replicas.len() > 1);
    let replicas = replicas.into_iter().map(|(_, object)| object).collect();
    if let (Some(object), Some(place)) = (reconcile(replicas), first) {
        read.batch.counts.objects_to_expire += u64::from(expires_at.is_some());
        read.batch.add(
            address,
            object,
            expires_at,
            place,
            rules.leave_out_tombstones,
        );
    }
}

/// Notes the index entries that an object of this store requires.
fn call_for(store: usize, address: &Address, object: &RiakObject, checks: &mut Vec<CheckEntry>) {
    let living = object
        .siblings
        .iter()
        .filter(|sibling| !sibling.metadata.deleted);
    let entries = living.flat_map(|sibling| &sibling.metadata.indexes);
    let entries: BTreeSet<&(Bytes, Bytes)> = entries.collect();
    for (field, term) in entries {
        let entry = IndexKey {
            address: address.clone(),
            field: field.clone(),
            term: term.clone(),
        };
        checks.push(CheckEntry::new(store, &entry, false));
    }
}

fn place_of(copy: &StoreRecord) -> Place {
    Place {
        file: copy.file.clone(),
        offset: copy.record.offset,
        len: None,
    }
}
