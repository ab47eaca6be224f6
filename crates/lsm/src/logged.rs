//! Bodies that stay in the value log: their places in entries, and their counts in tables.
//!
//! A table counts the bytes that its entries use in each blob file. The same list counts their use
//! of the log's segments, under numbers that no file of the store reaches. This module alone
//! distinguishes the two.

use kvorum_segment::{RECORD_ALIGN_BYTES, file_name};
use kvorum_value_log::LogPlace;

/// The first number for segments of the log. A store that writes a thousand files a second would
/// reach it in 34 years. As a varint it takes six bytes; the highest bit would take ten.
const SEGMENTS_FROM: u64 = 1 << 40;

/// The place of a body in the value log: the back of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedPlace {
    /// The record.
    pub at: LogPlace,
    /// The length of the body, in bytes.
    pub len: u64,
}

/// A record, as counted in the properties of a table: the segment, and the bytes that the record
/// takes there.
pub(crate) fn counted(at: &LogPlace) -> (u64, u64) {
    (file_of(at.segment), taken_bytes(at))
}

/// Bytes of a record in its segment.
pub(crate) fn taken_bytes(at: &LogPlace) -> u64 {
    let len = at.record.len;
    len.checked_next_multiple_of(RECORD_ALIGN_BYTES)
        .unwrap_or(len)
}

/// The number of a segment in a list of blob files.
fn file_of(segment: u32) -> u64 {
    SEGMENTS_FROM + u64::from(segment)
}

/// The segment with this number in a list of blob files; `None` for a blob file.
pub fn segment_of(file: u64) -> Option<u32> {
    u32::try_from(file.checked_sub(SEGMENTS_FROM)?).ok()
}

/// The name under which losses of a segment are listed.
pub(crate) fn lost_name(segment: u32) -> String {
    format!("value_log/{}", file_name(u64::from(segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_blob_files_are_distinguished() {
        for segment in [0, 1, u32::MAX] {
            assert_eq!(segment_of(file_of(segment)), Some(segment));
        }
        for file in [0, 1, 1 << 32, SEGMENTS_FROM - 1, file_of(u32::MAX) + 1] {
            assert_eq!(segment_of(file), None);
        }
    }
}
