//! Keys of the hanoidb backend, named as the options of the original. Options without a counterpart
//! are in `riak`.

use std::time::Duration;

use crate::duration::Unit;
use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::{Compression, DurabilityMode};

pub(super) const KEYS: &[Key] = &[
    key(
        "hanoidb.data_root",
        Kind::Path(|settings, value| settings.hanoidb.data_root = value),
        "$(platform_data_dir)/hanoidb",
        "The directory with one subdirectory for each partition.",
    ),
    Key::new(
        "hanoidb.sync_strategy",
        Kind::Choice(&[
            Choice("none", |settings| {
                settings.hanoidb.sync_strategy = Some(DurabilityMode::None);
            }),
            Choice("sync", |settings| {
                settings.hanoidb.sync_strategy = Some(DurabilityMode::Grouped);
            }),
            Choice("interval", |settings| {
                settings.hanoidb.sync_strategy = Some(DurabilityMode::Interval);
            }),
        ]),
        None,
        "The original's name for `durability`, for this backend alone; if it is set, it decides. \
         `none` is its default behaviour; `sync` acknowledges a write that is on stable storage, \
         as `durability = grouped` does; `interval` is its `{seconds, N}`, with a timer, which \
         the original lacks.",
    ),
    own_key(
        "hanoidb.sync_interval",
        Kind::Duration(
            Unit::Seconds,
            Duration::from_millis(1)..,
            |settings, value| settings.hanoidb.sync_interval = value,
        ),
        "1s",
        "The longest time from a write to its sync with `hanoidb.sync_strategy = interval`.",
    ),
    own_key(
        "hanoidb.maximum_memory.percent",
        Kind::Percent(|settings, value| settings.hanoidb.memory_percent_max = value),
        "70",
        "The share of the memory of the machine, or of the container if that is less, for the \
         block cache and the write buffers of all partitions. Large values are read through the \
         system's own cache, which needs memory too.",
    ),
    Key::new(
        "hanoidb.maximum_memory",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.hanoidb.memory_bytes_max = value;
        }),
        None,
        "The same in bytes. If both are given, the smaller amount counts.",
    )
    .own(),
    key(
        "hanoidb.top_level",
        Kind::Integer(2..=16, |settings, value| settings.hanoidb.top_level = value),
        "10",
        "The unit of the levels, as the power of two of entries of 16 KB: 16 MB with the default. \
         A partition's write buffer has one unit, and a run of level k has up to 2^k of them. The \
         original counts entries of any size. A greater unit takes more memory and makes fewer \
         levels, so that a write pays for less merging.",
    ),
    key(
        "hanoidb.compress",
        Kind::Choice(&[
            Choice("none", |settings| {
                settings.hanoidb.compression = Compression::None;
            }),
            Choice("gzip", |settings| {
                settings.hanoidb.compression = Compression::Zstd;
            }),
            Choice("zstd", |settings| {
                settings.hanoidb.compression = Compression::Zstd;
            }),
            Choice("snappy", |settings| {
                settings.hanoidb.compression = Compression::Lz4;
            }),
            Choice("lz4", |settings| {
                settings.hanoidb.compression = Compression::Lz4;
            }),
        ]),
        "none",
        "The compression of values, and of tables from level 1 on. `gzip` is taken as `zstd` and \
         `snappy` as `lz4`, which compress as well and cost less. Existing ones keep their \
         compression until they are merged.",
    ),
    key(
        "hanoidb.expiry_secs",
        Kind::Integer(0..=u64::MAX, |settings, value| {
            settings.hanoidb.expiry_seconds = value;
        }),
        "0",
        "The seconds from a write to the end of its object, for all objects of the backend; 0 is \
         never. An object's own expiry counts too, whichever comes first.",
    ),
    key(
        "hanoidb.block_size",
        Kind::Bytes(1 << 10.., |settings, value| {
            settings.hanoidb.block_bytes = value;
        }),
        "8KB",
        "The size of a block of a table, the unit of reading, compression and checksums. The \
         original's documentation calls it `page_size`, which is accepted as well; of the two, \
         the original reads this one.",
    ),
];
