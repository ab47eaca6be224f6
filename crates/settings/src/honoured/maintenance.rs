//! Keys of background work: the resources that it may use.

use std::time::Duration;

use crate::duration::Unit;
use crate::key::{Key, key, own_key};
use crate::kind::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "transfer_limit",
        Kind::Integer(0..=1_000, |settings, value| {
            settings.maintenance.transfer_limit = value;
        }),
        "2",
        "How many partitions this node fetches at once, and how many others fetch from it: \
         when nodes join and leave, and for repairs. \
         How fast they go is up to the arbiter of background work. \
         `kvorum admin transfer-limit` changes it until the next start.",
    ),
    key(
        "handoff.inbound",
        Kind::Flag(|settings, value| settings.maintenance.handoff_inbound = value),
        "on",
        "Whether this node fetches partitions. \
         `kvorum admin handoff enable|disable` changes it until the next start.",
    ),
    key(
        "handoff.outbound",
        Kind::Flag(|settings, value| settings.maintenance.handoff_outbound = value),
        "on",
        "Whether others may fetch partitions from this node. \
         `kvorum admin handoff enable|disable` changes it until the next start.",
    ),
    own_key(
        "maintenance.io_bytes_per_second_max",
        Kind::BytesOr("off", 1 << 20.., |settings, value| {
            settings.maintenance.io_bytes_per_second_max = value;
        }),
        "off",
        "The most that background work (merges, checkpoints, expiry, scrubs) reads and writes in a \
         second, all stores of the node together; syncs of what clients wrote are not counted. \
         It already gives way to requests by itself: set this where the device has a quota. \
         Below what the writes cause, disk use grows; `kvorum admin maintenance` shows how much \
         is needed.",
    ),
    own_key(
        "maintenance.cpu_share_max",
        Kind::Percent(|settings, value| {
            settings.maintenance.cpu_share_max_percent = value;
        }),
        "50",
        "The most processor time that background work takes, as a share of all cores that the \
         server may use. Work that is pressing, because space or memory runs out, may take more.",
    ),
    own_key(
        "maintenance.step_time",
        Kind::Duration(
            Unit::Milliseconds,
            Duration::from_millis(1)..,
            |settings, value| settings.maintenance.step_time = value,
        ),
        "2ms",
        "How long one step of background work is to last. \
         A request that meets a step waits for up to that long; \
         longer steps get more done where nobody waits.",
    ),
    own_key(
        "maintenance.memory_bytes_max",
        Kind::BytesOr("auto", 16 << 20.., |settings, value| {
            settings.maintenance.memory_bytes_max = value;
        }),
        "auto",
        "How much memory the stores may hold: key directories, write buffers, indexes of tables, and \
         the caches that they share. Caches shrink to what the others leave of it. \
         At nine tenths a warning is logged, work that frees memory comes first, write buffers are \
         written earlier, and puts are held back more and more; at the whole of it puts are refused \
         with `overload`, and deletions and reads go on. \
         Large requests and replies in progress, and what waits for the value log, count too; requests \
         and messages of other nodes that are larger than 16 KB may have an eighth of the budget \
         together, and get `overload` beyond it. \
         `auto` is three quarters of what the machine or the container has.",
    ),
    own_key(
        "maintenance.open_files_max",
        Kind::IntegerOr("auto", 1..=u64::MAX, |settings, value| {
            settings.maintenance.open_files_max = value;
        }),
        "auto",
        "How many files the server may have open, connections included. \
         At nine tenths a warning is logged and work that makes files fewer comes first; at 98 % puts \
         are refused with `overload`. A start is refused where the files of the stores and the connections \
         of the other nodes need more, and clients may have as many connections as half of what these \
         leave. Another node needs 12. \
         `auto` is the limit of the process, which is raised to the hard one (`ulimit -Hn`).",
    ),
    own_key(
        "scrub.period",
        Kind::DurationOr("off", Unit::Seconds, |settings, value| {
            settings.maintenance.scrub_period = value;
        }),
        "30d",
        "Every file of the stores and of the value log is read again within this time, and its \
         checksums are computed, so that rot is found while replicas can mend it. \
         The reading is spread evenly over the period, comes after all other background work, and \
         goes on after a restart where it was. `off` for never.",
    ),
];
