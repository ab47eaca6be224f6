//! The orders of a move, carried out on two children.
//!
//! Entries are read without a lock, and their sequences are checked again while the buckets get no writes.
//! Entries overwritten meanwhile are left alone: a put removes its key from the source itself.

use bytes::Bytes;
use kvorum_backend::{
    Batch, Fields, FoldDetail, IndexEntry, OldEntry, Result, Sequence, StoredEntry, Tag, Timestamp,
    Write,
};
use kvorum_backend_migration::{Event, Tally};
use kvorum_encoding::{StorageKey, checksum_append};

use crate::child::Child;
use crate::walk::{Limits, walk};

/// The most keys of a part.
const KEYS_MAX: usize = 128;
/// The most bytes of a part: the buckets get no writes while they are copied.
const BYTES_MAX: u64 = 256 << 10;

/// The index entries of an object, by its kind, head and body; none for an unreadable object.
pub type IndexEntriesOf = dyn Fn(Tag, &Bytes, &Bytes) -> Vec<IndexEntry> + Send + Sync;

/// Puts a batch to the child of its route, or to the child from which its bucket moves.
pub(crate) type PutTo<'a> = dyn Fn(&Batch) -> Result<()> + 'a;

/// An entry as it was read.
pub(crate) struct Read {
    key: StorageKey,
    sequence: Sequence,
    fields: Fields,
    head: Bytes,
    body: Bytes,
}

/// A part of the source, as it was read.
pub(crate) struct Gathered {
    entries: Vec<Read>,
    /// The last key of the part, for the [`Event`].
    last: Option<Bytes>,
    pub(crate) bytes: u64,
}

/// The child that has the buckets, and their target.
pub(crate) struct Pair<'a> {
    pub(crate) source: &'a Child,
    pub(crate) target: &'a Child,
}

impl Pair<'_> {
    /// Reads the next part of these buckets.
    pub(crate) fn gather(
        &self,
        buckets: &[Bytes],
        after: Option<&Bytes>,
        detail: FoldDetail,
        bytes_max: u64,
    ) -> Result<Gathered> {
        let limits = Limits {
            keys: KEYS_MAX,
            bytes: bytes_max.min(BYTES_MAX),
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let last = walk(self.source, buckets, after, detail, limits, &mut |it| {
            bytes += (it.key.as_bytes().len() + it.head.len() + it.body.len()) as u64;
            entries.push(Read {
                key: it.key.clone(),
                sequence: it.sequence,
                fields: it.fields,
                head: it.head,
                body: it.body,
            });
        })?;
        Ok(Gathered {
            entries,
            last,
            bytes,
        })
    }

    /// True when the source's entry is unchanged since it was read.
    fn is_still(&self, read: &Read) -> Result<bool> {
        let head = self.source.head_of_any_age(&read.key)?;
        Ok(head.is_some_and(|it| it.sequence == read.sequence))
    }

    /// Copies entries that the target lacks. No entry leaves the source before the target's entry
    /// is durable: a put that replaces the copy removes the source's entry at once. So this must be
    /// called while there are no puts.
    pub(crate) fn copy(
        &self,
        gathered: Gathered,
        index_entries: &IndexEntriesOf,
        now: Timestamp,
        put: &PutTo<'_>,
        remove: &PutTo<'_>,
    ) -> Result<Event> {
        let (mut copies, mut removals) = (Batch::default(), Batch::default());
        let (mut keys, mut bytes) = (0, 0);
        for read in gathered.entries {
            if !self.is_still(&read)? {
                continue;
            }
            match self.target.entry_of_any_age(&read.key)? {
                None if !read.fields.is_expired(now) => {
                    keys += 1;
                    bytes += (read.key.as_bytes().len() + read.head.len() + read.body.len()) as u64;
                    copies.writes.push(read.into_put(index_entries));
                }
                Some(there) if read.is_same(&there) => {}
                _ => removals.writes.push(Write::remove(read.key)),
            }
        }
        if !copies.writes.is_empty() {
            put(&copies)?;
        }
        if keys > 0 || !removals.writes.is_empty() {
            self.target.named(self.target.store.sync())?;
        }
        if !removals.writes.is_empty() {
            remove(&removals)?;
        }
        Ok(Event::Copied {
            last: gathered.last,
            keys,
            bytes,
        })
    }

    /// Compares a part with the target; must be called while there are no puts.
    pub(crate) fn verify(&self, gathered: &Gathered) -> Result<Event> {
        let (mut source, mut target) = (Tally::default(), Tally::default());
        for read in &gathered.entries {
            if !self.is_still(read)? {
                continue;
            }
            count(&mut source, &read.key, read.fields, &read.head, &read.body);
            if let Some(it) = self.target.entry_of_any_age(&read.key)? {
                count(&mut target, &read.key, it.fields, &it.head, &it.body);
            }
        }
        Ok(Event::Verified {
            last: gathered.last.clone(),
            source,
            target,
        })
    }

    /// Removes entries that the target has too, since before `durable`; must be called while there
    /// are no puts.
    pub(crate) fn remove(
        &self,
        gathered: Gathered,
        durable: Sequence,
        now: Timestamp,
        remove: &PutTo<'_>,
    ) -> Result<Event> {
        let (mut removals, mut left) = (Batch::default(), 0);
        for read in gathered.entries {
            if !self.is_still(&read)? {
                continue;
            }
            let there = self.target.head_of_any_age(&read.key)?;
            let is_kept = there.is_some_and(|it| it.sequence <= durable);
            match is_kept || read.fields.is_expired(now) {
                true => removals.writes.push(Write::remove(read.key)),
                false => left += 1,
            }
        }
        let keys = removals.writes.len() as u64;
        if keys > 0 {
            remove(&removals)?;
        }
        Ok(Event::Removed {
            last: gathered.last,
            keys,
            left,
        })
    }
}

impl Read {
    fn is_same(&self, there: &StoredEntry) -> bool {
        self.fields == there.fields && self.head == there.head && self.body == there.body
    }

    fn into_put(self, index_entries: &IndexEntriesOf) -> Write {
        Write::Put {
            index_entries: index_entries(self.fields.tag, &self.head, &self.body),
            key: self.key,
            fields: self.fields,
            head: self.head,
            body: self.body,
            old: OldEntry::UNKNOWN,
        }
    }
}

/// Adds an entry. Index entries follow from the rest.
fn count(tally: &mut Tally, key: &StorageKey, fields: Fields, head: &Bytes, body: &Bytes) {
    let mut fixed = Vec::with_capacity(32);
    fixed.extend_from_slice(&fields.segment.to_le_bytes());
    fixed.extend_from_slice(&fields.last_modified.0.to_le_bytes());
    // An expiry of 0 differs from none.
    fixed.extend(fields.expiry.iter().flat_map(|it| it.0.to_le_bytes()));
    fixed.push(fields.tag.0);
    fixed.extend_from_slice(&(head.len() as u64).to_le_bytes());
    let named = checksum_append(checksum_append(0, key.as_bytes()), &fixed);
    let value = checksum_append(checksum_append(named, head), body);
    tally.keys += 1;
    let digest = (u64::from(named) << 32) | u64::from(value);
    tally.digest = tally.digest.wrapping_add(spread(digest));
}

/// Makes every bit of the result depend on every bit of `bits`, so that sums do not cancel out.
fn spread(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
