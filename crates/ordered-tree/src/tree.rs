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
    /// The write was made; returns the decision and the bytes written.
    Done(T, u64),
    /// Memory is being flushed first; call again.
    Flushing(StepOutcome),
}

/// An open tree of keys, each with fields, extra bytes, a head and a body.
pub trait OrderedTree {
    /// One change to the tree.
    type Op;
    /// The state that a writer has read before its write.
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

    /// A view of the present contents.
    fn view(&self, lease: Lease) -> Self::View;

    /// Puts a value. The parts that the tree keeps in memory are copied, since requests are slices
    /// of larger buffers.
    fn put_op(
        &self,
        key: &[u8],
        fields: Fields,
        extra: Bytes,
        head: &[u8],
        body: &Bytes,
    ) -> Self::Op;

    /// Puts a key with fields alone.
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

    /// Applies a batch if none of its keys was written since the guard was taken; `None` if a key
    /// was or may have been.
    ///
    /// # Errors
    /// Those of [`OrderedTree::put`].
    fn put_if_unchanged(
        &self,
        ops: &[Self::Op],
        durability: Durability,
        guard: Self::Guard,
    ) -> Result<Option<Receipt>>;

    /// Reads and writes without a flush in between: `decide` returns the entries to put, in any
    /// order, each key once. They are put below everything in memory, so they undo no put. Puts
    /// continue meanwhile, and take precedence.
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

    /// Flushes a part of the memory, even if no flush is due.
    ///
    /// # Errors
    /// Those of writing.
    fn flush_part(&self, budget_bytes: u64, now: Timestamp) -> Result<StepOutcome>;

    /// The sequence up to which all entries are in files.
    fn flushed(&self) -> Sequence;

    /// False for a tree that was closed or has failed.
    fn is_writable(&self) -> bool;

    /// Bytes that a walk over all keys reads.
    fn walked_bytes(&self) -> u64;

    /// Unsettled doubts about keys that damage may have taken or brought back.
    fn doubts(&self) -> &Doubts;

    /// True when a part of this range is known to be unreadable now.
    fn is_lost(&self, range: &KeyRange) -> bool;

    /// Opens doubts about these keys, before or after a write of them. A crash that keeps the write
    /// keeps the doubts, unless the disk has refused them.
    fn open_doubts(&self, kind: DoubtKind, ranges: &[KeyRange]);

    /// Closes doubts, durably if this returns no error, and opens others about losses.
    ///
    /// # Errors
    /// Those of writing.
    fn settle_doubts(&self, ids: &[u64], lost: &[KeyRange]) -> Result<()>;
}
