//! The commit log with engines that lose what was not synced, under power cuts, faults and threads.

mod adopted_bitcask;
mod adopted_expiry;
mod adopted_node;
mod adopted_openings;
mod adopted_stores;
mod adopting_engine;
mod bitcask;
mod bitcask_in_log;
mod counted_log;
mod engine;
mod failures;
mod history_engine;
mod leveldb;
mod log_hints;
mod missing_segments;
mod node;
mod power_cuts;
mod races;
mod recovery;
mod removal_cuts;
mod removals;
mod restarts;
mod suite;
mod value_log;
mod values;
mod writers;
