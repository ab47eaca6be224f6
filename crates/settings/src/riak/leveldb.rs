//! Keys of the leveldb backend that cannot apply, each with its reason.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "LevelDB backend",
    keys: KEYS,
};

const INDEX_BLOCKS: &str =
    "indexes and filters of tables are cut into blocks that are cached like any other";

const CHECKED: &str = "every block carries a checksum, which is checked whenever it is read";

const KEYS: &[RiakKey] = &[
    ignored("leveldb.block_cache_threshold", INDEX_BLOCKS),
    ignored("leveldb.block.size_steps", INDEX_BLOCKS),
    ignored("leveldb.verify_checksums", CHECKED),
    ignored("leveldb.verify_compaction", CHECKED),
    ignored(
        "leveldb.threads",
        "requests are served by the threads that received them, and what has to wait for a device \
         by the node's blocking pool",
    ),
    ignored(
        "leveldb.fadvise_willneed",
        "the system's page cache keeps what is read often without being told",
    ),
    ignored(
        "leveldb.cache_object_warming",
        "tables are opened with the store, and their blocks are read when they are asked for",
    ),
];
