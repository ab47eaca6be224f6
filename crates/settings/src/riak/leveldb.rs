//! Keys of the leveldb backend.

use super::{Family, ignored};

pub(super) const FAMILY: Family = Family {
    title: "LevelDB backend",
    keys: KEYS,
};

const LEVELDB: &str = "the leveldb backend is not built in yet";

const KEYS: &[super::RiakKey] = &[
    ignored("leveldb.data_root", LEVELDB),
    ignored("leveldb.maximum_memory", LEVELDB),
    ignored("leveldb.maximum_memory.percent", LEVELDB),
    ignored("leveldb.sync_on_write", LEVELDB),
    ignored("leveldb.limited_developer_mem", LEVELDB),
    ignored("leveldb.write_buffer_size_min", LEVELDB),
    ignored("leveldb.write_buffer_size_max", LEVELDB),
    ignored("leveldb.bloomfilter", LEVELDB),
    ignored("leveldb.block_cache_threshold", LEVELDB),
    ignored("leveldb.block.size", LEVELDB),
    ignored("leveldb.block.restart_interval", LEVELDB),
    ignored("leveldb.block.size_steps", LEVELDB),
    ignored("leveldb.verify_checksums", LEVELDB),
    ignored("leveldb.verify_compaction", LEVELDB),
    ignored("leveldb.threads", LEVELDB),
    ignored("leveldb.fadvise_willneed", LEVELDB),
    ignored("leveldb.compression", LEVELDB),
    ignored("leveldb.compression.algorithm", LEVELDB),
    ignored("leveldb.compaction.trigger.tombstone_count", LEVELDB),
    ignored("leveldb.tiered", LEVELDB),
    ignored("leveldb.tiered.path.fast", LEVELDB),
    ignored("leveldb.tiered.path.slow", LEVELDB),
    ignored("leveldb.cache_object_warming", LEVELDB),
    ignored("leveldb.expiration", LEVELDB),
    ignored("leveldb.expiration.retention_time", LEVELDB),
    ignored("leveldb.expiration.mode", LEVELDB),
];
