//! Import of the leveled stores of Riak nodes, from their journals.
//!
//! A leveled store has every object in its journal and their heads in its ledger, which can be made
//! anew from the journal; so the import reads the journal alone. The *survey* scans every journal
//! file record by record and spreads the records over an index on disk. The *transfer* takes the
//! index in pieces that fit into memory, finds the record of the highest sequence number of each
//! key in each partition, reads it, merges replicas that differ, and puts the result `asis` into a
//! server.
//!
//! - [`record`], [`journal_key`], [`journal_value`], [`journal_file`]: leveled's formats, decoded from
//!   bytes and nothing else.
//! - [`import()`]: the import itself, given a disk, a runtime and a server's address.
//!
//! All importers share objects and their way to the server. Outside this crate: ledgers and
//! manifests; head-only entries, which Riak keeps for its anti-entropy alone.

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
