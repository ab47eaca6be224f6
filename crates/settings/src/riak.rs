//! The keys of riak.conf that Kvorum does not have under the same name, and their fates.
//!
//! Together with `honoured` they are every key of the files shipped with Riak 2.2 to 3.4 and every
//! hidden one of their schemas. So an unmodified riak.conf starts the server, and a misspelt key is
//! distinguished from one that does not apply here.

/// A key of Riak's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiakKey {
    /// The name, or a pattern with one free word.
    pub name: &'static str,
    /// Its fate.
    pub fate: Fate,
}

/// The fate of a key of Riak's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its value is used for this key of ours.
    Mapped(&'static str),
    /// It has no effect; the reason fits after "ignored because".
    Ignored(&'static str),
    /// It would change the storage of data, so it is refused unless empty, for this reason.
    Guarded(&'static str),
}

/// Keys of Riak's that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Their subject.
    pub title: &'static str,
    /// Names with the same fate, separated by blanks.
    fates: &'static [(&'static str, Fate)],
}

impl Family {
    /// The keys, in the order of the reference page.
    pub fn keys(&self) -> impl Iterator<Item = RiakKey> {
        self.fates.iter().flat_map(|(names, fate)| {
            let names = names.split_whitespace();
            names.map(|name| RiakKey { name, fate: *fate })
        })
    }
}

const fn ignored(names: &'static str, reason: &'static str) -> (&'static str, Fate) {
    (names, Fate::Ignored(reason))
}

const fn mapped(name: &'static str, to: &'static str) -> (&'static str, Fate) {
    (name, Fate::Mapped(to))
}

const fn guarded(names: &'static str, reason: &'static str) -> (&'static str, Fate) {
    (names, Fate::Guarded(reason))
}

/// Riak's defaults of directories: other values refer to them as `$(name)`.
pub(crate) const DIRECTORIES: [(&str, &str); 3] = [
    ("platform_bin_dir", "./bin"),
    ("platform_etc_dir", "./etc"),
    ("platform_lib_dir", "./lib"),
];

/// The first word of names with any key of a backend. The rule for them is in `catalogue`; only two
/// keys of another form are listed here.
pub(crate) const MULTI_PREFIX: &str = "multi_backend";

/// The reason why directories of one of several backends are ignored.
pub(crate) const ONE_DIRECTORY: &str =
    "all backends of a partition are in one directory below $(platform_data_dir)/multi";

/// All families, in the order of the reference page.
pub(crate) const FAMILIES: [Family; 17] = [
    Family {
        title: "Node",
        fates: &[
            ignored(
                "distributed_cookie",
                "nodes do not identify each other by a shared cookie",
            ),
            ignored(
                "platform_bin_dir platform_etc_dir platform_lib_dir",
                "Kvorum has no files there; other paths may refer to the value",
            ),
            ignored(
                "object.format",
                "objects have one binary form, chosen by Kvorum",
            ),
            ignored(
                "metadata.format",
                "metadata has one binary form, chosen by Kvorum",
            ),
            ignored(
                "metadata_cache_size",
                "heads are read from the backend's own key directory, which is in memory",
            ),
            ignored("cs_version", "Riak CS is not supported"),
        ],
    },
    Family {
        title: "Erlang virtual machine",
        fates: &[
            ignored(
                "erlang.smp erlang.W erlang.K erlang.async_threads \
                 erlang.async_threads.stack_size erlang.fullsweep_after erlang.crash_dump \
                 erlang.max_ets_tables erlang.process_limit erlang.max_ports \
                 erlang.vm.ignore_break_signal erlang.virtual_heap.hmbs erlang.virtual_heap.hms \
                 erlang.eheap_memory.sbct erlang.eheap_memory.lmbcs erlang.eheap_memory.smbcs \
                 erlang.eheap_memory.as erlang.binary_memory.sbct erlang.binary_memory.lmbcs \
                 erlang.binary_memory.smbcs erlang.binary_memory.as",
                "Kvorum does not run on the Erlang virtual machine",
            ),
            ignored(
                "erlang.distribution_buffer_size erlang.distribution.port_range.minimum \
                 erlang.distribution.port_range.maximum erlang.distribution.interface \
                 erlang.distribution.net_ticktime",
                "nodes do not talk to each other by the distribution protocol of Erlang",
            ),
            ignored(
                "erlang.schedulers.total erlang.schedulers.online \
                 erlang.schedulers.force_wakeup_interval erlang.schedulers.compaction_of_load \
                 erlang.schedulers.utilization_balancing erlang.schedulers_binding \
                 erlang.schedulers_busywait erlang.schedulers_busywait_dirtycpu \
                 erlang.schedulers_busywait_dirtyio erlang.schedulers_online_percentage \
                 erlang.schedulers_dirtycpu_online_percentage erlang.schedulers_dirtyio_online",
                "there are no Erlang schedulers; threads follow the number of cores, or \
                 `worker_threads`",
            ),
            ignored(
                "erlang.shutdown_time",
                "a stop waits until the requests under way are answered",
            ),
        ],
    },
    Family {
        title: "Security and TLS",
        fates: &[
            ignored(
                "listener.https.$name ssl.certfile ssl.keyfile ssl.cacertfile \
                 tls_protocols.tlsv1.2 tls_protocols.tlsv1.3 honor_cipher_order check_crl",
                "TLS for clients is not built in yet: no encrypted listener is opened",
            ),
            ignored(
                "tls_protocols.sslv3 tls_protocols.tlsv1 tls_protocols.tlsv1.1",
                "TLS for clients is not built in yet, and protocols before TLS 1.2 never will be",
            ),
            ignored(
                "permit_insecure_http_ops",
                "users and grants are not built in yet: every client that reaches the HTTP \
                 listener may use it",
            ),
        ],
    },
    Family {
        title: "Requests and queues",
        fates: &[
            ignored(
                "retry_put_coordinator_failure mbox_check_enabled",
                "any node that has a replica coordinates, and a second one is asked only if the \
                 first has certainly done nothing",
            ),
            ignored(
                "read_repair_primaryonly read_repair_log",
                "a read repairs every outdated replica that it finds",
            ),
            ignored(
                "conditional_put_mode token_request_mode",
                "there are no tokens: a quorum is asked before a conditional write, as with \
                 Riak's `api_only`",
            ),
            ignored(
                "backend_pause_ms",
                "a backend slows its writers smoothly by itself",
            ),
            ignored(
                "tombstone_pause",
                "the delete itself finds the replicas that have its tombstone; no read is needed",
            ),
            ignored(
                "eraser_dataroot eraser_overflow_limit reaper_dataroot reaper_overflow_limit \
                 reader_dataroot",
                "there is no queue of this kind: a fold itself reaps, erases and repairs the keys \
                 that it finds, a few at a time",
            ),
            ignored(
                "worker_pool_strategy worker_pool_size node_worker_pool_size \
                 af1_worker_pool_size af2_worker_pool_size af3_worker_pool_size \
                 af4_worker_pool_size be_worker_pool_size",
                "work in the background shares one budget for the whole node, not pools",
            ),
            ignored(
                "participate_in_coverage",
                "every node takes part in listings",
            ),
            ignored(
                "datatypes.compression_level",
                "data types are compressed only as the store compresses values",
            ),
        ],
    },
    Family {
        title: "Default bucket properties",
        fates: &[guarded(
            "buckets.default.precommit buckets.default.postcommit",
            "commit hooks are Erlang or JavaScript functions, which Kvorum cannot run",
        )],
    },
    Family {
        title: "Queries",
        fates: &[
            ignored(
                "secondary_index_json",
                "there is one encoder of JSON, with nothing to choose",
            ),
            ignored(
                "dollarkey_readtombs",
                "queries of `$key` and `$bucket` never show tombstones",
            ),
            ignored(
                "log_index_fsm",
                "slow and failed queries are logged like all requests",
            ),
            ignored("query_dataroot", "the query API is not built in yet"),
            ignored(
                "javascript.source_dir javascript.maximum_stack_size \
                 javascript.maximum_heap_size javascript.hook_pool_size \
                 javascript.reduce_pool_size javascript.map_pool_size \
                 cluster.job.riak_kv.map_reduce_js",
                "Kvorum runs no JavaScript (Riak itself gave it up)",
            ),
        ],
    },
    Family {
        title: "Cluster and handoff",
        fates: &[
            ignored(
                "choose_claim_fun target_n_val target_location_n_val full_rebalance_onleave",
                "one solver places replicas, on distinct nodes and locations wherever that is \
                 possible",
            ),
            ignored(
                "cluster_transfer_limit handoff_batch_threshold_count handoff_timeout \
                 handoff_deletes",
                "transfers go page by page, each confirmed, at the pace of the node's arbiter",
            ),
            ignored(
                "handoff.ip handoff.port",
                "other nodes connect at `listener.peer.$name`, for transfers and all else",
            ),
            ignored(
                "handoff.ssl.certfile handoff.ssl.keyfile",
                "transfers go over the connections between nodes, which `cluster.tls` encrypts",
            ),
            ignored(
                "handoff.max_rejects vnode_management_timer repair_span repair_deferred",
                "transfers go page by page, each confirmed, at the pace of the node's arbiter",
            ),
            ignored(
                "background_manager handoff.use_background_manager",
                "work in the background has one arbiter for the whole node, which is always on",
            ),
            ignored(
                "strong_consistency",
                "strongly consistent bucket types are not built in yet",
            ),
        ],
    },
    Family {
        title: "Anti-entropy",
        fates: &[
            ignored(
                "anti_entropy",
                "there is one anti-entropy for both families of keys; tictacaae_active switches it",
            ),
            ignored(
                "anti_entropy.trigger_interval",
                "tictacaae_exchangetick sets how often replicas are compared",
            ),
            ignored(
                "anti_entropy.tree.expiry anti_entropy.tree.build_limit.number \
                 anti_entropy.tree.build_limit.per_timespan tictacaae_rebuildtick \
                 tictacaae_rebuild_blocktime",
                "a node builds the trees of one vnode at a time, at the pace of its arbiter; \
                 tictacaae_rebuildwait sets how often",
            ),
            ignored(
                "anti_entropy.data_dir anti_entropy.write_buffer_size \
                 anti_entropy.max_open_files anti_entropy.bloomfilter tictacaae_dataroot \
                 tictacaae_parallelstore tictacaae_storeheads tictacaae_backendloglevel \
                 tictacaae_backendcompression",
                "trees are in memory and in hash_trees of the data directory, and heads are read \
                 from the stores themselves: there is no separate store for them",
            ),
            ignored(
                "anti_entropy.throttle anti_entropy.throttle.$tier.mailbox_size \
                 anti_entropy.throttle.$tier.delay anti_entropy.use_background_manager \
                 aae_tokenbucket",
                "trees change in the same step as their store, so that no queue forms; \
                 tictacaae_repairs_per_second_max bounds repairs",
            ),
            ignored(
                "tictacaae_rangeboost",
                "an exchange within a range compares as many leaves as any other",
            ),
            ignored(
                "tictacaae_primaryonly",
                "stand-ins keep hints and no replicas, so there is nothing else to compare",
            ),
            ignored(
                "tictacaae_loglevel",
                "logger.level chooses the events that are logged",
            ),
            ignored(
                "legacyformat_tictacaae_tree",
                "trees of different versions of the hash are distinguished and not compared",
            ),
            ignored(
                "aae_fetchclocks_repair",
                "wrong leaves of a tree are always corrected from the stored entries",
            ),
        ],
    },
    Family {
        title: "Replication between clusters",
        fates: &[
            ignored(
                "ttaaefs_scope ttaaefs_queuename ttaaefs_queuename_peer ttaaefs_cluster_slice \
                 ttaaefs_maxresults ttaaefs_rangeboost ttaaefs_bucketfilter_name \
                 ttaaefs_bucketfilter_type ttaaefs_buckettype ttaaefs_localnval \
                 ttaaefs_remotenval ttaaefs_peerip ttaaefs_peerport ttaaefs_peerprotocol \
                 ttaaefs_allcheck ttaaefs_nocheck ttaaefs_hourcheck ttaaefs_daycheck \
                 ttaaefs_rangecheck ttaaefs_autocheck ttaaefs_allcheck.policy \
                 ttaaefs_allcheck.window.start ttaaefs_allcheck.window.end ttaaefs_logrepairs \
                 repl_cacert_filename repl_cert_filename repl_key_filename repl_username \
                 repl_reap replrtq_enablesrc replrtq_vnodecheck replrtq_srcobjectlimit \
                 replrtq_srcobjectsize replrtq_srcqueue replrtq_srcqueuelimit \
                 replrtq_compressonwire replrtq_enablesink replrtq_sinkqueue replrtq_sinkpeers \
                 replrtq_sinkworkers replrtq_sinkpeerlimit replrtq_peer_discovery \
                 replrtq_prompt_max_seconds replrtq_dataroot replrtq_overflow_limit",
                "replication between clusters is not built in yet",
            ),
            ignored(
                "mdc.data_root mdc.cluster_manager mdc.max_fssource_cluster \
                 mdc.max_fssource_node mdc.max_fssource_soft_retries mdc.fssource_retry_wait \
                 mdc.max_fssink_node mdc.fullsync_on_connect mdc.fullsync_interval.$cluster_name \
                 mdc.rtq_max_bytes mdc.proxy_get mdc.realtime.heartbeat_interval \
                 mdc.realtime.heartbeat_timeout mdc.fullsync.use_bg_manager \
                 mdc.fullsync.stat_refresh_interval",
                "this generation of replication is not supported; Riak itself gave it up",
            ),
        ],
    },
    Family {
        title: "Bitcask backend",
        fates: &[
            ignored(
                "bitcask.open_timeout",
                "no other process may read a directory that a server has open: a second server is \
                 refused at once",
            ),
            ignored(
                "bitcask.io_mode",
                "the server reads and writes files by system calls, and has no other way",
            ),
            ignored(
                "bitcask.hintfile_checksums",
                "every part of a hint file carries a checksum, which is always checked",
            ),
            ignored(
                "bitcask.fold.max_age bitcask.fold.max_puts",
                "every fold reads a new snapshot, which costs writers nothing; no fold waits for \
                 another or shares an older snapshot",
            ),
            ignored(
                "bitcask.merge_check_interval bitcask.merge_check_jitter",
                "each partition looks for files to merge about once a second, at a time of its \
                 own, and one arbiter for all of them chooses the next merge",
            ),
            ignored(
                "bitcask.max_merge_size",
                "files are merged one after the other, and `bitcask.max_file_size` bounds one \
                 file",
            ),
        ],
    },
    Family {
        title: "LevelDB backend",
        fates: &[
            ignored(
                "leveldb.block_cache_threshold leveldb.block.size_steps",
                "indexes and filters of tables are cut into blocks that are cached like any other",
            ),
            ignored(
                "leveldb.verify_checksums leveldb.verify_compaction",
                "every block carries a checksum, which is checked whenever it is read",
            ),
            ignored(
                "leveldb.threads",
                "requests are served by the threads that received them, or by the node's blocking \
                 pool if they have to wait for a device",
            ),
            ignored(
                "leveldb.fadvise_willneed",
                "the system's page cache keeps often-read data by itself",
            ),
            ignored(
                "leveldb.cache_object_warming",
                "tables are opened with the store, and their blocks are read on demand",
            ),
        ],
    },
    Family {
        title: "Leveled backend",
        fates: &[
            ignored(
                "leveled.cache_size leveled.cache_multiple leveled.penciller_cache_size",
                "the memory of the ledger is bounded in bytes: by `leveled.ledger_buffer`, and by \
                 `leveled.maximum_memory` for all partitions",
            ),
            ignored(
                "leveled.log_level",
                "the node has one level for everything: `logger.level`",
            ),
            ignored(
                "leveled.journal_size leveled.journal_objectcount",
                "the journal begins in the value log, whose files have \
                 `value_log.segment_bytes`; its own files are cut so that each can be rewritten \
                 alone",
            ),
            ignored(
                "leveled.ledger_pagecachelevel",
                "blocks of the ledger that are read often are in the node's own cache",
            ),
            ignored(
                "leveled.compaction_runs_perday leveled.compaction_scores_perday",
                "files are rated by exact counts in the background, and rewritten when that is \
                 worth the work",
            ),
            ignored(
                "leveled.waste_retention_period",
                "files that are not needed are removed at once; backups have links of their own",
            ),
            ignored(
                "leveled.snapshot_timeout_short leveled.snapshot_timeout_long",
                "a snapshot ends with the request that it is for",
            ),
            ignored(
                "leveled.stats_percentage leveled.stats_logfrequency",
                "everything is counted, since counting costs next to nothing: see the statistics",
            ),
            ignored(
                "leveled_reload_recalc",
                "a rebuilt ledger takes its index entries from the objects",
            ),
        ],
    },
    Family {
        title: "Hanoidb backend",
        fates: &[
            mapped("hanoidb.page_size", "hanoidb.block_size"),
            ignored(
                "hanoidb.merge_strategy",
                "merges of all levels go on side by side, and each put does the same bounded \
                 share of the work: that was the purpose of `predictable`",
            ),
            ignored(
                "hanoidb.write_buffer_size hanoidb.read_buffer_size",
                "merges read ahead and write in large pieces, in steps of bounded time",
            ),
            ignored(
                "hanoidb.spawn_opt",
                "a merge is no process: upkeep and puts do its steps",
            ),
        ],
    },
    Family {
        title: "Innostore backend",
        fates: &[
            ignored(
                "innostore.log_group_home_dir innostore.log_buffer_size innostore.log_file_size \
                 innostore.log_files_in_group",
                "the redo log is the node's value log, whose settings are those of `value_log`",
            ),
            ignored(
                "innostore.format innostore.file_format",
                "there is one format of pages, without compression; a value of at least a quarter \
                 of a page has a page of its own",
            ),
            ignored(
                "innostore.data_file_path innostore.file_per_table",
                "each partition has files of its own in its directory, for all its buckets together",
            ),
            ignored(
                "innostore.doublewrite",
                "no page is overwritten in place, so a torn page never counts",
            ),
            ignored(
                "innostore.checksums",
                "every page carries a checksum, which is checked whenever it is read",
            ),
            ignored(
                "innostore.additional_mem_pool_size innostore.lru_old_blocks_pct \
                 innostore.adaptive_hash_index",
                "one cache has the pages of all partitions, and a page that is read once \
                 displaces none that is read often",
            ),
            ignored(
                "innostore.adaptive_flushing innostore.io_capacity",
                "one arbiter decides when pages are written, in steps of bounded time",
            ),
            ignored(
                "innostore.open_files innostore.read_io_threads innostore.write_io_threads \
                 innostore.flush_method",
                "each thread reads and writes its files by system calls, and files stay open",
            ),
            ignored(
                "innostore.lock_wait_timeout innostore.sync_spin_loops",
                "there are no transactions, so no request waits for their locks",
            ),
            ignored(
                "innostore.error_log",
                "the node has one log for everything: `logger.file`",
            ),
        ],
    },
    Family {
        title: "Search",
        fates: &[ignored(
            "search search.root_dir search.temp_dir search.anti_entropy \
                 search.anti_entropy.data_dir search.anti_entropy.throttle \
                 search.anti_entropy.throttle.$tier.solrq_queue_length \
                 search.anti_entropy.throttle.$tier.delay search.solr.start_timeout \
                 search.solr.port search.solr.jmx_port search.solr.jvm_options \
                 search.solr.request_timeout search.solr.ed_request_timeout \
                 search.index.error_threshold.failure_count \
                 search.index.error_threshold.failure_interval \
                 search.index.error_threshold.reset_interval search.fuse_context \
                 search.dist_query search.queue.batch.minimum search.queue.batch.maximum \
                 search.queue.batch.flush_interval search.queue.high_watermark \
                 search.queue.high_watermark.purge_strategy search.queue.worker_count \
                 search.queue.helper_count search.queue.drain.timeout \
                 search.queue.drain.cancel.timeout search.queue.drain.enable \
                 search.ibrowse_max_sessions search.ibrowse_max_pipeline_size \
                 cluster.job.yokozuna.query",
            "search by Solr is not part of Kvorum (Riak itself gave it up)",
        )],
    },
    Family {
        title: "Consoles and monitoring",
        fates: &[
            ignored(
                "riak_control riak_control.auth.mode riak_control.auth.user.$username.password",
                "Riak Control is not part of Kvorum",
            ),
            ignored(
                "runtime_health.thresholds.busy_processes runtime_health.thresholds.busy_ports \
                 runtime_health.triggers.process.garbage_collection \
                 runtime_health.triggers.process.long_schedule \
                 runtime_health.triggers.process.heap_size runtime_health.triggers.port \
                 runtime_health.triggers.distribution_port",
                "it watches processes and ports of the Erlang virtual machine, which is not used",
            ),
            ignored(
                "snmp.nodeGetTimeMeanThreshold snmp.nodeGetTimeMedianThreshold \
                 snmp.nodeGetTime95Threshold snmp.nodeGetTime99Threshold \
                 snmp.nodeGetTime100Threshold snmp.nodePutTimeMeanThreshold \
                 snmp.nodePutTimeMedianThreshold snmp.nodePutTime95Threshold \
                 snmp.nodePutTime99Threshold snmp.nodePutTime100Threshold snmp.traps.replication \
                 snmp.refresh_frequency snmp.database_dir snmp.force_reload snmp.forced_reload",
                "there is no SNMP agent; metrics are at `/metrics` and `/stats`",
            ),
            ignored(
                "jmx jmx.refresh_rate jmx.restart_check jmx.port",
                "there is no JMX server; metrics are at `/metrics` and `/stats`",
            ),
            ignored("dtrace", "there are no DTrace probes"),
        ],
    },
    Family {
        title: "Logs",
        fates: &[
            mapped("log.console", "logger.output"),
            mapped("log.console.level", "logger.level"),
            mapped("log.console.file", "logger.file"),
            ignored(
                "logger.default_filters logger.additional_handlers",
                "lines have one form, which the logger of Erlang does not describe",
            ),
            ignored(
                "log.error.file log.error.redirect log.error.messages_per_second sasl",
                "errors go where the other log lines go",
            ),
            ignored(
                "log.crash log.crash.file log.crash.maximum_message_size log.crash.size \
                 log.crash.rotation log.crash.rotation.keep",
                "there is no crash log: a crash is reported on standard error",
            ),
            ignored(
                "log.syslog log.syslog.ident log.syslog.facility log.syslog.level",
                "the server does not write to syslog: let the service manager take its standard \
                 error",
            ),
        ],
    },
];
