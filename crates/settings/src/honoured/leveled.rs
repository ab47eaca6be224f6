//! Keys of the leveled backend. Those of Riak's that have no counterpart are in `riak`.

use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::{Compression, DurabilityMode};

pub(super) const KEYS: &[Key] = &[
    key(
        "leveled.data_root",
        Kind::Path(|settings, value| settings.leveled.data_root = value),
        "$(platform_data_dir)/leveled",
        "The directory with one subdirectory for each partition. \
         What was put last is in the value log, whose place is `platform_data_dir`.",
    ),
    Key::new(
        "leveled.sync_strategy",
        Kind::Choice(&[
            Choice("none", |settings| {
                settings.leveled.sync_strategy = Some(DurabilityMode::None);
            }),
            Choice("sync", |settings| {
                settings.leveled.sync_strategy = Some(DurabilityMode::Grouped);
            }),
            Choice("riak_sync", |settings| {
                settings.leveled.sync_strategy = Some(DurabilityMode::Grouped);
            }),
        ]),
        None,
        "Riak's name for `durability`, for this backend alone; where it is set, it decides. \
         `none` is Riak's default behaviour; \
         `sync` and `riak_sync` acknowledge what is on stable storage, as `durability = grouped` does. \
         Not set, `durability` decides.",
    ),
    own_key(
        "leveled.maximum_memory.percent",
        Kind::Percent(|settings, value| settings.leveled.memory_percent_max = value),
        "70",
        "How much of the memory of the machine, or of the container if that is less, the ledgers of all \
         partitions may take together: their block cache and their buffers. \
         Bodies are read through the system's own cache, which has to have room beside.",
    ),
    Key::new(
        "leveled.maximum_memory",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.leveled.memory_bytes_max = value;
        }),
        None,
        "The same in bytes. Where both are given, the smaller amount counts.",
    )
    .own(),
    own_key(
        "leveled.ledger_buffer",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.leveled.ledger_buffer_bytes = value;
        }),
        "32MB",
        "A partition writes a table of its ledger when it has so many bytes of heads and index entries. \
         It stands for `leveled.cache_size` and `leveled.penciller_cache_size`, which count keys. \
         Where memory is short, the fullest buffers are written earlier.",
    ),
    key(
        "leveled.compression_method",
        Kind::Choice(&[
            Choice("lz4", |settings| {
                settings.leveled.compression = Compression::Lz4;
            }),
            Choice("zstd", |settings| {
                settings.leveled.compression = Compression::Zstd;
            }),
            Choice("native", |settings| {
                settings.leveled.compression = Compression::Zstd;
            }),
            Choice("none", |settings| {
                settings.leveled.compression = Compression::None;
            }),
        ]),
        "lz4",
        "How bodies are packed when they are put. \
         `native`, Riak's default, is zlib there and taken as `zstd`, which packs better and costs less. \
         Bodies that are there keep their packing.",
    ),
    key(
        "leveled.compression_point",
        Kind::Choice(&[
            Choice("on_receipt", |settings| {
                settings.leveled.compresses_when_collected = false;
            }),
            Choice("on_compact", |settings| {
                settings.leveled.compresses_when_collected = true;
            }),
        ]),
        "on_receipt",
        "When bodies are packed: when they are put, or when they are moved out of the value log. \
         With `on_compact` a put costs less, and a body that is soon replaced is not packed for nothing; \
         until it is moved it takes more space.",
    ),
    key(
        "leveled.ledger_compression",
        Kind::Choice(&[
            Choice("as_store", |settings| {
                settings.leveled.ledger_compression = None;
            }),
            Choice("lz4", |settings| {
                settings.leveled.ledger_compression = Some(Compression::Lz4);
            }),
            Choice("zstd", |settings| {
                settings.leveled.ledger_compression = Some(Compression::Zstd);
            }),
            Choice("native", |settings| {
                settings.leveled.ledger_compression = Some(Compression::Zstd);
            }),
            Choice("none", |settings| {
                settings.leveled.ledger_compression = Some(Compression::None);
            }),
        ]),
        "as_store",
        "How tables of the ledger are packed; `as_store` is as `leveled.compression_method` says. \
         Existing ones keep their packing until they are merged.",
    ),
    key(
        "leveled.compression_level",
        Kind::Integer(0..=7, |settings, value| {
            settings.leveled.compressed_from_level = value;
        }),
        "2",
        "The first level of the ledger of which tables are packed. \
         Those above are merged again soon; Riak's default is 1.",
    ),
    key(
        "leveled.max_run_length",
        Kind::Integer(1..=64, |settings, value| {
            settings.leveled.run_files_max = value;
        }),
        "4",
        "So many neighbouring files of the journal are rewritten together at most.",
    ),
    key(
        "leveled.singlefile_compactionpercentage",
        Kind::Percent(|settings, value| settings.leveled.single_file_percent = value),
        "25",
        "One file of the journal is rewritten alone when at most this share of it is needed. \
         Shares are counted, where Riak takes samples.",
    ),
    key(
        "leveled.maxrunlength_compactionpercentage",
        Kind::Percent(|settings, value| settings.leveled.longest_run_percent = value),
        "75",
        "A run of `leveled.max_run_length` files is rewritten when at most this share of it is needed. \
         For shorter runs the share lies between the two.",
    ),
    key(
        "leveled.compaction_low_hour",
        Kind::Hour(|settings, value| settings.leveled.compaction_first_hour = value),
        "0",
        "The first hour in which files of the journal are rewritten, UTC; Riak goes by the machine's local \
         time. \
         The ledger is merged at any time, and so is the journal when space runs out.",
    ),
    key(
        "leveled.compaction_top_hour",
        Kind::Hour(|settings, value| settings.leveled.compaction_last_hour = value),
        "23",
        "The last of these hours, itself included; UTC as well. \
         Hours that end before they start go past midnight.",
    ),
];
