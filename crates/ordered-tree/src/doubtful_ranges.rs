//! Ranges of keys that may have lost entries to damage, until the tree's user has settled them.
//!
//! Scans skip damage, and the tree keeps no trace of it once the damaged file is removed. A user
//! that derives keys from other keys, as an index does, needs the ranges until it has rebuilt these
//! keys. So a doubt is opened when damage is found, and is kept in the manifest: the change that
//! drops a damaged block keeps the doubt about its keys. The blocks that opened doubts are kept
//! too, while their tables exist: a block found again opens no new doubt, even if the first one was
//! settled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_encoding::{ByteReader, KeyRange, Truncated, put_varint};
use parking_lot::Mutex;

/// The most separate doubts; with more, all doubts of a kind become one about the keys from the
/// first to the last.
const OPEN_MAX: usize = 1_000;
/// The most blocks that are kept; any other block opens a doubt each time it is found.
const BLOCKS_MAX: usize = 100_000;

/// Cause of a doubt about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtKind {
    /// Damage was found: some keys may be missing, and the keys derived from them are unknown.
    Lost,
    /// The keys were written or removed while they were unreadable: keys derived from their old
    /// contents are outdated.
    Replaced,
}

/// A range in which keys may be missing, or wrongly present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Distinguishes the doubt from later ones over the same keys, while the store is open.
    pub id: u64,
    /// Its cause.
    pub kind: DoubtKind,
    /// The range of keys.
    pub range: KeyRange,
}

/// An unreadable block of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// The number of the table.
    pub table: u64,
    /// Its offset in the table, in bytes.
    pub offset: u64,
    /// The keys that it may have had.
    pub range: KeyRange,
}

/// Doubts, as in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoubtRecord {
    /// The open doubts.
    pub open: Vec<(DoubtKind, KeyRange)>,
    /// Blocks for which doubts were opened, while their tables exist.
    pub blocks: Vec<BadBlock>,
}

impl DoubtRecord {
    /// True when there are neither doubts nor blocks.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.blocks.is_empty()
    }

    /// Appends it: the varint number of ranges in doubt, and for each a byte for its kind (0 lost, 1
    /// replaced) and the range; the varint number of damaged blocks, and
    /// for each varints table and offset, and its range.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.open.len() as u64);
        for (kind, range) in &self.open {
            out.push(match kind {
                DoubtKind::Lost => 0,
                DoubtKind::Replaced => 1,
            });
            range.encode(out);
        }
        put_varint(out, self.blocks.len() as u64);
        for block in &self.blocks {
            put_varint(out, block.table);
            put_varint(out, block.offset);
            block.range.encode(out);
        }
    }

    /// Reads the form of [`DoubtRecord::encode`].
    ///
    /// # Errors
    /// [`Truncated`] when the bytes end within it.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let mut record = Self::default();
        for _ in 0..reader.varint_len()? {
            let kind = match reader.u8()? {
                0 => DoubtKind::Lost,
                _ => DoubtKind::Replaced,
            };
            record.open.push((kind, KeyRange::decode(reader)?));
        }
        for _ in 0..reader.varint_len()? {
            record.blocks.push(BadBlock {
                table: reader.varint()?,
                offset: reader.varint()?,
                range: KeyRange::decode(reader)?,
            });
        }
        Ok(record)
    }
}

/// The doubts of an open tree.
#[derive(Default)]
pub struct Doubts {
    held: Mutex<Held>,
    /// The number of doubts opened since the store was opened.
    opened: AtomicU64,
}

#[derive(Default)]
struct Held {
    open: Vec<Doubt>,
    blocks: BTreeMap<(u64, u64), KeyRange>,
    changes: u64,
    /// The number of changes that the manifest has.
    written: u64,
}

impl Doubts {
    /// Restores the doubts of a manifest.
    pub fn restore(&self, record: &DoubtRecord) {
        let mut held = self.held.lock();
        for (kind, range) in &record.open {
            self.open_held(&mut held, *kind, range.clone());
        }
        let blocks = record.blocks.iter();
        held.blocks
            .extend(blocks.map(|it| ((it.table, it.offset), it.range.clone())));
        held.written = held.changes;
    }

    /// Opens a doubt about these keys.
    pub fn open(&self, kind: DoubtKind, range: KeyRange) {
        let mut held = self.held.lock();
        self.open_held(&mut held, kind, range);
    }

    /// Opens a doubt about a part of a table, unless it is known. A scan that begins inside a block
    /// has only a part of the block's range.
    pub fn open_for(&self, table: u64, offset: u64, range: KeyRange) {
        let mut held = self.held.lock();
        let is_room = held.blocks.len() < BLOCKS_MAX;
        match held.blocks.get_mut(&(table, offset)) {
            Some(known) if known.has_all_of(&range) => return,
            Some(known) => *known = known.with(&range),
            None if is_room => {
                held.blocks.insert((table, offset), range.clone());
            }
            None => {}
        }
        self.open_held(&mut held, DoubtKind::Lost, range);
    }

    fn open_held(&self, held: &mut Held, kind: DoubtKind, range: KeyRange) {
        held.changes += 1;
        let id = self.opened.fetch_add(1, Ordering::AcqRel);
        held.open.push(Doubt { id, kind, range });
        if held.open.len() > OPEN_MAX {
            held.open = [DoubtKind::Lost, DoubtKind::Replaced]
                .into_iter()
                .filter_map(|kind| self.as_one(&held.open, kind))
                .collect();
        }
    }

    /// All doubts of a kind as one with a new id, which settling an earlier doubt does not settle.
    fn as_one(&self, open: &[Doubt], kind: DoubtKind) -> Option<Doubt> {
        let those = open.iter().filter(|it| it.kind == kind);
        let range = those.map(|it| it.range.clone()).reduce(|a, b| a.with(&b))?;
        let id = self.opened.fetch_add(1, Ordering::AcqRel);
        Some(Doubt { id, kind, range })
    }

    /// The number of doubts opened since the store was opened, settled ones included.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// The open doubts. If there are many, one doubt may cover all keys.
    pub fn all(&self) -> Vec<Doubt> {
        self.held.lock().open.clone()
    }

    /// True when a doubt is about keys of this range.
    pub fn is_in_doubt(&self, range: &KeyRange) -> bool {
        let held = self.held.lock();
        held.open.iter().any(|it| it.range.overlaps(range))
    }

    /// True when a doubt is about exactly these keys.
    pub fn is_doubt(&self, range: &KeyRange) -> bool {
        let held = self.held.lock();
        held.open.iter().any(|it| it.range == *range)
    }

    /// Closes the doubts with these ids.
    pub fn settle(&self, ids: &[u64]) {
        let mut held = self.held.lock();
        held.open.retain(|it| !ids.contains(&it.id));
        held.changes += 1;
    }

    /// Removes all doubts and blocks, as after an erasure.
    pub fn clear(&self) {
        let mut held = self.held.lock();
        held.open.clear();
        held.blocks.clear();
        held.changes += 1;
    }

    /// True when the manifest lacks changes.
    pub fn has_unwritten(&self) -> bool {
        let held = self.held.lock();
        held.written < held.changes
    }

    /// The record for the manifest, and the number of changes in it. Blocks of removed tables are
    /// left out.
    pub fn record(&self, is_listed: impl Fn(u64) -> bool) -> (DoubtRecord, u64) {
        let held = self.held.lock();
        let blocks = held.blocks.iter();
        let blocks = blocks.filter(|((table, _), _)| is_listed(*table));
        let record = DoubtRecord {
            open: held
                .open
                .iter()
                .map(|it| (it.kind, it.range.clone()))
                .collect(),
            blocks: blocks
                .map(|((table, offset), range)| BadBlock {
                    table: *table,
                    offset: *offset,
                    range: range.clone(),
                })
                .collect(),
        };
        (record, held.changes)
    }

    /// Notes that the manifest has this change and all earlier ones.
    pub fn is_written(&self, change: u64) {
        let mut held = self.held.lock();
        held.written = held.written.max(change);
    }

    /// True when a block of this range, in an existing table, is known to be damaged.
    pub fn has_met(&self, range: &KeyRange, is_there: impl Fn(u64) -> bool) -> bool {
        let held = self.held.lock();
        let mut blocks = held.blocks.iter();
        blocks.any(|((table, _), bad)| is_there(*table) && bad.overlaps(range))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kvorum_golden::assert_bytes;

    use super::*;

    fn range(from: &'static str, to: &'static str) -> KeyRange {
        KeyRange {
            from: Bytes::from(from),
            to: Some(Bytes::from(to)),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let record = DoubtRecord {
            open: vec![
                (DoubtKind::Replaced, range("a", "cd")),
                (DoubtKind::Lost, KeyRange::everything()),
            ],
            blocks: vec![BadBlock {
                table: 300,
                offset: 5,
                range: range("a", "b"),
            }],
        };
        let drawing = [
            ("number of ranges in doubt", 1),
            ("kind: 1 replaced", 1),
            ("length of the first key", 1),
            ("first key", 1),
            ("1 there is an end", 1),
            ("length of the end", 1),
            ("end", 2),
            ("kind: 0 lost", 1),
            ("length of the first key", 1),
            ("0 there is no end", 1),
            ("number of damaged blocks", 1),
            ("table", 2),
            ("offset", 1),
            ("length of the first key", 1),
            ("first key", 1),
            ("1 there is an end", 1),
            ("length of the end", 1),
            ("end", 1),
        ];
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_bytes("doubtful_ranges.hex", &drawing, &bytes);
    }

    #[test]
    fn a_block_opens_one_doubt_however_often_it_is_met_and_also_behind_a_restart() {
        let doubts = Doubts::default();
        for _ in 0..2 {
            doubts.open_for(3, 40, range("b", "d"));
        }
        doubts.open_for(4, 40, range("x", "y"));
        assert_eq!(doubts.all().len(), 2);
        assert!(doubts.is_in_doubt(&range("c", "k")));
        assert!(!doubts.is_in_doubt(&range("d", "k")));
        let first = doubts.all()[0].id;
        doubts.settle(&[first]);
        let (record, change) = doubts.record(|table| table == 3);
        assert!(doubts.has_unwritten());
        doubts.is_written(change);
        assert!(!doubts.has_unwritten());
        let again = Doubts::default();
        again.restore(&record);
        again.open_for(3, 40, range("b", "d"));
        assert_eq!((again.all().len(), again.has_unwritten()), (1, false));
        // The earlier scan began inside the block, and had only a part of its range.
        again.open_for(3, 40, range("a", "d"));
        assert!(again.is_in_doubt(&range("a", "b")));
        again.settle(&again.all().iter().map(|it| it.id).collect::<Vec<_>>());
        again.open_for(3, 40, range("a", "c"));
        assert_eq!(again.all(), []);
        again.open_for(4, 40, range("x", "y"));
        assert_eq!((again.all().len(), again.has_unwritten()), (1, true));
    }

    #[test]
    fn more_doubts_than_are_kept_apart_are_one_of_each_kind() {
        let doubts = Doubts::default();
        doubts.open_for(1, 1, range("b", "c"));
        doubts.open_for(1, 2, range("f", "g"));
        let first = doubts.all()[0].id;
        (1..OPEN_MAX).for_each(|_| doubts.open(DoubtKind::Replaced, range("x", "xx")));
        let kinds: Vec<DoubtKind> = doubts.all().iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [DoubtKind::Lost, DoubtKind::Replaced]);
        doubts.settle(&[first]);
        assert!(doubts.is_in_doubt(&range("d", "e")));
        assert!(!doubts.is_in_doubt(&range("h", "i")));
        assert!(doubts.is_in_doubt(&range("x", "y")));
    }

    #[test]
    fn records_round_trip_and_cuts_are_refused() {
        let record = DoubtRecord {
            open: vec![
                (DoubtKind::Replaced, range("a", "b")),
                (DoubtKind::Lost, KeyRange::everything()),
            ],
            blocks: vec![BadBlock {
                table: 300,
                offset: 5,
                range: range("a", "b"),
            }],
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let decode = |bytes: &[u8]| DoubtRecord::decode(&mut ByteReader::new(bytes));
        assert_eq!(decode(&bytes), Ok(record));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
