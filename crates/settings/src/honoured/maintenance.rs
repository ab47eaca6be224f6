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
        "The number of partitions that this node fetches at once, and of those that others fetch \
         from it: for joins, leaves and repairs. The arbiter of background work sets their speed. \
         `kvorum admin transfer-limit` changes it until the next start.",
    ),
    key(
        "handoff.inbound",
        Kind::Flag(|settings, value| settings.maintenance.handoff_inbound = value),
        "on",
        "Lets this node fetch partitions. `kvorum admin handoff enable|disable` changes it until \
         the next start.",
    ),
    key(
        "handoff.outbound",
        Kind::Flag(|settings, value| settings.maintenance.handoff_outbound = value),
        "on",
        "Lets others fetch partitions from this node. `kvorum admin handoff enable|disable` \
         changes it until the next start.",
    ),
    own_key(
        "maintenance.io_bytes_per_second_max",
        Kind::BytesOr("off", 1 << 20.., |settings, value| {
            settings.maintenance.io_bytes_per_second_max = value;
        }),
        "off",
        "The most bytes that background work (merges, checkpoints, expiry, scrubs) reads and \
         writes in a second, in all stores of the node together; syncs of clients' writes are not \
         counted. Background work already gives way to requests by itself: set this if the device \
         has a quota. If it is lower than the writes need, disk use grows; `kvorum admin \
         maintenance` shows the needed rate.",
    ),
    own_key(
        "maintenance.cpu_share_max",
        Kind::Percent(|settings, value| {
            settings.maintenance.cpu_share_max_percent = value;
        }),
        "50",
        "The most processor time of background work, as a share of all cores that the server may \
         use. Work that is pressing, because space or memory runs out, may take more.",
    ),
    own_key(
        "maintenance.step_time",
        Kind::Duration(
            Unit::Milliseconds,
            Duration::from_millis(1)..,
            |settings, value| settings.maintenance.step_time = value,
        ),
        "2ms",
        "The target duration of a step of background work. A request that meets a step waits for \
         up to that long; longer steps do more where no request waits.",
    ),
    own_key(
        "maintenance.memory_bytes_max",
        Kind::BytesOr("auto", 16 << 20.., |settings, value| {
            settings.maintenance.memory_bytes_max = value;
        }),
        "auto",
        "The memory of the stores: key directories, write buffers, indexes of tables, and shared \
         caches. Caches shrink to the rest that the others leave. At nine tenths a warning is \
         logged, work that frees memory comes first, write buffers are written earlier, and puts \
         are delayed more and more; when all of it is used puts are refused with `overload`, and \
         deletions and reads go on. Large requests and replies in progress, and data in the queue \
         of the value log, count too. Requests and messages of other nodes that are larger than \
         16 KB may take an eighth of the budget together, and get `overload` beyond it. `auto` is \
         three quarters of the memory of the machine or the container.",
    ),
    own_key(
        "maintenance.open_files_max",
        Kind::IntegerOr("auto", 1..=u64::MAX, |settings, value| {
            settings.maintenance.open_files_max = value;
        }),
        "auto",
        "The number of files that the server may have open, connections included. At nine tenths \
         a warning is logged and work that reduces the number of files comes first; at 98 % puts \
         are refused with `overload`. A start is refused if the files of the stores and the \
         connections of the other nodes need more; clients may have half of the rest as \
         connections. Each other node needs 12. `auto` is the limit of the process, which is \
         raised to the hard one (`ulimit -Hn`).",
    ),
    own_key(
        "scrub.period",
        Kind::DurationOr("off", Unit::Seconds, |settings, value| {
            settings.maintenance.scrub_period = value;
        }),
        "30d",
        "The time within which every file of the stores and of the value log is read again, with \
         its checksums, so that corruption is found while replicas can mend it. The reading is \
         spread evenly over the period, comes after all other background work, and resumes after \
         a restart. `off` for never.",
    ),
];
