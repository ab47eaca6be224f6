//! Putting a batch: encoded without a lock, applied under the writer's lock, and shown in one step.
//!
//! A store over the value log appends the batch there. Large bodies stay there: the memtable gets a body's
//! place, which follows from the order of batches. The log serves a body from memory until it is
//! written.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    BackendError, Durability, Durable, ErrorKind, Purpose, Receipt, Result, Sequence, StoreId,
    SyncStrategy, SyncTicket,
};
use kvorum_planted_defects::is_planted;
use kvorum_segment::SegmentWriter;
use kvorum_sst::hash_key;
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::{Appended, LogPromise, LogRecord, ValueLog};

use crate::log::{Encoded, log_id, log_path, logged_records};
use crate::logged::taken_bytes;
use crate::op::Op;
use crate::store::{Store, WriteSide};

/// The state that a writer has read before its write; see
/// [`kvorum_ordered_tree::OrderedTree::put_if_unchanged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub(crate) sequence: u64,
    pub(crate) flushes: u64,
}

/// A batch in the form of the log that takes it.
enum Prepared<'a> {
    /// In the form of the store's own log.
    Own(Encoded<'a>),
    /// In the form of the value log.
    Logged(&'a ValueLog, Vec<LogRecord>, LogPromise),
}

/// Result of applying a batch.
enum Applied {
    /// Applied with this sequence.
    At(u64),
    /// Applied over the value log: the sequence, the ticket of its sync, and whether every caller
    /// should wait for it.
    Logged(u64, SyncTicket, bool),
    /// One of its keys was written since the guard was taken.
    Changed,
    /// The store was erased after it noted that entries have extra bytes.
    Erased,
}

impl Store {
    /// Applies a batch; `None` when `guard` is given and one of its keys was written since.
    pub(crate) fn write(
        &self,
        ops: &[Op],
        durability: Durability,
        guard: Option<Guard>,
    ) -> Result<Option<Receipt>> {
        self.intake.check_writable()?;
        ops.iter().try_for_each(Op::check)?;
        let ops = &*in_effect(ops);
        let is_grouped = self.is_grouped(durability);
        let has_extras = ops
            .iter()
            .any(|op| matches!(op, Op::Put { value, .. } if !value.extra.is_empty()));
        let written = loop {
            if has_extras {
                self.note_extras()?;
            }
            let prepared = self.prepare(ops, durability, is_grouped)?;
            match self.apply(ops, prepared, guard, has_extras)? {
                Applied::At(sequence) if is_grouped => {
                    let ticket = SyncTicket::new(self.group.clone(), sequence);
                    break (sequence, Durable::After(ticket));
                }
                Applied::At(sequence) => break (sequence, Durable::Already),
                Applied::Logged(sequence, ticket, is_crowded) => {
                    // Queued batches would be lost with this process: a caller that leaves
                    // durability to the store waits at least until the operating system has the
                    // batch.
                    let waits = is_grouped || durability == Durability::BackendDefault;
                    break match waits || is_crowded {
                        true => (sequence, Durable::After(ticket)),
                        false => (sequence, Durable::Already),
                    };
                }
                Applied::Changed => return Ok(None),
                Applied::Erased => {}
            }
        };
        let (sequence, durable) = written;
        Ok(Some(Receipt {
            sequence: Sequence(sequence),
            durable,
        }))
    }

    /// True when the caller is promised a durable batch.
    fn is_grouped(&self, durability: Durability) -> bool {
        let is_grouped = match durability {
            Durability::Buffered => false,
            Durability::Grouped => true,
            Durability::BackendDefault => self.settings.sync == SyncStrategy::Grouped,
        };
        is_grouped && !is_planted!(GroupNotAwaited)
    }

    /// Encodes a batch, and waits until the value log has room for it.
    fn prepare<'a>(
        &'a self,
        ops: &'a [Op],
        durability: Durability,
        is_grouped: bool,
    ) -> Result<Prepared<'a>> {
        let Some(log) = &self.log else {
            return Ok(Prepared::Own(Encoded::new(ops)));
        };
        let is_default = self.settings.sync == SyncStrategy::Grouped;
        let promise = match is_grouped || (durability != Durability::Grouped && is_default) {
            true => LogPromise::Durable,
            false => LogPromise::Written,
        };
        let records = logged_records(ops, &self.compressor, self.keeping());
        log.wait_for_room()?;
        Ok(Prepared::Logged(log, records, promise))
    }

    fn apply(
        &self,
        ops: &[Op],
        prepared: Prepared<'_>,
        guard: Option<Guard>,
        has_extras: bool,
    ) -> Result<Applied> {
        let mut writer = self.writer.lock();
        // Closing and failing wait for the lock, so the result cannot change.
        self.intake.check_writable()?;
        if let Some(guard) = guard
            && self.is_changed(ops, guard)
        {
            return Ok(Applied::Changed);
        }
        if has_extras && !self.has_extras.load(Ordering::Acquire) {
            return Ok(Applied::Erased);
        }
        let sequence = writer.last_sequence + 1;
        let purpose = Purpose::of(ops.iter().map(Op::frees));
        let applied = match prepared {
            Prepared::Own(encoded) => {
                self.append_own(&mut writer, &encoded, sequence, purpose)?;
                self.insert(ops, sequence);
                Applied::At(sequence)
            }
            Prepared::Logged(log, records, promise) => {
                let store = StoreId(self.identity());
                let appended = log.append(store, Sequence(sequence), records, purpose, promise)?;
                self.insert_logged(&mut writer, ops, &appended, sequence);
                Applied::Logged(sequence, appended.ticket, appended.is_crowded)
            }
        };
        writer.last_sequence = sequence;
        self.show_up_to(sequence);
        Ok(applied)
    }

    fn append_own(
        &self,
        writer: &mut WriteSide,
        encoded: &Encoded<'_>,
        sequence: u64,
        purpose: Purpose,
    ) -> Result<()> {
        let records = encoded.records(sequence);
        let len = SegmentWriter::appended_len(&records);
        self.intake.take_room(len, purpose)?;
        let log = self.log_for(writer)?;
        let before = log.end();
        let mut locations = Vec::with_capacity(records.len());
        log.append(&records, &mut locations).into_backend()?;
        self.count_written(log.end() - before);
        Ok(())
    }

    /// True when a key of the batch was written after the guard was taken, or may have been.
    fn is_changed(&self, ops: &[Op], guard: Guard) -> bool {
        let version = self.version.load();
        let is_newer = |key: &Bytes| {
            let hash = hash_key(key);
            version.memtables().any(|memtable| {
                let written_at = memtable.newest_of(key, hash);
                let removed_at = memtable.removed_at(key, u64::MAX);
                written_at.is_some_and(|it| it > guard.sequence)
                    || removed_at.is_some_and(|it| it > guard.sequence)
            })
        };
        version.flushes != guard.flushes
            || ops.iter().any(|op| match op {
                Op::Put { key, .. } | Op::Remove { key } => is_newer(key),
                Op::RemoveRange { .. } => false,
            })
    }

    /// The log to append to. The first put makes it, so that opening needs no space.
    fn log_for<'w>(&self, writer: &'w mut WriteSide) -> Result<&'w mut SegmentWriter> {
        if writer.log.is_none() {
            let created = self.create_log()?;
            writer
                .unsynced
                .push((created.id().number, created.sync_handle()));
            writer.log = Some(created);
        }
        writer
            .log
            .as_mut()
            .ok_or_else(|| BackendError::new(ErrorKind::Misuse, "no log to append to"))
    }

    pub(crate) fn create_log(&self) -> Result<SegmentWriter> {
        let number = self.take_number();
        let id = log_id(self.identity(), number);
        let path = log_path(&self.directory, number);
        SegmentWriter::create(&*self.disk, &path, id).into_backend()
    }

    fn insert(&self, ops: &[Op], sequence: u64) {
        let version = self.version.load();
        let memtable = &version.memtable;
        let bytes = ops.iter().map(|op| memtable.apply(op, sequence)).sum();
        self.shared.memory.add(bytes);
    }

    /// The same for a batch in the value log, where large bodies stay.
    fn insert_logged(
        &self,
        writer: &mut WriteSide,
        ops: &[Op],
        appended: &Appended,
        sequence: u64,
    ) {
        let segment = &appended.segment;
        let taken = appended.places.iter().map(taken_bytes).sum();
        writer.uncovered.add(segment.number(), sequence, taken);
        let version = self.version.load();
        let memtable = &version.memtable;
        memtable.keep_segment(segment);
        let keeping = self.keeping();
        let placed = ops.iter().zip(&appended.places);
        let bytes = placed.map(|(op, at)| memtable.apply_logged(op, sequence, at, keeping));
        self.shared.memory.add(bytes.sum());
    }
}

/// The form of a batch that is logged, applied and replayed. A batch has one sequence, at which
/// entries are above removed ranges. So a put whose key a later range of the batch removes becomes
/// a removal. Ranges without keys are left out.
fn in_effect(ops: &[Op]) -> Cow<'_, [Op]> {
    if !ops.iter().any(|op| matches!(op, Op::RemoveRange { .. })) {
        return Cow::Borrowed(ops);
    }
    let effective = ops.iter().enumerate().filter_map(|(number, op)| {
        let is_covered = |key: &Bytes| {
            ops[number + 1..].iter().any(
                |later| matches!(later, Op::RemoveRange { from, to } if from <= key && key < to),
            )
        };
        match op {
            Op::Put { key, .. } if is_covered(key) => Some(Op::Remove { key: key.clone() }),
            Op::RemoveRange { from, to } if from >= to => None,
            op => Some(op.clone()),
        }
    });
    Cow::Owned(effective.collect())
}
