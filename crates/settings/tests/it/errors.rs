//! Messages to operators about a file with errors.

use kvorum_settings::{Configuration, Outcome};

use crate::problems;

#[test]
fn an_unknown_key_is_reported_with_its_line_and_the_nearest_name() {
    let text = "\n".repeat(11) + "bitcask.sync.stategy = none";
    assert_eq!(
        problems(&text),
        ["unknown key `bitcask.sync.stategy` on line 12, did you mean `bitcask.sync.strategy`?"]
    );
}

#[test]
fn tiers_want_a_level_there_is_and_two_directories() {
    assert_eq!(
        problems("storage_backend = leveldb\nleveldb.tiered = 7"),
        [
            "bad value for `leveldb.tiered` on line 2: got `7`, expected `off` or a whole number from 1 to 6"
        ]
    );
    assert_eq!(
        problems("storage_backend = leveldb\nleveldb.tiered = 5\nleveldb.tiered.path.fast = /fast"),
        [
            "`leveldb.tiered = 5` wants `leveldb.tiered.path.slow`: set it to a directory of the slow \
          device, or `leveldb.tiered = off`"
        ]
    );
    let one = "storage_backend = leveldb\nleveldb.tiered = 5\nleveldb.data_root = /data\n\
               leveldb.tiered.path.fast = /fast\nleveldb.tiered.path.slow = /fast/";
    let reported = problems(one);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("lead to /fast/data and /fast/data"),
        "{reported:?}"
    );
}

#[test]
fn the_nearest_name_keeps_the_free_word() {
    assert_eq!(
        problems("listner.http.public = 127.0.0.1:8098"),
        [
            "unknown key `listner.http.public` on line 1, did you mean `listener.http.public` or \
          `listener.https.public`?"
        ]
    );
}

#[test]
fn a_name_without_its_front_words_is_still_recognised() {
    let reported = problems("sync.strategy = none");
    assert!(
        reported[0].contains("`bitcask.sync.strategy`"),
        "{reported:?}"
    );
    let reported = problems("n_val = 3");
    assert!(
        reported[0].contains("`buckets.default.n_val`"),
        "{reported:?}"
    );
}

#[test]
fn a_name_near_to_nothing_is_reported_without_a_guess() {
    assert_eq!(
        problems("wholly_different_thing = 1"),
        ["unknown key `wholly_different_thing` on line 1; `kvorum describe` lists all keys"]
    );
}

#[test]
fn a_bad_value_is_reported_with_what_was_expected() {
    for (line, expected) in [
        ("ring_size = 63", "a power of two from 1 to 4096"),
        ("ring_size = many", "a power of two from 1 to 4096"),
        (
            "protobuf.nagle = yes",
            "on or off (also true, false, enabled, disabled)",
        ),
        (
            "object.size.maximum = 5XB",
            "a size such as 4096, 5MB or 1GB, at least 1",
        ),
        (
            "bitcask.expiry = never",
            "`off` or a duration above zero such as 10s, 1h or 500ms (a bare number is seconds)",
        ),
        (
            "bitcask.merge.triggers.fragmentation = 101",
            "a percentage from 0 to 100",
        ),
        (
            "listener.http.internal = localhost:80",
            "ip:port such as 127.0.0.1:8087 or [::1]:8087, or `off`",
        ),
        ("durability = sometimes", "one of grouped, interval, none"),
        (
            "storage_backend = rocksdb",
            "one of bitcask, leveldb, leveled, hanoidb, innostore, memory, multi, prefix_multi",
        ),
        (
            "buckets.default.r = most",
            "`one`, `quorum`, `all` or a count from 1 to 1024",
        ),
        (
            "nodename = riak",
            "name@host without spaces, such as kvorum@127.0.0.1",
        ),
    ] {
        let (key, value) = line.split_once(" = ").unwrap_or_default();
        assert_eq!(
            problems(line),
            [format!(
                "bad value for `{key}` on line 1: got `{value}`, expected {expected}"
            )]
        );
    }
}

#[test]
fn a_bad_value_under_a_name_of_riaks_is_reported_under_that_name() {
    assert_eq!(
        problems("log.console = nowhere"),
        [
            "bad value for `log.console` on line 1: got `nowhere`, expected one of off, console, \
          file, both"
        ]
    );
}

#[test]
fn everything_is_reported_at_once_in_the_order_of_the_file() {
    let text = "ring_size = 7\nno line at all\nrnig_size = 8\ninclude other.conf\n\
                bitcask.data_root = $(nothing)/x\n";
    let reported = problems(text);
    assert_eq!(reported.len(), 5);
    for (line, problem) in reported.iter().enumerate() {
        assert!(problem.contains(&format!("line {}", line + 1)), "{problem}");
    }
    let together = crate::load(text).map_err(|problems| problems.to_string());
    assert_eq!(together.err().map(|text| text.lines().count()), Some(5));
}

#[test]
fn references_that_stand_for_nothing_are_reported() {
    assert_eq!(
        problems(
            "platform_data_dir = $(platform_log_dir)\nplatform_log_dir = $(platform_data_dir)"
        )
        .len(),
        2
    );
    assert_eq!(
        problems("bitcask.data_root = $(bitcask.sync.strategy)"),
        ["`bitcask.data_root` on line 1 refers to `$(bitcask.sync.strategy)`, which has no value"]
    );
}

#[test]
fn an_option_that_is_wrong_is_reported_as_one() {
    let reported = |option: &str| {
        Configuration::load("", &[option])
            .map_err(|problems| problems.to_string())
            .err()
    };
    assert_eq!(
        reported("ring_siez=8").as_deref(),
        Some("unknown key `ring_siez` given with --set, did you mean `ring_size`?")
    );
    assert_eq!(
        reported("ring_size").as_deref(),
        Some("cannot read `ring_size` given with --set: expected `key=value`")
    );
}

#[test]
fn values_that_do_not_go_together_are_reported() {
    for (text, reported) in [
        (
            "buckets.default.n_val = 2\nbuckets.default.pr = 3",
            "`buckets.default.pr` is 3, more than the 2 replicas of `buckets.default.n_val`",
        ),
        (
            "listener.http.internal = 127.0.0.1:8087",
            "`listener.protobuf.internal` and `listener.http.internal` both ask for 127.0.0.1:8087",
        ),
        (
            "buckets.default.last_write_wins = true\nbuckets.default.merge_strategy = 2",
            "`buckets.default.last_write_wins = true` does not go with \
             `buckets.default.merge_strategy = 2`: set the strategy to 1",
        ),
        (
            "value_log.bytes_max = 100MB",
            "`value_log.bytes_max` is 100MB, which is less than two segments of 64MB \
             (`value_log.segment_bytes`)",
        ),
    ] {
        assert_eq!(problems(text), [reported]);
    }
}

/// Clients, HTTP and other nodes each have their port, even if one of them listens on all
/// addresses.
#[test]
fn r18_listeners_that_overlap_are_refused_by_name() {
    let everywhere = |text: &str| problems(text).join("; ");
    for (first, second) in [
        ("protobuf.internal", "peer.internal"),
        ("http.internal", "peer.internal"),
        ("http.internal", "http.other"),
    ] {
        for (one, other) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("10.0.0.1", "0.0.0.0"),
            ("[::]", "127.0.0.1"),
            ("[::]", "0.0.0.0"),
            ("[::]", "[::1]"),
        ] {
            let text = format!("listener.{first} = {one}:9\nlistener.{second} = {other}:9");
            let reported = everywhere(&text);
            for name in [first, second] {
                assert!(
                    reported.contains(&format!("`listener.{name}`")),
                    "{reported}"
                );
            }
            assert!(reported.contains(":9"), "{reported}");
            let text = format!("listener.{first} = {one}:9\nlistener.{second} = {other}:10");
            assert!(crate::load(&text).is_ok(), "{text}");
        }
        // Two addresses of one machine are two listeners.
        let text = format!("listener.{first} = 10.0.0.1:9\nlistener.{second} = 10.0.0.2:9");
        assert!(crate::load(&text).is_ok(), "{text}");
        let text = format!("listener.{first} = 0.0.0.0:9\nlistener.{second} = [::1]:9");
        assert!(crate::load(&text).is_ok(), "{text}");
    }
}

#[test]
fn listeners_may_share_port_zero() {
    let text = "listener.http.internal = 127.0.0.1:0\nlistener.protobuf.internal = 127.0.0.1:0";
    assert!(crate::load(text).is_ok());
}

#[test]
fn objects_larger_than_a_request_are_a_warning() {
    let configuration = crate::loaded("object.size.maximum = 200MB");
    assert_eq!(configuration.warnings.len(), 2);
    assert!(configuration.warnings[0].contains("protobuf.frame_bytes_max"));
    assert!(configuration.report().contains("warning"));
}

/// Regression: a riak.conf of a machine outside UTC caused merges at other hours, without a
/// warning.
#[test]
fn a_merge_window_in_which_hours_count_is_a_warning() {
    let window = "bitcask.merge.policy = window\n";
    let hours = "bitcask.merge.window.start = 22\nbitcask.merge.window.end = 4\n";
    let warned = crate::loaded(&format!("{window}{hours}"));
    let [warning] = &warned.warnings[..] else {
        unreachable!("{:?}", warned.warnings);
    };
    assert!(warning.contains("from 22:00 to 4:59 is UTC"), "{warning}");
    assert!(warned.report().contains(warning));
    let low = "storage_backend = leveled\nleveled.compaction_low_hour = 20\n";
    let warned = crate::loaded(low);
    assert!(
        warned.warnings[0].contains("from 20:00 to 23:59 is UTC"),
        "{:?}",
        warned.warnings
    );
    let all_day = "bitcask.merge.window.start = 5\nbitcask.merge.window.end = 4\n";
    for text in [
        window.to_owned(),
        hours.to_owned(),
        format!("{window}{all_day}"),
        format!("{window}{hours}storage_backend = leveldb\n"),
    ] {
        assert_eq!(crate::loaded(&text).warnings, [] as [&str; 0], "{text}");
    }
}

/// Regression: hooks in riak.conf were ignored, so objects were stored that Riak would have refused
/// or changed. The same hooks in advanced.config or as a property of a bucket were refused.
#[test]
fn commit_hooks_in_riak_conf_are_refused_unless_there_are_none() {
    for key in ["precommit", "postcommit"] {
        let reported = crate::problems(&format!("buckets.default.{key} = my_module:my_function"));
        assert!(
            reported[0].contains(&format!(
                "`buckets.default.{key}` on line 1 cannot be honoured"
            )),
            "{reported:?}"
        );
        for nothing in ["", "''", "\"\"", "[]"] {
            let loaded = crate::loaded(&format!("buckets.default.{key} = {nothing}"));
            let outcome = &loaded.lines[0].outcome;
            assert!(matches!(outcome, Outcome::Ignored(_)), "{outcome:?}");
            let set = [format!("buckets.default.{key}={nothing}")];
            assert!(Configuration::load("", &set).is_ok(), "{nothing}");
        }
    }
    // Other keys need a value as before.
    assert!(crate::load("buckets.default.r =").is_err());
}
