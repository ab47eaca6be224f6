//! One change to a store, and its limits.

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result, Tag};
use kvorum_page_tree::Entry;

/// Limits of a key, a head and a body, in bytes.
const KEY_BYTES_MAX: usize = 1 << 20;
const FRONT_BYTES_MAX: usize = 32 << 20;
const BODY_BYTES_MAX: u64 = 256 << 20;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// The key.
    pub(crate) key: Bytes,
    /// The new entry, with the batch's sequence; `None` for a removal.
    pub(crate) entry: Option<Entry>,
}

impl Op {
    /// True for a write that ends in free space.
    pub(crate) fn frees(&self) -> bool {
        let entry = self.entry.as_ref();
        entry.is_none_or(|it| it.fields.tag == Tag::TOMBSTONE)
    }

    pub(crate) fn has_extra(&self) -> bool {
        let entry = self.entry.as_ref();
        entry.is_some_and(|it| !it.extra.is_empty())
    }

    /// Bytes of key, head and body.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let entry = self.entry.as_ref();
        let value = entry.map_or(0, |it| it.head.len() as u64 + it.body_len());
        self.key.len() as u64 + value
    }

    pub(crate) fn check(&self) -> Result<()> {
        let front = self
            .entry
            .as_ref()
            .map_or(0, |it| it.head.len() + it.extra.len());
        let body = self.entry.as_ref().map_or(0, Entry::body_len);
        let too_large = |what: &str, got: u64| {
            let detail = format!("{what} of {got} bytes");
            Err(BackendError::new(ErrorKind::TooLarge, detail))
        };
        if self.key.len() >= KEY_BYTES_MAX {
            return too_large("key", self.key.len() as u64);
        }
        if front > FRONT_BYTES_MAX {
            return too_large("head", front as u64);
        }
        if body > BODY_BYTES_MAX {
            return too_large("body", body);
        }
        Ok(())
    }
}
