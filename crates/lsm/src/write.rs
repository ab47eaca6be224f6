//! Putting a batch: encoded without a lock, applied under the writer's, shown in one step.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    BackendError, Durability, Durable, ErrorKind, Receipt, Result, Sequence, SyncTicket,
};
use kvorum_segment::{SegmentWriter, WriterOptions};
use kvorum_sst::{KEY_BYTES_MAX, hash_key};

use crate::Value;
use crate::error::IntoBackend;
use crate::log::{Encoded, log_id, log_path};
use crate::settings::SyncStrategy;
use crate::store::{Store, WriteSide};

/// The largest body: what a table's block and a log's record can hold.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Stores a value, replacing what the key held. Its body is inline.
    Put {
        /// The key.
        key: Bytes,
        /// The value. Kept in memory as it is given when it is large: a slice of something larger keeps
        /// that too.
        value: Value,
    },
    /// Removes a key.
    Remove {
        /// The key.
        key: Bytes,
    },
    /// Removes all keys from `from` up to but without `to`.
    RemoveRange {
        /// The first key.
        from: Bytes,
        /// The first key behind.
        to: Bytes,
    },
}

/// What a writer saw before it decided what to write; see [`crate::Lsm::write_if_unchanged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub(crate) sequence: u64,
    pub(crate) flushes: u64,
}

/// What became of a batch.
enum Applied {
    /// It has this sequence.
    At(u64),
    /// One of its keys was written since its guard was taken.
    Changed,
    /// The store was erased since it was noted that there are extra bytes.
    Erased,
}

impl Op {
    fn check(&self) -> Result<()> {
        let too_large = |what: &str, got: usize| {
            let detail = format!("{what} of {got} bytes");
            Err(BackendError::new(ErrorKind::TooLarge, detail))
        };
        let (key, value) = match self {
            Self::Put { key, value } => (key, Some(value)),
            Self::Remove { key } => (key, None),
            Self::RemoveRange { from, to } => (if from > to { from } else { to }, None),
        };
        if key.len() >= KEY_BYTES_MAX {
            return too_large("key", key.len());
        }
        if let Some(value) = value {
            let front = value.head.len() + value.extra.len();
            if front > 32 << 20 {
                return too_large("head", front);
            }
            if value.body_len() > BODY_BYTES_MAX {
                return too_large(
                    "body",
                    usize::try_from(value.body_len()).unwrap_or(usize::MAX),
                );
            }
        }
        Ok(())
    }
}

impl Store {
    /// Applies a batch; `None` when `guard` is given and one of its keys was written since.
    pub(crate) fn write(
        &self,
        ops: &[Op],
        durability: Durability,
        guard: Option<Guard>,
    ) -> Result<Option<Receipt>> {
        self.check_writable()?;
        ops.iter().try_for_each(Op::check)?;
        let ops = &*in_effect(ops);
        let encoded = self.settings.has_log.then(|| Encoded::new(ops));
        let has_extras = ops
            .iter()
            .any(|op| matches!(op, Op::Put { value, .. } if !value.extra.is_empty()));
        let sequence = loop {
            if has_extras {
                self.note_extras()?;
            }
            match self.apply(ops, encoded.as_ref(), guard, has_extras)? {
                Applied::At(sequence) => break sequence,
                Applied::Changed => return Ok(None),
                Applied::Erased => {}
            }
        };
        let is_grouped = match durability {
            Durability::Buffered => false,
            Durability::Grouped => true,
            Durability::BackendDefault => self.settings.sync == SyncStrategy::Grouped,
        };
        #[cfg(feature = "planted-defects")]
        let is_grouped =
            is_grouped && !self.has_defect(kvorum_backend::PlantedDefect::AcknowledgedBeforeSync);
        let durable = if is_grouped {
            Durable::After(SyncTicket::new(self.group.clone(), sequence))
        } else {
            Durable::Already
        };
        Ok(Some(Receipt {
            sequence: Sequence(sequence),
            durable,
        }))
    }

    fn apply(
        &self,
        ops: &[Op],
        encoded: Option<&Encoded<'_>>,
        guard: Option<Guard>,
        has_extras: bool,
    ) -> Result<Applied> {
        let mut writer = self.writer.lock();
        // Closing and failing wait for the lock, so this is the last word.
        self.check_writable()?;
        if let Some(guard) = guard
            && self.is_changed(ops, guard)
        {
            return Ok(Applied::Changed);
        }
        if has_extras && !self.has_extras.load(Ordering::Acquire) {
            return Ok(Applied::Erased);
        }
        let sequence = writer.last_sequence + 1;
        if let Some(encoded) = encoded {
            let records = encoded.records(sequence);
            let log = self.log_for(&mut writer)?;
            let before = log.end();
            let mut locations = Vec::with_capacity(records.len());
            log.append(&records, &mut locations).into_backend()?;
            self.count_written(log.end() - before);
        }
        writer.last_sequence = sequence;
        self.insert(ops, sequence);
        self.show_up_to(sequence);
        Ok(Applied::At(sequence))
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

    /// The log to append to; made by the first put, so that opening needs no space.
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
        let options = WriterOptions::default();
        SegmentWriter::create(&*self.disk, &path, id, options).into_backend()
    }

    fn insert(&self, ops: &[Op], sequence: u64) {
        let version = self.version.load();
        let memtable = &version.memtable;
        let bytes = ops.iter().map(|op| memtable.apply(op, sequence)).sum();
        self.shared.memory.add(bytes);
    }
}

/// A batch as it is logged, applied and replayed. All of it has one sequence, by which an entry stands
/// above a removed range; so what a range removes that comes behind it in the batch becomes a removal.
/// Ranges without keys are left out.
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
