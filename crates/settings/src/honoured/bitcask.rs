//! Keys of the bitcask backend.

use std::time::Duration;

use crate::duration::Unit;
use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::{Compression, DurabilityMode, MergePolicy};

pub(super) const KEYS: &[Key] = &[
    key(
        "bitcask.data_root",
        Kind::Path(|settings, value| settings.bitcask.data_root = value),
        "$(platform_data_dir)/bitcask",
        "The directory with one subdirectory for each partition.",
    ),
    Key::new(
        "bitcask.sync.strategy",
        Kind::Choice(&[
            Choice("none", |settings| {
                settings.bitcask.sync_strategy = Some(DurabilityMode::None);
            }),
            Choice("interval", |settings| {
                settings.bitcask.sync_strategy = Some(DurabilityMode::Interval);
            }),
            Choice("o_sync", |settings| {
                settings.bitcask.sync_strategy = Some(DurabilityMode::Grouped);
            }),
        ]),
        None,
        "Riak's name for `durability`, for this backend alone; if it is set, it decides. `none` \
         is Riak's default behaviour; `interval` syncs every `bitcask.sync.interval`; `o_sync` \
         acknowledges a write that is on stable storage, as `durability = grouped` does.",
    ),
    key(
        "bitcask.sync.interval",
        Kind::Duration(
            Unit::Seconds,
            Duration::from_millis(1)..,
            |settings, value| settings.bitcask.sync_interval = value,
        ),
        "1s",
        "The time between syncs with `bitcask.sync.strategy = interval`.",
    ),
    key(
        "bitcask.max_file_size",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.bitcask.file_bytes_max = value;
        }),
        "2GB",
        "The greatest length of a data file. Smaller files are merged in smaller steps, but more \
         of them are open. A partition with less than four times as much begins new files sooner, \
         at a quarter of its size, because the file being written cannot be merged. The value \
         log's files have `value_log.segment_bytes`.",
    ),
    own_key(
        "bitcask.compression",
        Kind::Choice(&[
            Choice("none", |settings| {
                settings.bitcask.compression = Compression::None;
            }),
            Choice("lz4", |settings| {
                settings.bitcask.compression = Compression::Lz4;
            }),
            Choice("zstd", |settings| {
                settings.bitcask.compression = Compression::Zstd;
            }),
        ]),
        "lz4",
        "The compression of new values; existing ones keep theirs. `lz4` costs a put a \
         microsecond or two and a get nothing, and saves at least a quarter of the bytes of most \
         values; `zstd` packs text and JSON better, for some microseconds more in puts and gets. \
         A value that does not shrink is stored as it is.",
    ),
    own_key(
        "bitcask.read_cache",
        Kind::BytesOr("auto", 0.., |settings, value| {
            settings.bitcask.read_cache_bytes = value;
        }),
        "auto",
        "The memory for objects of all partitions that were read twice lately, so that the next \
         read needs no system call. Objects of more than 64 KB are left to the system's cache. \
         `auto` is a thirty-second of the memory of the machine or the container; 0 keeps none. \
         It shrinks if the stores leave less of `maintenance.memory_bytes_max`.",
    ),
    key(
        "bitcask.merge.policy",
        Kind::Choice(&[
            Choice("always", |settings| {
                settings.bitcask.merge_policy = MergePolicy::Always;
            }),
            Choice("never", |settings| {
                settings.bitcask.merge_policy = MergePolicy::Never;
            }),
            Choice("window", |settings| {
                settings.bitcask.merge_policy = MergePolicy::Window;
            }),
        ]),
        "always",
        "The hours in which files of partitions may be merged, and files of the value log \
         collected, to free the space of overwritten and deleted entries. Merges run in small \
         steps beside requests, so `always` is right for most; `window` keeps them to the hours \
         of `bitcask.merge.window`. Files in which everything has expired, and files of the value \
         log that no store needs, are removed at any time.",
    ),
    key(
        "bitcask.merge.window.start",
        Kind::Hour(|settings, value| settings.bitcask.merge_window_start_hour = value),
        "0",
        "The first hour of the merge window, UTC; Riak goes by the machine's local time.",
    ),
    key(
        "bitcask.merge.window.end",
        Kind::Hour(|settings, value| settings.bitcask.merge_window_end_hour = value),
        "23",
        "The last hour of the merge window, itself included; UTC as well. \
         A window that ends before it starts goes past midnight.",
    ),
    own_key(
        "bitcask.merge.garbage_share_max",
        Kind::Percent(|settings, value| {
            settings.bitcask.merge_garbage_share_max_percent = value;
        }),
        "30",
        "The share of garbage above which space is freed whatever the triggers are, one file \
         after the other: by merges of the files of a partition, and by collections of the value \
         log, whose files have no other trigger. At 30 the disk holds at most 1.5 times the live \
         data, and four files of the log. While less is free than the reserve in \
         docs/maintenance.md, no more than 5 may be garbage. Higher: less is copied, and more \
         space taken; 100 leaves partitions to their triggers, and the value log then removes \
         only files without live data.",
    ),
    key(
        "bitcask.merge.triggers.fragmentation",
        Kind::Percent(|settings, value| {
            settings.bitcask.merge_trigger_fragmentation_percent = value;
        }),
        "60",
        "The share of garbage keys in some file of a partition that starts a merge. It does not \
         apply to the value log, for which `bitcask.merge.garbage_share_max` alone counts.",
    ),
    key(
        "bitcask.merge.triggers.dead_bytes",
        Kind::Bytes(1.., |settings, value| {
            settings.bitcask.merge_trigger_garbage_bytes = value;
        }),
        "512MB",
        "The bytes of garbage values in some file of a partition that start a merge. It does not \
         apply to the value log, for which `bitcask.merge.garbage_share_max` alone counts.",
    ),
    key(
        "bitcask.merge.thresholds.fragmentation",
        Kind::Percent(|settings, value| {
            settings.bitcask.merge_threshold_fragmentation_percent = value;
        }),
        "40",
        "The share of garbage keys from which a file of a partition takes part in a merge. It \
         does not apply to the value log, for which `bitcask.merge.garbage_share_max` alone counts.",
    ),
    key(
        "bitcask.merge.thresholds.dead_bytes",
        Kind::Bytes(1.., |settings, value| {
            settings.bitcask.merge_threshold_garbage_bytes = value;
        }),
        "128MB",
        "The bytes of garbage values from which a file of a partition takes part in a merge. It \
         does not apply to the value log, for which `bitcask.merge.garbage_share_max` alone counts.",
    ),
    key(
        "bitcask.merge.thresholds.small_file",
        Kind::BytesOr("disabled", 1.., |settings, value| {
            settings.bitcask.merge_threshold_small_file_bytes = value;
        }),
        "10MB",
        "A smaller file of a partition takes part in a merge whatever its contents, if it has \
         less than half of the present target length of the partition's files. It does not apply \
         to the value log, whose files are small.",
    ),
    key(
        "bitcask.expiry",
        Kind::DurationOr("off", Unit::Seconds, |settings, value| {
            settings.bitcask.expiry = value;
        }),
        "off",
        "The time from a write to the end of its object, for all objects of the backend. Reads no \
         longer find an expired object; merges free its space.",
    ),
    key(
        "bitcask.expiry.grace_time",
        Kind::Duration(Unit::Seconds, Duration::ZERO.., |settings, value| {
            settings.bitcask.expiry_grace = value;
        }),
        "0",
        "The further time for which expired objects may stay on disk before they alone start a \
         merge.",
    ),
];
