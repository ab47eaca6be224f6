//! Keys of secondary indexes, MapReduce and JavaScript.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Queries",
    keys: KEYS,
};

const JSON: &str = "there is one encoder of JSON, with nothing to choose";

const TOMBSTONES: &str = "queries of `$key` and `$bucket` never show tombstones";

const QUERY_LOG: &str = "slow and failed queries are logged like all requests";

const QUERIES: &str = "the query API is not built in yet";

const JAVASCRIPT: &str = "Kvorum runs no JavaScript (Riak itself gave it up)";

const KEYS: &[RiakKey] = &[
    ignored("secondary_index_json", JSON),
    ignored("dollarkey_readtombs", TOMBSTONES),
    ignored("log_index_fsm", QUERY_LOG),
    ignored("query_dataroot", QUERIES),
    ignored("javascript.source_dir", JAVASCRIPT),
    ignored("javascript.maximum_stack_size", JAVASCRIPT),
    ignored("javascript.maximum_heap_size", JAVASCRIPT),
    ignored("javascript.hook_pool_size", JAVASCRIPT),
    ignored("javascript.reduce_pool_size", JAVASCRIPT),
    ignored("javascript.map_pool_size", JAVASCRIPT),
    ignored("cluster.job.riak_kv.map_reduce_js", JAVASCRIPT),
];
