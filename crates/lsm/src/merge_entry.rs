//! An entry on its way from one layer to the next, decoded or as encoded bytes. Most entries of a
//! merge do not change, so they are neither decoded nor encoded again.

use bytes::Bytes;
use kvorum_backend::Tag;
use kvorum_sst::Facts;

use kvorum_value_log::LogPlace;

use crate::merge::Taken;
use crate::{Entry, Older};

/// An entry that is moved.
pub(crate) enum MergeEntry {
    /// A decoded entry, too large for its piece of memory or made by the merge.
    Entry(Entry),
    /// The bytes of a table or a memtable.
    Bytes {
        /// Facts for the next table.
        facts: Facts,
        /// The encoded entry.
        bytes: Bytes,
    },
}

impl MergeEntry {
    pub(crate) fn facts(&self) -> Facts {
        match self {
            Self::Entry(entry) => entry.facts(),
            Self::Bytes { facts, .. } => *facts,
        }
    }

    /// Decodes the entry if its body may have this many bytes.
    pub(crate) fn opened_from(self, body_bytes: usize) -> Self {
        match self {
            Self::Bytes { facts, bytes } if bytes.len() >= body_bytes => {
                match Entry::decode(&bytes) {
                    Ok(entry) => Self::Entry(entry),
                    // Bytes that do not decode were refused before.
                    Err(_) => Self::Bytes { facts, bytes },
                }
            }
            other => other,
        }
    }

    /// The encoded entry, built in `buffer` if that is necessary.
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

impl MergeEntry {
    /// Its place in the value log.
    pub(crate) fn logged_at(&self) -> Option<LogPlace> {
        match self {
            Self::Entry(entry) => entry.logged_at(),
            // The bytes decoded before.
            Self::Bytes { bytes, .. } => Entry::decode(bytes).ok()?.logged_at(),
        }
    }

    /// The segments in the entry that may have older records of its key.
    pub(crate) fn older(&self) -> Older {
        match self {
            Self::Entry(entry) => entry.older.clone(),
            Self::Bytes { bytes, .. } if Entry::has_older(bytes) => {
                Entry::decode(bytes).map_or_else(|_| Older::default(), |it| it.older)
            }
            Self::Bytes { .. } => Older::default(),
        }
    }

    /// The entry with these segments for older records.
    pub(crate) fn with_older(self, older: Older) -> Self {
        match self {
            Self::Entry(entry) => Self::Entry(Entry { older, ..entry }),
            Self::Bytes { facts, bytes } => match Entry::decode(&bytes) {
                Ok(entry) => Self::Entry(Entry { older, ..entry }),
                // Bytes that do not decode were refused before.
                Err(_) => Self::Bytes { facts, bytes },
            },
        }
    }
}

impl Taken for MergeEntry {
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

    fn leave_trail(&self, older: &mut Older) {
        older.add_all(&self.older());
        if let Some(at) = self.logged_at() {
            older.add(at.segment);
        }
    }

    fn tag(&self) -> Option<Tag> {
        let value = match self {
            Self::Entry(entry) => entry.value.clone(),
            Self::Bytes { bytes, .. } => Entry::decode(bytes).ok()?.value,
        };
        value.map(|it| it.fields.tag)
    }
}
