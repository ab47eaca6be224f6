//! Imports of directories written by the tests according to the format.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod basho;
mod damage;
mod directories;
#[path = "../../../import/tests/shared/fake_server.rs"]
mod fake_server;
mod formats;
mod interruptions;
mod objects;
#[path = "../../../import/tests/shared/partitions.rs"]
mod partitions;
mod progress;
mod replicas;
mod riak_node;
#[path = "../../../import/tests/shared/riak_objects.rs"]
mod riak_objects;
mod world;
