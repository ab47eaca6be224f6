//! Keys of the request path: concurrency, time limits, deletes, and jobs.

use crate::duration::Unit;
use crate::key::{Ancestry, Key, key, own_key};
use crate::kind::{Choice, Kind};

pub(super) const KEYS: &[Key] = &[
    key(
        "max_concurrent_requests",
        Kind::IntegerOr("infinite", 1..=u64::MAX, |settings, value| {
            settings.requests.concurrent_max = value;
        }),
        "50000",
        "The number of requests of each kind (reads, writes) that a node works on at the same \
         time. Further ones are answered `overload` at once.",
    ),
    own_key(
        "slow_request_threshold",
        Kind::DurationOr("off", Unit::Milliseconds, |settings, value| {
            settings.requests.slow_threshold = value;
        }),
        "500ms",
        "A request that takes longer is logged with the parts of its time. `off` logs none.",
    ),
    own_key(
        "gets_compare",
        Kind::Choice(&[
            Choice("all", |settings| {
                settings.requests.compares_all_on_get = true;
            }),
            Choice("some", |settings| {
                settings.requests.compares_all_on_get = false;
            }),
        ]),
        "all",
        "How many gets compare all replicas of their key and bring those up to date that lack something. \
         With `all`, as in Riak, each get does: the replicas that its quorum does not need are asked for \
         their clocks as soon as the client has its answer. \
         With `some` one get in sixteen does, and the others cost one request between nodes less.",
    ),
    key(
        "secondary_index_timeout",
        Kind::DurationOr("0", Unit::Milliseconds, |settings, value| {
            settings.requests.secondary_index_timeout = value;
        }),
        "0",
        "The time after which a query of a secondary index that names no timeout is given up. `0` \
         never gives up.",
    ),
    Key {
        ancestry: Ancestry::RiakAs("`riak_kv.delete_mode`, in advanced.config only"),
        ..key(
            "delete_mode",
            Kind::DeleteMode(|settings, value| settings.requests.delete_mode = value),
            "3s",
            "The time after which a tombstone, the marker of a delete, is removed. `keep` never \
             removes it; `immediate` removes it as soon as every replica has it; a duration waits \
             that much longer. A tombstone that some replica lacks is always kept. In a cluster of \
             several nodes tombstones go only if `tictacaae_active` is `active` on all of them, and \
             `keep` on one node keeps those of all lists that it has replicas of.",
        )
    },
    key(
        "cluster.job.riak_kv.list_buckets",
        Kind::Flag(|settings, value| settings.requests.jobs.list_buckets = value),
        "enabled",
        "Allows clients to list buckets in one answer. A listing reads every key of the node: \
         consider to disable it in production.",
    ),
    key(
        "cluster.job.riak_kv.stream_list_buckets",
        Kind::Flag(|settings, value| settings.requests.jobs.stream_list_buckets = value),
        "enabled",
        "Allows clients to list buckets as a stream.",
    ),
    key(
        "cluster.job.riak_kv.list_keys",
        Kind::Flag(|settings, value| settings.requests.jobs.list_keys = value),
        "enabled",
        "Allows clients to list the keys of a bucket in one answer.",
    ),
    key(
        "cluster.job.riak_kv.stream_list_keys",
        Kind::Flag(|settings, value| settings.requests.jobs.stream_list_keys = value),
        "enabled",
        "Allows clients to list the keys of a bucket as a stream.",
    ),
    key(
        "cluster.job.riak_kv.secondary_index",
        Kind::Flag(|settings, value| settings.requests.jobs.secondary_index = value),
        "enabled",
        "Allows clients to query secondary indexes in one answer.",
    ),
    key(
        "cluster.job.riak_kv.stream_secondary_index",
        Kind::Flag(|settings, value| settings.requests.jobs.stream_secondary_index = value),
        "enabled",
        "Allows clients to query secondary indexes as a stream.",
    ),
    key(
        "cluster.job.riak_kv.map_reduce",
        Kind::Flag(|settings, value| settings.requests.jobs.map_reduce = value),
        "enabled",
        "Allows clients to run MapReduce.",
    ),
];
