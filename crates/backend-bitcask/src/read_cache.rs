//! Recently read entries, for all stores of a node.
//!
//! Reading an entry from the page cache costs a system call, a copy, an allocation and two
//! checksums; here it costs a lookup and two handles. An entry is found by its segment and its
//! record's offset, which refer to the same record for as long as the process lives. So nothing has
//! to be removed when a key is overwritten, a segment merged or a store erased: others evict
//! entries that are no longer read.
//!
//! The replacement policy of `quick_cache` requires that an entry be read twice before it can evict
//! entries that were read twice. So one walk over many keys does no harm. Folds do not use the
//! cache. An entry is copied here only when it is read from its segment a second time: most reads
//! of a large store are not repeated soon, and the copy costs more than the read.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf as _, Bytes};
use kvorum_backend::{EntryPlace, ReadOnce, Sequence, StoredEntry};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::entry::{decode_fields, key_of};

/// Larger entries, in bytes, are not kept: copying one from the page cache costs more than the
/// system call.
const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// For sizing the cache's tables.
const ENTRY_BYTES_EXPECTED: u64 = 2048;
/// The memory of an entry besides its bytes: the value, the cache's tables, and the reference
/// count.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// The next number for a segment. Numbers are never reused while the process lives.
static NEXT_SEGMENT: AtomicU64 = AtomicU64::new(0);

/// The identity of an open segment among the segments of all stores, past and future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CachedSegment(u64);

impl CachedSegment {
    /// An identity unlike every other.
    pub(crate) fn new() -> Self {
        Self(NEXT_SEGMENT.fetch_add(1, Ordering::Relaxed))
    }

    /// The place of one of its records.
    pub(crate) fn entry_place(self, offset: u64) -> EntryPlace {
        EntryPlace {
            part: self.0,
            offset,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    segment: CachedSegment,
    offset: u64,
}

/// A checked and decompressed entry, in one piece of memory. The value is small, so that a lookup
/// touches few cache lines.
#[derive(Clone)]
pub(crate) struct CachedEntry {
    sequence: Sequence,
    /// The front and the body.
    bytes: Bytes,
    body_start: usize,
}

impl CachedEntry {
    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        key_of(&self.bytes)
    }

    /// The entry, if its front decodes, as it did when it was kept.
    pub(crate) fn into_stored(self) -> Option<StoredEntry> {
        let (fields, key_end) = decode_fields(&self.bytes).ok()?;
        let mut head = self.bytes;
        let body = head.split_off(self.body_start);
        head.advance(key_end);
        Some(StoredEntry {
            sequence: self.sequence,
            fields,
            head,
            body,
        })
    }
}

#[derive(Clone)]
struct EntryWeight;

impl Weighter<Place, CachedEntry> for EntryWeight {
    fn weight(&self, _place: &Place, entry: &CachedEntry) -> u64 {
        (entry.bytes.len() + ENTRY_OVERHEAD_BYTES) as u64
    }
}

type Entries = Cache<Place, CachedEntry, EntryWeight, foldhash::fast::FixedState>;

/// A cache of entries with a bound on their bytes.
pub struct ReadCache {
    entries: Entries,
    once: ReadOnce,
    misses: AtomicU64,
}

impl ReadCache {
    /// A cache for at most this many bytes, its tables included. The record of first reads takes
    /// eight more for each 2 KB, and 8 MB at most.
    pub fn new(bytes_max: u64) -> Self {
        let expected = usize::try_from(bytes_max / ENTRY_BYTES_EXPECTED).unwrap_or(usize::MAX);
        let expected = expected.max(16);
        let entries = Cache::with(
            expected,
            bytes_max,
            EntryWeight,
            // Fixed, so that evictions are the same in each run of a simulation. The numbers of
            // segments and the offsets cannot be chosen by clients.
            foldhash::fast::FixedState::default(),
            DefaultLifecycle::default(),
        );
        Self {
            entries,
            once: ReadOnce::new(expected),
            misses: AtomicU64::new(0),
        }
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The bound.
    pub fn bytes_max(&self) -> u64 {
        self.entries.capacity()
    }

    /// Changes the bound; excess entries are removed at once. The cache rounds the bound up by a
    /// few bytes.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.entries.set_capacity(bytes_max);
    }

    /// The number of entries that were read from their segments. Hits are not counted: counting
    /// would cost a tenth of a lookup.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, segment: CachedSegment, offset: u64) -> Option<CachedEntry> {
        self.entries.get(&Place { segment, offset })
    }

    /// Keeps a copy of an entry that was recently read from its segment twice. The entry itself may
    /// be a slice of a larger buffer, which would stay in memory with it.
    pub(crate) fn keep(
        &self,
        segment: CachedSegment,
        offset: u64,
        sequence: Sequence,
        front: &[u8],
        body: &[u8],
    ) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        if front.len() + body.len() > ENTRY_BYTES_MAX {
            return;
        }
        let place = Place { segment, offset };
        let hash = foldhash::fast::FixedState::default().hash_one(place);
        if !self.once.again(hash) {
            return;
        }
        let entry = CachedEntry {
            sequence,
            bytes: [front, body].concat().into(),
            body_start: front.len(),
        };
        self.entries.insert(place, entry);
    }
}
