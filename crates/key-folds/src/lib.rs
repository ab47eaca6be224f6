//! Folds over the keys of a bucket, for operators: statistics, exceptional keys, tombstones, trees.
//!
//! A [`KeyFold`] is a question: a scope (a bucket, and within it a range of keys, times and leaves)
//! and the requested facts about its entries. Entries are added to [`Findings`] one by one. A
//! question is answered in parts, by several vnodes and on several snapshots. Findings of parts
//! that share no key are merged, in any order. A part ends when its findings exceed a bound
//! ([`Findings::memory_bytes`]), so that its memory does not grow with the bucket.
//!
//! Numbers such as counts have findings of a fixed size. Lists of keys and trees grow with the
//! bucket; the caller that merges them bounds the sum.
//!
//! The crate depends on neither objects nor stores: a [`FoldedEntry`] has the facts of an entry. Clocks are
//! bytes, and hashes of entries are numbers that trees add up by exclusive or.

mod entry;
mod findings;
mod key_fold;
mod wire_form;

#[cfg(test)]
mod findings_test;
#[cfg(test)]
mod wire_form_test;

pub use entry::FoldedEntry;
pub use findings::{Findings, KeyClock, KeyNumber, ObjectStats};
pub use key_fold::{EntryClass, FoldKind, FoldScope, KeyFold, LeafFilter};
