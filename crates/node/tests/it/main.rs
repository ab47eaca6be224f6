//! The binary as a process: its verbs together.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod admin_scripts;
mod advise;
mod backend_moves;
mod backup;
#[path = "../../../import-bitcask/tests/it/basho.rs"]
mod basho;
mod bucket_defaults;
mod bucket_types;
mod budgets;
mod cluster;
mod damaged_files;
mod dashboard;
mod exchanged;
mod folds;
mod health;
mod import;
mod import_leveldb;
mod import_leveled;
mod import_multi;
mod indexes;
#[path = "../../../import-leveled/tests/it/journal.rs"]
#[expect(dead_code, reason = "what the importer's own tests need beyond these")]
mod journal;
mod json_answers;
mod kept_trees;
#[path = "../../../import-leveldb/tests/it/level_store.rs"]
#[expect(dead_code, reason = "what the importer's own tests need beyond these")]
mod level_store;
mod leveldb;
mod lost_writes;
mod map_reduce;
mod membership;
mod migration;
mod multi;
mod opening;
#[path = "../../../import/tests/shared/partitions.rs"]
mod partitions;
mod properties;
mod recorded;
mod recorded_cluster;
mod recorded_engines;
mod repairing;
#[path = "../../../import/tests/shared/riak_objects.rs"]
mod riak_objects;
mod runbook;
mod scrubbing;
mod server;
mod starting;
mod statistics;
mod tls;
mod tombstones;
mod value_logs;
