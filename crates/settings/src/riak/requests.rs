//! Keys of the request path and of its background queues.

use super::{Family, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Requests and queues",
    keys: KEYS,
};

const QUEUE: &str =
    "there is no queue of this kind: it waits for anti-entropy, which is not built in yet";

const COORDINATOR: &str = "it waits for many nodes: a node coordinates its own writes";

const REPAIR: &str = "read repair waits for many nodes";

const POOL: &str = "work in the background shares one budget for the whole node, not pools";

const KEYS: &[super::RiakKey] = &[
    ignored("retry_put_coordinator_failure", COORDINATOR),
    ignored("mbox_check_enabled", COORDINATOR),
    ignored("read_repair_primaryonly", REPAIR),
    ignored("read_repair_log", REPAIR),
    ignored(
        "conditional_put_mode",
        "conditional writes by token wait for many nodes",
    ),
    ignored(
        "token_request_mode",
        "conditional writes by token wait for many nodes",
    ),
    ignored(
        "backend_pause_ms",
        "a backend slows its writers smoothly by itself",
    ),
    ignored("eraser_dataroot", QUEUE),
    ignored("eraser_overflow_limit", QUEUE),
    ignored("reaper_dataroot", QUEUE),
    ignored("reaper_overflow_limit", QUEUE),
    ignored("reader_dataroot", QUEUE),
    ignored("worker_pool_strategy", POOL),
    ignored("worker_pool_size", POOL),
    ignored("node_worker_pool_size", POOL),
    ignored("af1_worker_pool_size", POOL),
    ignored("af2_worker_pool_size", POOL),
    ignored("af3_worker_pool_size", POOL),
    ignored("af4_worker_pool_size", POOL),
    ignored("be_worker_pool_size", POOL),
    ignored(
        "participate_in_coverage",
        "listings on one node always see all its partitions",
    ),
    ignored(
        "datatypes.compression_level",
        "data types are not built in yet",
    ),
];
