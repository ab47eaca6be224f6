//! Import of the LevelDB stores of Riak nodes, in the format of Basho's LevelDB.
//!
//! Tables are sorted, so one pass over all stores finds each key with its newest record in each
//! store. Differing replicas are merged, and the result is put `asis` into a server. Logs are in
//! the order of writing, and are first sorted into the import's own files.
//!
//! - [`sext`], [`riak_key`]: the keys of Riak's backend.
//! - [`block`], [`internal_key`], [`log_file`], [`write_batch`], [`manifest`]: LevelDB's formats
//!   with Basho's additions, decoded from bytes alone.
//! - [`import()`]: the import itself, given a disk, a runtime and a server's address.
//!
//! All importers share the code for objects and puts. Outside this crate: filter blocks, and
//! anti-entropy trees, which are LevelDB stores of another kind.

pub mod block;
mod import;
mod index_check;
pub mod internal_key;
pub mod log_file;
mod losses;
pub mod manifest;
mod merge;
mod reading;
mod record;
pub mod riak_key;
mod run;
pub mod sext;
mod source;
mod state;
mod survey;
mod table;
mod table_cursor;
pub mod write_batch;

pub use import::{ImportOptions, check_source, import};
