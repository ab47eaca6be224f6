//! Putting a batch: encoded without a lock, queued in the log and applied under the writer's lock,
//! and shown in one step.

use std::sync::atomic::Ordering;

use kvorum_backend::{
    Durability, Durable, Purpose, Receipt, Result, Sequence, StoreId, SyncStrategy, SyncTicket,
};
use kvorum_planted_defects::is_planted;
use kvorum_segment::RECORD_ALIGN_BYTES;
use kvorum_value_log::{LogPlace, LogPromise};

use crate::change::Op;
use crate::records::records_of;
use crate::store::Store;

/// The state that a writer has read before its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) sequence: u64,
    pub(crate) frozen_count: u64,
}

/// A batch in the log: its ticket, and true if all puts should wait for it.
struct Logged {
    sequence: u64,
    ticket: SyncTicket,
    is_crowded: bool,
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
        let is_grouped = self.is_grouped(durability);
        let Some(logged) = self.log_and_apply(ops, self.promise(durability, is_grouped), guard)?
        else {
            return Ok(None);
        };
        let payload = ops.iter().map(Op::payload_bytes).sum();
        self.counters
            .put_bytes
            .fetch_add(payload, Ordering::Relaxed);
        // Queued batches would be lost with this process: a caller that leaves durability to the
        // store waits at least until the operating system has the batch.
        let waits = is_grouped || durability == Durability::BackendDefault || logged.is_crowded;
        Ok(Some(Receipt {
            sequence: Sequence(logged.sequence),
            durable: match waits {
                true => Durable::After(logged.ticket),
                false => Durable::Already,
            },
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

    fn promise(&self, durability: Durability, is_grouped: bool) -> LogPromise {
        let is_default = self.settings.sync == SyncStrategy::Grouped;
        match is_grouped || (durability != Durability::Grouped && is_default) {
            true => LogPromise::Durable,
            false => LogPromise::Written,
        }
    }

    fn log_and_apply(
        &self,
        ops: &[Op],
        promise: LogPromise,
        guard: Option<Guard>,
    ) -> Result<Option<Logged>> {
        let records = records_of(ops);
        let purpose = Purpose::of(ops.iter().map(Op::frees));
        self.check_room_to_move(purpose)?;
        self.log.wait_for_room()?;
        let mut writer = self.writer.lock();
        // Closing and failing wait for the lock, so this check is final.
        self.intake.check_writable()?;
        if guard.is_some_and(|guard| self.is_changed(ops, guard)) {
            return Ok(None);
        }
        let sequence = writer.last_sequence + 1;
        let store = StoreId(self.identity());
        let appended = self
            .log
            .append(store, Sequence(sequence), records, purpose, promise)?;
        let bytes = appended.places.iter().map(taken_bytes).sum();
        self.take(ops, sequence, appended.segment.number(), bytes);
        writer.last_sequence = sequence;
        self.visible.store(sequence, Ordering::Release);
        Ok(Some(Logged {
            sequence,
            ticket: appended.ticket,
            is_crowded: appended.is_crowded,
        }))
    }

    /// Applies a batch of the log. The caller has the writer's lock.
    pub(crate) fn take(&self, ops: &[Op], sequence: u64, segment: u32, bytes: u64) {
        // Noted first: a put without index entries must not overtake one with them.
        if ops.iter().any(Op::has_extra) {
            self.has_extras.store(true, Ordering::Release);
        }
        let version = self.version.load();
        version.overlay.count_logged(segment, bytes);
        version.overlay.apply(ops, sequence);
    }

    /// True when a key of the batch was written after the guard was taken, or may have been.
    fn is_changed(&self, ops: &[Op], guard: Guard) -> bool {
        let version = self.version.load();
        let is_newer = |op: &Op| {
            let newest = version.overlays().filter_map(|it| it.newest_of(&op.key));
            newest.max().is_some_and(|it| it > guard.sequence)
        };
        version.frozen_count != guard.frozen_count || ops.iter().any(is_newer)
    }
}

/// Bytes of a record in its segment.
pub(crate) fn taken_bytes(at: &LogPlace) -> u64 {
    let len = at.record.len;
    len.checked_next_multiple_of(RECORD_ALIGN_BYTES)
        .unwrap_or(len)
}
