//! The records of a segment in order, for a store that has lost its index of them.

use kvorum_segment::{Result, Scan, Scanned};

use crate::record::LoggedRecord;

/// A walk over the records of a segment, of all stores.
pub struct Records {
    segment: u32,
    scan: Box<Scan>,
}

/// An item of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsItem {
    /// A record that can be read.
    Record(LoggedRecord),
    /// Bytes that cannot be read, and may have held records of any store.
    Damage {
        /// The first of them.
        offset: u64,
        /// Their number.
        len: u64,
    },
}

impl Records {
    pub(crate) fn of(segment: u32, scan: Scan) -> Self {
        let scan = Box::new(scan);
        Self { segment, scan }
    }

    /// The number of the segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }
}

impl Iterator for Records {
    type Item = Result<RecordsItem>;

    fn next(&mut self) -> Option<Self::Item> {
        let scanned = match self.scan.next()? {
            Ok(scanned) => scanned,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(match scanned {
            Scanned::Damage(damage) => RecordsItem::Damage {
                offset: damage.offset,
                len: damage.len,
            },
            Scanned::Record(record) => {
                let (offset, len) = (record.head.location.offset, record.head.location.len);
                match LoggedRecord::of(self.segment, record) {
                    Some(record) => RecordsItem::Record(record),
                    None => RecordsItem::Damage { offset, len },
                }
            }
        }))
    }
}
