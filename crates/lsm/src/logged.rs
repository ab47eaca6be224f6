//! Bodies that stay in the value log: where an entry says they are, and how tables count them.
//!
//! A table counts what its entries use of each blob file. What they use of the log's segments is counted
//! in the same list, under numbers that no file of the store comes to: here is the one place that knows
//! which are which.

use kvorum_segment::{RECORD_ALIGN_BYTES, file_name};
use kvorum_value_log::LogPlace;

/// The segments of the log are counted under numbers from here on. A store that wrote a thousand files a
/// second would come to it in 34 years; and it takes six bytes, where the highest bit would take ten.
const SEGMENTS_FROM: u64 = 1 << 40;

/// Where in the value log a body is: it is the back of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedPlace {
    /// The record.
    pub at: LogPlace,
    /// The length of the body, in bytes.
    pub len: u64,
}

/// A record as the properties of a table count it: the segment, and the bytes that it takes there.
pub(crate) fn counted(at: &LogPlace) -> (u64, u64) {
    (file_of(at.segment), taken_bytes(at))
}

/// What a record takes in its segment, in bytes.
pub(crate) fn taken_bytes(at: &LogPlace) -> u64 {
    let len = at.record.len;
    len.checked_next_multiple_of(RECORD_ALIGN_BYTES)
        .unwrap_or(len)
}

/// What a segment is called in a list of blob files.
fn file_of(segment: u32) -> u64 {
    SEGMENTS_FROM + u64::from(segment)
}

/// The segment that stands in a list of blob files under this number; `None` for a blob file.
pub fn segment_of(file: u64) -> Option<u32> {
    u32::try_from(file.checked_sub(SEGMENTS_FROM)?).ok()
}

/// The name under which what was lost of a segment is listed.
pub(crate) fn lost_name(segment: u32) -> String {
    format!("value_log/{}", file_name(u64::from(segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_blob_files_are_told_apart() {
        for segment in [0, 1, u32::MAX] {
            assert_eq!(segment_of(file_of(segment)), Some(segment));
        }
        for file in [0, 1, 1 << 32, SEGMENTS_FROM - 1, file_of(u32::MAX) + 1] {
            assert_eq!(segment_of(file), None);
        }
    }
}
