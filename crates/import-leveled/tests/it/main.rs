//! Imports of journals that a node of Riak wrote, and of journals written by the tests according to
//! the format.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod damage;
mod directories;
#[path = "../../../import/tests/shared/fake_server.rs"]
mod fake_server;
mod formats;
mod interruptions;
mod journal;
mod packing;
#[path = "../../../import/tests/shared/partitions.rs"]
mod partitions;
mod riak_node;
#[path = "../../../import/tests/shared/riak_objects.rs"]
mod riak_objects;
mod versions;
mod world;
