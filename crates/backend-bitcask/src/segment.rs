//! One segment of a store's own: an open file, and the hint of its keys.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kvorum_segment::{SegmentId, SegmentReader, SegmentWriter, file_name};
use parking_lot::RwLock;

use crate::hint_table::HintTable;
use crate::read_cache::CachedSegment;

/// The kind in the header of a segment that puts are appended to.
pub(crate) const KIND_APPENDED: u8 = 1;
/// The kind in the header of a segment that merges write.
pub(crate) const KIND_MERGED: u8 = 2;

/// An open segment, which stays readable after the removal of its file's name.
pub(crate) struct Segment {
    pub(crate) number: u32,
    /// Its index in the store's places.
    pub(crate) place: u32,
    pub(crate) reader: SegmentReader,
    /// Its identity in the cache of entries.
    pub(crate) cached: CachedSegment,
    pub(crate) is_merged: bool,
    pub(crate) hint: RwLock<Option<Arc<HintTable>>>,
    /// Some of its records are unreadable, so it gets no hint.
    pub(crate) is_damaged: AtomicBool,
}

impl Segment {
    pub(crate) fn new(
        reader: SegmentReader,
        number: u32,
        place: u32,
        is_merged: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            place,
            reader,
            cached: CachedSegment::new(),
            is_merged,
            hint: RwLock::new(None),
            is_damaged: AtomicBool::new(false),
        })
    }

    /// Its name in the list of losses.
    pub(crate) fn listed_name(&self) -> String {
        file_name(u64::from(self.number))
    }
}

pub(crate) fn segment_id(log_id: u64, number: u32, is_merged: bool) -> SegmentId {
    let kind = if is_merged {
        KIND_MERGED
    } else {
        KIND_APPENDED
    };
    SegmentId {
        log_id,
        number: u64::from(number),
        kind,
    }
}

/// The number of the segment being written.
pub(crate) fn segment_number(writer: &SegmentWriter) -> u32 {
    match u32::try_from(writer.id().number) {
        Ok(number) => number,
        Err(_) => unreachable!("{:?} was made from a number of 32 bits", writer.id()),
    }
}
