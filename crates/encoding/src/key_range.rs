//! Ranges of encoded keys.

use bytes::Bytes;

use crate::bytes_reader::{ByteReader, Truncated};
use crate::varint::put_varint;

/// The keys from `from`, included, to `to`, excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub from: Bytes,
    /// The first key behind the range; `None` for a range without an end.
    pub to: Option<Bytes>,
}

/// The smallest key greater than another.
pub fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

impl KeyRange {
    /// All keys.
    pub fn everything() -> Self {
        let (from, to) = (Bytes::new(), None);
        Self { from, to }
    }

    /// True for a key of the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        &self.from[..] <= key && self.to.as_ref().is_none_or(|to| key < &to[..])
    }

    /// True when a key may be in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_behind = |one: &Self, from: &Bytes| one.to.as_ref().is_none_or(|to| to > from);
        ends_behind(self, &other.from) && ends_behind(other, &self.from)
    }

    /// True when this range has every key of the other.
    pub fn has_all_of(&self, other: &Self) -> bool {
        let ends_no_sooner = match (&self.to, &other.to) {
            (None, _) => true,
            (Some(to), Some(other)) => to >= other,
            (Some(_), None) => false,
        };
        self.from <= other.from && ends_no_sooner
    }

    /// The range from the first to the last key of both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            from: self.from.clone().min(other.from.clone()),
            to: match (&self.to, &other.to) {
                (Some(one), Some(other)) => Some(one.max(other).clone()),
                _ => None,
            },
        }
    }

    /// Appends the range: varint length and bytes of `from`; then 0, or 1 with varint length and
    /// bytes of `to`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.from.len() as u64);
        out.extend_from_slice(&self.from);
        out.push(u8::from(self.to.is_some()));
        if let Some(to) = &self.to {
            put_varint(out, to.len() as u64);
            out.extend_from_slice(to);
        }
    }

    /// Reads the form of [`KeyRange::encode`].
    ///
    /// # Errors
    /// [`Truncated`] when the bytes end within it.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let from = Bytes::copy_from_slice(reader.take_prefixed()?);
        let to = match reader.u8()? {
            0 => None,
            _ => Some(Bytes::copy_from_slice(reader.take_prefixed()?)),
        };
        Ok(Self { from, to })
    }
}
