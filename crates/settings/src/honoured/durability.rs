//! Keys of durability for all backends, and of the value log (`value_log.*`).

use std::time::Duration;

use crate::duration::Unit;
use crate::key::{Key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::DurabilityMode;

pub(super) const KEYS: &[Key] = &[
    own_key(
        "durability",
        Kind::Choice(&[
            Choice("grouped", |settings| {
                settings.durability.mode = DurabilityMode::Grouped;
            }),
            Choice("interval", |settings| {
                settings.durability.mode = DurabilityMode::Interval;
            }),
            Choice("none", |settings| {
                settings.durability.mode = DurabilityMode::None;
            }),
        ]),
        "grouped",
        "The moment at which a write is acknowledged. `grouped`: when it is on stable storage; \
         writes that arrive together share a sync. `interval`: at once, and a sync follows every \
         `durability.interval`. `none`: at once, and the operating system writes at a time of its \
         own, as with Riak's defaults; a power cut loses the last seconds, a crash of the server \
         nothing.",
    ),
    own_key(
        "durability.interval",
        Kind::Duration(
            Unit::Seconds,
            Duration::from_millis(1)..,
            |settings, value| settings.durability.interval = value,
        ),
        "1s",
        "The time between syncs with `durability = interval`: a power cut may lose the writes of \
         this time.",
    ),
    own_key(
        "value_log.segment_bytes",
        Kind::Bytes(64 << 10.., |settings, value| {
            settings.value_log.segment_bytes = value;
        }),
        "64MB",
        "The size of one file of the value log, in which entries stay. Files are made in advance. \
         On a small disk they are shorter: a thirty-second of the free space and the node's own \
         files together, but 1MB at least.",
    ),
    own_key(
        "value_log.bytes_max",
        Kind::Bytes(128 << 10.., |settings, value| {
            settings.value_log.bytes_max = value;
        }),
        "1GB",
        "The length of the value log that may wait for the partitions to catch up. It bounds the \
         time of a start after a crash. Each partition catches up when between half of it and all \
         of it waits, so that not all do so at once. If the disk has no room for that, they catch \
         up when a quarter of the free space waits.",
    ),
];
