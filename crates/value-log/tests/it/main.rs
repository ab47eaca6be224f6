//! The value log with engines that lose what was not synced, under power cuts, faults and threads.

mod bitcask_tenant;
mod bodies_in_log;
mod failing_stores;
mod failures;
mod foreign_copies;
mod journal;
mod leveldb_tenant;
mod leveled_tenant;
mod log_hints;
mod lost_batches;
mod missing_segments;
mod races;
mod removal_cuts;
mod removals;
mod searches;
mod stores_in_log;
mod tenant_engine;
mod tenant_expiry;
mod tenant_openings;
mod tenant_stores;
mod tenants;
mod tenants_node;
mod value_log;
mod values;
mod writers;
