//! Import of the bitcask directories of Riak nodes.
//!
//! An import has two halves. The *survey* finds every record of every partition, in usable hint
//! files or else in data files, and spreads the records over an index on disk. The *transfer* reads
//! the index in pieces that fit into memory. It finds the newest record of each key in each
//! partition, reads it, merges differing replicas, and puts the result `asis` into a server.
//!
//! - [`record`], [`data_file`], [`hint_file`], [`riak_key`]: Basho's formats, decoded from bytes
//!   alone.
//! - [`import()`]: the import itself, given a disk, a runtime and a server's address.
//!
//! All importers share the code for objects and puts. Outside this crate: other backends of Riak,
//! data types, and bucket properties.

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
