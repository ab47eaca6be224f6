//! Importing the bitcask directories of Riak nodes.
//!
//! Two halves. The *survey* finds every record of every partition, in hint files where they can be
//! believed and in data files elsewhere, and spreads what it finds over an index on disk. The
//! *transfer* takes the index in pieces that fit into memory, finds the newest record of each key in
//! each partition, reads it, merges replicas that differ, and puts the result `asis` into a server.
//!
//! - [`record`], [`data_file`], [`hint_file`], [`riak_key`], [`external_term`], [`riak_object`],
//!   [`metadata`], [`version_vector`]: Basho's formats, decoded from bytes and nothing else.
//! - [`import`]: the import itself, given a disk, a runtime and a server's address.
//!
//! What is kept is what the protocol carries: values, siblings, content types, user metadata, links,
//! index entries, last-modified times, tombstones, and the clocks' relations to each other.
//!
//! Not here: other backends of Riak, data types, and bucket properties.

mod content;
mod counts;
pub mod data_file;
mod error;
pub mod external_term;
mod file_window;
mod findings;
mod groups;
pub mod hint_file;
mod import;
mod index;
pub mod metadata;
mod progress;
mod reading;
mod reconcile;
pub mod record;
pub mod riak_key;
pub mod riak_object;
mod source;
mod state;
mod summary;
mod survey;
mod system;
mod target;
pub mod version_vector;

pub use counts::Counts;
pub use error::ImportError;
pub use findings::Finding;
pub use import::{ImportOptions, ImportTarget, Summary, import};
pub use progress::{Progress, ProgressView, WorkStage};
pub use system::System;
