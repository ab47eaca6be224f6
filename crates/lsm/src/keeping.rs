//! Entries that stay in the value log, where they were logged.

/// Kinds of entries that stay in the value log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keeping {
    /// None: tables and blob files have everything.
    Nothing,
    /// Bodies of this many bytes or more, and at least 1.
    BodiesFrom(usize),
    /// The bodies of all entries with such keys, and the removals of such keys.
    Journal(fn(&[u8]) -> bool),
}

impl Keeping {
    /// True when the body of a key stays.
    pub(crate) fn keeps(self, key: &[u8], body_bytes: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::BodiesFrom(bytes) => body_bytes >= bytes,
            Self::Journal(is_journaled) => is_journaled(key),
        }
    }

    /// True when everything of a key stays, removals too.
    pub(crate) fn journals(self, key: &[u8]) -> bool {
        match self {
            Self::Nothing | Self::BodiesFrom(_) => false,
            Self::Journal(is_journaled) => is_journaled(key),
        }
    }
}
