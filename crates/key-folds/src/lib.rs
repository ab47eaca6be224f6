//! Folds over the keys of a bucket: statistics, keys that stand out, tombstones, trees, as operators ask.
//!
//! A [`KeyFold`] is a question: a scope (a bucket, and within it a range of keys, times and leaves) and
//! the facts that are wanted of its entries. [`Findings`] take in one entry after the other. A question is
//! answered in parts, by several vnodes and on several snapshots. Findings of parts that share no key are
//! merged, in any order. A part ends when its findings exceed a bound
//! ([`Findings::memory_bytes`]), so that the memory that a part takes does not grow with the bucket.
//!
//! Numbers such as counts have findings of a fixed size. Lists of keys and trees grow with the bucket;
//! the caller that merges them bounds the sum.
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
