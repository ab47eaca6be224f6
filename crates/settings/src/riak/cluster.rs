//! Keys of membership, handoff and strong consistency.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Cluster and handoff",
    keys: KEYS,
};

const CLAIM: &str =
    "one solver places replicas, on distinct nodes and locations wherever that is possible";

const PEER: &str = "other nodes connect at `listener.peer.$name`, for transfers and all else";

const HANDOFF: &str =
    "transfers go page by page, each confirmed, at the pace of the node's arbiter";

const TRANSFER_TLS: &str =
    "transfers go over the connections between nodes, which `cluster.tls` encrypts";

const BACKGROUND: &str =
    "work in the background has one arbiter for the whole node, which is always on";

const KEYS: &[RiakKey] = &[
    ignored("choose_claim_fun", CLAIM),
    ignored("target_n_val", CLAIM),
    ignored("target_location_n_val", CLAIM),
    ignored("full_rebalance_onleave", CLAIM),
    ignored("cluster_transfer_limit", HANDOFF),
    ignored("handoff_batch_threshold_count", HANDOFF),
    ignored("handoff_timeout", HANDOFF),
    ignored("handoff_deletes", HANDOFF),
    ignored("handoff.ip", PEER),
    ignored("handoff.port", PEER),
    ignored("handoff.ssl.certfile", TRANSFER_TLS),
    ignored("handoff.ssl.keyfile", TRANSFER_TLS),
    ignored("handoff.max_rejects", HANDOFF),
    ignored("vnode_management_timer", HANDOFF),
    ignored("repair_span", HANDOFF),
    ignored("repair_deferred", HANDOFF),
    ignored("background_manager", BACKGROUND),
    ignored("handoff.use_background_manager", BACKGROUND),
    ignored(
        "strong_consistency",
        "strongly consistent bucket types are not built in yet",
    ),
];
