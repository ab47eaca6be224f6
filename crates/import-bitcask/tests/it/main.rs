//! Imports of directories that are written here from the facts of the format.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod basho;
mod damage;
mod fake_server;
mod formats;
mod interruptions;
mod objects;
mod replicas;
mod world;
