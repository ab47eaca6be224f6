//! Keys of the request path and of its background queues.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Requests and queues",
    keys: KEYS,
};

const QUEUE: &str =
    "there is no queue of this kind: it waits for anti-entropy, which is not built in yet";

const COORDINATOR: &str = "any node that has a replica coordinates, and a second is asked only if the first has done nothing";

const REPAIR: &str = "every replica that a read finds behind is repaired";

const POOL: &str = "work in the background shares one budget for the whole node, not pools";

const KEYS: &[RiakKey] = &[
    ignored("retry_put_coordinator_failure", COORDINATOR),
    ignored("mbox_check_enabled", COORDINATOR),
    ignored("read_repair_primaryonly", REPAIR),
    ignored("read_repair_log", REPAIR),
    ignored(
        "conditional_put_mode",
        "there are no tokens: a quorum is asked before a conditional write, as with Riak's `api_only`",
    ),
    ignored(
        "token_request_mode",
        "there are no tokens: a quorum is asked before a conditional write, as with Riak's `api_only`",
    ),
    ignored(
        "backend_pause_ms",
        "a backend slows its writers smoothly by itself",
    ),
    ignored(
        "tombstone_pause",
        "no read comes between a delete and the removal of its tombstone: the delete itself shows who has it",
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
        "every node takes part in listings",
    ),
    ignored(
        "datatypes.compression_level",
        "data types are not built in yet",
    ),
];
