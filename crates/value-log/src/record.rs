//! A record as tenants append it and read it: a record of a segment, and its store.
//!
//! ```text
//! front of the segment's record
//!   store identity   u64, little-endian
//!   the tenant's front
//! back               the tenant's, as it compressed it
//! ```

use bytes::Bytes;
use kvorum_backend::StoreId;
use kvorum_segment::{Location, StoredBack, StoredFront, StoredRecord};

/// The length of the log's prefix of a tenant's front, in bytes.
pub(crate) const PREFIX_BYTES: usize = size_of::<StoreId>();

/// The place of a record. The lengths may be approximate: a length that is too long reads needless
/// bytes, and one that is too short needs a second read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPlace {
    /// The segment's number. Never used again for another segment of the same log.
    pub segment: u32,
    /// The record in the segment. Its offset is below 8 GiB: tenants keep it in 30 bits.
    pub record: Location,
}

/// A record to be appended.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The tenant's kind of record, below [`LogRecord::KINDS`].
    pub kind: u8,
    /// The record states that a key is gone.
    pub removal: bool,
    /// [`LogRecord::PREFIX_BYTES`] bytes that the log fills in, then the part of the tenant that is
    /// read without the back.
    pub front: Vec<u8>,
    /// The rest. Its checksum is not verified: a wrong checksum makes an unreadable record.
    pub back: StoredBack,
}

impl LogRecord {
    /// The number of kinds that tenants may have.
    pub const KINDS: u8 = 0xf0;
    /// The length of the log's prefix of a front.
    pub const PREFIX_BYTES: usize = PREFIX_BYTES;

    /// The start of a front that will have `len` bytes of the tenant's.
    pub fn front_for(len: usize) -> Vec<u8> {
        let mut front = Vec::with_capacity(PREFIX_BYTES + len);
        front.extend_from_slice(&[0; PREFIX_BYTES]);
        front
    }
}

/// The front of a record that was read, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedFront {
    /// The store that it belongs to.
    pub store: StoreId,
    /// The record, with the tenant's part of the front.
    pub stored: StoredFront,
}

impl LoggedFront {
    /// A front in the form of the log's segments; `None` when it names no store.
    pub fn of(mut stored: StoredFront) -> Option<Self> {
        let (store, front) = split_front(&stored.front)?;
        stored.front = front;
        Some(Self { store, stored })
    }
}

/// A whole record that was read, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRecord {
    /// The store that it belongs to.
    pub store: StoreId,
    /// The segment's number.
    pub segment: u32,
    /// The record, with the tenant's part of the front.
    pub stored: StoredRecord,
    /// The back is damaged, and is replaced by an empty one. Reading the place returns the error.
    pub is_back_lost: bool,
}

impl LoggedRecord {
    /// A record in the form of the log's segments; `None` when its front names no store.
    pub fn of(segment: u32, mut stored: StoredRecord) -> Option<Self> {
        let (store, front) = split_front(&stored.head.front)?;
        stored.head.front = front;
        Some(Self {
            store,
            segment,
            stored,
            is_back_lost: false,
        })
    }

    /// The record of a front whose back cannot be read.
    pub(crate) fn without_back(segment: u32, front: StoredFront) -> Option<Self> {
        let stored = StoredRecord {
            head: front,
            back: StoredBack::empty(),
        };
        let record = Self::of(segment, stored)?;
        Some(Self {
            is_back_lost: true,
            ..record
        })
    }

    /// The exact place.
    pub fn place(&self) -> LogPlace {
        LogPlace {
            segment: self.segment,
            record: self.stored.head.location,
        }
    }
}

/// The store and the tenant's part of a front in the log; `None` if it is too short.
pub(crate) fn split_front(front: &Bytes) -> Option<(StoreId, Bytes)> {
    let store = front.first_chunk::<PREFIX_BYTES>()?;
    let store = StoreId(u64::from_le_bytes(*store));
    Some((store, front.slice(PREFIX_BYTES..)))
}
