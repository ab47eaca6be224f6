//! Unreadable places, noted when the reader finds them.

use std::path::Path;

use kvorum_import::{Batch, Place};

use crate::riak_key::describe;

/// A range of keys with a loss: after the first and up to the second.
pub(crate) struct KeyRange<'a> {
    pub(crate) behind: Option<&'a [u8]>,
    pub(crate) to: Option<&'a [u8]>,
}

/// Notes damage of a file, with the keys that it may concern. A damaged deletion no longer hides
/// older versions, which may come back.
pub(crate) fn lost(
    batch: &mut Batch,
    file: &Path,
    offset: u64,
    len: Option<u64>,
    keys: &KeyRange<'_>,
    reason: &str,
) {
    let range = match (keys.behind, keys.to) {
        (None, None) => String::new(),
        (behind, to) => {
            let behind = behind.map_or("the beginning".to_owned(), describe);
            let to = to.map_or("the end".to_owned(), describe);
            format!("; keys behind {behind} up to {to}")
        }
    };
    let place = Place {
        file: file.to_owned(),
        offset,
        len,
    };
    batch.unreadable(place, None, format!("{reason}{range}"));
}

/// Notes a finding that is not a loss.
pub(crate) fn noted(batch: &mut Batch, file: &Path, offset: u64, reason: String) {
    let place = Place {
        file: file.to_owned(),
        offset,
        len: None,
    };
    batch.note(place, None, reason);
}
