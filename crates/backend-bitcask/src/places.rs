//! Places: the segments that slots point into, by small numbers.
//!
//! A slot has 22 bits for its segment, so it names an index into this table. The table is never
//! changed: a changed copy takes its place in every shard of the key directory, beside the slots that
//! point into it. So a lookup finds both under the one lock that it takes anyway. An index is given
//! out again once no slot, no snapshot and no checkpoint that is being written can mean the segment
//! that had it before.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, LogPlace, LoggedFront, LoggedRecord, Lookup};
use kvorum_disk::{ErrorKind as DiskErrorKind, Reading};
use kvorum_segment::{
    BatchPlace, Codec, Location, SegmentError, StoredBack, StoredFront, StoredRecord, file_name,
};

use crate::error::from_segment;
use crate::read_cache::CachedSegment;
use crate::segments::Segment;
use crate::shared::{SharedPlace, lost_name};

/// Where the record of a slot stands. Whoever holds one can read it.
#[derive(Clone)]
pub(crate) enum Place {
    /// In a segment of the store's own.
    Own(Arc<Segment>),
    /// In a segment of the node's log.
    Shared(Arc<SharedPlace>),
}

/// Why a record could not be read.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// A segment of the store's own failed.
    Own(SegmentError),
    /// A segment of the node's log failed.
    Shared(BackendError),
    /// A cached-only read would have had to wait.
    WouldBlock,
}

type Result<T> = std::result::Result<T, PlaceError>;

impl PlaceError {
    pub(crate) fn would_block(&self) -> bool {
        match self {
            Self::Own(error) => error.would_block(),
            Self::Shared(_) => false,
            Self::WouldBlock => true,
        }
    }

    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Own(error) => error.is_damage(),
            Self::Shared(error) => error.kind() == ErrorKind::Corrupt,
            Self::WouldBlock => false,
        }
    }

    /// The device failed, or the system: the record may be whole.
    pub(crate) fn is_unread(&self) -> bool {
        match self {
            Self::Own(SegmentError::Disk(error)) => error.kind() == DiskErrorKind::Device,
            Self::Own(_) | Self::WouldBlock => false,
            Self::Shared(error) => error.kind() == ErrorKind::Failed,
        }
    }

    pub(crate) fn into_backend(self) -> BackendError {
        match self {
            Self::Own(error) => from_segment(&error),
            Self::Shared(error) => error,
            Self::WouldBlock => {
                BackendError::new(ErrorKind::Failed, "a read that may wait was told not to")
            }
        }
    }
}

impl Place {
    /// What slots call it.
    pub(crate) fn index(&self) -> u32 {
        match self {
            Self::Own(segment) => segment.place,
            Self::Shared(shared) => shared.index,
        }
    }

    /// The segment in words, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Own(segment) => segment.reader.path().display().to_string(),
            Self::Shared(shared) => format!("segment {} of the value log", shared.number()),
        }
    }

    /// What the cache of entries calls its segment.
    pub(crate) fn cached(&self) -> CachedSegment {
        match self {
            Self::Own(segment) => segment.cached,
            Self::Shared(shared) => shared.cached,
        }
    }

    /// What the list of what was lost calls its segment.
    pub(crate) fn listed_name(&self) -> String {
        match self {
            Self::Own(segment) => file_name(u64::from(segment.number)),
            Self::Shared(shared) => lost_name(shared.number()),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakPlace {
        match self {
            Self::Own(segment) => WeakPlace::Own(Arc::downgrade(segment)),
            Self::Shared(shared) => WeakPlace::Shared(Arc::downgrade(shared)),
        }
    }

    pub(crate) fn read(&self, at: Location, reading: Reading) -> Result<StoredRecord> {
        match self {
            Self::Own(segment) => segment.reader.read(at, reading).map_err(PlaceError::Own),
            Self::Shared(shared) => {
                let place = shared.log_place(at);
                let found = shared.segment.read(place, backend_reading(reading));
                found_of(found).and_then(|record| self.stored_record(record))
            }
        }
    }

    pub(crate) fn read_front(&self, at: Location, reading: Reading) -> Result<StoredFront> {
        match self {
            Self::Own(segment) => {
                let front = segment.reader.read_front(at, reading);
                front.map_err(PlaceError::Own)
            }
            Self::Shared(shared) => {
                let place = shared.log_place(at);
                let found = shared.segment.read_front(place, backend_reading(reading));
                found_of(found).map(stored_front)
            }
        }
    }

    pub(crate) fn restore(&self, record: &StoredRecord) -> Result<Bytes> {
        match self {
            Self::Own(segment) => segment.reader.restore(record).map_err(PlaceError::Own),
            Self::Shared(_) => record.back.restore().map_err(|why| {
                let offset = record.head.location.offset;
                self.corrupt(offset, &why)
            }),
        }
    }

    fn stored_record(&self, record: LoggedRecord) -> Result<StoredRecord> {
        let offset = record.head.place.offset;
        stored_record(record).ok_or_else(|| self.corrupt(offset, "compressed in an unknown way"))
    }

    fn corrupt(&self, offset: u64, why: &str) -> PlaceError {
        let detail = format!("record at byte {offset} of {}: {why}", self.describe());
        PlaceError::Shared(BackendError::new(ErrorKind::Corrupt, detail))
    }
}

/// A place that is not kept by being remembered.
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

fn found_of<T>(found: kvorum_backend::Result<Lookup<T>>) -> Result<T> {
    match found {
        Ok(Lookup::Found(found)) => Ok(found),
        Ok(Lookup::WouldBlock) => Err(PlaceError::WouldBlock),
        Ok(Lookup::Absent) => {
            let detail = "a segment of the value log has no record where one was put";
            let error = BackendError::new(ErrorKind::Corrupt, detail);
            Err(PlaceError::Shared(error))
        }
        Err(error) => Err(PlaceError::Shared(error)),
    }
}

/// A front of the log as one of the store's own.
pub(crate) fn stored_front(front: LoggedFront) -> StoredFront {
    StoredFront {
        location: Location {
            offset: front.place.offset,
            front_end: front.place.front_end,
            len: front.place.len,
        },
        sequence: front.sequence.0,
        kind: front.kind,
        removal: front.removal,
        batch: BatchPlace::Alone,
        front: front.front,
        raw_back_len: front.raw_back_len,
    }
}

/// A record of the log as one of the store's own; `None` when its compression is not known.
pub(crate) fn stored_record(record: LoggedRecord) -> Option<StoredRecord> {
    let codec = Codec::from_bits(record.back.codec)?;
    let back = record.back;
    Some(StoredRecord {
        head: stored_front(record.head),
        back: StoredBack::from_parts(back.bytes, codec, back.raw_len, back.checksum),
    })
}

fn backend_reading(reading: Reading) -> kvorum_backend::Reading {
    match reading {
        Reading::CachedOnly => kvorum_backend::Reading::CachedOnly,
        Reading::MayBlock => kvorum_backend::Reading::MayBlock,
    }
}

impl SharedPlace {
    fn log_place(&self, at: Location) -> LogPlace {
        LogPlace {
            segment: self.number(),
            offset: at.offset,
            front_end: at.front_end,
            len: at.len,
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
