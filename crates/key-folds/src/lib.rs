//! Folds over the keys of a bucket: statistics, keys that stand out, tombstones, trees, as operators ask.
//!
//! A [`KeyFold`] is a question: a scope (a bucket, and within it a range of keys, times and leaves) and
//! what is to be found there. [`Findings`] take in one entry after the other. A question is answered in
//! parts, by several vnodes and on several snapshots: findings of parts that share no key are merged, and
//! the result depends on no order. A part ends when its findings exceed a bound
//! ([`Findings::memory_bytes`]), so that the memory that a part takes does not grow with the bucket.
//!
//! Numbers such as counts have findings of a fixed size. Lists of keys and trees grow with what is found;
//! the caller that merges them bounds the sum.
//!
//! The crate knows neither objects nor stores: an entry is what [`FoldedEntry`] says of it. Clocks are
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
