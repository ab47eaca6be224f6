//! Places: the segments that slots point into, by small numbers.
//!
//! A slot has 22 bits for its segment, so it names an index into this table. The table is never
//! changed: a changed copy takes its place in every shard of the key directory, beside the slots that
//! point into it. So a lookup finds both under the one lock that it takes anyway. An index is given
//! out again once no slot, no snapshot and no checkpoint that is being written can mean the segment
//! that had it before.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::Reading;
use kvorum_segment::{SegmentReader, StoredFront, StoredRecord};

use crate::read_cache::CachedSegment;
use crate::segments::Segment;
use crate::slot::Slot;

/// Where the record of a slot stands. Whoever holds one can read it.
#[derive(Clone)]
pub(crate) enum Place {
    /// In a segment of the store's own.
    Own(Arc<Segment>),
}

impl Place {
    fn reader(&self) -> &SegmentReader {
        match self {
            Self::Own(segment) => &segment.reader,
        }
    }

    /// The number of the store's own segment; `None` for any other's.
    pub(crate) fn own_number(&self) -> Option<u32> {
        match self {
            Self::Own(segment) => Some(segment.number),
        }
    }

    /// What the cache of entries calls its segment.
    pub(crate) fn cached(&self) -> CachedSegment {
        match self {
            Self::Own(segment) => segment.cached,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.reader().path()
    }

    pub(crate) fn read(
        &self,
        slot: &Slot,
        reading: Reading,
    ) -> kvorum_segment::Result<StoredRecord> {
        self.reader().read(slot.location(), reading)
    }

    pub(crate) fn read_front(
        &self,
        slot: &Slot,
        reading: Reading,
    ) -> kvorum_segment::Result<StoredFront> {
        self.reader().read_front(slot.location(), reading)
    }

    pub(crate) fn restore(&self, record: &StoredRecord) -> kvorum_segment::Result<Bytes> {
        self.reader().restore(record)
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

    /// This table with one entry changed.
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
