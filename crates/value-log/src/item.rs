//! A batch on its way into the value log: its records, and their places.

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result, Sequence, StoreId};
use kvorum_segment::{
    BACK_BYTES_MAX, BatchPlace, FRONT_BYTES_MAX, Record, StoredBack, StoredFront, StoredRecord,
};

use crate::record::{LogPlace, LogRecord, LoggedFront, LoggedRecord, PREFIX_BYTES};

/// The approximate memory of an item without its fronts and backs, in bytes.
const OVERHEAD_BYTES: u64 = 256;
/// The most bytes that a segment adds to a front.
const FRONT_SLACK_BYTES: u64 = 64;

/// An encoded batch without a place.
pub(crate) struct Batch {
    store: StoreId,
    sequence: Sequence,
    records: Vec<Encoded>,
}

/// A record whose front has its prefix.
struct Encoded {
    kind: u8,
    removal: bool,
    front: Bytes,
    back: StoredBack,
}

/// A batch with its place.
pub(crate) struct Item {
    batch: Batch,
    /// The segment's number.
    pub(crate) segment: u32,
    /// The place of each record.
    pub(crate) places: Vec<LogPlace>,
    end: u64,
}

impl Batch {
    /// Fills in the prefixes.
    pub(crate) fn encode(
        store: StoreId,
        sequence: Sequence,
        records: Vec<LogRecord>,
    ) -> Result<Self> {
        if records.is_empty() {
            let detail = "a batch of no records was appended to the value log";
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        }
        let records = records.into_iter().map(|record| encode(store, record));
        Ok(Self {
            store,
            sequence,
            records: records.collect::<Result<_>>()?,
        })
    }

    /// The batch's length in a segment, in bytes.
    pub(crate) fn stored_len(&self) -> u64 {
        self.records()
            .map(|record| record.location_at(0).next_offset())
            .sum()
    }

    /// Gives the batch its place.
    pub(crate) fn placed(self, segment: u32, offset: u64) -> Item {
        let mut places = Vec::with_capacity(self.records.len());
        let mut end = offset;
        for record in self.records() {
            let at = record.location_at(end);
            places.push(LogPlace {
                segment,
                record: at,
            });
            end = at.next_offset();
        }
        Item {
            batch: self,
            segment,
            places,
            end,
        }
    }

    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let (sequence, count) = (self.sequence.0, self.records.len());
        let numbered = self.records.iter().enumerate();
        numbered.map(move |(index, record)| record_of(record, sequence, index, count))
    }
}

impl Item {
    /// The place of its first record.
    pub(crate) fn offset(&self) -> u64 {
        self.places
            .first()
            .map_or(self.end, |place| place.record.offset)
    }

    /// The place of the next item.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Its approximate memory, in bytes.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.end - self.offset() + OVERHEAD_BYTES
    }

    /// Its records, for an append.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.batch.records()
    }

    pub(crate) fn store(&self) -> StoreId {
        self.batch.store
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.batch.sequence
    }

    /// A front as it will be read from the file.
    pub(crate) fn logged_front(&self, index: usize) -> LoggedFront {
        let record = &self.batch.records[index];
        LoggedFront {
            store: self.batch.store,
            stored: StoredFront {
                location: self.places[index].record,
                sequence: self.batch.sequence.0,
                kind: record.kind,
                removal: record.removal,
                batch: BatchPlace::of(index, self.batch.records.len()),
                front: record.front.slice(PREFIX_BYTES..),
                raw_back_len: record.back.raw_len(),
            },
        }
    }

    /// A record as it will be read from the file.
    pub(crate) fn logged(&self, index: usize) -> LoggedRecord {
        let LoggedFront { store, stored } = self.logged_front(index);
        LoggedRecord {
            store,
            segment: self.segment,
            stored: StoredRecord {
                head: stored,
                back: self.batch.records[index].back.clone(),
            },
            is_back_lost: false,
        }
    }
}

fn encode(store: StoreId, mut record: LogRecord) -> Result<Encoded> {
    let Some(prefix) = record.front.first_chunk_mut::<PREFIX_BYTES>() else {
        let detail = "a record without room for its prefix was appended to the value log";
        return Err(BackendError::new(ErrorKind::Misuse, detail));
    };
    *prefix = store.0.to_le_bytes();
    let (front, back) = (record.front.len() as u64, record.back.bytes().len() as u64);
    let is_back_too_large = back.max(record.back.raw_len()) > BACK_BYTES_MAX;
    if front > FRONT_BYTES_MAX - FRONT_SLACK_BYTES || is_back_too_large {
        let detail = format!(
            "a record of {front} bytes in front and {back} behind for the value log, which takes \
             {FRONT_BYTES_MAX} and {BACK_BYTES_MAX}"
        );
        return Err(BackendError::new(ErrorKind::TooLarge, detail));
    }
    Ok(Encoded {
        kind: record.kind,
        removal: record.removal,
        front: record.front.into(),
        back: record.back,
    })
}

fn record_of(record: &Encoded, sequence: u64, index: usize, count: usize) -> Record<'_> {
    Record {
        sequence,
        kind: record.kind,
        removal: record.removal,
        batch: BatchPlace::of(index, count),
        front: &record.front,
        back: record.back.as_encoded(),
    }
}
