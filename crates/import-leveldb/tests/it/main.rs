//! Imports of stores written by the tests according to the format, and of a store that Google's
//! LevelDB wrote.

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
mod indexes;
mod interruptions;
mod level_store;
#[path = "../../../import/tests/shared/partitions.rs"]
mod partitions;
mod recorded;
mod riak_node;
#[path = "../../../import/tests/shared/riak_objects.rs"]
mod riak_objects;
mod stores;
mod world;
