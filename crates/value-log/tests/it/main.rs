//! The value log with engines that lose what was not synced, under power cuts, faults and threads.

mod adopted;
mod adopted_bitcask;
mod adopted_expiry;
mod adopted_leveldb;
mod adopted_node;
mod adopted_openings;
mod adopted_stores;
mod adopting_engine;
mod bodies_in_log;
mod failing_stores;
mod failures;
mod foreign_copies;
mod log_hints;
mod lost_batches;
mod missing_segments;
mod races;
mod removal_cuts;
mod removals;
mod searches;
mod stores_in_log;
mod value_log;
mod values;
mod writers;
