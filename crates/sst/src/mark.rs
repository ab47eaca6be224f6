//! Marks over ranges of keys that were removed, or lost with a damaged block.
//!
//! A mark covers a layer and all older ones. A read goes from the newest layer to the oldest and
//! stops at the first entry or mark of its key.

use bytes::Bytes;
use kvorum_encoding::{ByteReader, KeyRange, Truncated, put_varint};

use crate::filter::{hash_key, may_contain};

/// The state of the keys in a mark's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// Entries of lower sequences were removed.
    Removed,
    /// Entries were lost with a damaged block: entries of older layers may be out of date. The mark
    /// does not affect entries of its own layer, at any sequence.
    Lost,
}

/// A mark over the keys from `from` up to `to`, without `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The first key.
    pub from: Bytes,
    /// The first key behind the range.
    pub to: Bytes,
    /// The sequence at which the range was removed; 0 for [`MarkKind::Lost`].
    pub sequence: u64,
    /// Its kind.
    pub kind: MarkKind,
    /// For [`MarkKind::Lost`]: the filter of the damaged table, which excludes most keys that the
    /// table lacked. Empty if there is no filter.
    pub filter: Bytes,
}

impl Mark {
    /// A mark over keys that were lost to damage.
    pub fn lost(from: Bytes, to: Bytes, filter: Bytes) -> Self {
        Self {
            from,
            to,
            sequence: 0,
            kind: MarkKind::Lost,
            filter,
        }
    }

    /// The range of keys under the mark.
    pub fn range(&self) -> KeyRange {
        KeyRange {
            from: self.from.clone(),
            to: Some(self.to.clone()),
        }
    }

    /// True when `key` is in the range, and in the filter if there is one.
    pub fn covers(&self, key: &[u8]) -> bool {
        let is_in_range = &self.from[..] <= key && key < &self.to[..];
        let is_in_filter =
            || self.filter.is_empty() || may_contain(&self.filter, hash_key(key)).unwrap_or(true);
        is_in_range && is_in_filter()
    }

    /// The part of the mark that lies in a range, if any. A bound of `None` is open.
    #[must_use]
    pub fn clipped(&self, from: Option<&Bytes>, to: Option<&Bytes>) -> Option<Self> {
        let mut mark = self.clone();
        if let Some(from) = from.filter(|from| **from > mark.from) {
            mark.from = from.clone();
        }
        if let Some(to) = to.filter(|to| **to < mark.to) {
            mark.to = to.clone();
        }
        (mark.from < mark.to).then_some(mark)
    }

    /// The memory that the mark takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.from.len() + self.to.len() + self.filter.len() + size_of::<Self>()
    }
}

/// The marks of one layer, sorted by their first keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    marks: Vec<Mark>,
    /// The greatest end among the marks up to each position, behind which a search may stop.
    ends: Vec<Bytes>,
}

impl Marks {
    /// Sorts marks.
    pub fn new(mut marks: Vec<Mark>) -> Self {
        marks.sort_by(|a, b| (&a.from, a.sequence).cmp(&(&b.from, b.sequence)));
        marks.dedup();
        let mut ends: Vec<Bytes> = Vec::with_capacity(marks.len());
        for mark in &marks {
            let end = match ends.last() {
                Some(last) if *last > mark.to => last.clone(),
                _ => mark.to.clone(),
            };
            ends.push(end);
        }
        Self { marks, ends }
    }

    /// True when there is no mark.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// All marks, by their first keys.
    pub fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// The marks that cover a key.
    pub fn covering<'a, 'k>(
        &'a self,
        key: &'k [u8],
    ) -> impl Iterator<Item = &'a Mark> + use<'a, 'k> {
        let behind = self.marks.partition_point(|mark| &mark.from[..] <= key);
        (0..behind)
            .rev()
            .take_while(move |at| &self.ends[*at][..] > key)
            .map(|at| &self.marks[at])
            .filter(move |mark| mark.covers(key))
    }

    /// The strongest mark over a key: the removal with the highest sequence, or else a loss.
    pub fn strongest(&self, key: &[u8]) -> Option<&Mark> {
        if self.marks.is_empty() {
            return None;
        }
        self.covering(key).max_by_key(|mark| mark.sequence)
    }

    /// Appends the marks: varint count, and for each a byte for its kind (0 removed, 1 lost), varint
    /// sequence, varint length and bytes of the first key, of the key behind and of the filter.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.marks.len() as u64);
        for mark in &self.marks {
            out.push(match mark.kind {
                MarkKind::Removed => 0,
                MarkKind::Lost => 1,
            });
            put_varint(out, mark.sequence);
            for key in [&mark.from, &mark.to, &mark.filter] {
                put_varint(out, key.len() as u64);
                out.extend_from_slice(key);
            }
        }
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let count = reader.varint_len()?;
        let mut marks = Vec::new();
        for _ in 0..count {
            let offset = reader.offset();
            let kind = match reader.u8()? {
                0 => MarkKind::Removed,
                1 => MarkKind::Lost,
                _ => return Err(Truncated { offset }),
            };
            marks.push(Mark {
                kind,
                sequence: reader.varint()?,
                from: Bytes::copy_from_slice(reader.take_prefixed()?),
                to: Bytes::copy_from_slice(reader.take_prefixed()?),
                filter: Bytes::copy_from_slice(reader.take_prefixed()?),
            });
        }
        Ok(Self::new(marks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(from: &'static str, to: &'static str, sequence: u64) -> Mark {
        Mark {
            from: Bytes::from(from),
            to: Bytes::from(to),
            sequence,
            kind: MarkKind::Removed,
            filter: Bytes::new(),
        }
    }

    #[test]
    fn the_highest_removal_over_a_key_is_found_among_overlapping_ones() {
        let marks = Marks::new(vec![
            mark("d", "e", 9),
            mark("a", "z", 3),
            mark("b", "d", 5),
            mark("c", "cc", 4),
        ]);
        let strongest = |key: &str| marks.strongest(key.as_bytes()).map(|it| it.sequence);
        assert_eq!(strongest("a"), Some(3));
        assert_eq!(strongest("c"), Some(5));
        assert_eq!(strongest("d"), Some(9));
        assert_eq!(strongest("e"), Some(3));
        assert_eq!(strongest("z"), None);
        assert_eq!(strongest("A"), None);
    }

    #[test]
    fn marks_round_trip_and_clip() {
        let marks = Marks::new(vec![mark("a", "m", 3), mark("b", "c", 5)]);
        let mut bytes = Vec::new();
        marks.encode(&mut bytes);
        assert_eq!(Marks::decode(&mut ByteReader::new(&bytes)), Ok(marks));
        for cut in 0..bytes.len() {
            assert!(Marks::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
        }
        let (from, to) = (Bytes::from("c"), Bytes::from("d"));
        let clipped = mark("a", "m", 3).clipped(Some(&from), Some(&to));
        assert_eq!(clipped, Some(mark("c", "d", 3)));
        assert_eq!(mark("a", "b", 3).clipped(Some(&from), None), None);
    }
}
