//! A page: copies of consecutive entries of a memtable in one piece of memory, so that a walk has
//! no reference to the leaves.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::piece::Written;
use crate::{Entry, Older};

/// A page of this many bytes takes no further entry.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Some entries in key order. [`Page::push`] fills it, and [`Page::finish`] makes it readable.
#[derive(Default)]
pub(crate) struct Page {
    filling: Vec<u8>,
    bytes: Bytes,
    items: Vec<Item>,
}

struct Item {
    key: Range<usize>,
    entry: Place,
    /// Segments of the log with skipped older versions.
    older: Older,
}

enum Place {
    /// In the bytes, encoded.
    Packed(Range<usize>),
    Apart(Arc<Entry>),
    Taken,
}

/// An entry of a page.
pub(crate) enum Paged {
    /// Encoded bytes.
    Bytes(Bytes),
    /// An entry of the memtable.
    Entry(Entry),
}

impl Page {
    /// A page with room for this many entries of about this many bytes each.
    pub(super) fn with_room_for(count: usize, entry_bytes: usize) -> Self {
        let bytes = count.saturating_mul(entry_bytes).min(PAGE_BYTES_MAX);
        Self {
            filling: Vec::with_capacity(bytes),
            bytes: Bytes::new(),
            items: Vec::with_capacity(count),
        }
    }

    pub(super) fn push(&mut self, written: &Written) {
        let from = self.filling.len();
        self.filling.extend_from_slice(written.piece());
        let key_end = from + written.key().len();
        let entry = match written.apart() {
            None => Place::Packed(key_end..self.filling.len()),
            Some(entry) => Place::Apart(entry.clone()),
        };
        let key = from..key_end;
        let older = Older::default();
        self.items.push(Item { key, entry, older });
    }

    /// Notes the segment of the log with an older version of the last key, if there is one.
    pub(super) fn pass(&mut self, older: &Written) {
        if let (Some(item), Some(segment)) = (self.items.last_mut(), older.segment()) {
            item.older.add(segment);
        }
    }

    /// Adds the segments of the log with older versions of the key at a position.
    pub(crate) fn leave_trail(&self, at: usize, older: &mut Older) {
        if let Some(item) = self.items.get(at) {
            older.add_all(&item.older);
        }
    }

    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let last = self.items.last()?;
        self.filling.get(last.key.clone())
    }

    /// True when the page takes no further entry.
    pub(super) fn is_long(&self) -> bool {
        self.filling.len() >= PAGE_BYTES_MAX
    }

    pub(super) fn finish(mut self) -> Self {
        self.bytes = std::mem::take(&mut self.filling).into();
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The key of the entry at a position; nothing behind the end.
    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let part = self
            .items
            .get(at)
            .and_then(|it| self.bytes.get(it.key.clone()));
        part.unwrap_or(&[])
    }

    /// The last key of the page, if any.
    pub(crate) fn end(&self) -> Option<Bytes> {
        let last = self.items.last()?;
        Some(self.bytes.slice(last.key.clone()))
    }

    /// Bytes of a key and its entry.
    pub(crate) fn bytes_at(&self, at: usize) -> usize {
        let entry_bytes = |item: &Item| match &item.entry {
            Place::Packed(part) => part.len(),
            Place::Apart(entry) => entry.value.as_ref().map_or(0, crate::Value::payload_bytes),
            Place::Taken => 0,
        };
        let item = self.items.get(at);
        item.map_or(0, |item| item.key.len() + entry_bytes(item))
    }

    /// Takes the entry at a position, once.
    pub(crate) fn take(&mut self, at: usize) -> Option<Paged> {
        let item = self.items.get_mut(at)?;
        match std::mem::replace(&mut item.entry, Place::Taken) {
            Place::Packed(part) => Some(Paged::Bytes(self.bytes.slice(part))),
            Place::Apart(entry) => Some(Paged::Entry(Arc::unwrap_or_clone(entry))),
            Place::Taken => None,
        }
    }
}
