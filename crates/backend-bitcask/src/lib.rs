//! The bitcask engine: append-only segments and an in-memory key directory.
//!
//! A put is one append; a get is one lookup in memory and one read of the disk. Basho's design is
//! kept (one writer, immutable finished files, hints, merging) without its weaknesses. Keys of any
//! length take about 20 bytes of memory, order comes from sequence numbers instead of wall clocks,
//! and heads are read without bodies. A merge takes one file at a time in small steps, removals are
//! dropped when they hide nothing, and a durable put is durable.
//!
//! ```text
//! directory/
//!   lock                  held while the store is open
//!   store-0, store-1      identity, secret, retired segments: two copies      (meta)
//!   0000000001.segment    records; the newest one is appended to              (kvorum-segment)
//!   0000000001.hint       its keys, a sorted table, once it is finished       (hint)
//!   0000000001.loghint    keys of records in the value log, likewise         (log_hint)
//!   checkpoint            the key directory at one moment                     (checkpoint)
//!   lost/                 what was found damaged                              (lost)
//!   suspect               there after a failed sync, until the next opening   (home)
//! ```
//!
//! Files: `store` consists of `home`, `contents`, `segment_files`, `log_share` and `expiry`. Its
//! methods are in `bitcask`, `read` and `write`, which with `read_cache` are the request path;
//! `keydir`, `slot_table`, `slot` and `places` are the index; `recovery` opens. `upkeep` has the
//! jobs: `merges`, `hints`, `log_hints`, `checkpoints` and `scrub`. Each job gets the file set,
//! `segment_files`, with its parts. `merge_plan` and `victim` choose the segment to merge.
//! `log_use` is to the value log as merges are to the store's own files. `snapshot` and `key_walk`
//! are folds.

pub mod anatomy;
mod backup;
mod bitcask;
pub mod check;
mod checkpoint;
mod checkpoints;
mod contents;
mod copies;
mod entry;
mod expiries;
mod expiry;
mod fingerprint;
mod found_segment;
mod hint;
mod hint_table;
mod hinted;
mod hints;
mod home;
mod key_table;
mod key_walk;
mod keydir;
mod log_hint;
mod log_hints;
mod log_share;
mod log_use;
mod lost;
mod merge_plan;
mod merges;
mod meta;
mod places;
mod read;
mod read_cache;
mod recovery;
mod scrub;
mod segment;
mod segment_files;
mod segment_stats;
mod segments;
mod settings;
mod shared;
mod shared_place;
mod slot;
mod slot_table;
mod snapshot;
mod store;
mod tail;
mod tenant;
mod unread;
mod upkeep;
mod victim;
mod write;

pub use bitcask::{Bitcask, DrawNumber};
pub use kvorum_backend::SyncStrategy;
pub use kvorum_segment::Compression;
pub use read_cache::ReadCache;
pub use settings::{BitcaskSettings, MergePolicy, MergeSettings};
