//! The table of places: small numbers for the segments that slots point into.
//!
//! A slot has 22 bits for an index into this table. The table never changes: a changed copy
//! replaces it in every shard of the key directory. So a lookup finds slot and segment under the
//! one lock that it takes anyway. An index is reused once no slot, no snapshot and no unfinished
//! checkpoint can refer to its former segment.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use kvorum_disk::{ErrorKind as DiskErrorKind, Reading};
use kvorum_segment::{Location, Result, SegmentError, StoredFront, StoredRecord};

use crate::read_cache::CachedSegment;
use crate::segment::Segment;
use crate::shared_place::{SharedPlace, lost_name};

/// A segment that slots point into. It stays readable while a place refers to it.
#[derive(Clone)]
pub(crate) enum Place {
    /// A segment of the store's own.
    Own(Arc<Segment>),
    /// A segment of the value log.
    Shared(Arc<SharedPlace>),
}

/// True if the device failed, so that the record itself may be undamaged.
pub(crate) fn is_unread(error: &SegmentError) -> bool {
    matches!(error, SegmentError::Disk(disk) if disk.kind() == DiskErrorKind::Device)
}

impl Place {
    /// The index by which slots name the place.
    pub(crate) fn index(&self) -> u32 {
        match self {
            Self::Own(segment) => segment.place,
            Self::Shared(shared) => shared.index,
        }
    }

    /// The segment as text, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Own(segment) => segment.reader.path().display().to_string(),
            Self::Shared(shared) => format!("segment {} of the value log", shared.number()),
        }
    }

    /// The segment's identity in the cache of entries.
    pub(crate) fn cached(&self) -> CachedSegment {
        match self {
            Self::Own(segment) => segment.cached,
            Self::Shared(shared) => shared.cached,
        }
    }

    /// The segment's name in the list of losses.
    pub(crate) fn listed_name(&self) -> String {
        match self {
            Self::Own(segment) => segment.listed_name(),
            Self::Shared(shared) => lost_name(shared.number()),
        }
    }

    pub(crate) fn read(&self, at: Location, reading: Reading) -> Result<StoredRecord> {
        match self {
            Self::Own(segment) => segment.reader.read(at, reading),
            Self::Shared(shared) => Ok(shared.segment.read(at, reading)?.stored),
        }
    }

    pub(crate) fn read_front(&self, at: Location, reading: Reading) -> Result<StoredFront> {
        match self {
            Self::Own(segment) => segment.reader.read_front(at, reading),
            Self::Shared(shared) => Ok(shared.segment.read_front(at, reading)?.stored),
        }
    }

    pub(crate) fn restore(&self, record: &StoredRecord) -> Result<Bytes> {
        match self {
            Self::Own(segment) => segment.reader.restore(record),
            Self::Shared(shared) => shared.segment.restore(record),
        }
    }
}

/// A weak reference to a place.
pub(crate) enum WeakPlace {
    Own(Weak<Segment>),
    Shared(Weak<SharedPlace>),
}

impl WeakPlace {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Own(segment) => segment.strong_count() > 0,
            Self::Shared(shared) => shared.strong_count() > 0,
        }
    }
}

/// All places of a store at one moment.
#[derive(Clone, Default)]
pub(crate) struct Places {
    by_index: Vec<Option<Place>>,
}

impl Places {
    pub(crate) fn get(&self, index: u32) -> Option<&Place> {
        self.by_index.get(index as usize)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Place)> {
        let numbered = (0..).zip(&self.by_index);
        numbered.filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }

    /// This table with one place changed.
    pub(crate) fn with(&self, index: u32, place: Option<Place>) -> Self {
        let mut changed = self.clone();
        changed.set(index, place);
        changed
    }

    pub(crate) fn set(&mut self, index: u32, place: Option<Place>) {
        let at = index as usize;
        if at >= self.by_index.len() {
            self.by_index.resize(at + 1, None);
        }
        self.by_index[at] = place;
    }
}
