//! An entry on its way from one layer to the next: as it is in memory, or as bytes that a table has and
//! another one gets. Most entries of a merge are not changed, so they are neither taken apart nor put
//! together again.

use bytes::Bytes;
use kvorum_sst::Facts;

use crate::Entry;
use crate::merge::Taken;

/// An entry that is moved.
pub(crate) enum Moved {
    /// From memory, or made for the occasion.
    Entry(Entry),
    /// From a table.
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
    fn of_memory(entry: Entry) -> Self {
        Self::Entry(entry)
    }

    fn of_table(bytes: Bytes) -> Option<Self> {
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
