//! Keys of the leveldb backend. Riak's keys without a counterpart are in `riak`.

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
        "The share of the memory of the machine, or of the container if that is less, for the \
         block cache and the write buffers of all partitions. Large values are read through the \
         system's own cache, which needs memory too.",
    ),
    Key::new(
        "leveldb.maximum_memory",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.leveldb.memory_bytes_max = value;
        }),
        None,
        "The same in bytes. If both are given, the smaller amount counts.",
    ),
    key(
        "leveldb.limited_developer_mem",
        Kind::Flag(|settings, value| settings.leveldb.limited_developer_memory = value),
        "off",
        "For many nodes on a developer's machine: at most 256 MB of memory, with write buffers of \
         2 MB, whatever the other keys are. Not for measuring.",
    ),
    key(
        "leveldb.write_buffer_size_min",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.leveldb.write_buffer_bytes_min = value;
        }),
        "30MB",
        "A partition writes a table when its write buffer has a size that was drawn between this \
         and `leveldb.write_buffer_size_max`, so that not all write at once. If memory is short, \
         the fullest buffers are written earlier.",
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
        "Riak's name for `durability`, for this backend alone; if it is set, it decides. `on` \
         acknowledges a write that is on stable storage, as `durability = grouped` does; `off` is \
         Riak's default behaviour, `durability = none`.",
    ),
    key(
        "leveldb.bloomfilter",
        Kind::Flag(|settings, value| settings.leveldb.bloomfilter = value),
        "on",
        "Gives new tables filters, so that a get skips most tables that lack its key. Existing \
         tables keep theirs.",
    ),
    key(
        "leveldb.block.size",
        Kind::Bytes(1 << 10.., |settings, value| {
            settings.leveldb.block_bytes = value;
        }),
        "4KB",
        "The size of a block of a table, the unit of reading, compression and checksums. Larger \
         blocks compress better, and each read costs more.",
    ),
    key(
        "leveldb.block.restart_interval",
        Kind::Integer(1..=1 << 16, |settings, value| {
            settings.leveldb.block_restart_interval = value;
        }),
        "16",
        "The number of keys in a row that share their beginnings with the one before; then one \
         stands in full. More make tables smaller and searching a block slower.",
    ),
    key(
        "leveldb.compression",
        Kind::Flag(|settings, value| settings.leveldb.compression = value),
        "on",
        "Compresses new tables and values, except on the two youngest levels. Existing tables \
         keep their compression until they are merged.",
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
        "The compression of tables and values. `snappy` is taken as `lz4`, which compresses as \
         well and decompresses faster; `zstd`, which Riak does not have, compresses text and JSON \
         to about half of that.",
    ),
    key(
        "leveldb.compaction.trigger.tombstone_count",
        Kind::IntegerOr("off", 1..=u64::MAX, |settings, value| {
            settings.leveldb.tombstones_trigger = value;
        }),
        "1000",
        "A table with at least this number of removals is merged downwards early, which frees the \
         space of the removed entries, if the removals are a tenth of the entries to be read for \
         it. Whatever the number, a table is merged when half of it is removals.",
    ),
    key(
        "leveldb.expiration",
        Kind::Flag(|settings, value| settings.leveldb.expiration = value),
        "off",
        "Lets objects expire `leveldb.expiration.retention_time` after they were written.",
    ),
    key(
        "leveldb.expiration.retention_time",
        Kind::DurationOr("unlimited", Unit::Minutes, |settings, value| {
            settings.leveldb.retention = value;
        }),
        "unlimited",
        "The time from a write to the end of its object, for all objects of the backend. Reads no \
         longer find an expired object; merges free its space.",
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
        "The moment at which the space of expired objects is freed. `whole_file`: when everything \
         in a table is expired, which costs nothing, and whenever the table is merged for another \
         reason. `normal`: also when half of a table is expired; it is then rewritten.",
    ),
    key(
        "leveldb.tiered",
        Kind::IntegerOr("off", 1..=6, |settings, value| {
            settings.leveldb.tiered_from_level = value;
        }),
        "off",
        "Tables of this level and of deeper ones lie on a slow device, at \
         `leveldb.tiered.path.slow`; other tables, logs and all other files of a store on a fast \
         one, at `leveldb.tiered.path.fast`. Values that are kept apart from their keys follow \
         the tables that name them. Levels fill from the last one, 6, upwards: 6 leaves about an \
         eighth of the tables on the fast device, 5 a seventieth, and less than 5 next to \
         nothing. It can be changed at any time; tables are moved in the background.",
    ),
    Key::new(
        "leveldb.tiered.path.fast",
        Kind::Path(|settings, value| settings.leveldb.tiered_path_fast = Some(value)),
        None,
        "The path before `leveldb.data_root` on the fast device: with `/fast` and \
         `/var/lib/kvorum/leveldb` the stores are in `/fast/var/lib/kvorum/leveldb`. With `/` \
         they stay where they were without `leveldb.tiered`. A node with stores at another place \
         than its keys name does not start, and lists the directories to move.",
    ),
    Key::new(
        "leveldb.tiered.path.slow",
        Kind::Path(|settings, value| settings.leveldb.tiered_path_slow = Some(value)),
        None,
        "The same for the slow device. A partition without its slow directory, as when it is not \
         mounted, is not served, and is tried again. To move it: stop the node, move the \
         directory, change the key.",
    ),
];
