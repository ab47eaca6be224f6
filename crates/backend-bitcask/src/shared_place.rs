//! A segment of the value log as a place for slots, and its name in the list of losses.

use std::sync::Arc;

use kvorum_value_log::LogSegment;

use crate::read_cache::CachedSegment;

/// The name under which the log's segments are listed as lost.
pub(crate) const LOST_PREFIX: &str = "value_log/";

/// A segment of the log, and its place.
pub(crate) struct SharedPlace {
    pub(crate) index: u32,
    pub(crate) segment: Arc<LogSegment>,
    pub(crate) cached: CachedSegment,
}

impl SharedPlace {
    pub(crate) fn new(index: u32, segment: Arc<LogSegment>) -> Self {
        Self {
            index,
            segment,
            cached: CachedSegment::new(),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.segment.number()
    }
}

/// The name of a lost part of the log.
pub(crate) fn lost_name(number: u32) -> String {
    format!(
        "{LOST_PREFIX}{}",
        kvorum_segment::file_name(u64::from(number))
    )
}

/// True when a lost range is a part of the log.
pub(crate) fn is_lost_name(name: &str) -> bool {
    name.starts_with(LOST_PREFIX)
}
