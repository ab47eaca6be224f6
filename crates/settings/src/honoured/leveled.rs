//! Keys of the leveled backend. Riak's keys without a counterpart are in `riak`.

use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::{Compression, DurabilityMode};

pub(super) const KEYS: &[Key] = &[
    key(
        "leveled.data_root",
        Kind::Path(|settings, value| settings.leveled.data_root = value),
        "$(platform_data_dir)/leveled",
        "The directory with one subdirectory for each partition. The latest entries are in the \
         value log, whose place is `platform_data_dir`.",
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
        "Riak's name for `durability`, for this backend alone; if it is set, it decides. `none` \
         is Riak's default behaviour; `sync` and `riak_sync` acknowledge a write that is on \
         stable storage, as `durability = grouped` does.",
    ),
    own_key(
        "leveled.maximum_memory.percent",
        Kind::Percent(|settings, value| settings.leveled.memory_percent_max = value),
        "70",
        "The share of the memory of the machine, or of the container if that is less, for the \
         ledgers of all partitions: their block cache and their buffers. Bodies are read through \
         the system's own cache, which needs memory too.",
    ),
    Key::new(
        "leveled.maximum_memory",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.leveled.memory_bytes_max = value;
        }),
        None,
        "The same in bytes. If both are given, the smaller amount counts.",
    )
    .own(),
    own_key(
        "leveled.ledger_buffer",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.leveled.ledger_buffer_bytes = value;
        }),
        "32MB",
        "A partition writes a table of its ledger when it has this many bytes of heads and index \
         entries. The key replaces `leveled.cache_size` and `leveled.penciller_cache_size`, which \
         count keys. If memory is short, the fullest buffers are written earlier.",
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
        "The compression of new bodies; existing ones keep theirs. `native`, Riak's default, is \
         zlib there and taken as `zstd`, which compresses better and costs less.",
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
        "The moment at which bodies are compressed: when they are put, or when they are moved out \
         of the value log. With `on_compact` a put costs less, and a body that is soon replaced \
         is never compressed; until it is moved it takes more space.",
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
        "The compression of tables of the ledger; `as_store` is that of \
         `leveled.compression_method`. Existing tables keep theirs until they are merged.",
    ),
    key(
        "leveled.compression_level",
        Kind::Integer(0..=7, |settings, value| {
            settings.leveled.compressed_from_level = value;
        }),
        "2",
        "Tables of this level of the ledger and of deeper ones are compressed. Tables of higher levels \
         are merged again soon; Riak's default is 1.",
    ),
    key(
        "leveled.max_run_length",
        Kind::Integer(1..=64, |settings, value| {
            settings.leveled.run_files_max = value;
        }),
        "4",
        "The greatest number of neighbouring files of the journal that are rewritten together.",
    ),
    key(
        "leveled.singlefile_compactionpercentage",
        Kind::Percent(|settings, value| settings.leveled.single_file_percent = value),
        "25",
        "One file of the journal is rewritten alone when at most this share of it is live. Shares \
         are counted exactly; Riak takes samples.",
    ),
    key(
        "leveled.maxrunlength_compactionpercentage",
        Kind::Percent(|settings, value| settings.leveled.longest_run_percent = value),
        "75",
        "A run of `leveled.max_run_length` files is rewritten when at most this share of it is \
         live. For shorter runs the share lies between the two.",
    ),
    key(
        "leveled.compaction_low_hour",
        Kind::Hour(|settings, value| settings.leveled.compaction_first_hour = value),
        "0",
        "The first hour in which files of the journal are rewritten, UTC; Riak goes by the \
         machine's local time. The ledger is merged at any time, and the journal is rewritten at \
         any time when space runs out.",
    ),
    key(
        "leveled.compaction_top_hour",
        Kind::Hour(|settings, value| settings.leveled.compaction_last_hour = value),
        "23",
        "The last of these hours, itself included; UTC as well. A range that ends before it \
         starts goes past midnight.",
    ),
];
