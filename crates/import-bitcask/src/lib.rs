//! Import of the bitcask directories of Riak nodes.
//!
//! Two halves. The *survey* finds every record of every partition, in usable hint files and in data
//! files elsewhere, and spreads them over an index on disk. The *transfer* takes the index in
//! pieces that fit into memory, finds the newest record of each key in each partition, reads it,
//! merges replicas that differ, and puts the result `asis` into a server.
//!
//! - [`record`], [`data_file`], [`hint_file`], [`riak_key`]: Basho's formats, decoded from bytes and
//!   nothing else.
//! - [`import()`]: the import itself, given a disk, a runtime and a server's address.
//!
//! All importers share objects and their way to the server. Outside this crate: other backends of
//! Riak, data types, and bucket properties.

mod choices;
pub mod data_file;
mod groups;
pub mod hint_file;
mod import;
mod index;
mod reading;
pub mod record;
pub mod riak_key;
mod source;
mod survey;

pub use import::{ImportOptions, check_source, import};
pub use kvorum_import::{
    Counts, Finding, ImportError, ImportTarget, Progress, ProgressView, SharedOptions, Summary,
    System, WorkStage,
};
