//! The trait of a tree.

use bytes::Bytes;
use kvorum_backend::{
    Durability, Fields, Lease, Lookup, ReadAt, Receipt, Result, Sequence, StepOutcome, Timestamp,
};
use kvorum_encoding::KeyRange;

use crate::{DoubtKind, Doubts, TreeView};

/// What became of a write below memory.
#[derive(Debug)]
pub enum PutBelow<T> {
    /// It was made, and what was decided is returned with the bytes written.
    Done(T, u64),
    /// What is in memory is being flushed first; ask again.
    Flushing(StepOutcome),
}

/// An open tree of keys, each with fields, extra bytes, a head and a body.
pub trait OrderedTree {
    /// One change to the tree.
    type Op;
    /// What a writer saw before it decided what to write.
    type Guard;
    /// A consistent view.
    type View: TreeView;

    /// The fields and the extra bytes of a key.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Corrupt`] when damage took what the key holds.
    fn extra(&self, key: &Bytes, at: ReadAt) -> Result<Lookup<(Fields, Bytes)>>;

    /// True when entries with extra bytes may be in the tree.
    fn has_extras(&self) -> bool;

    /// A view of now.
    fn view(&self, lease: Lease) -> Self::View;

    /// Puts a value. What the tree keeps in memory of it is copied: requests are slices of something larger.
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

    /// Taken before what a write depends on is read.
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

    /// Reads and writes at once, as far as flushes go: `decide` says what is to be put, in any order, each
    /// key once. What is put stands below everything that is in memory, so it undoes no put; puts go on
    /// meanwhile, and what they write counts.
    ///
    /// What is put has a key and fields, and no large body.
    ///
    /// # Errors
    /// Those of `decide` and of writing.
    fn put_below<T>(
        &self,
        budget_bytes: u64,
        now: Timestamp,
        decide: impl FnOnce() -> Result<(Vec<Self::Op>, T)>,
    ) -> Result<PutBelow<T>>;

    /// Flushes some of what is in memory, whether that is due or not.
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

    /// Keys of which damage may have taken something, or to which it may have brought something back, and
    /// that nobody has settled yet.
    fn doubts(&self) -> &Doubts;

    /// True when something of this range is known to be unreadable now.
    fn is_lost(&self, range: &KeyRange) -> bool;

    /// Opens doubts about these keys, before or after a write of them: they are kept across a crash at which
    /// the write is kept, unless the disk does not take them.
    fn open_doubts(&self, kind: DoubtKind, ranges: &[KeyRange]);

    /// Closes doubts, for good when this returns without an error, and opens others about what was lost.
    ///
    /// # Errors
    /// Those of writing.
    fn settle_doubts(&self, ids: &[u64], lost: &[KeyRange]) -> Result<()>;
}
