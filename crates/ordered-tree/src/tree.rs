//! The trait of a tree.

use bytes::Bytes;
use kvorum_backend::{
    Durability, Fields, Lease, Lookup, ReadAt, Receipt, Result, Sequence, StepOutcome, Timestamp,
};
use kvorum_encoding::KeyRange;

use crate::{DoubtKind, Doubts, TreeView};

/// The result of a write below memory.
#[derive(Debug)]
pub enum PutBelow<T> {
    /// It was made; the decision is returned with the bytes written.
    Done(T, u64),
    /// Memory is being flushed first; repeat the call.
    Flushing(StepOutcome),
}

/// An open tree of keys, each with fields, extra bytes, a head and a body.
pub trait OrderedTree {
    /// One change to the tree.
    type Op;
    /// A writer's view before it decided on a write.
    type Guard;
    /// A consistent view.
    type View: TreeView;

    /// The fields and the extra bytes of a key.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Corrupt`] when damage took the key's entry.
    fn extra(&self, key: &Bytes, at: ReadAt) -> Result<Lookup<(Fields, Bytes)>>;

    /// True when entries with extra bytes may be in the tree.
    fn has_extras(&self) -> bool;

    /// A view of now.
    fn view(&self, lease: Lease) -> Self::View;

    /// Puts a value. The parts that the tree keeps in memory are copied: requests are slices of
    /// something larger.
    fn put_op(
        &self,
        key: &[u8],
        fields: Fields,
        extra: Bytes,
        head: &[u8],
        body: &Bytes,
    ) -> Self::Op;

    /// Puts a key that has fields and nothing else.
    fn bare_op(&self, key: Bytes, fields: Fields) -> Self::Op;

    /// Removes a key.
    fn remove_op(&self, key: Bytes) -> Self::Op;

    /// Applies a batch atomically.
    ///
    /// # Errors
    /// Those of [`kvorum_backend::Backend::put`].
    fn put(&self, ops: &[Self::Op], durability: Durability) -> Result<Receipt>;

    /// A guard, taken before the entries that a write depends on are read.
    fn guard(&self) -> Self::Guard;

    /// Applies a batch if none of its keys was written since the guard was taken; `None` if one was, or may
    /// have been.
    ///
    /// # Errors
    /// Those of [`OrderedTree::put`].
    fn put_if_unchanged(
        &self,
        ops: &[Self::Op],
        durability: Durability,
        guard: Self::Guard,
    ) -> Result<Option<Receipt>>;

    /// Reads and writes at once, as far as flushes go: `decide` returns the entries to be put, in
    /// any order, each key once. They are put below everything in memory, so they undo no put; puts
    /// go on meanwhile, and take precedence.
    ///
    /// An entry has a key and fields, and no large body.
    ///
    /// # Errors
    /// Those of `decide` and of writing.
    fn put_below<T>(
        &self,
        budget_bytes: u64,
        now: Timestamp,
        decide: impl FnOnce() -> Result<(Vec<Self::Op>, T)>,
    ) -> Result<PutBelow<T>>;

    /// Flushes some of the memory, even if that is not due.
    ///
    /// # Errors
    /// Those of writing.
    fn flush_part(&self, budget_bytes: u64, now: Timestamp) -> Result<StepOutcome>;

    /// The sequence up to which nothing is in memory alone.
    fn flushed(&self) -> Sequence;

    /// False for a tree that was closed or has failed.
    fn is_writable(&self) -> bool;

    /// Bytes that are read when all keys are walked over.
    fn walked_bytes(&self) -> u64;

    /// Keys that damage may have taken, or may have brought back, and that are not settled yet.
    fn doubts(&self) -> &Doubts;

    /// True when a part of this range is known to be unreadable now.
    fn is_lost(&self, range: &KeyRange) -> bool;

    /// Opens doubts about these keys, before or after a write of them: a crash that keeps the write
    /// keeps them, unless the disk does not take them.
    fn open_doubts(&self, kind: DoubtKind, ranges: &[KeyRange]);

    /// Closes doubts, for good when this returns without an error, and opens others about losses.
    ///
    /// # Errors
    /// Those of writing.
    fn settle_doubts(&self, ids: &[u64], lost: &[KeyRange]) -> Result<()>;
}
