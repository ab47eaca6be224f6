//! The key of riak.conf for each key of Riak's Erlang applications.
//!
//! Names on the left are `application.key`. If Kvorum ignores the name on the right, the reason
//! applies to both names.

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
    /// Atoms, numbers and strings unchanged.
    Plain,
    /// Seconds; a negative number is `off`.
    SecondsOrOff,
    /// Minutes, or a word.
    Minutes,
    /// A number, or `off` for 0.
    ZeroIsOff,
    /// `true` is `off`, and the reverse.
    Inverted,
    /// Some words have another name. Other words and numbers are unchanged.
    Words(&'static [(&'static str, &'static str)]),
    /// A value with a structure of its own. It replaces all keys with these prefixes.
    Special {
        replaces: &'static [&'static str],
        translate: Translation,
    },
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

/// The key of this path, `application.key`.
pub(super) fn key(path: &str) -> Option<ErlangKey> {
    keys().find(|key| key.path == path)
}

fn keys() -> impl Iterator<Item = ErlangKey> {
    let same = SAME_NAMES.split_whitespace();
    let same = same.filter_map(|path| Some((path, path.split_once('.')?.1)));
    let whole = WHOLE_NAMES.split_whitespace().map(|path| (path, path));
    let other = OTHER_NAMES.lines();
    let other = other.filter_map(|line| line.trim().split_once(char::is_whitespace));
    let plain = same.chain(whole).chain(other);
    let plain = plain.map(|(path, conf)| with(path, conf.trim_start(), Form::Plain));
    plain.chain(OTHER_FORMS.iter().copied())
}

/// Applications of Riak whose keys are settings of a node; others are libraries and consoles.
pub(super) const APPLICATIONS: [&str; 8] = [
    "riak_core",
    "riak_kv",
    "riak_api",
    "bitcask",
    "eleveldb",
    "leveled",
    "hanoidb",
    "innostore",
];

/// Keys that riak.conf has under the same name, without the application; their values are plain.
const SAME_NAMES: &str = "
    riak_core.choose_claim_fun riak_core.cluster_name riak_core.full_rebalance_onleave
    riak_core.handoff_batch_threshold_count riak_core.handoff_timeout
    riak_core.participate_in_coverage riak_core.platform_bin_dir riak_core.platform_data_dir
    riak_core.platform_etc_dir riak_core.platform_lib_dir riak_core.platform_log_dir
    riak_core.target_location_n_val riak_core.target_n_val riak_core.vnode_management_timer
    riak_kv.aae_fetchclocks_repair riak_kv.aae_tokenbucket riak_kv.af1_worker_pool_size
    riak_kv.af2_worker_pool_size riak_kv.af3_worker_pool_size riak_kv.af4_worker_pool_size
    riak_kv.anti_entropy riak_kv.backend_pause_ms riak_kv.be_worker_pool_size
    riak_kv.delete_mode riak_kv.dollarkey_readtombs riak_kv.eraser_dataroot
    riak_kv.eraser_overflow_limit riak_kv.handoff_deletes riak_kv.leveled_reload_recalc
    riak_kv.log_index_fsm riak_kv.mbox_check_enabled riak_kv.node_worker_pool_size
    riak_kv.read_repair_log riak_kv.read_repair_primaryonly riak_kv.reader_dataroot
    riak_kv.reaper_dataroot riak_kv.reaper_overflow_limit riak_kv.repl_cacert_filename
    riak_kv.repl_cert_filename riak_kv.repl_key_filename riak_kv.repl_reap riak_kv.repl_username
    riak_kv.replrtq_compressonwire riak_kv.replrtq_dataroot riak_kv.replrtq_enablesink
    riak_kv.replrtq_enablesrc riak_kv.replrtq_overflow_limit riak_kv.replrtq_peer_discovery
    riak_kv.replrtq_prompt_max_seconds riak_kv.replrtq_sinkpeerlimit riak_kv.replrtq_sinkpeers
    riak_kv.replrtq_sinkqueue riak_kv.replrtq_sinkworkers riak_kv.replrtq_srcobjectlimit
    riak_kv.replrtq_srcobjectsize riak_kv.replrtq_srcqueue riak_kv.replrtq_srcqueuelimit
    riak_kv.replrtq_vnodecheck riak_kv.retry_put_coordinator_failure
    riak_kv.secondary_index_timeout riak_kv.secure_referer_check riak_kv.tictacaae_active
    riak_kv.tictacaae_dataroot riak_kv.tictacaae_exchangetick riak_kv.tictacaae_maxresults
    riak_kv.tictacaae_parallelstore riak_kv.tictacaae_primaryonly riak_kv.tictacaae_rangeboost
    riak_kv.tictacaae_rebuilddelay riak_kv.tictacaae_rebuildtick riak_kv.tictacaae_rebuildwait
    riak_kv.tictacaae_repairloops riak_kv.tictacaae_storeheads riak_kv.tombstone_pause
    riak_kv.ttaaefs_allcheck riak_kv.ttaaefs_autocheck riak_kv.ttaaefs_bucketfilter_name
    riak_kv.ttaaefs_bucketfilter_type riak_kv.ttaaefs_buckettype riak_kv.ttaaefs_cluster_slice
    riak_kv.ttaaefs_daycheck riak_kv.ttaaefs_hourcheck riak_kv.ttaaefs_localnval
    riak_kv.ttaaefs_logrepairs riak_kv.ttaaefs_maxresults riak_kv.ttaaefs_nocheck
    riak_kv.ttaaefs_peerip riak_kv.ttaaefs_peerport riak_kv.ttaaefs_peerprotocol
    riak_kv.ttaaefs_queuename riak_kv.ttaaefs_queuename_peer riak_kv.ttaaefs_rangeboost
    riak_kv.ttaaefs_rangecheck riak_kv.ttaaefs_remotenval riak_kv.ttaaefs_scope
    riak_kv.worker_pool_size riak_kv.worker_pool_strategy
";

/// Keys that riak.conf has under the whole of this name; their values are plain.
const WHOLE_NAMES: &str = "
    bitcask.data_root bitcask.io_mode bitcask.max_file_size bitcask.open_timeout
    leveled.cache_multiple leveled.cache_size leveled.compaction_low_hour
    leveled.compaction_runs_perday leveled.compaction_scores_perday leveled.compaction_top_hour
    leveled.compression_level leveled.compression_method leveled.compression_point
    leveled.data_root leveled.journal_objectcount leveled.journal_size
    leveled.ledger_compression leveled.ledger_pagecachelevel leveled.log_level
    leveled.max_run_length leveled.maxrunlength_compactionpercentage
    leveled.penciller_cache_size leveled.singlefile_compactionpercentage
    leveled.snapshot_timeout_long leveled.snapshot_timeout_short leveled.stats_logfrequency
    leveled.stats_percentage leveled.sync_strategy leveled.waste_retention_period
    hanoidb.block_size hanoidb.compress hanoidb.data_root hanoidb.expiry_secs
    hanoidb.merge_strategy hanoidb.page_size hanoidb.read_buffer_size
    hanoidb.top_level hanoidb.write_buffer_size
    innostore.adaptive_flushing innostore.adaptive_hash_index
    innostore.additional_mem_pool_size innostore.buffer_pool_size innostore.checksums
    innostore.data_file_path innostore.data_home_dir innostore.doublewrite
    innostore.error_log innostore.file_format innostore.file_per_table
    innostore.flush_log_at_trx_commit innostore.flush_method innostore.format
    innostore.io_capacity innostore.lock_wait_timeout innostore.log_buffer_size
    innostore.log_file_size innostore.log_files_in_group innostore.log_group_home_dir
    innostore.lru_old_blocks_pct innostore.max_dirty_pages_pct innostore.open_files
    innostore.read_io_threads innostore.sync_spin_loops innostore.write_io_threads
";

/// Keys that riak.conf has under another name, each with that name; their values are plain.
const OTHER_NAMES: &str = "
    bitcask.dead_bytes_merge_trigger        bitcask.merge.triggers.dead_bytes
    bitcask.dead_bytes_threshold            bitcask.merge.thresholds.dead_bytes
    bitcask.expiry_grace_time               bitcask.expiry.grace_time
    bitcask.frag_merge_trigger              bitcask.merge.triggers.fragmentation
    bitcask.frag_threshold                  bitcask.merge.thresholds.fragmentation
    bitcask.max_fold_age                    bitcask.fold.max_age
    bitcask.max_fold_puts                   bitcask.fold.max_puts
    bitcask.require_hint_crc                bitcask.hintfile_checksums
    bitcask.small_file_threshold            bitcask.merge.thresholds.small_file
    eleveldb.block_cache_threshold          leveldb.block_cache_threshold
    eleveldb.block_restart_interval         leveldb.block.restart_interval
    eleveldb.block_size_steps               leveldb.block.size_steps
    eleveldb.cache_object_warming           leveldb.cache_object_warming
    eleveldb.data_root                      leveldb.data_root
    eleveldb.delete_threshold               leveldb.compaction.trigger.tombstone_count
    eleveldb.eleveldb_threads               leveldb.threads
    eleveldb.expiry_enabled                 leveldb.expiration
    eleveldb.fadvise_willneed               leveldb.fadvise_willneed
    eleveldb.limited_developer_mem          leveldb.limited_developer_mem
    eleveldb.sst_block_size                 leveldb.block.size
    eleveldb.sync                           leveldb.sync_on_write
    eleveldb.tiered_fast_prefix             leveldb.tiered.path.fast
    eleveldb.tiered_slow_prefix             leveldb.tiered.path.slow
    eleveldb.total_leveldb_mem_percent      leveldb.maximum_memory.percent
    eleveldb.use_bloomfilter                leveldb.bloomfilter
    eleveldb.verify_checksums               leveldb.verify_checksums
    eleveldb.verify_compaction              leveldb.verify_compaction
    eleveldb.write_buffer_size_max          leveldb.write_buffer_size_max
    eleveldb.write_buffer_size_min          leveldb.write_buffer_size_min
    riak_api.https                          listener.https.internal
    riak_api.pb_backlog                     protobuf.backlog
    riak_api.pb_keepalive                   protobuf.keepalive
    riak_core.dtrace_support                dtrace
    riak_core.enable_consensus              strong_consistency
    riak_core.handoff_concurrency           transfer_limit
    riak_core.handoff_ip                    handoff.ip
    riak_core.handoff_port                  handoff.port
    riak_core.handoff_ssl_options           handoff.ssl.certfile
    riak_core.https                         listener.https.internal
    riak_core.ring_creation_size            ring_size
    riak_core.ring_state_dir                ring.state_dir
    riak_core.ssl                           ssl.certfile
    riak_core.use_background_manager        background_manager
    riak_dt.binary_compression              datatypes.compression_level
    riak_kv.aae_throttle_enabled            anti_entropy.throttle
    riak_kv.aae_throttle_limits             anti_entropy.throttle.tier.mailbox_size
    riak_kv.aae_use_background_manager      anti_entropy.use_background_manager
    riak_kv.anti_entropy_build_limit        anti_entropy.tree.build_limit.number
    riak_kv.anti_entropy_concurrency        anti_entropy.concurrency_limit
    riak_kv.anti_entropy_data_dir           anti_entropy.data_dir
    riak_kv.anti_entropy_expire             anti_entropy.tree.expiry
    riak_kv.anti_entropy_leveldb_opts       anti_entropy.write_buffer_size
    riak_kv.anti_entropy_tick               anti_entropy.trigger_interval
    riak_kv.bitcask_max_merge_size          bitcask.max_merge_size
    riak_kv.bitcask_merge_check_interval    bitcask.merge_check_interval
    riak_kv.bitcask_merge_check_jitter      bitcask.merge_check_jitter
    riak_kv.handoff_rejected_max            handoff.max_rejects
    riak_kv.handoff_use_background_manager  handoff.use_background_manager
    riak_kv.jmx_dummy                       jmx
    riak_kv.max_object_size                 object.size.maximum
    riak_kv.max_siblings                    object.siblings.maximum
    riak_kv.multi_backend_default           multi_backend.default
    riak_kv.object_format                   object.format
    riak_kv.riak_cs_version                 cs_version
    riak_kv.ttaaefs_allcheck_window         ttaaefs_allcheck.policy
    riak_kv.vnode_md_cache_size             metadata_cache_size
    riak_kv.warn_object_size                object.size.warning_threshold
    riak_kv.warn_siblings                   object.siblings.warning_threshold
";

/// Keys whose values have another form in riak.conf.
const OTHER_FORMS: &[ErlangKey] = &[
    // Keys of Riak 1.x's files, and keys that have another form there.
    with("bitcask.expiry_secs", "bitcask.expiry", Form::SecondsOrOff),
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
    with(
        "riak_kv.fsm_limit",
        "max_concurrent_requests",
        Form::Words(&[("undefined", "infinite")]),
    ),
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
        "hanoidb.sync_strategy",
        &["hanoidb.sync_strategy", "hanoidb.sync_interval"],
        values::hanoidb_sync_strategy,
    ),
    special(
        "hanoidb.spawn_opt",
        &["hanoidb.spawn_opt"],
        values::hanoidb_spawn_options,
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
        for key in keys() {
            if !matches!(key.form, Form::Special { .. }) {
                let name = Name::parse(key.conf).unwrap();
                assert!(
                    catalogue::lookup(&name).is_some(),
                    "{} -> {}",
                    key.path,
                    key.conf
                );
            }
            let same = keys().filter(|other| other.path == key.path);
            assert_eq!(same.count(), 1, "{}", key.path);
        }
    }
}
