//! Keys of background work: what it may use.

use std::time::Duration;

use crate::duration::Unit;
use crate::key::{Category, Key};
use crate::kind::Kind;

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(name, kind, Some(default), Category::Maintenance, help).own()
}

pub(super) const KEYS: &[Key] = &[
    key(
        "maintenance.io_bytes_per_second_max",
        Kind::BytesOr {
            word: "off",
            least: 1 << 20,
            set: |settings, value| settings.maintenance.io_bytes_per_second_max = value,
        },
        "off",
        "The most that background work (merges, checkpoints, expiry, scrubs) reads and writes in a \
         second, all stores of the node together; syncs of what clients wrote are not counted. \
         It already gives way to requests by itself: set this where the device has a quota. \
         Below what the writes cause, disk use grows; `kvorum admin maintenance` shows how much \
         is needed.",
    ),
    key(
        "maintenance.cpu_share_max",
        Kind::Percent(|settings, value| {
            settings.maintenance.cpu_share_max_percent = value;
        }),
        "50",
        "The most processor time that background work takes, as a share of all cores that the \
         server may use. Work that is pressing, because space or memory runs out, may take more.",
    ),
    key(
        "maintenance.step_time",
        Kind::Duration {
            unit: Unit::Milliseconds,
            least: Duration::from_millis(1),
            set: |settings, value| settings.maintenance.step_time = value,
        },
        "2ms",
        "How long one step of background work is to last. \
         A request that meets a step waits for up to that long; \
         longer steps get more done where nobody waits.",
    ),
    key(
        "maintenance.memory_bytes_max",
        Kind::BytesOr {
            word: "auto",
            least: 16 << 20,
            set: |settings, value| settings.maintenance.memory_bytes_max = value,
        },
        "auto",
        "How much memory the stores (key directories, write buffers, indexes of tables) may hold \
         before work that frees memory comes first, and a warning is logged. \
         The leveldb backend's block cache has a bound of its own (`leveldb.maximum_memory.percent`) \
         and is not counted. \
         `auto` is three quarters of what the machine or the container has.",
    ),
    key(
        "maintenance.open_files_max",
        Kind::IntegerOr {
            word: "auto",
            least: 1,
            most: u64::MAX,
            set: |settings, value| settings.maintenance.open_files_max = value,
        },
        "auto",
        "How many files the server may have open before work that makes files fewer comes first, \
         and a warning is logged. `auto` is the limit of the process (`ulimit -n`).",
    ),
];
