//! Keys of secondary indexes, MapReduce and JavaScript.

use super::{Family, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Queries",
    keys: KEYS,
};

const INDEXES: &str = "secondary indexes are not built in yet";

const JAVASCRIPT: &str = "Kvorum runs no JavaScript (Riak itself gave it up)";

const KEYS: &[super::RiakKey] = &[
    ignored("secondary_index_timeout", INDEXES),
    ignored("secondary_index_json", INDEXES),
    ignored("dollarkey_readtombs", INDEXES),
    ignored("log_index_fsm", INDEXES),
    ignored("query_dataroot", INDEXES),
    ignored("javascript.source_dir", JAVASCRIPT),
    ignored("javascript.maximum_stack_size", JAVASCRIPT),
    ignored("javascript.maximum_heap_size", JAVASCRIPT),
    ignored("javascript.hook_pool_size", JAVASCRIPT),
    ignored("javascript.reduce_pool_size", JAVASCRIPT),
    ignored("javascript.map_pool_size", JAVASCRIPT),
    ignored("cluster.job.riak_kv.map_reduce_js", JAVASCRIPT),
];
