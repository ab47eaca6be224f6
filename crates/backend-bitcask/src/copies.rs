//! Copies of records that outlive their segment: appending them to a segment, and pointing keys to
//! them. Merges copy from the store's own segments, collections from the value log.

use kvorum_backend::{LostRange, Result};
use kvorum_encoding::StorageKey;
use kvorum_segment::{
    BatchPlace, EncodedBack, Location, Record, SegmentWriter, StoredFront, StoredRecord,
};
use kvorum_storage_errors::IntoBackend;

use crate::entry::{KIND_ENTRY, KIND_NOTHING, decode_fields, encode_removal};
use crate::key_table::KeyEntry;
use crate::segment::segment_number;
use crate::segment_files::SegmentFiles;
use crate::slot::Slot;

/// Copies are appended in pieces of about this size.
const GATHERED_BYTES: u64 = 1 << 20;

/// The outcome of a copy for a record.
pub(crate) enum Fate {
    /// No slot points to it any more.
    Gone,
    /// It is copied; the slot of an entry follows the copy.
    Copied(Option<Slot>),
    /// It has expired, and older entries of its key may remain.
    BecomesRemoval(Slot),
    /// It has expired, and no older entry is left to hide.
    Expired(Slot),
}

/// Records on their way to the output.
#[derive(Default)]
pub(crate) struct Gathered {
    records: Vec<(StoredRecord, Fate)>,
    pub(crate) bytes: u64,
}

/// The segment for copies.
#[derive(Default)]
pub(crate) struct Copies {
    output: Option<SegmentWriter>,
}

impl Copies {
    /// The number of the segment, if there is one.
    pub(crate) fn number(&self) -> Option<u32> {
        self.output.as_ref().map(segment_number)
    }

    /// Takes a record, and appends the gathered records when they are enough. Returns the bytes of
    /// the appended records' sources.
    pub(crate) fn take(
        &mut self,
        files: &SegmentFiles,
        gathered: &mut Gathered,
        record: StoredRecord,
        fate: Fate,
    ) -> Result<u64> {
        gathered.bytes += record.head.location.len;
        gathered.records.push((record, fate));
        match gathered.bytes >= GATHERED_BYTES {
            true => self.append(files, &std::mem::take(gathered)),
            false => Ok(0),
        }
    }

    /// Appends copies to the output, and points keys without a newer record to them. Returns the
    /// bytes of their sources.
    pub(crate) fn append(&mut self, files: &SegmentFiles, gathered: &Gathered) -> Result<u64> {
        if gathered.records.is_empty() {
            return Ok(0);
        }
        let fronts: Vec<Vec<u8>> = gathered.records.iter().map(removal_front).collect();
        let copied = gathered.records.iter().zip(&fronts);
        let records: Vec<Record<'_>> = copied
            .map(|((stored, fate), removal)| copy_of(stored, fate, removal))
            .collect();
        let len = SegmentWriter::appended_len(&records);
        let output = self.output_for(files, len)?;
        let mut locations = Vec::with_capacity(records.len());
        output.append(&records, &mut locations).into_backend()?;
        let (number, end) = (segment_number(output), output.end());
        files.home.count_written(len);
        Self::show(files, gathered, &locations, number, end);
        Ok(gathered.bytes)
    }

    fn show(
        files: &SegmentFiles,
        gathered: &Gathered,
        locations: &[Location],
        number: u32,
        end: u64,
    ) {
        let count = gathered.records.len();
        assert_eq!(
            locations.len(),
            count,
            "each copy has its place in segment {number}"
        );
        // A put relies on the places of the slots that it replaces.
        let _puts_wait = files.writer.lock();
        let mut catalog = files.contents.catalog.write();
        let output = catalog.own_mut(number);
        assert!(
            !output.is_sealed,
            "segment {number} was sealed before the append"
        );
        output.stats.data_end = end;
        let place = output.segment.place;
        for ((stored, fate), at) in gathered.records.iter().zip(locations) {
            let stored_bytes = at.len.next_multiple_of(8);
            let fields = match fate {
                Fate::Copied(Some(_)) => Some(entry_of(&stored.head).fields),
                _ => None,
            };
            let stats = &mut catalog.own_mut(number).stats;
            stats.count(stored.head.sequence, stored_bytes, fields.as_ref());
            match fate {
                Fate::Copied(Some(old)) => {
                    catalog.note_copy(old);
                    let new = Slot::new(old.fingerprint(), place, *at);
                    catalog.relocate(&files.contents.keydir, old, new);
                }
                Fate::BecomesRemoval(old) => {
                    catalog.note_copy(old);
                    catalog.forget(&files.contents.keydir, old);
                }
                Fate::Copied(None) => {}
                Fate::Gone | Fate::Expired(_) => unreachable!("a record without use was copied"),
            }
        }
    }

    /// The segment for copies: the present one, or a new one if that is full.
    fn output_for(&mut self, files: &SegmentFiles, len: u64) -> Result<&mut SegmentWriter> {
        let is_full = |output: &SegmentWriter| files.is_full_for(output, len);
        if self.output.as_ref().is_some_and(is_full) {
            self.end(files)?;
        }
        let output = match self.output.take() {
            Some(output) => output,
            None => files.begin_copies()?,
        };
        Ok(self.output.insert(output))
    }

    /// Writes a mark that proves the copies durable: their sources are removed next, and no later
    /// record may follow as proof.
    pub(crate) fn mark(&mut self) {
        if let Some(output) = &mut self.output {
            // Without the mark, damage to the last copies may look like a torn tail.
            let _marked_or_full_disk = output.mark();
        }
    }

    /// Ends the segment: the next copy begins another.
    pub(crate) fn end(&mut self, files: &SegmentFiles) -> Result<()> {
        let ended = self.output.take();
        ended.map_or(Ok(()), |output| files.seal(output))
    }

    /// Ends the segment if it has become large.
    pub(crate) fn end_large(&mut self, files: &SegmentFiles) -> Result<()> {
        let half = files.bytes_max() / 2;
        match self.output.as_ref().is_some_and(|it| it.end() > half) {
            true => self.end(files),
            false => Ok(()),
        }
    }

    /// Drops the segment, as in an erasure.
    pub(crate) fn forget(&mut self) {
        self.output = None;
    }
}

/// True for a record that can be copied or become a removal, and for one without a key.
pub(crate) fn is_understood(record: &StoredFront) -> bool {
    record.kind == KIND_NOTHING || record.kind == KIND_ENTRY && decode_fields(&record.front).is_ok()
}

/// The loss of a record with right checksums that does not decode.
pub(crate) fn not_understood(file: String, record: &StoredFront) -> LostRange {
    let at = record.location;
    LostRange::new(
        file,
        at.offset,
        at.len,
        "a record that cannot be understood",
    )
}

/// The decoded entry of a record that has a fate.
fn entry_of(record: &StoredFront) -> KeyEntry {
    match KeyEntry::of(record) {
        Some(entry) => entry,
        None => unreachable!("the record at {:?} was understood before", record.location),
    }
}

/// The front of the removal that a record becomes; empty for other records.
fn removal_front((stored, fate): &(StoredRecord, Fate)) -> Vec<u8> {
    let mut front = Vec::new();
    if let Fate::BecomesRemoval(_) = fate {
        let key = StorageKey::from_encoded(entry_of(&stored.head).key);
        encode_removal(&mut front, &key);
    }
    front
}

fn copy_of<'a>(stored: &'a StoredRecord, fate: &Fate, removal: &'a [u8]) -> Record<'a> {
    let is_turned = matches!(fate, Fate::BecomesRemoval(_));
    Record {
        sequence: stored.head.sequence,
        kind: KIND_ENTRY,
        removal: stored.head.removal || is_turned,
        batch: BatchPlace::Alone,
        front: if is_turned {
            removal
        } else {
            &stored.head.front
        },
        back: if is_turned {
            EncodedBack::empty()
        } else {
            stored.back.as_encoded()
        },
    }
}
