//! An entry on its way from one layer to the next: as it is in memory, or as bytes that a table has and
//! another one gets. Most entries of a merge are not changed, so they are neither taken apart nor put
//! together again.

use bytes::Bytes;
use kvorum_sst::Facts;

use crate::Entry;
use crate::merge::Taken;

/// An entry that is moved.
pub(crate) enum Moved {
    /// Too large for its piece of memory, or made for the occasion.
    Entry(Entry),
    /// As a table has it, or a memtable.
    Bytes {
        /// What the next table has to know of it.
        facts: Facts,
        /// The entry as it is encoded.
        bytes: Bytes,
    },
}

impl Moved {
    pub(crate) fn facts(&self) -> Facts {
        match self {
            Self::Entry(entry) => entry.facts(),
            Self::Bytes { facts, .. } => *facts,
        }
    }

    /// Taken apart if its body may have so many bytes.
    pub(crate) fn opened_from(self, body_bytes: usize) -> Self {
        match self {
            Self::Bytes { facts, bytes } if bytes.len() >= body_bytes => {
                match Entry::decode(&bytes) {
                    Ok(entry) => Self::Entry(entry),
                    // It would not have come so far.
                    Err(_) => Self::Bytes { facts, bytes },
                }
            }
            other => other,
        }
    }

    /// The entry as it is encoded, put together in `buffer` where that has to be done.
    pub(crate) fn encoded<'a>(&'a self, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        match self {
            Self::Entry(entry) => {
                buffer.clear();
                entry.encode(buffer);
                buffer
            }
            Self::Bytes { bytes, .. } => bytes,
        }
    }
}

impl Taken for Moved {
    fn of_entry(entry: Entry) -> Self {
        Self::Entry(entry)
    }

    fn of_bytes(bytes: Bytes) -> Option<Self> {
        let facts = Entry::facts_of(&bytes).ok()?;
        Some(Self::Bytes { facts, bytes })
    }

    fn sequence(&self) -> u64 {
        match self {
            Self::Entry(entry) => entry.sequence,
            Self::Bytes { facts, .. } => facts.sequence,
        }
    }
}
