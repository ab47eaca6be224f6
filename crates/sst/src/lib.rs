//! Immutable sorted tables: the files of LSM trees, ledgers and blob collections.
//!
//! A *table* is a file of blocks, written once in key order. Each block has its own checksum, kind
//! and length, so that a table with a damaged index stays readable: a walk over the blocks rebuilds
//! the index. Values are opaque here; the writer passes the few facts by which folds skip entries
//! ([`Facts`]).
//!
//! # How a table is laid out
//!
//! ```text
//! file header
//! partition 0:  data blocks, segment sets, filter, index
//! partition 1:  ...
//! properties, and the owner's note
//! top index: one entry for each partition
//! footer
//! ```
//!
//! A point read uses the top index (in memory), one filter block, one index block and one data
//! block, each through the caller's [`BlockCache`]. Index and filters are cut into partitions, so
//! that their share of a cache grows with the reads and not with the table.
//!
//! # What is promised
//!
//! 1. Every returned byte was checked. Checksums are bound to the store, the table and the offset:
//!    a block in the wrong place does not pass.
//! 2. A damaged data block is an error with path and offset, and costs only the keys of that block;
//!    a scan reports it as a [`Gap`] and continues behind it.
//! 3. A damaged index, filter, segment set, property block or footer costs time and no key. A cut
//!    file costs the keys of its missing blocks, which are reported.
//! 4. With [`kvorum_disk::Reading::CachedOnly`] no read waits for a device.

pub mod anatomy;
mod block;
mod block_builder;
mod cache;
mod codec;
mod error;
mod examine;
mod filter;
mod footer;
mod frame;
mod mark;
mod partition;
mod properties;
mod read_ahead;
mod salvage;
mod scan;
mod segment_sets;
mod structure;
mod table;
mod window;
mod writer;

pub use block::{Block, BlockCursor};
pub use cache::{BlockCache, CacheKey, NoCache};
pub use error::{Part, Result, SstError};
pub use examine::{BadRange, EachEntry, Examination, claimed_store, examine};
pub use filter::{FilterKind, LINE_BYTES, hash_key, line_of, probe_bits};
pub use frame::{BlockHandle, TableId};
pub use kvorum_encoding::{Codec, Compression};
pub use mark::{Mark, MarkKind, Marks};
pub use properties::{BlobUse, Facts, Properties};
pub use read_ahead::ReadAhead;
pub use scan::{Gap, ScanFilter, ScanItem, ScanOptions, TableScan};
pub use structure::StructureCheck;
pub use table::{DamageSink, Found, IgnoreDamage, KnownTable, ReadContext, Table, TableDamage};
pub use writer::{KEY_BYTES_MAX, TableOptions, TableWriter, VALUE_BYTES_MAX};
