//! Putting a batch: encoded without a lock, appended in one write under the writer's lock, and
//! shown to readers in one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvorum_backend::{
    BackendError, Batch, Durability, Durable, ErrorKind, Fields, OldEntry, Purpose, Reading,
    Receipt, Result, Sequence, StoreId, SyncStrategy, SyncTicket, Write,
};
use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use kvorum_segment::{BatchPlace, Location, RECORD_ALIGN_BYTES, Record, SegmentWriter, StoredBack};
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::{Appended, LogPromise, LogRecord, LogSegment, LoggedRecord, ValueLog};
use smallvec::SmallVec;

use crate::entry::{KIND_ENTRY, KIND_NOTHING, encode_front, encode_removal, front_len};
use crate::home::Counters;
use crate::key_table::KeyEntry;
use crate::keydir::Change;
use crate::segment::segment_number;
use crate::segment_stats::SegmentStats;
use crate::segments::too_many_segments;
use crate::shared::Standing;
use crate::slot::Slot;
use crate::store::Store;

/// A write without its encoded record.
struct Prepared<'a> {
    key: &'a StorageKey,
    fingerprint: u64,
    old: OldEntry,
    /// `None` for a removal.
    fields: Option<Fields>,
}

impl Store {
    pub(crate) fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        self.home.intake.check_writable()?;
        let is_grouped = match durability {
            Durability::Buffered => false,
            Durability::Grouped => true,
            Durability::BackendDefault => self.is_grouped(),
        };
        let is_grouped = is_grouped && !is_planted!(GroupNotAwaited);
        if let Some(log) = &self.log.log {
            let is_synced = is_grouped || durability != Durability::Grouped && self.is_grouped();
            let promise = if is_synced {
                LogPromise::Durable
            } else {
                LogPromise::Written
            };
            let waits = is_grouped || durability == Durability::BackendDefault;
            return self.put_to_log(log, batch, promise, waits);
        }
        let (prepared, records) = self.prepare(batch);
        let sequence = self.apply(&prepared, &records, batch.purpose())?;
        Counters::add(&self.home.counters.put_bytes, batch.payload_bytes());
        let durable = if is_grouped {
            Durable::After(SyncTicket::new(self.group.clone(), sequence))
        } else {
            Durable::Already
        };
        Ok(Receipt {
            sequence: Sequence(sequence),
            durable,
        })
    }

    fn is_grouped(&self) -> bool {
        self.home.settings.sync == SyncStrategy::Grouped
    }

    /// Puts a batch to the value log, where it stays. Queued batches would be lost with this
    /// process. So a caller that requested only the store's default waits until the operating
    /// system has the batch, as after an append to a file of the store's own.
    fn put_to_log(
        &self,
        log: &ValueLog,
        batch: &Batch,
        promise: LogPromise,
        waits: bool,
    ) -> Result<Receipt> {
        let (prepared, records) = self.prepare(batch);
        log.wait_for_room()?;
        let mut writer = self.files.writer.lock();
        // Closing and failing wait for the lock, so this check is final.
        self.home.intake.check_writable()?;
        if !self.contents.catalog.read().has_places() {
            return Err(too_many_segments());
        }
        let olds = self.find_olds(&prepared)?;
        let sequence = writer.last_sequence + 1;
        let store = StoreId(self.home.identity());
        let appended = log.append(store, Sequence(sequence), records, batch.purpose(), promise)?;
        writer.last_sequence = sequence;
        self.show_logged(&prepared, &olds, &appended, sequence);
        drop(writer);
        let superseded: u64 = olds.iter().flatten().map(Slot::stored_bytes).sum();
        let fallen = superseded.saturating_sub(appended_bytes(&appended));
        if fallen > 0 {
            log.usage_fell(fallen);
        }
        Counters::add(&self.home.counters.put_bytes, batch.payload_bytes());
        Ok(Receipt {
            sequence: Sequence(sequence),
            durable: if waits || appended.is_crowded {
                Durable::After(appended.ticket)
            } else {
                Durable::Already
            },
        })
    }

    /// Encodes and compresses a batch to records in the value log's form, which share uncompressed
    /// bodies. Of several writes to one key the last is kept: the others were never visible, and
    /// (key, sequence) has to name one record.
    fn prepare<'a>(&self, batch: &'a Batch) -> (Vec<Prepared<'a>>, Vec<LogRecord>) {
        let mut records = Vec::with_capacity(batch.writes.len().max(1));
        let mut prepared = Vec::with_capacity(batch.writes.len());
        for write in last_writes(batch) {
            let key = write.key();
            let (fields, front, back) = match write {
                Write::Put {
                    fields, head, body, ..
                } => {
                    let len = front_len(key, head);
                    let mut front = LogRecord::front_for(len);
                    encode_front(&mut front, key, fields, head);
                    let back = StoredBack::of(self.compressor.encode(body), body);
                    (Some(*fields), front, back)
                }
                Write::Remove { .. } => {
                    let mut front = LogRecord::front_for(front_len(key, &[]));
                    encode_removal(&mut front, key);
                    (None, front, StoredBack::empty())
                }
            };
            records.push(LogRecord {
                kind: KIND_ENTRY,
                removal: fields.is_none(),
                front,
                back,
            });
            prepared.push(Prepared {
                key,
                fingerprint: self.contents.fingerprints.of(key.as_bytes()),
                old: write.old(),
                fields,
            });
        }
        if records.is_empty() {
            records.push(LogRecord {
                kind: KIND_NOTHING,
                removal: false,
                front: LogRecord::front_for(0),
                back: StoredBack::empty(),
            });
        }
        (prepared, records)
    }

    /// Makes a batch in the log visible as a whole.
    fn show_logged(
        &self,
        prepared: &[Prepared<'_>],
        olds: &[Option<Slot>],
        appended: &Appended,
        sequence: u64,
    ) {
        let mut catalog = self.contents.catalog.write();
        let entry = match catalog.shared_entry(&self.contents.keydir, &appended.segment) {
            Ok(entry) => entry,
            Err(error) => unreachable!("there was a place left before the append: {error}"),
        };
        let place = entry.place.index;
        let appended_bytes = appended_bytes(appended);
        entry.stats.data_end += appended_bytes;
        let locations = appended.places.iter().map(|at| at.record);
        for (write, at) in prepared.iter().zip(locations.clone()) {
            entry.stand(Standing::new(at.offset, write.fields.is_none()));
        }
        let changes = counted_changes(prepared, olds, locations, sequence, place, &mut entry.stats);
        catalog.change(&self.contents.keydir, &changes);
        catalog.last_sequence = sequence;
        catalog.note_start(appended.segment.number(), sequence);
        let counters = &self.home.counters;
        counters.add_unchecked(appended_bytes, prepared.len() as u64);
    }

    fn apply(
        &self,
        prepared: &[Prepared<'_>],
        records: &[LogRecord],
        purpose: Purpose,
    ) -> Result<u64> {
        let mut writer = self.files.writer.lock();
        // Closing and failing wait for the lock, so this check is final.
        self.home.intake.check_writable()?;
        let olds = self.find_olds(prepared)?;
        let sequence = writer.last_sequence + 1;
        let records = records_of(records, sequence);
        let mut locations = Vec::with_capacity(records.len());
        let len = SegmentWriter::appended_len(&records);
        self.home.intake.take_room(len, purpose)?;
        let active = self.files.active_for(&mut writer, len)?;
        active.append(&records, &mut locations).into_backend()?;
        let number = segment_number(active);
        let end = active.end();
        writer.last_sequence = sequence;
        self.show(prepared, &olds, &locations, sequence, number, end);
        Ok(sequence)
    }

    /// The slots that the batch supersedes. They do not change while the writer is locked, since
    /// merges take that lock to move a slot. Nothing is read for keys that the caller has just
    /// read.
    ///
    /// An unreadable record fails this write, and not the store.
    fn find_olds(&self, prepared: &[Prepared<'_>]) -> Result<SmallVec<[Option<Slot>; 1]>> {
        let unread = |error: BackendError| match error.kind() {
            ErrorKind::Failed => error.of_kind(ErrorKind::Unread),
            _ => error,
        };
        let olds = prepared
            .iter()
            .map(|write| self.slot_of(write.key.as_bytes(), write.fingerprint, write.old));
        olds.map(|old| old.map_err(unread)).collect()
    }

    /// Makes an appended batch visible as a whole.
    fn show(
        &self,
        prepared: &[Prepared<'_>],
        olds: &[Option<Slot>],
        locations: &[Location],
        sequence: u64,
        number: u32,
        end: u64,
    ) {
        let mut catalog = self.contents.catalog.write();
        let entry = catalog.own_mut(number);
        assert!(
            !entry.is_sealed,
            "segment {number} was sealed before the append"
        );
        let place = entry.segment.place;
        let appended_bytes = end - entry.stats.data_end;
        entry.stats.data_end = end;
        let locations = locations.iter().copied();
        let changes = counted_changes(prepared, olds, locations, sequence, place, &mut entry.stats);
        catalog.change(&self.contents.keydir, &changes);
        catalog.last_sequence = sequence;
        self.home.count_written(appended_bytes);
        let counters = &self.home.counters;
        counters.add_unchecked(appended_bytes, prepared.len() as u64);
    }

    /// Replays a batch that is in the log and not covered, as after a crash.
    pub(crate) fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()> {
        self.home.intake.check_writable()?;
        let mut writer = self.files.writer.lock();
        self.note_replay(sequence, records);
        for record in records {
            self.replay_record(segment, record)?;
        }
        writer.last_sequence = writer.last_sequence.max(sequence.0);
        let mut catalog = self.contents.catalog.write();
        catalog.last_sequence = catalog.last_sequence.max(sequence.0);
        self.files.note_durable(sequence.0);
        Ok(())
    }

    /// Notes the keys of a replayed batch.
    fn note_replay(&self, sequence: Sequence, records: &[LoggedRecord]) {
        let replays = &self.log.replays;
        if records.is_empty() {
            // The log has lost the batch's records.
            return replays.note_unknown();
        }
        let mut keys = Vec::with_capacity(records.len());
        for record in records {
            let head = &record.stored.head;
            match KeyEntry::of(head) {
                Some(entry) => keys.push(entry.key),
                None if head.kind == KIND_NOTHING => {}
                None => return replays.note_unknown(),
            }
        }
        let covered = Sequence(self.log.covered());
        replays.note(covered, sequence, keys.iter().map(|it| &it[..]));
    }

    fn replay_record(&self, segment: &Arc<LogSegment>, record: &LoggedRecord) -> Result<()> {
        let head = &record.stored.head;
        let Some(entry) = KeyEntry::of(head) else {
            return self.count_replayed(segment, &head.location, head.sequence, None);
        };
        let fingerprint = self.contents.fingerprints.of(&entry.key);
        let check = self.contents.fingerprints.check_of(&entry.key);
        // A fingerprint with the precision of slots.
        let stored = Slot::new(fingerprint, 0, entry.at).fingerprint();
        let hidden_by = self.log.hidden.lock().get(&(stored, check)).copied();
        let old = self.slot_and_sequence_of(&entry.key, fingerprint, Reading::MayBlock)?;
        self.count_replayed(segment, &head.location, head.sequence, Some(&entry))?;
        let is_newer = |known: u64| known >= entry.sequence;
        if hidden_by.is_some_and(is_newer) || old.is_some_and(|(_, known)| is_newer(known)) {
            return Ok(());
        }
        let mut catalog = self.contents.catalog.write();
        let place = catalog.shared_mut(segment.number()).place.index;
        let new = (!entry.removal).then(|| Slot::new(fingerprint, place, entry.at));
        let old = old.map(|(slot, _)| slot);
        if old.is_some() || new.is_some() {
            catalog.change(&self.contents.keydir, &[Change { old, new }]);
        }
        Ok(())
    }

    /// Counts a record of the log that no checkpoint has counted.
    fn count_replayed(
        &self,
        segment: &Arc<LogSegment>,
        at: &Location,
        sequence: u64,
        entry: Option<&KeyEntry>,
    ) -> Result<()> {
        let mut catalog = self.contents.catalog.write();
        let shared = catalog.shared_entry(&self.contents.keydir, segment)?;
        let stored_bytes = at.len.next_multiple_of(RECORD_ALIGN_BYTES);
        shared.stats.data_end += stored_bytes;
        match entry {
            Some(entry) => {
                shared.stats.count_entry(entry);
                shared.stand(Standing::new(at.offset, entry.removal));
            }
            None => shared.stats.count_sequence(sequence),
        }
        catalog.note_start(segment.number(), sequence);
        self.home.counters.add_unchecked(stored_bytes, 1);
        Ok(())
    }
}

/// The valid writes: the last to each key.
fn last_writes(batch: &Batch) -> impl Iterator<Item = &Write> {
    let last = (batch.writes.len() > 1).then(|| {
        let mut keys = BTreeSet::new();
        let numbered = batch.writes.iter().enumerate().rev();
        let last = numbered.filter(|(_, write)| keys.insert(write.key().as_bytes()));
        last.map(|(number, _)| number).collect::<BTreeSet<usize>>()
    });
    let numbered = batch.writes.iter().enumerate();
    let is_last = move |number| last.as_ref().is_none_or(|last| last.contains(&number));
    numbered.filter_map(move |(number, write)| is_last(number).then_some(write))
}

/// Counts the records of a batch in the statistics of their segment, and returns the changes of
/// slots.
fn counted_changes(
    prepared: &[Prepared<'_>],
    olds: &[Option<Slot>],
    locations: impl ExactSizeIterator<Item = Location>,
    sequence: u64,
    place: u32,
    stats: &mut SegmentStats,
) -> SmallVec<[Change; 1]> {
    let count = prepared.len();
    assert_eq!(
        olds.len(),
        count,
        "each write has looked for what it replaces"
    );
    assert_eq!(locations.len(), count.max(1), "each record has its place");
    if prepared.is_empty() {
        stats.count_sequence(sequence);
    }
    let mut changes = SmallVec::new();
    for ((write, old), at) in prepared.iter().zip(olds).zip(locations) {
        stats.count(sequence, stored_bytes(at.len), write.fields.as_ref());
        let new = write
            .fields
            .map(|_| Slot::new(write.fingerprint, place, at));
        if old.is_some() || new.is_some() {
            changes.push(Change { old: *old, new });
        }
    }
    changes
}

/// The records in the form of the store's own files.
fn records_of(records: &[LogRecord], sequence: u64) -> Vec<Record<'_>> {
    let numbered = records.iter().enumerate();
    let taken = numbered.map(|(index, it)| Record {
        sequence,
        kind: it.kind,
        removal: it.removal,
        batch: BatchPlace::of(index, records.len()),
        front: &it.front[LogRecord::PREFIX_BYTES..],
        back: it.back.as_encoded(),
    });
    taken.collect()
}

/// Space that a record of this length takes in a segment.
fn stored_bytes(len: u64) -> u64 {
    len.next_multiple_of(RECORD_ALIGN_BYTES)
}

fn appended_bytes(appended: &Appended) -> u64 {
    let lens = appended.places.iter().map(|at| at.record.len);
    lens.map(stored_bytes).sum()
}
