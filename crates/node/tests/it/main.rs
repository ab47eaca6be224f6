//! The binary as a process: what its verbs do together.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod advise;
#[path = "../../../import-bitcask/tests/it/basho.rs"]
mod basho;
mod cluster;
mod import;
mod leveldb;
mod server;
