//! Keys of the leveldb backend. Those of Riak's that have no counterpart are in `riak`.

use crate::duration::Unit;
use crate::key::{Key, key};
use crate::kind::{Choice, Kind};
use crate::settings::{Compression, DurabilityMode};

pub(super) const KEYS: &[Key] = &[
    key(
        "leveldb.data_root",
        Kind::Path(|settings, value| settings.leveldb.data_root = value),
        "$(platform_data_dir)/leveldb",
        "The directory with one subdirectory for each partition.",
    ),
    key(
        "leveldb.maximum_memory.percent",
        Kind::Percent(|settings, value| settings.leveldb.memory_percent_max = value),
        "70",
        "How much of the memory of the machine, or of the container if that is less, the block cache \
         and the write buffers of all partitions may take together. \
         Large values are read through the system's own cache, which has to have room beside.",
    ),
    Key::new(
        "leveldb.maximum_memory",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.leveldb.memory_bytes_max = value;
        }),
        None,
        "The same in bytes. Where both are given, the smaller amount counts.",
    ),
    key(
        "leveldb.limited_developer_mem",
        Kind::Flag(|settings, value| settings.leveldb.limited_developer_memory = value),
        "off",
        "For many nodes on a developer's machine: at most 256 MB of memory, with write buffers of \
         2 MB, whatever the other keys say. Not for measuring.",
    ),
    key(
        "leveldb.write_buffer_size_min",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.leveldb.write_buffer_bytes_min = value;
        }),
        "30MB",
        "A partition writes a table when its write buffer has a size that was drawn between this and \
         `leveldb.write_buffer_size_max`, so that not all write at once. \
         Where memory is short, the fullest buffers are written earlier.",
    ),
    key(
        "leveldb.write_buffer_size_max",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.leveldb.write_buffer_bytes_max = value;
        }),
        "60MB",
        "The upper end of `leveldb.write_buffer_size_min`.",
    ),
    Key::new(
        "leveldb.sync_on_write",
        Kind::Flag(|settings, is_on| {
            let mode = if is_on {
                DurabilityMode::Grouped
            } else {
                DurabilityMode::None
            };
            settings.leveldb.sync_on_write = Some(mode);
        }),
        None,
        "Riak's name for `durability`, for this backend alone; where it is set, it decides. \
         `on` acknowledges what is on stable storage, as `durability = grouped` does; \
         `off` is Riak's default behaviour, `durability = none`. \
         Not set, `durability` decides.",
    ),
    key(
        "leveldb.bloomfilter",
        Kind::Flag(|settings, value| settings.leveldb.bloomfilter = value),
        "on",
        "Whether new tables have filters, by which most of those that lack a key are not read for it. \
         Tables that are there keep theirs.",
    ),
    key(
        "leveldb.block.size",
        Kind::Bytes(1 << 10.., |settings, value| {
            settings.leveldb.block_bytes = value;
        }),
        "4KB",
        "The size of a block of a table: what is read for one key, packed and checked as one. \
         Larger blocks pack better and cost more a read.",
    ),
    key(
        "leveldb.block.restart_interval",
        Kind::Integer(1..=1 << 16, |settings, value| {
            settings.leveldb.block_restart_interval = value;
        }),
        "16",
        "So many keys of a block share their beginnings with the one before, until one stands in full. \
         More make tables smaller and searching a block slower.",
    ),
    key(
        "leveldb.compression",
        Kind::Flag(|settings, value| settings.leveldb.compression = value),
        "on",
        "Whether new tables and values are packed; the two youngest levels never are. \
         Existing ones keep their packing until they are merged.",
    ),
    key(
        "leveldb.compression.algorithm",
        Kind::Choice(&[
            Choice("lz4", |settings| {
                settings.leveldb.compression_algorithm = Compression::Lz4;
            }),
            Choice("zstd", |settings| {
                settings.leveldb.compression_algorithm = Compression::Zstd;
            }),
            Choice("snappy", |settings| {
                settings.leveldb.compression_algorithm = Compression::Lz4;
            }),
        ]),
        "lz4",
        "How they are packed. `snappy` is taken as `lz4`, which packs as well and unpacks faster; \
         `zstd`, which Riak does not have, packs text and JSON about twice as well.",
    ),
    key(
        "leveldb.compaction.trigger.tombstone_count",
        Kind::IntegerOr("off", 1..=u64::MAX, |settings, value| {
            settings.leveldb.tombstones_trigger = value;
        }),
        "1000",
        "A table with at least so many removals is merged downwards early, which frees the space of \
         what they remove, if they are a tenth of the entries that have to be read for it. \
         Whatever this says, a table is merged when half of it is removals.",
    ),
    key(
        "leveldb.expiration",
        Kind::Flag(|settings, value| settings.leveldb.expiration = value),
        "off",
        "Whether objects are gone `leveldb.expiration.retention_time` after they were written.",
    ),
    key(
        "leveldb.expiration.retention_time",
        Kind::DurationOr("unlimited", Unit::Minutes, |settings, value| {
            settings.leveldb.retention = value;
        }),
        "unlimited",
        "How long after it was written an object is gone, for all objects of the backend. \
         It is no longer read from then on; merges win its space back.",
    ),
    key(
        "leveldb.expiration.mode",
        Kind::Choice(&[
            Choice("whole_file", |settings| {
                settings.leveldb.expires_whole_files = true;
            }),
            Choice("normal", |settings| {
                settings.leveldb.expires_whole_files = false;
            }),
        ]),
        "whole_file",
        "When the space of expired objects is won back. \
         `whole_file`: when everything in a table is expired, which costs nothing, and whenever the \
         table is merged for another reason. \
         `normal`: also when half of a table is expired; it is then rewritten.",
    ),
    key(
        "leveldb.tiered",
        Kind::IntegerOr("off", 1..=6, |settings, value| {
            settings.leveldb.tiered_from_level = value;
        }),
        "off",
        "Tables of this level and of those below it lie on a slow device, at \
         `leveldb.tiered.path.slow`; younger ones, logs and all else of a store on a fast one, at \
         `leveldb.tiered.path.fast`. Values that are kept apart from their keys follow the tables that \
         name them. \
         Levels fill from the last one, 6, up: 6 leaves about an eighth of the tables on the fast device, \
         5 a seventieth, and less than 5 next to nothing. \
         It can be changed at any time; tables are moved in the background.",
    ),
    Key::new(
        "leveldb.tiered.path.fast",
        Kind::Path(|settings, value| settings.leveldb.tiered_path_fast = Some(value)),
        None,
        "What stands before `leveldb.data_root` for the fast device: with `/fast` and \
         `/var/lib/kvorum/leveldb` the stores are in `/fast/var/lib/kvorum/leveldb`. \
         With `/` they stay where they were without `leveldb.tiered`. \
         A node whose stores are at another place than its keys say does not start, and says what to \
         move.",
    ),
    Key::new(
        "leveldb.tiered.path.slow",
        Kind::Path(|settings, value| settings.leveldb.tiered_path_slow = Some(value)),
        None,
        "The same for the slow device. \
         A partition whose slow directory is not there, or not mounted, is not served, and is tried \
         again. \
         To move it: stop the node, move the directory, change the key.",
    ),
];
