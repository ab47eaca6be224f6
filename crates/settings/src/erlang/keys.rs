//! The key of riak.conf for each key of Riak's Erlang applications.
//!
//! Names on the left are `application.key`. If Kvorum ignores the name on the right, its reason counts for
//! both, so that a key has one fate under both names.

use super::values::{self, Translation};

/// One key of an Erlang application.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErlangKey {
    /// `application.key`.
    pub(super) path: &'static str,
    /// The equivalent key of riak.conf, or the first of them.
    pub(super) conf: &'static str,
    /// The form of its value.
    pub(super) form: Form,
}

/// The translation of an Erlang value into one of riak.conf.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// Atoms, numbers and strings as they are.
    Plain,
    /// Seconds; a negative number is `off`.
    SecondsOrOff,
    /// Minutes, or a word.
    Minutes,
    /// A number, or `off` for 0.
    ZeroIsOff,
    /// `true` is `off`, and the reverse.
    Inverted,
    /// Some words have another name; others, and numbers, are as they are.
    Words(&'static [(&'static str, &'static str)]),
    /// A value with a structure of its own. It replaces all keys with these prefixes.
    Special {
        replaces: &'static [&'static str],
        translate: Translation,
    },
}

const fn plain(path: &'static str, conf: &'static str) -> ErlangKey {
    with(path, conf, Form::Plain)
}

const fn with(path: &'static str, conf: &'static str, form: Form) -> ErlangKey {
    ErlangKey { path, conf, form }
}

const fn special(
    path: &'static str,
    replaces: &'static [&'static str],
    translate: Translation,
) -> ErlangKey {
    let form = Form::Special {
        replaces,
        translate,
    };
    with(path, "", form)
}

/// Applications of Riak whose keys are settings of a node; others are libraries and consoles.
pub(super) const APPLICATIONS: [&str; 6] = [
    "riak_core",
    "riak_kv",
    "riak_api",
    "bitcask",
    "eleveldb",
    "leveled",
];

/// The keys, by application.
pub(super) const KEYS: &[ErlangKey] = &[
    plain("bitcask.data_root", "bitcask.data_root"),
    plain(
        "bitcask.dead_bytes_merge_trigger",
        "bitcask.merge.triggers.dead_bytes",
    ),
    plain(
        "bitcask.dead_bytes_threshold",
        "bitcask.merge.thresholds.dead_bytes",
    ),
    plain("bitcask.expiry_grace_time", "bitcask.expiry.grace_time"),
    plain(
        "bitcask.frag_merge_trigger",
        "bitcask.merge.triggers.fragmentation",
    ),
    plain(
        "bitcask.frag_threshold",
        "bitcask.merge.thresholds.fragmentation",
    ),
    plain("bitcask.io_mode", "bitcask.io_mode"),
    plain("bitcask.max_file_size", "bitcask.max_file_size"),
    plain("bitcask.max_fold_age", "bitcask.fold.max_age"),
    plain("bitcask.max_fold_puts", "bitcask.fold.max_puts"),
    plain("bitcask.open_timeout", "bitcask.open_timeout"),
    plain("bitcask.require_hint_crc", "bitcask.hintfile_checksums"),
    plain(
        "eleveldb.block_cache_threshold",
        "leveldb.block_cache_threshold",
    ),
    plain(
        "eleveldb.block_restart_interval",
        "leveldb.block.restart_interval",
    ),
    plain("eleveldb.block_size_steps", "leveldb.block.size_steps"),
    plain(
        "eleveldb.cache_object_warming",
        "leveldb.cache_object_warming",
    ),
    plain("eleveldb.data_root", "leveldb.data_root"),
    plain(
        "eleveldb.delete_threshold",
        "leveldb.compaction.trigger.tombstone_count",
    ),
    plain("eleveldb.eleveldb_threads", "leveldb.threads"),
    plain("eleveldb.expiry_enabled", "leveldb.expiration"),
    plain("eleveldb.fadvise_willneed", "leveldb.fadvise_willneed"),
    plain(
        "eleveldb.limited_developer_mem",
        "leveldb.limited_developer_mem",
    ),
    plain("eleveldb.sst_block_size", "leveldb.block.size"),
    plain("eleveldb.sync", "leveldb.sync_on_write"),
    plain("eleveldb.tiered_fast_prefix", "leveldb.tiered.path.fast"),
    plain("eleveldb.tiered_slow_prefix", "leveldb.tiered.path.slow"),
    plain(
        "eleveldb.total_leveldb_mem_percent",
        "leveldb.maximum_memory.percent",
    ),
    plain("eleveldb.use_bloomfilter", "leveldb.bloomfilter"),
    plain("eleveldb.verify_checksums", "leveldb.verify_checksums"),
    plain("eleveldb.verify_compaction", "leveldb.verify_compaction"),
    plain(
        "eleveldb.write_buffer_size_max",
        "leveldb.write_buffer_size_max",
    ),
    plain(
        "eleveldb.write_buffer_size_min",
        "leveldb.write_buffer_size_min",
    ),
    plain("leveled.cache_multiple", "leveled.cache_multiple"),
    plain("leveled.cache_size", "leveled.cache_size"),
    plain("leveled.compaction_low_hour", "leveled.compaction_low_hour"),
    plain(
        "leveled.compaction_runs_perday",
        "leveled.compaction_runs_perday",
    ),
    plain(
        "leveled.compaction_scores_perday",
        "leveled.compaction_scores_perday",
    ),
    plain("leveled.compaction_top_hour", "leveled.compaction_top_hour"),
    plain("leveled.compression_level", "leveled.compression_level"),
    plain("leveled.compression_method", "leveled.compression_method"),
    plain("leveled.compression_point", "leveled.compression_point"),
    plain("leveled.data_root", "leveled.data_root"),
    plain("leveled.journal_objectcount", "leveled.journal_objectcount"),
    plain("leveled.journal_size", "leveled.journal_size"),
    plain("leveled.ledger_compression", "leveled.ledger_compression"),
    plain(
        "leveled.ledger_pagecachelevel",
        "leveled.ledger_pagecachelevel",
    ),
    plain("leveled.log_level", "leveled.log_level"),
    plain("leveled.max_run_length", "leveled.max_run_length"),
    plain(
        "leveled.maxrunlength_compactionpercentage",
        "leveled.maxrunlength_compactionpercentage",
    ),
    plain(
        "leveled.penciller_cache_size",
        "leveled.penciller_cache_size",
    ),
    plain(
        "leveled.singlefile_compactionpercentage",
        "leveled.singlefile_compactionpercentage",
    ),
    plain(
        "leveled.snapshot_timeout_long",
        "leveled.snapshot_timeout_long",
    ),
    plain(
        "leveled.snapshot_timeout_short",
        "leveled.snapshot_timeout_short",
    ),
    plain("leveled.stats_logfrequency", "leveled.stats_logfrequency"),
    plain("leveled.stats_percentage", "leveled.stats_percentage"),
    plain("leveled.sync_strategy", "leveled.sync_strategy"),
    plain(
        "leveled.waste_retention_period",
        "leveled.waste_retention_period",
    ),
    plain("riak_core.choose_claim_fun", "choose_claim_fun"),
    plain("riak_core.dtrace_support", "dtrace"),
    plain("riak_core.enable_consensus", "strong_consistency"),
    plain("riak_core.full_rebalance_onleave", "full_rebalance_onleave"),
    plain(
        "riak_core.handoff_batch_threshold_count",
        "handoff_batch_threshold_count",
    ),
    plain("riak_core.handoff_concurrency", "transfer_limit"),
    plain("riak_core.handoff_ip", "handoff.ip"),
    plain("riak_core.handoff_port", "handoff.port"),
    plain("riak_core.handoff_ssl_options", "handoff.ssl.certfile"),
    plain("riak_core.handoff_timeout", "handoff_timeout"),
    plain(
        "riak_core.participate_in_coverage",
        "participate_in_coverage",
    ),
    plain("riak_core.platform_bin_dir", "platform_bin_dir"),
    plain("riak_core.platform_data_dir", "platform_data_dir"),
    plain("riak_core.platform_etc_dir", "platform_etc_dir"),
    plain("riak_core.platform_lib_dir", "platform_lib_dir"),
    plain("riak_core.platform_log_dir", "platform_log_dir"),
    plain("riak_core.ring_creation_size", "ring_size"),
    plain("riak_core.ring_state_dir", "ring.state_dir"),
    plain("riak_core.ssl", "ssl.certfile"),
    plain("riak_core.target_location_n_val", "target_location_n_val"),
    plain("riak_core.target_n_val", "target_n_val"),
    plain("riak_core.use_background_manager", "background_manager"),
    plain("riak_core.vnode_management_timer", "vnode_management_timer"),
    plain("riak_dt.binary_compression", "datatypes.compression_level"),
    plain("riak_kv.aae_fetchclocks_repair", "aae_fetchclocks_repair"),
    plain("riak_kv.aae_throttle_enabled", "anti_entropy.throttle"),
    plain(
        "riak_kv.aae_throttle_limits",
        "anti_entropy.throttle.tier.mailbox_size",
    ),
    plain("riak_kv.aae_tokenbucket", "aae_tokenbucket"),
    plain(
        "riak_kv.aae_use_background_manager",
        "anti_entropy.use_background_manager",
    ),
    plain("riak_kv.af1_worker_pool_size", "af1_worker_pool_size"),
    plain("riak_kv.af2_worker_pool_size", "af2_worker_pool_size"),
    plain("riak_kv.af3_worker_pool_size", "af3_worker_pool_size"),
    plain("riak_kv.af4_worker_pool_size", "af4_worker_pool_size"),
    plain("riak_kv.anti_entropy", "anti_entropy"),
    plain(
        "riak_kv.anti_entropy_build_limit",
        "anti_entropy.tree.build_limit.number",
    ),
    plain(
        "riak_kv.anti_entropy_concurrency",
        "anti_entropy.concurrency_limit",
    ),
    plain("riak_kv.anti_entropy_data_dir", "anti_entropy.data_dir"),
    plain("riak_kv.anti_entropy_expire", "anti_entropy.tree.expiry"),
    plain(
        "riak_kv.anti_entropy_leveldb_opts",
        "anti_entropy.write_buffer_size",
    ),
    plain("riak_kv.anti_entropy_tick", "anti_entropy.trigger_interval"),
    plain("riak_kv.backend_pause_ms", "backend_pause_ms"),
    plain("riak_kv.be_worker_pool_size", "be_worker_pool_size"),
    plain("riak_kv.bitcask_max_merge_size", "bitcask.max_merge_size"),
    plain(
        "riak_kv.bitcask_merge_check_interval",
        "bitcask.merge_check_interval",
    ),
    plain(
        "riak_kv.bitcask_merge_check_jitter",
        "bitcask.merge_check_jitter",
    ),
    plain("riak_kv.dollarkey_readtombs", "dollarkey_readtombs"),
    plain("riak_kv.eraser_dataroot", "eraser_dataroot"),
    plain("riak_kv.eraser_overflow_limit", "eraser_overflow_limit"),
    plain("riak_kv.handoff_deletes", "handoff_deletes"),
    plain("riak_kv.handoff_rejected_max", "handoff.max_rejects"),
    plain(
        "riak_kv.handoff_use_background_manager",
        "handoff.use_background_manager",
    ),
    plain("riak_kv.jmx_dummy", "jmx"),
    plain("riak_kv.leveled_reload_recalc", "leveled_reload_recalc"),
    plain("riak_kv.log_index_fsm", "log_index_fsm"),
    plain("riak_kv.max_object_size", "object.size.maximum"),
    plain("riak_kv.mbox_check_enabled", "mbox_check_enabled"),
    plain("riak_kv.multi_backend_default", "multi_backend.default"),
    plain("riak_kv.node_worker_pool_size", "node_worker_pool_size"),
    plain("riak_kv.object_format", "object.format"),
    plain("riak_kv.read_repair_log", "read_repair_log"),
    plain("riak_kv.read_repair_primaryonly", "read_repair_primaryonly"),
    plain("riak_kv.reader_dataroot", "reader_dataroot"),
    plain("riak_kv.reaper_dataroot", "reaper_dataroot"),
    plain("riak_kv.reaper_overflow_limit", "reaper_overflow_limit"),
    plain("riak_kv.repl_cacert_filename", "repl_cacert_filename"),
    plain("riak_kv.repl_cert_filename", "repl_cert_filename"),
    plain("riak_kv.repl_key_filename", "repl_key_filename"),
    plain("riak_kv.repl_reap", "repl_reap"),
    plain("riak_kv.repl_username", "repl_username"),
    plain("riak_kv.replrtq_compressonwire", "replrtq_compressonwire"),
    plain("riak_kv.replrtq_dataroot", "replrtq_dataroot"),
    plain("riak_kv.replrtq_enablesink", "replrtq_enablesink"),
    plain("riak_kv.replrtq_enablesrc", "replrtq_enablesrc"),
    plain("riak_kv.replrtq_overflow_limit", "replrtq_overflow_limit"),
    plain("riak_kv.replrtq_peer_discovery", "replrtq_peer_discovery"),
    plain(
        "riak_kv.replrtq_prompt_max_seconds",
        "replrtq_prompt_max_seconds",
    ),
    plain("riak_kv.replrtq_sinkpeerlimit", "replrtq_sinkpeerlimit"),
    plain("riak_kv.replrtq_sinkpeers", "replrtq_sinkpeers"),
    plain("riak_kv.replrtq_sinkqueue", "replrtq_sinkqueue"),
    plain("riak_kv.replrtq_sinkworkers", "replrtq_sinkworkers"),
    plain("riak_kv.replrtq_srcobjectlimit", "replrtq_srcobjectlimit"),
    plain("riak_kv.replrtq_srcobjectsize", "replrtq_srcobjectsize"),
    plain("riak_kv.replrtq_srcqueue", "replrtq_srcqueue"),
    plain("riak_kv.replrtq_srcqueuelimit", "replrtq_srcqueuelimit"),
    plain("riak_kv.replrtq_vnodecheck", "replrtq_vnodecheck"),
    plain(
        "riak_kv.retry_put_coordinator_failure",
        "retry_put_coordinator_failure",
    ),
    plain("riak_kv.riak_cs_version", "cs_version"),
    plain("riak_kv.secure_referer_check", "secure_referer_check"),
    plain("riak_kv.tictacaae_active", "tictacaae_active"),
    plain("riak_kv.tictacaae_dataroot", "tictacaae_dataroot"),
    plain("riak_kv.tictacaae_exchangetick", "tictacaae_exchangetick"),
    plain("riak_kv.tictacaae_maxresults", "tictacaae_maxresults"),
    plain("riak_kv.tictacaae_parallelstore", "tictacaae_parallelstore"),
    plain("riak_kv.tictacaae_primaryonly", "tictacaae_primaryonly"),
    plain("riak_kv.tictacaae_rangeboost", "tictacaae_rangeboost"),
    plain("riak_kv.tictacaae_rebuilddelay", "tictacaae_rebuilddelay"),
    plain("riak_kv.tictacaae_rebuildtick", "tictacaae_rebuildtick"),
    plain("riak_kv.tictacaae_rebuildwait", "tictacaae_rebuildwait"),
    plain("riak_kv.tictacaae_repairloops", "tictacaae_repairloops"),
    plain("riak_kv.tictacaae_storeheads", "tictacaae_storeheads"),
    plain("riak_kv.tombstone_pause", "tombstone_pause"),
    plain("riak_kv.ttaaefs_allcheck", "ttaaefs_allcheck"),
    plain("riak_kv.ttaaefs_allcheck_window", "ttaaefs_allcheck.policy"),
    plain("riak_kv.ttaaefs_autocheck", "ttaaefs_autocheck"),
    plain(
        "riak_kv.ttaaefs_bucketfilter_name",
        "ttaaefs_bucketfilter_name",
    ),
    plain(
        "riak_kv.ttaaefs_bucketfilter_type",
        "ttaaefs_bucketfilter_type",
    ),
    plain("riak_kv.ttaaefs_buckettype", "ttaaefs_buckettype"),
    plain("riak_kv.ttaaefs_cluster_slice", "ttaaefs_cluster_slice"),
    plain("riak_kv.ttaaefs_daycheck", "ttaaefs_daycheck"),
    plain("riak_kv.ttaaefs_hourcheck", "ttaaefs_hourcheck"),
    plain("riak_kv.ttaaefs_localnval", "ttaaefs_localnval"),
    plain("riak_kv.ttaaefs_logrepairs", "ttaaefs_logrepairs"),
    plain("riak_kv.ttaaefs_maxresults", "ttaaefs_maxresults"),
    plain("riak_kv.ttaaefs_nocheck", "ttaaefs_nocheck"),
    plain("riak_kv.ttaaefs_peerip", "ttaaefs_peerip"),
    plain("riak_kv.ttaaefs_peerport", "ttaaefs_peerport"),
    plain("riak_kv.ttaaefs_peerprotocol", "ttaaefs_peerprotocol"),
    plain("riak_kv.ttaaefs_queuename", "ttaaefs_queuename"),
    plain("riak_kv.ttaaefs_queuename_peer", "ttaaefs_queuename_peer"),
    plain("riak_kv.ttaaefs_rangeboost", "ttaaefs_rangeboost"),
    plain("riak_kv.ttaaefs_rangecheck", "ttaaefs_rangecheck"),
    plain("riak_kv.ttaaefs_remotenval", "ttaaefs_remotenval"),
    plain("riak_kv.ttaaefs_scope", "ttaaefs_scope"),
    plain("riak_kv.vnode_md_cache_size", "metadata_cache_size"),
    plain("riak_kv.warn_object_size", "object.size.warning_threshold"),
    plain("riak_kv.warn_siblings", "object.siblings.warning_threshold"),
    plain("riak_kv.worker_pool_size", "worker_pool_size"),
    plain("riak_kv.worker_pool_strategy", "worker_pool_strategy"),
    // Keys of Riak 1.x's files, and keys that have another form there.
    with("bitcask.expiry_secs", "bitcask.expiry", Form::SecondsOrOff),
    with(
        "bitcask.small_file_threshold",
        "bitcask.merge.thresholds.small_file",
        Form::Plain,
    ),
    with(
        "eleveldb.tiered_slow_level",
        "leveldb.tiered",
        Form::ZeroIsOff,
    ),
    with(
        "eleveldb.total_leveldb_mem",
        "leveldb.maximum_memory",
        Form::ZeroIsOff,
    ),
    with(
        "eleveldb.whole_file_expiry",
        "leveldb.expiration.mode",
        Form::Words(&[("true", "whole_file"), ("false", "normal")]),
    ),
    with(
        "eleveldb.expiry_minutes",
        "leveldb.expiration.retention_time",
        Form::Minutes,
    ),
    with(
        "riak_core.disable_inbound_handoff",
        "handoff.inbound",
        Form::Inverted,
    ),
    with(
        "riak_core.disable_outbound_handoff",
        "handoff.outbound",
        Form::Inverted,
    ),
    plain("riak_core.cluster_name", "cluster_name"),
    plain("riak_kv.secondary_index_timeout", "secondary_index_timeout"),
    with(
        "riak_kv.fsm_limit",
        "max_concurrent_requests",
        Form::Words(&[("undefined", "infinite")]),
    ),
    plain("riak_kv.max_siblings", "object.siblings.maximum"),
    with("riak_kv.delete_mode", "delete_mode", Form::Plain),
    with(
        "riak_kv.storage_backend",
        "storage_backend",
        Form::Words(&[
            ("riak_kv_bitcask_backend", "bitcask"),
            ("riak_kv_eleveldb_backend", "leveldb"),
            ("riak_kv_leveled_backend", "leveled"),
            ("riak_kv_memory_backend", "memory"),
            ("riak_kv_multi_backend", "multi"),
            ("riak_kv_multi_prefix_backend", "prefix_multi"),
            ("riak_kv_hanoidb_backend", "hanoidb"),
            ("riak_kv_innostore_backend", "innostore"),
        ]),
    ),
    plain("riak_kv.multi_backend", "multi_backend.default"),
    plain("riak_api.https", "listener.https.internal"),
    plain("riak_core.https", "listener.https.internal"),
    plain("riak_api.pb_backlog", "protobuf.backlog"),
    plain("riak_api.pb_keepalive", "protobuf.keepalive"),
    with(
        "riak_api.disable_pb_nagle",
        "protobuf.nagle",
        Form::Inverted,
    ),
    special(
        "bitcask.sync_strategy",
        &["bitcask.sync."],
        values::sync_strategy,
    ),
    special(
        "bitcask.merge_window",
        &["bitcask.merge.policy", "bitcask.merge.window."],
        values::merge_window,
    ),
    special(
        "eleveldb.compression",
        &["leveldb.compression"],
        values::compression,
    ),
    special(
        "riak_kv.memory_backend",
        &["memory_backend."],
        values::memory_backend,
    ),
    special(
        "riak_core.job_accept_class",
        &["cluster.job."],
        values::jobs,
    ),
    special(
        "riak_api.pb",
        &["listener.protobuf."],
        values::protobuf_listeners,
    ),
    special("riak_api.http", &["listener.http."], values::http_listeners),
    special(
        "riak_core.http",
        &["listener.http."],
        values::http_listeners,
    ),
    special(
        "riak_core.default_bucket_props",
        &["buckets.default."],
        values::bucket_properties,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::name::Name;

    #[test]
    fn every_key_stands_for_one_that_is_known() {
        for key in KEYS {
            if !matches!(key.form, Form::Special { .. }) {
                let name = Name::parse(key.conf).unwrap();
                assert!(
                    catalogue::lookup(&name).is_some(),
                    "{} -> {}",
                    key.path,
                    key.conf
                );
            }
            let same = KEYS.iter().filter(|other| other.path == key.path);
            assert_eq!(same.count(), 1, "{}", key.path);
        }
    }
}
