//! Import of the LevelDB stores of Riak nodes, in Basho's dialect of LevelDB.
//!
//! Tables are sorted, and so one pass over all stores at once finds each key with its newest record
//! in each store; replicas that differ are merged, and the result is put `asis` into a server. Logs
//! are in the order of writing, and are sorted beforehand into files of the import's own.
//!
//! - [`sext`], [`riak_key`]: the keys of Riak's backend.
//! - [`block`], [`internal_key`], [`log_file`], [`write_batch`], [`manifest`]: LevelDB's formats with
//!   Basho's additions, decoded from bytes and nothing else.
//! - [`import()`]: the import itself, given a disk, a runtime and a server's address.
//!
//! All importers share objects and their way to the server. Outside this crate: filter blocks, and
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
