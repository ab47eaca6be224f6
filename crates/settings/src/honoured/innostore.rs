//! Keys of the innostore backend, named as the options of the original. Options without a
//! counterpart are in `riak`.

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
        "The original's name for `durability`, for this backend alone; if it is set, it decides. \
         `1` acknowledges a write that is on stable storage, as `durability = grouped` does. `0`, \
         the original's default, and `2` sync once in a `durability.interval`: an acknowledged \
         write is with the operating system, and a crash of the server alone loses none.",
    ),
    own_key(
        "innostore.buffer_pool_size.percent",
        Kind::Percent(|settings, value| settings.innostore.pool_percent_max = value),
        "50",
        "The share of the memory of the machine, or of the container if that is less, for the \
         pages of all partitions and for entries that are not in pages yet. Large values are read \
         through the system's own cache, which needs memory too.",
    ),
    Key::new(
        "innostore.buffer_pool_size",
        Kind::BytesOr("off", 16 << 20.., |settings, value| {
            settings.innostore.pool_bytes_max = value;
        }),
        None,
        "The same in bytes. If both are given, the smaller amount counts.",
    ),
    key(
        "innostore.max_dirty_pages_pct",
        Kind::Percent(|settings, value| settings.innostore.dirty_percent_max = value),
        "25",
        "The share of that memory for entries that are not in pages yet. A start after a crash \
         reads as much from the value log, so a partition has no more than 32 MB of them. More \
         lets puts of neighbouring keys share a page.",
    ),
    own_key(
        "innostore.page_size",
        Kind::Bytes(1 << 10.., |settings, value| {
            settings.innostore.page_bytes = value;
        }),
        "16KB",
        "The size of a page, the unit of reading, and of writing for a put without neighbours. \
         More than 1 MB is taken as 1 MB. Existing pages keep theirs until they are rewritten. A \
         value of at least a quarter of a page has a page of its own.",
    ),
    own_key(
        "innostore.expiry_secs",
        Kind::Integer(0..=u64::MAX, |settings, value| {
            settings.innostore.expiry_seconds = value;
        }),
        "0",
        "The seconds from a write to the end of its object, for all objects of the backend; 0 is \
         never. An object's own expiry counts too, whichever comes first.",
    ),
];
