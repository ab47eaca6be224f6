//! An open store as an ordered tree, the interface for code that derives keys from other keys.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    Durability, Fields, Lease, Lookup, ReadAt, Receipt, Result, Sequence, StepOutcome, Timestamp,
};
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, Doubts, OrderedTree, PutBelow};

use crate::derived_writes::write_below;
use crate::version::LevelTable;
use crate::write::Guard;
use crate::{Body, Lsm, LsmSnapshot, Op, Value};

impl OrderedTree for Lsm {
    type Op = Op;
    type Guard = Guard;
    type View = LsmSnapshot;

    fn extra(&self, key: &Bytes, at: ReadAt) -> Result<Lookup<(Fields, Bytes)>> {
        let found = self.head(key, at)?;
        Ok(found.map(|(_, value)| (value.fields, value.extra)))
    }

    fn has_extras(&self) -> bool {
        self.store.has_extras.load(Ordering::Acquire)
    }

    fn view(&self, lease: Lease) -> LsmSnapshot {
        self.snapshot(lease)
    }

    /// A body that stays in the value log is passed without a copy.
    fn put_op(&self, key: &[u8], fields: Fields, extra: Bytes, head: &[u8], body: &Bytes) -> Op {
        let stays = self.store.log.is_some() && self.store.keeping().keeps(key, body.len());
        let copied = if stays { &[][..] } else { &body[..] };
        let all = Bytes::from([key, head, copied].concat());
        let (key_end, head_end) = (key.len(), key.len() + head.len());
        Op::Put {
            key: all.slice(..key_end),
            value: Value {
                fields,
                extra,
                head: all.slice(key_end..head_end),
                body: Body::Inline(match stays {
                    true => body.clone(),
                    false => all.slice(head_end..),
                }),
            },
        }
    }

    fn bare_op(&self, key: Bytes, fields: Fields) -> Op {
        let value = Value {
            fields,
            extra: Bytes::new(),
            head: Bytes::new(),
            body: Body::Inline(Bytes::new()),
        };
        Op::Put { key, value }
    }

    fn remove_op(&self, key: Bytes) -> Op {
        Op::Remove { key }
    }

    fn put(&self, ops: &[Op], durability: Durability) -> Result<Receipt> {
        self.write(ops, durability, Timestamp(0))
    }

    fn guard(&self) -> Guard {
        let flushes = self.store.version.load().flushes;
        Guard {
            sequence: self.store.visible_sequence(),
            flushes,
        }
    }

    fn put_if_unchanged(
        &self,
        ops: &[Op],
        durability: Durability,
        guard: Guard,
    ) -> Result<Option<Receipt>> {
        let receipt = self.store.write(ops, durability, Some(guard))?;
        if receipt.is_some() {
            self.after_write(ops, Timestamp(0));
        }
        Ok(receipt)
    }

    fn put_below<T>(
        &self,
        budget_bytes: u64,
        now: Timestamp,
        decide: impl FnOnce() -> Result<(Vec<Op>, T)>,
    ) -> Result<PutBelow<T>> {
        let mut jobs = self.upkeep.jobs.lock();
        self.store.intake.check_writable()?;
        // A flush leaves out removals that had nothing to hide when it began.
        if jobs.flush.is_going_on() {
            let flushed = jobs.flush.step(&self.store, budget_bytes, now, true);
            return Ok(PutBelow::Flushing(flushed?));
        }
        let (ops, decided) = decide()?;
        let bytes = write_below(&self.store, ops)?;
        Ok(PutBelow::Done(decided, bytes))
    }

    fn flush_part(&self, budget_bytes: u64, now: Timestamp) -> Result<StepOutcome> {
        let mut jobs = self.upkeep.jobs.lock();
        self.store.intake.check_writable()?;
        jobs.flush.step(&self.store, budget_bytes, now, true)
    }

    fn flushed(&self) -> Sequence {
        Sequence(self.store.manifest.lock().sequence)
    }

    fn is_writable(&self) -> bool {
        self.store.intake.check_writable().is_ok()
    }

    fn walked_bytes(&self) -> u64 {
        let version = self.store.version.load();
        version.tables().map(|it| it.file_len).sum()
    }

    fn doubts(&self) -> &Doubts {
        &self.store.read_side.doubts
    }

    /// True for a range in a damaged block, in a missing table, or below a mark over such a block.
    fn is_lost(&self, range: &KeyRange) -> bool {
        let version = self.store.version.load();
        let is_there = |number: u64| version.tables().any(|it| it.number == number);
        let mut holes = version.tables().flat_map(LevelTable::lost_ranges);
        self.doubts().has_met(range, is_there) || holes.any(|it| it.overlaps(range))
    }

    fn open_doubts(&self, kind: DoubtKind, ranges: &[KeyRange]) {
        if ranges.is_empty() {
            return;
        }
        for range in ranges {
            self.doubts().open(kind, range.clone());
        }
        // The doubts in memory are valid, and are written with the next change.
        let _written_or_failing_disk = self.store.change_manifest(|_| {});
    }

    fn settle_doubts(&self, ids: &[u64], lost: &[KeyRange]) -> Result<()> {
        self.doubts().settle(ids);
        for range in lost {
            self.doubts().open(DoubtKind::Lost, range.clone());
        }
        self.store.change_manifest(|_| {})
    }
}
