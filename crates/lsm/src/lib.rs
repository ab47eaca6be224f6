//! An LSM tree in parts: the base of the `leveldb` engine, and of the ledgers of others.
//!
//! Writes go to a *memtable*, an ordered map in memory, and to the value log, or to a log of the store's own.
//! A full memtable is flushed to a sorted table on level 0. Tables are merged downwards, and each
//! level has a multiple of the bytes of the level above. Bodies above a threshold go to *blob
//! files* at a flush: a merge then moves pointers, and blob files are collected without rewriting a
//! key.
//!
//! # Decisions
//!
//! A [`policy`] selects the tables to merge, from sizes and key ranges alone, so tests run it over
//! simulated stores. Levelled merging is one policy. Doubling levels are another: they charge each
//! put its share of each due merge, and the put pays for the part that upkeep has not done before.
//! The mechanism works in steps of bounded bytes, which the caller schedules
//! ([`Lsm::maintenance_step`]). The crate starts no thread and reads no clock.
//!
//! # Views of readers
//!
//! A read uses one immutable [`version::Version`]: the memtables, the tables of each level, the
//! blob files. A snapshot is a handle on a version and a sequence. A table has at most one entry of
//! a key, since the reader of an older entry keeps the memtables and tables that have it. A newer
//! layer's entries of a key have higher sequences than an older layer's.
//!
//! # Tiers
//!
//! A store may keep its old tables in a second directory, on a slower device: [`kvorum_tiers`].
//!
//! # The value log
//!
//! A store may be opened over the log that all stores of a node share ([`Lsm::open`]). Then it has
//! no log of its own, and bodies stay where they were logged instead of going to blob files: a
//! large body is written once, and a second time only when its segment has become mostly garbage
//! ([`Tenant`](kvorum_value_log::Tenant)).
//!
//! # The journal
//!
//! A store may keep a journal of some of its keys ([`LsmSettings::journaled`]): the value log, and
//! files of its own with the records of dropped segments ([`journal`]). The journal has all bodies
//! of these keys, and their removals. Entries always name the place where they were logged, so that
//! collections of the log and of journal files write no table. Lost tables are rebuilt from the
//! journal.
//!
//! # Formats
//!
//! Names and layouts of files are public, for programs that check or repair a closed store
//! (`lsm-repair`): [`manifest`], [`log`], [`lost`], [`blob`], [`files`] and [`Entry`]. None of them
//! depends on an open store.
//!
//! # Damage
//!
//! An unreadable block fails gets, is skipped by folds, and hides older entries of its keys, which
//! may be out of date or removed. A merge puts a *mark* over the range in the block's place, and
//! sets the bytes aside in `lost/`. The mark is dropped on the last level, where no older entry is
//! left that could return.
//!
//! A snapshot reports whether its folds met damage ([`TreeView::has_met_damage`]). A caller that
//! derives keys from other keys gets the ranges in doubt ([`OrderedTree::doubts`]) until it has
//! settled them. The caller can put entries below everything in memory
//! ([`OrderedTree::put_below`]), so that no put made meanwhile is undone.

pub mod anatomy;
mod backup;
pub mod blob;
mod cache;
mod collect;
mod compaction;
mod derived_writes;
mod doubling;
mod draw;
mod entry;
mod erase;
mod expiry;
pub mod files;
mod flush;
mod in_tables;
mod install;
pub mod journal;
mod journal_collect;
mod journal_order;
mod journal_parts;
mod journal_policy;
mod keeping;
mod leveled;
pub mod log;
mod log_backlog;
mod logged;
pub mod lost;
mod lsm;
pub mod manifest;
mod memory;
mod memtable;
mod merge;
mod merge_entry;
mod merging;
mod older;
mod op;
mod opening;
mod pins;
pub mod policy;
#[cfg(test)]
mod policy_script_test;
mod read;
mod read_failures;
mod read_side;
mod rebuilding;
mod recovery;
mod relocation;
mod replaced;
mod scarcity;
mod scrub;
mod segment_release;
mod settings;
mod shares;
mod snapshot;
mod status;
mod store;
mod tenant;
mod tree;
mod upkeep;
pub mod version;
mod walk_entry;
mod write;
mod written_blob;
mod written_journal;

pub use cache::SharedCache;
pub use doubling::{DoublingLevels, SHARE_PER_BYTE};
pub use draw::DrawNumber;
pub use entry::{BlobPlace, Body, Entry, Value};
pub use journal_order::JournalShown;
pub use journal_policy::JournalPolicy;
pub use logged::{LoggedPlace, segment_of};
pub use lsm::Lsm;
pub use memory::MemoryBudget;
pub use older::Older;
pub use op::Op;
pub use settings::{CompressionPoint, LsmSettings, Recalculate, Shared};
pub use snapshot::{LsmSnapshot, Shown};
pub use write::Guard;

pub use kvorum_backend::SyncStrategy;
pub use kvorum_ordered_tree::{
    DoubtKind, OrderedTree, ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView,
};
pub use kvorum_sst::{Compression, FilterKind};
