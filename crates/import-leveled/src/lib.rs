//! Import of the leveled stores of Riak nodes, from their journals.
//!
//! A leveled store has all objects in its journal, and their heads in its ledger, which follows
//! from the journal. So the import only reads the journal. The *survey* scans every journal file
//! record by record and spreads the records over an index on disk. The *transfer* reads the index
//! in pieces that fit into memory. It finds the record with the highest sequence number of each key
//! in each partition, reads it, merges differing replicas, and puts the result `asis` into a
//! server.
//!
//! - [`record`], [`journal_key`], [`journal_value`], [`journal_file`]: leveled's formats, decoded
//!   from bytes alone.
//! - [`import()`]: the import itself, given a disk, a runtime and a server's address.
//!
//! All importers share the code for objects and puts. Outside this crate: ledgers and manifests;
//! head-only entries, which Riak only uses for its anti-entropy.

mod choices;
mod groups;
mod import;
mod index;
pub mod journal_file;
pub mod journal_key;
pub mod journal_value;
mod reading;
pub mod record;
mod source;
mod survey;

pub use import::{check_source, import};
