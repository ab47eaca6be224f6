//! Keys of search with Solr.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Search",
    keys: KEYS,
};

const SEARCH: &str = "search by Solr is not part of Kvorum (Riak itself gave it up)";

const KEYS: &[RiakKey] = &[
    ignored("search", SEARCH),
    ignored("search.root_dir", SEARCH),
    ignored("search.temp_dir", SEARCH),
    ignored("search.anti_entropy", SEARCH),
    ignored("search.anti_entropy.data_dir", SEARCH),
    ignored("search.anti_entropy.throttle", SEARCH),
    ignored(
        "search.anti_entropy.throttle.$tier.solrq_queue_length",
        SEARCH,
    ),
    ignored("search.anti_entropy.throttle.$tier.delay", SEARCH),
    ignored("search.solr.start_timeout", SEARCH),
    ignored("search.solr.port", SEARCH),
    ignored("search.solr.jmx_port", SEARCH),
    ignored("search.solr.jvm_options", SEARCH),
    ignored("search.solr.request_timeout", SEARCH),
    ignored("search.solr.ed_request_timeout", SEARCH),
    ignored("search.index.error_threshold.failure_count", SEARCH),
    ignored("search.index.error_threshold.failure_interval", SEARCH),
    ignored("search.index.error_threshold.reset_interval", SEARCH),
    ignored("search.fuse_context", SEARCH),
    ignored("search.dist_query", SEARCH),
    ignored("search.queue.batch.minimum", SEARCH),
    ignored("search.queue.batch.maximum", SEARCH),
    ignored("search.queue.batch.flush_interval", SEARCH),
    ignored("search.queue.high_watermark", SEARCH),
    ignored("search.queue.high_watermark.purge_strategy", SEARCH),
    ignored("search.queue.worker_count", SEARCH),
    ignored("search.queue.helper_count", SEARCH),
    ignored("search.queue.drain.timeout", SEARCH),
    ignored("search.queue.drain.cancel.timeout", SEARCH),
    ignored("search.queue.drain.enable", SEARCH),
    ignored("search.ibrowse_max_sessions", SEARCH),
    ignored("search.ibrowse_max_pipeline_size", SEARCH),
    ignored("cluster.job.yokozuna.query", SEARCH),
];
