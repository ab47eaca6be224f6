//! Keys of the innostore backend, named as the options of the original. Those that have no counterpart are in
//! `riak`.

use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::DurabilityMode;

pub(super) const KEYS: &[Key] = &[
    key(
        "innostore.data_home_dir",
        Kind::Path(|settings, value| settings.innostore.data_home_dir = value),
        "$(platform_data_dir)/innostore",
        "The directory with one subdirectory for each partition.",
    ),
    Key::new(
        "innostore.flush_log_at_trx_commit",
        Kind::Choice(&[
            Choice("0", |settings| {
                settings.innostore.flush_log = Some(DurabilityMode::Interval);
            }),
            Choice("1", |settings| {
                settings.innostore.flush_log = Some(DurabilityMode::Grouped);
            }),
            Choice("2", |settings| {
                settings.innostore.flush_log = Some(DurabilityMode::Interval);
            }),
        ]),
        None,
        "The original's name for `durability`, for this backend alone; where it is set, it decides. \
         `1` acknowledges what is on stable storage, as `durability = grouped` does. \
         `0`, the original's default, and `2` sync once in a `durability.interval`: what was acknowledged \
         is with the system, and the death of the server alone loses nothing of it. \
         Not set, `durability` decides.",
    ),
    own_key(
        "innostore.buffer_pool_size.percent",
        Kind::Percent(|settings, value| settings.innostore.pool_percent_max = value),
        "50",
        "How much of the memory of the machine, or of the container if that is less, pages and what is \
         still to be moved to pages may take together, of all partitions. \
         Large values are read through the system's own cache, which has to have room beside.",
    ),
    Key::new(
        "innostore.buffer_pool_size",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.innostore.pool_bytes_max = value;
        }),
        None,
        "The same in bytes. Where both are given, the smaller amount counts.",
    ),
    key(
        "innostore.max_dirty_pages_pct",
        Kind::Percent(|settings, value| settings.innostore.dirty_percent_max = value),
        "25",
        "How much of that may be taken by what was put and is in no page yet. \
         It is also what is read from the value log after a crash, \
         for which reason a partition has no more than 32 MB of it. \
         More lets puts that are near each other share a page.",
    ),
    own_key(
        "innostore.page_size",
        Kind::Bytes(1 << 10.., |settings, value| {
            settings.innostore.page_bytes = value;
        }),
        "16KB",
        "The size of a page: what is read for one key, and written for one put that has no neighbours. \
         More than 1 MB is taken as that. Existing pages keep theirs until they are written anew. \
         A value from a quarter of it on has a page of its own.",
    ),
    own_key(
        "innostore.expiry_secs",
        Kind::Integer(0..=u64::MAX, |settings, value| {
            settings.innostore.expiry_seconds = value;
        }),
        "0",
        "How many seconds after it was written an object is gone, for all objects of the backend; 0 is never. \
         An object's own expiry counts too, whichever comes first.",
    ),
];
