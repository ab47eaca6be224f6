//! `advanced.config` and `app.config`. Regression: operators set the backend, default properties and
//! listeners in them, and a server that read only riak.conf silently started with another backend
//! and other defaults than Riak had.

use kvorum_settings::{
    Anchors, Configuration, DeleteMode, KeyFunction, Outcome, Place, Problems, StorageBackend,
    SyncOnWrite, TermsFile,
};

fn load(conf: &str, advanced: &str) -> Result<Configuration, Problems> {
    let terms = [(TermsFile::Advanced, advanced.as_bytes().to_vec())];
    Configuration::load_at(conf, &terms, &[] as &[&str], &Anchors::default())
}

#[track_caller]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
fn refusal(advanced: &str) -> String {
    load("", advanced).unwrap_err().to_string()
}

#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panic")]
fn outcome(configuration: &Configuration, name: &str) -> Outcome {
    let line = configuration.lines.iter().find(|line| line.name == name);
    line.unwrap_or_else(|| panic!("{name}")).outcome.clone()
}

#[test]
fn advanced_config_wins_over_riak_conf_and_loses_to_the_command_line() {
    let conf = "storage_backend = bitcask\nring_size = 16\n";
    let advanced = "%% comments stay\n[{riak_kv, [{storage_backend, riak_kv_eleveldb_backend},\n\
                    {delete_mode, keep}]}, {riak_core, [{ring_creation_size, 32}]}].";
    let loaded = load(conf, advanced).unwrap();
    assert_eq!(
        loaded.settings.node.storage_backend,
        StorageBackend::Leveldb
    );
    assert_eq!(loaded.settings.requests.delete_mode, DeleteMode::Keep);
    assert_eq!(loaded.settings.node.ring_size, 32);
    let place = Place::Terms(TermsFile::Advanced);
    assert_eq!(
        outcome(&loaded, "storage_backend"),
        Outcome::Overridden(place)
    );
    assert_eq!(
        outcome(&loaded, "riak_kv.storage_backend"),
        Outcome::MappedTo("storage_backend".to_owned())
    );
    let report = loaded.report();
    assert!(report.contains("advanced.config"), "{report}");
    assert!(report.contains("riak_kv.delete_mode = keep"), "{report}");

    let terms = [(TermsFile::Advanced, advanced.as_bytes().to_vec())];
    let set = Configuration::load_at(conf, &terms, &["ring_size=8"], &Anchors::default()).unwrap();
    assert_eq!(set.settings.node.ring_size, 8);
}

#[test]
fn app_config_stands_between_both() {
    let terms = |text: &str| text.as_bytes().to_vec();
    let files = [
        (
            TermsFile::App,
            terms("[{riak_core,[{ring_creation_size,16},{cluster_name,\"a\"}]}]."),
        ),
        (
            TermsFile::Advanced,
            terms("[{riak_core,[{ring_creation_size,32}]}]."),
        ),
    ];
    let loaded =
        Configuration::load_at("ring_size = 8", &files, &[] as &[&str], &Anchors::default())
            .unwrap();
    assert_eq!(loaded.settings.node.ring_size, 32);
    let lines: Vec<_> = loaded.lines.iter().map(|line| &*line.name).collect();
    assert_eq!(
        lines,
        [
            "ring_size",
            "riak_core.ring_creation_size",
            "riak_core.cluster_name",
            "riak_core.ring_creation_size"
        ]
    );
}

#[test]
fn a_list_replaces_all_of_its_keys_as_in_riak() {
    let conf = "buckets.default.n_val = 5\nlistener.protobuf.a = 127.0.0.1:1\n\
                listener.protobuf.b = 127.0.0.1:2\n";
    let advanced = "[{riak_core, [{default_bucket_props, [{allow_mult, true}, {w, 2}, \
                    {dvv_enabled, true}, {precommit, []}, \
                    {linkfun, {modfun, riak_kv_wm_link_walker, mapreduce_linkfun}}]}]}, \
                    {riak_api, [{pb, [{\"127.0.0.1\", 8087}, {\"10.0.0.1\", 9}]}]}].";
    let loaded = load(conf, advanced).unwrap();
    assert!(loaded.settings.buckets.allow_mult);
    assert!(loaded.settings.buckets.dvv_enabled);
    // Riak's default, not the 5 of riak.conf, whose list was replaced.
    assert_eq!(loaded.settings.buckets.n_val, 3);
    let place = Place::Terms(TermsFile::Advanced);
    assert_eq!(
        outcome(&loaded, "buckets.default.n_val"),
        Outcome::Overridden(place)
    );
    let listeners: Vec<_> = loaded.settings.listeners.protobuf.values().collect();
    assert_eq!(listeners.len(), 2);
    assert!(listeners.iter().any(|address| address.port() == 8087));
    assert_eq!(
        outcome(&loaded, "listener.protobuf.b"),
        Outcome::Overridden(place)
    );
}

#[test]
fn forms_of_erlang_become_those_of_riak_conf() {
    let advanced = "[{bitcask, [{expiry_secs, -1}, {sync_strategy, {seconds, 7}}, \
                    {merge_window, {1, 5}}, {max_file_size, 16#8000000}]}, \
                    {eleveldb, [{compression, lz4}, {total_leveldb_mem_percent, 30}]}, \
                    {riak_kv, [{memory_backend, [{max_memory, 64}, {ttl, 60}]}, \
                    {delete_mode, 10000}]}, \
                    {riak_core, [{disable_outbound_handoff, true}]}].";
    let settings = load("", advanced).unwrap().settings;
    assert_eq!(settings.bitcask.expiry, None);
    assert_eq!(settings.bitcask.sync_interval.as_secs(), 7);
    assert_eq!(settings.bitcask.merge_window_end_hour, 5);
    assert_eq!(settings.bitcask.file_bytes_max, 128 << 20);
    assert_eq!(settings.leveldb.memory_percent_max, 30);
    assert_eq!(settings.memory.per_vnode_bytes_max, Some(64 << 20));
    let after = std::time::Duration::from_secs(10);
    assert_eq!(settings.requests.delete_mode, DeleteMode::After(after));
}

#[test]
fn options_of_hanoidb_have_a_meaning_or_a_reason() {
    let advanced = "[{hanoidb, [{data_root, \"/h\"}, {compress, gzip}, {expiry_secs, 9}, {page_size, 4096}, \
                    {sync_strategy, {seconds, 7}}, {top_level, 12}, {merge_strategy, predictable}, \
                    {write_buffer_size, 524288}, {read_buffer_size, 524288}, {spawn_opt, []}]}, \
                    {riak_kv, [{storage_backend, riak_kv_hanoidb_backend}]}].";
    let loaded = load("", advanced).unwrap();
    let hanoidb = &loaded.settings.hanoidb;
    assert_eq!(hanoidb.data_root, std::path::Path::new("/h"));
    assert_eq!(hanoidb.expiry().unwrap().as_secs(), 9);
    assert_eq!(
        (hanoidb.block_bytes, hanoidb.unit_bytes()),
        (4096, 64 << 20)
    );
    assert_eq!(hanoidb.sync_interval.as_secs(), 7);
    assert_eq!(
        loaded.settings.node.storage_backend,
        kvorum_settings::StorageBackend::Hanoidb
    );
    let tuple = "[{hanoidb, [{sync_strategy, sometimes}]}].";
    assert!(refusal(tuple).contains("none, sync or {seconds, N}"));
}

#[test]
fn options_of_innostore_have_a_meaning_or_a_reason() {
    let advanced = "[{innostore, [{data_home_dir, \"/i\"}, {log_group_home_dir, \"/l\"}, \
                    {buffer_pool_size, 2147483648}, {flush_log_at_trx_commit, 1}, \
                    {max_dirty_pages_pct, 40}, {log_files_in_group, 6}, {format, compact}, \
                    {file_per_table, true}, {error_log, \"e\"}]}, \
                    {riak_kv, [{storage_backend, riak_kv_innostore_backend}]}].";
    let loaded = load("", advanced).unwrap();
    let innostore = &loaded.settings.innostore;
    assert_eq!(innostore.data_home_dir, std::path::Path::new("/i"));
    assert_eq!(innostore.pool_bytes_max, Some(2 << 30));
    assert_eq!(innostore.dirty_percent_max, 40);
    assert_eq!(
        loaded.settings.backend_durability().mode,
        kvorum_settings::DurabilityMode::Grouped
    );
    assert_eq!(
        loaded.settings.node.storage_backend,
        kvorum_settings::StorageBackend::Innostore
    );
}

#[test]
fn listeners_of_riak_1_are_honoured() {
    let conf = "listener.protobuf.a = 127.0.0.1:1\n";
    let advanced = "[{riak_api, [{pb_ip, \"0.0.0.0\"}, {pb_port, 10017}]}, \
                    {riak_core, [{web_port, 10018}]}].";
    let loaded = load(conf, advanced).unwrap();
    let addresses = |map: &std::collections::BTreeMap<String, std::net::SocketAddr>| {
        map.values().map(ToString::to_string).collect::<Vec<_>>()
    };
    let listeners = &loaded.settings.listeners;
    assert_eq!(addresses(&listeners.protobuf), ["0.0.0.0:10017"]);
    assert_eq!(addresses(&listeners.http), ["127.0.0.1:10018"]);
    assert!(refusal("[{riak_api, [{pb_ip, {0,0}}]}].").contains("riak_api.pb_ip"));
}

#[test]
fn keys_without_effect_are_named_one_by_one_and_secrets_are_not_shown() {
    let advanced = "[{riak_kv, [{aae_throttle_enabled, true}, {no_such_key, [1, 2]}]}, \
                    {lager, [{handlers, []}, {crash_log, undefined}]}, \
                    {riak_control, [{userlist, [{\"user\", \"secret\"}]}, {key, \"secret\"}]}].";
    let loaded = load("", advanced).unwrap();
    let report = loaded.report();
    for name in [
        "riak_kv.aae_throttle_enabled",
        "riak_kv.no_such_key",
        "lager.handlers",
        "lager.crash_log",
        "riak_control.userlist",
        "riak_control.key",
    ] {
        assert!(
            matches!(outcome(&loaded, name), Outcome::Ignored(_)),
            "{name}"
        );
        assert!(report.contains(name), "{report}");
    }
    assert!(!report.contains("secret"), "{report}");
}

#[test]
fn what_would_change_the_backend_or_the_defaults_is_never_ignored() {
    for (advanced, part) in [
        (
            "[{riak_kv,[{storage_backend,riak_cs_kv_multi_backend}]}].",
            "riak_cs_kv_multi_backend",
        ),
        (
            "[{riak_kv,[{storage_backend,{a,b}}]}].",
            "riak_kv.storage_backend",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{consistent,true}]}]}].",
            "consistent",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{precommit,[{struct,[{<<\"mod\">>,<<\"m\">>}]}]}]}]}].",
            "precommit",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{backend,<<\"b\">>}]}]}].",
            "backend",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{n_val,many}]}]}].",
            "default_bucket_props",
        ),
        (
            "[{riak_core,[{default_bucket_props,x}]}].",
            "default_bucket_props",
        ),
        (
            "[{riak_core,[{ring_creation_size,17}]}].",
            "ring_creation_size",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{chash_keyfun,{my,hash}}]}]}].",
            "chash_keyfun",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{datatype,set}]}]}].",
            "datatype",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{write_once,true}]}]}].",
            "write_once",
        ),
        (
            "[{riak_core,[{default_bucket_props,[{linkfun,{modfun,m,f}}]}]}].",
            "linkfun",
        ),
    ] {
        let text = refusal(advanced);
        assert!(
            text.contains(part) && text.contains("advanced.config"),
            "{text}"
        );
    }
}

#[test]
fn malformed_files_are_refused_with_line_and_column() {
    for (advanced, part) in [
        ("[{riak_kv,\n  [{a b}]}].", "line 2, column 7"),
        ("[{riak_kv, []}]", "line 1, column 16"),
        ("[{riak_kv, []}].\n[].", "line 2, column 1"),
        ("{riak_kv, []}.", "line 1, column 1"),
        ("[riak_kv].", "riak_kv"),
        ("[{riak_kv, 5}].", "riak_kv"),
    ] {
        let text = refusal(advanced);
        assert!(text.contains(part), "{advanced}: {text}");
    }
    // A fresh installation has files without any settings.
    assert!(load("", "[].").is_ok());
    assert!(load("", "%% nothing\n").is_ok());
}

/// Regression: a list was reported as a whole, without the members that had an effect.
#[test]
fn members_without_effect_are_named_one_by_one() {
    let advanced = "[{riak_core, [{default_bucket_props, [{n_val, 2}, \
                    {linkfun, {modfun, riak_kv_wm_link_walker, mapreduce_linkfun}}, \
                    {small_vclock, 10}, {big_vclock, 10}, {young_vclock, 10}, {old_vclock, 10}, \
                    {repl, true}, {search, true}, {search_index, <<\"i\">>}, {stat_tracked, true}, \
                    {hll_precision, 9}, {aae_tree_exclude, true}, {name, x}, {bucket_type, x}, \
                    {claimant, x}, {active, true}, {precommit, []}, {postcommit, []}, \
                    {consistent, false}, {write_once, false}, {datatype, undefined}, {what, []}]}, \
                    {job_accept_class, [{riak_kv, list_keys}, {yokozuna, query}, {riak_kv, own}]}]}].";
    let loaded = load("", advanced).unwrap();
    assert_eq!(loaded.settings.buckets.n_val, 2);
    assert!(loaded.settings.requests.jobs.list_keys);
    let mapped = outcome(&loaded, "riak_core.default_bucket_props");
    assert_eq!(
        mapped,
        Outcome::MappedTo("buckets.default.n_val".to_owned())
    );
    let members = [
        "linkfun",
        "small_vclock",
        "big_vclock",
        "young_vclock",
        "old_vclock",
        "repl",
        "search",
        "search_index",
        "stat_tracked",
        "hll_precision",
        "aae_tree_exclude",
        "name",
        "bucket_type",
        "claimant",
        "active",
        "precommit",
        "postcommit",
        "consistent",
        "write_once",
        "datatype",
        "what",
    ];
    let members = members.map(|member| format!("riak_core.default_bucket_props.{member}"));
    let classes = ["yokozuna.query", "riak_kv.own"];
    let classes = classes.map(|class| format!("riak_core.job_accept_class.{class}"));
    for name in members.iter().chain(&classes) {
        let outcome = outcome(&loaded, name);
        assert!(
            matches!(outcome, Outcome::Ignored(_)),
            "{name}: {outcome:?}"
        );
        assert!(loaded.report().contains(name), "{name}");
    }
}

#[test]
fn empty_lists_are_named() {
    let conf = "memory_backend.max_memory_per_vnode = 1GB\nbuckets.default.n_val = 5\n";
    let advanced =
        "[{riak_kv, [{memory_backend, []}]}, {riak_core, [{default_bucket_props, []}]}].";
    let loaded = load(conf, advanced).unwrap();
    assert_eq!(loaded.settings.memory.per_vnode_bytes_max, None);
    assert_eq!(loaded.settings.buckets.n_val, 3);
    for name in ["riak_kv.memory_backend", "riak_core.default_bucket_props"] {
        assert!(
            matches!(outcome(&loaded, name), Outcome::Ignored(_)),
            "{name}"
        );
    }
}

/// Regression: the function that places all objects of a bucket together was refused here, but
/// honoured as a property of a bucket.
#[test]
fn what_bucket_properties_honour_is_honoured_as_a_default_too() {
    let advanced = "[{riak_core, [{default_bucket_props, [{sync_on_write, all}, \
                    {chash_keyfun, {riak_core_util, chash_bucketonly_keyfun}}]}]}].";
    let buckets = load("", advanced).unwrap().settings.buckets;
    assert_eq!(buckets.sync_on_write, SyncOnWrite::All);
    assert_eq!(buckets.chash_keyfun, KeyFunction::BucketOnly);
    let advanced = "[{riak_core, [{default_bucket_props, [{sync_on_write, backend}, \
                    {chash_keyfun, {riak_core_util, chash_std_keyfun}}]}]}].";
    let buckets = load("", advanced).unwrap().settings.buckets;
    assert_eq!(buckets.sync_on_write, SyncOnWrite::Backend);
    assert_eq!(buckets.chash_keyfun, KeyFunction::Standard);
}

/// Regression: only strings were masked; atoms and numbers were printed.
#[test]
fn secrets_are_masked_whatever_their_form() {
    let advanced = "[{kernel, [{cookie, topsecret}, {cookies, [topsecret, 1]}]}, \
                    {riak_control, [{userlist, [{user, topsecret}]}, {auth, [{password, topsecret}]}, \
                    {passwd, 77777}, {secret, {topsecret, 77777}}]}, {riak_kv, [{x_secret, topsecret}]}].";
    let loaded = load("", advanced).unwrap();
    let report = loaded.report();
    assert!(report.contains("kernel.cookie"), "{report}");
    for secret in ["topsecret", "77777"] {
        assert!(!report.contains(secret), "{report}");
        let lines = format!("{:?}", loaded.lines);
        assert!(!lines.contains(secret), "{lines}");
    }
}

#[test]
fn several_backends_of_advanced_config_replace_those_of_riak_conf() {
    let conf = "storage_backend = bitcask\nmulti_backend.old.storage_backend = leveldb\n";
    let advanced = r#"[{riak_kv, [
        {storage_backend, riak_kv_multi_prefix_backend},
        {multi_backend_prefix_list, [{<<"0b:">>, <<"blocks">>}]},
        {multi_backend_default, <<"rest">>},
        {multi_backend, [
            {<<"blocks">>, riak_kv_bitcask_backend, [{data_root, "/var/b"}, {expiry_secs, 60}]},
            {<<"rest">>, riak_kv_eleveldb_backend, []},
            {<<"short">>, riak_kv_memory_backend, [{ttl, 5}]}
        ]}
    ]}]."#;
    let loaded = load(conf, advanced).unwrap();
    let multi = &loaded.settings.multi;
    assert_eq!(loaded.settings.node.storage_backend, StorageBackend::Multi);
    assert!(multi.goes_by_prefix);
    let engines = multi
        .backends
        .iter()
        .map(|it| it.settings.node.storage_backend);
    let engines: Vec<_> = engines.collect();
    let names: Vec<&str> = multi.backends.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["blocks", "rest", "short"]);
    use StorageBackend::{Bitcask, Leveldb, Memory};
    assert_eq!(engines, [Bitcask, Leveldb, Memory]);
    assert_eq!(multi.backends[0].bucket_prefixes, ["0b:"]);
    let seconds = std::time::Duration::from_secs;
    assert_eq!(multi.backends[0].settings.bitcask.expiry, Some(seconds(60)));
    assert_eq!(multi.backends[2].settings.memory.ttl, Some(seconds(5)));
    assert_eq!(multi.default_number(), 1);
    let none = refusal("[{riak_kv,[{storage_backend,riak_kv_multi_backend}]}].");
    assert!(
        none.contains("multi_backend.NAME.storage_backend"),
        "{none}"
    );
    let unknown = "[{riak_kv, [{multi_backend, [{<<\"b\">>, my_backend, []}]}]}].";
    assert!(refusal(unknown).contains("riak_kv.multi_backend"));
}

/// Riak uses the first prefix of its list that fits, Kvorum the longest.
#[test]
fn a_prefix_behind_one_that_fits_its_buckets_is_ignored() {
    let advanced = |list: &str| {
        format!(
            "[{{riak_kv, [{{storage_backend, riak_kv_multi_prefix_backend}}, \
             {{multi_backend_prefix_list, [{list}]}}, \
             {{multi_backend, [{{<<\"a\">>, riak_kv_bitcask_backend, []}}, \
                              {{<<\"b\">>, riak_kv_memory_backend, []}}]}}]}}]."
        )
    };
    let starts = |list: &str| {
        let loaded = load("", &advanced(list)).unwrap();
        let backends = loaded.settings.multi.backends.iter();
        let starts: Vec<_> = backends.map(|it| it.bucket_prefixes.clone()).collect();
        (starts, loaded.report())
    };
    let (behind, report) =
        starts(r#"{<<"x">>, <<"a">>}, {<<"x_y">>, <<"b">>}, {<<"x">>, <<"b">>}"#);
    assert_eq!(behind, [vec!["x".to_owned()], vec![]]);
    for name in ["(x_y)", "(x)"] {
        let name = format!("riak_kv.multi_backend_prefix_list {name}");
        let line = report.lines().find(|line| line.contains(&name)).unwrap();
        assert!(line.contains("ignored because an earlier prefix"), "{line}");
    }
    let (before, _) = starts(r#"{<<"x_y">>, <<"b">>}, {<<"x">>, <<"a">>}"#);
    assert_eq!(before, [["x"], ["x_y"]]);
    let comma = advanced(r#"{<<"x,y">>, <<"a">>}"#);
    let refused = load("", &comma).unwrap_err().to_string();
    assert!(refused.contains("prefixes that have no comma"), "{refused}");
}

#[test]
fn several_backends_that_cannot_be_are_refused() {
    let problems = |conf: &str| load(conf, "").unwrap_err().to_string();
    for (conf, part) in [
        ("storage_backend = multi", "0 backends are declared"),
        (
            "storage_backend = multi\nmulti_backend.a.bitcask.expiry = 1d",
            "`multi_backend.a.storage_backend` is not set",
        ),
        (
            "storage_backend = multi\nmulti_backend.a.storage_backend = bitcask\n\
             multi_backend.default = b",
            "`multi_backend.default` is b, and the backends are a",
        ),
        (
            "storage_backend = multi\nmulti_backend.a.storage_backend = bitcusk",
            "multi_backend.a.storage_backend",
        ),
    ] {
        assert!(problems(conf).contains(part), "{}", problems(conf));
    }
}
