//! The contents of a key, and the options of a read.

use bytes::Bytes;

/// The position of a batch in the order of its store. The first batch has sequence 1; 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The sequence after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The identity of a store's contents: drawn at random when a store is created and again when it is
/// erased. A value log and a vnode's dot lease are tied to it, so that neither is ever applied to
/// other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

/// A point in wall-clock time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// The kind of object: selects the extractor registered for it above the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u8);

impl Tag {
    /// A deletion of the key's object. A full disk accepts it like a removal: it frees the space of
    /// the object.
    pub const TOMBSTONE: Self = Self(1);
    /// A page: a part of the value of an object, which is an entry of its own. It is never shown as an
    /// object.
    pub const PAGE: Self = Self(0x81);
    /// This bit marks an object whose value is in pages; the other bits are its kind.
    pub const IN_PAGES: u8 = 0x80;

    /// True for an object whose value is in pages.
    pub fn is_in_pages(self) -> bool {
        self != Self::PAGE && self.0 & Self::IN_PAGES != 0
    }

    /// The kind of an object, without the bit for pages.
    #[must_use]
    pub fn kind(self) -> Self {
        Self(self.0 & !Self::IN_PAGES)
    }
}

/// Fields that folds filter by, in addition to the key. Kept beside the head so that no engine
/// parses a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The anti-entropy segment that the key hashes into.
    pub segment: u32,
    /// The time of the entry's last change.
    pub last_modified: Timestamp,
    /// The time of the entry's expiry; `None` for never.
    pub expiry: Option<Timestamp>,
    /// The kind of object.
    pub tag: Tag,
}

impl Fields {
    /// True when an entry with these fields is expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expiry.is_some_and(|expiry| expiry <= now)
    }
}

/// The place of an entry, in an engine's own terms. It names one record while the process lives,
/// also after the entry has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The part of the store.
    pub part: u64,
    /// The record in that part.
    pub offset: u64,
}

/// A writer's facts about the replaced entry. They affect only the cost of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldEntry {
    /// The entry's place from [`StoredHead::place`]. It may be out of date.
    pub place: Option<EntryPlace>,
    /// Permission for the engine to wait for a device when it has to read the old entry.
    pub reading: Reading,
}

impl OldEntry {
    /// Nothing is known, and the engine may wait.
    pub const UNKNOWN: Self = Self {
        place: None,
        reading: Reading::MayBlock,
    };
}

/// An entry without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHead {
    /// The batch that wrote it.
    pub sequence: Sequence,
    /// Fields that folds filter by.
    pub fields: Fields,
    /// The head as it was put.
    pub head: Bytes,
    /// The length of the body, in bytes.
    pub body_len: u64,
    /// The place for a write that replaces the entry; `None` from an engine that does not use it.
    pub place: Option<EntryPlace>,
}

/// A whole entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The batch that wrote it.
    pub sequence: Sequence,
    /// Fields that folds filter by.
    pub fields: Fields,
    /// The head as it was put.
    pub head: Bytes,
    /// The body as it was put.
    pub body: Bytes,
}

/// Permission of a read to wait for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Answer from memory or page cache, or [`Lookup::WouldBlock`]. For the calling thread.
    CachedOnly,
    /// Wait if necessary. For the blocking pool.
    MayBlock,
}

impl From<Reading> for kvorum_disk::Reading {
    fn from(reading: Reading) -> Self {
        match reading {
            Reading::CachedOnly => Self::CachedOnly,
            Reading::MayBlock => Self::MayBlock,
        }
    }
}

/// Options of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadAt {
    /// Permission to wait.
    pub reading: Reading,
    /// The time by which expiry is judged.
    pub now: Timestamp,
}

impl ReadAt {
    /// A read that may wait for a device.
    pub fn may_block(now: Timestamp) -> Self {
        Self {
            reading: Reading::MayBlock,
            now,
        }
    }
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The key has this entry.
    Found(T),
    /// The key has no entry, or an expired one.
    Absent,
    /// Memory has no answer; repeat with [`Reading::MayBlock`].
    WouldBlock,
}

impl<T> Lookup<T> {
    /// Maps the result, if there is one.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Found(value) => Lookup::Found(f(value)),
            Self::Absent => Lookup::Absent,
            Self::WouldBlock => Lookup::WouldBlock,
        }
    }
}
