//! Settings of several backends on one node: each has its effect, is named as ignored, or is refused.

use kvorum_settings::{DurabilityMode, Name, Outcome, Place, StorageBackend, lookup};

use crate::{loaded, problems};

/// The outcome of the setting with this name, of the first if there are several.
#[track_caller]
#[expect(clippy::expect_used, reason = "a test fails by panic")]
fn outcome(text: &str, name: &str) -> Outcome {
    let configuration = loaded(text);
    let line = configuration.lines.iter().find(|line| line.name == name);
    line.expect("the setting is in the report").outcome.clone()
}

/// The reason why a setting is ignored.
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panic")]
fn reason(text: &str, name: &str) -> String {
    match outcome(text, name) {
        Outcome::Ignored(reason) => reason.into_owned(),
        other => panic!("{name} is ignored, and not {other:?}"),
    }
}

#[test]
fn every_key_of_an_engine_may_stand_under_the_name_of_a_backend() {
    let configuration = loaded(
        "storage_backend = multi\n\
         multi_backend.default = fast\n\
         multi_backend.fast.storage_backend = memory\n\
         multi_backend.fast.memory_backend.ttl = 1d\n\
         multi_backend.big.storage_backend = leveldb\n\
         multi_backend.big.leveldb.maximum_memory.percent = 30\n\
         multi_backend.aged.storage_backend = bitcask\n\
         multi_backend.aged.bitcask.sync.strategy = none\n",
    );
    assert!(
        configuration
            .lines
            .iter()
            .all(|l| matches!(l.outcome, Outcome::Honoured)),
        "{}",
        configuration.report()
    );
    let multi = &configuration.settings.multi;
    let of = |name: &str| {
        let backend = multi.backends.iter().find(|it| it.name == name);
        backend.map(|it| it.settings.clone()).unwrap()
    };
    let day = std::time::Duration::from_secs(86_400);
    assert_eq!(of("fast").memory.ttl, Some(day));
    assert_eq!(of("fast").node.storage_backend, StorageBackend::Memory);
    assert_eq!(of("big").leveldb.memory_percent_max, 30);
    assert_eq!(of("aged").bitcask.sync_strategy, Some(DurabilityMode::None));
    assert_eq!(configuration.settings.memory.ttl, None);
    assert_eq!(multi.default_number(), 2);
}

/// Regression: with `storage_backend = bitcask`, the report called every setting of several
/// backends honoured.
#[test]
fn settings_of_several_backends_are_ignored_on_a_node_of_one() {
    let text = "storage_backend = bitcask\n\
                multi_backend.default = a\n\
                multi_backend.a.storage_backend = leveldb\n\
                multi_backend.a.leveldb.bloomfilter = off\n\
                multi_backend.a.bucket_prefix = a_\n";
    for name in [
        "multi_backend.default",
        "multi_backend.a.storage_backend",
        "multi_backend.a.leveldb.bloomfilter",
        "multi_backend.a.bucket_prefix",
    ] {
        assert_eq!(
            reason(text, name),
            "`storage_backend` is bitcask: several backends count with multi and prefix_multi alone"
        );
    }
    let report = loaded(text).report();
    assert!(
        report.contains("5 settings: 1 honoured, 0 mapped, 4 ignored, 0 overridden"),
        "{report}"
    );
}

#[test]
fn a_key_of_another_engine_than_its_backends_is_ignored() {
    let text = "storage_backend = multi\n\
                multi_backend.a.storage_backend = bitcask\n\
                multi_backend.a.hanoidb.top_level = 9\n\
                multi_backend.a.memory_backend.ttl = 5s\n\
                multi_backend.a.bitcask.expiry = 1d\n";
    assert_eq!(
        reason(text, "multi_backend.a.hanoidb.top_level"),
        "`multi_backend.a.storage_backend` is bitcask, to which keys of `hanoidb` mean nothing"
    );
    assert_eq!(
        reason(text, "multi_backend.a.memory_backend.ttl"),
        "`multi_backend.a.storage_backend` is bitcask, to which keys of `memory_backend` mean nothing"
    );
    assert_eq!(
        outcome(text, "multi_backend.a.bitcask.expiry"),
        Outcome::Honoured
    );
}

/// Regression: the report called them honoured, but the sizes of the first backend by name applied.
#[test]
fn sizes_of_memory_that_another_backend_gives_are_ignored() {
    let text = "storage_backend = multi\n\
                multi_backend.a.storage_backend = hanoidb\n\
                multi_backend.a.hanoidb.maximum_memory = 1GB\n\
                multi_backend.b.storage_backend = leveldb\n\
                multi_backend.b.leveldb.maximum_memory = 2GB\n\
                multi_backend.c.storage_backend = bitcask\n\
                multi_backend.c.bitcask.read_cache = 0\n\
                multi_backend.d.storage_backend = bitcask\n\
                multi_backend.d.bitcask.read_cache = 1GB\n\
                multi_backend.e.storage_backend = bitcask\n\
                multi_backend.e.bitcask.read_cache = 2GB\n\
                multi_backend.f.storage_backend = innostore\n\
                multi_backend.f.innostore.buffer_pool_size = 1GB\n";
    assert_eq!(
        reason(text, "multi_backend.b.leveldb.maximum_memory"),
        "backends of leveldb, leveled and hanoidb share one memory, whose sizes are those of the first by \
         name, `a`"
    );
    assert_eq!(
        reason(text, "multi_backend.e.bitcask.read_cache"),
        "backends of bitcask share one memory, whose sizes are those of the first by name, `d`"
    );
    for name in [
        "multi_backend.a.hanoidb.maximum_memory",
        "multi_backend.c.bitcask.read_cache",
        "multi_backend.d.bitcask.read_cache",
        "multi_backend.f.innostore.buffer_pool_size",
    ] {
        assert_eq!(outcome(text, name), Outcome::Honoured, "{name}");
    }
}

/// Regression: the report called `innostore.data_home_dir` honoured.
#[test]
fn places_of_one_of_several_backends_are_ignored() {
    for (engine, key) in [
        ("innostore", "innostore.data_home_dir"),
        ("bitcask", "bitcask.data_root"),
        ("leveldb", "leveldb.tiered.path.fast"),
    ] {
        let text = format!(
            "storage_backend = multi\nmulti_backend.a.storage_backend = {engine}\nmulti_backend.a.{key} = /x\n"
        );
        let reason = reason(&text, &format!("multi_backend.a.{key}"));
        assert!(reason.contains("are in one directory below"), "{reason}");
    }
}

#[test]
fn prefixes_of_bucket_names_count_only_with_prefix_multi() {
    let rest = "multi_backend.a.storage_backend = bitcask\nmulti_backend.a.bucket_prefix = a_\n";
    let multi = format!("storage_backend = multi\n{rest}");
    assert_eq!(
        reason(&multi, "multi_backend.a.bucket_prefix"),
        "`storage_backend` is multi, and prefixes of bucket names count only with prefix_multi"
    );
    let prefix_multi = format!("storage_backend = prefix_multi\n{rest}");
    assert_eq!(
        outcome(&prefix_multi, "multi_backend.a.bucket_prefix"),
        Outcome::Honoured
    );
    let configuration = loaded(&prefix_multi);
    assert_eq!(
        configuration.settings.multi.backends[0].bucket_prefixes,
        ["a_"]
    );
}

#[test]
fn an_empty_beginning_of_names_is_refused() {
    for value in [",", "a_,", ",a_", "a_,,b_"] {
        let found = problems(&format!(
            "storage_backend = prefix_multi\n\
             multi_backend.a.storage_backend = bitcask\n\
             multi_backend.a.bucket_prefix = {value}\n"
        ));
        assert_eq!(
            found,
            [format!(
                "bad value for `multi_backend.a.bucket_prefix` on line 3: got `{value}`, expected prefixes of \
                 bucket names, separated by commas, none of them empty, such as `tmp_, log_`"
            )]
        );
    }
}

/// Regression: both were accepted, and the first backend by name had the buckets.
#[test]
fn one_beginning_of_names_for_two_backends_is_refused_with_both_names() {
    let text = |several: &str| {
        format!(
            "storage_backend = {several}\n\
             multi_backend.a.storage_backend = bitcask\n\
             multi_backend.a.bucket_prefix = a_, x_, a_\n\
             multi_backend.b.storage_backend = leveldb\n\
             multi_backend.b.bucket_prefix = a_x, x_\n"
        )
    };
    assert_eq!(
        problems(&text("prefix_multi")),
        [
            "`multi_backend.a.bucket_prefix` and `multi_backend.b.bucket_prefix` both have `x_`: leave it \
             to one of them"
        ]
    );
    loaded(&text("multi"));
}

#[test]
fn a_later_setting_of_a_backend_wins_and_the_report_says_so() {
    let text = "storage_backend = prefix_multi\n\
                multi_backend.a.storage_backend = leveldb\n\
                multi_backend.a.hanoidb.page_size = 8KB\n\
                multi_backend.a.storage_backend = hanoidb\n\
                multi_backend.a.hanoidb.block_size = 16KB\n\
                multi_backend.b.storage_backend = bitcask\n\
                multi_backend.a.bucket_prefix = a_\n\
                multi_backend.a.bucket_prefix = b_\n";
    assert_eq!(
        outcome(text, "multi_backend.a.storage_backend"),
        Outcome::Overridden(Place::Line(4))
    );
    assert_eq!(
        outcome(text, "multi_backend.a.hanoidb.page_size"),
        Outcome::Overridden(Place::Line(5))
    );
    let configuration = loaded(text);
    assert_eq!(configuration.lines[6].outcome, Outcome::Honoured);
    assert_eq!(
        configuration.settings.multi.backends[0].bucket_prefixes,
        ["a_", "b_"]
    );
}

#[test]
fn another_name_of_a_key_is_named_with_the_backend() {
    let text = "storage_backend = multi\n\
                multi_backend.a.storage_backend = hanoidb\n\
                multi_backend.a.hanoidb.page_size = 8KB\n";
    assert_eq!(
        outcome(text, "multi_backend.a.hanoidb.page_size"),
        Outcome::MappedTo("multi_backend.a.hanoidb.block_size".to_owned())
    );
}

#[test]
fn a_misspelt_key_of_a_backend_is_refused_with_the_nearest_one() {
    assert_eq!(
        problems("multi_backend.big.leveldb.bloomfiltre = on"),
        [
            "unknown key `multi_backend.big.leveldb.bloomfiltre` on line 1, did you mean \
             `multi_backend.big.leveldb.bloomfilter`?"
        ]
    );
}

/// Regression: the message suggested `multi_backend.big.ring_size` for itself.
#[test]
fn a_key_of_the_whole_node_is_refused_under_a_backend_and_named() {
    for (key, of_node) in [
        ("multi_backend.big.ring_size = 8", "ring_size"),
        ("multi_backend.big.durability = none", "durability"),
        (
            "multi_backend.big.listener.http.internal = 127.0.0.1:1",
            "listener.http.internal",
        ),
        ("multi_backend.big.erlang.K = on", "erlang.K"),
    ] {
        let name = key.split(' ').next().unwrap();
        assert_eq!(
            problems(key),
            [format!(
                "`{name}` on line 1 is no key of a backend: `{of_node}` is for the whole node, set it under \
                 that name"
            )]
        );
    }
    let refused = loaded("").describe("multi_backend.big.ring_size");
    assert_eq!(
        refused.unwrap_err().to_string(),
        "unknown key `multi_backend.big.ring_size`, did you mean `ring_size`?"
    );
}

/// A suggestion that is unknown itself is no help.
#[test]
fn no_suggestion_is_a_name_that_is_refused() {
    for misspelt in [
        "multi_backend.big.rng_size",
        "multi_backend.big.bucket_prefx",
        "multi_backend.big.storage_backnd",
        "multi_backend.big.bitcask.expry",
        "bucket_prefix",
        "rng_size",
    ] {
        let reported = problems(&format!("{misspelt} = 1"));
        let names = reported[0].split('`').skip(1).step_by(2).skip(1);
        for name in names.filter(|it| !it.starts_with("kvorum ")) {
            let parsed = Name::parse(name).unwrap();
            assert!(lookup(&parsed).is_some(), "{}", reported[0]);
        }
    }
    assert_eq!(
        problems("multi_backend.big.bucket_prefx = 1"),
        [
            "unknown key `multi_backend.big.bucket_prefx` on line 1, did you mean \
             `multi_backend.big.bucket_prefix`?"
        ]
    );
}

/// Regression: `multi` and `prefix_multi` were suggested, but refused when used.
#[test]
fn one_of_several_backends_is_offered_engines_alone() {
    let engines = "one of bitcask, leveldb, leveled, hanoidb, innostore, memory";
    for value in ["multi", "prefix_multi", "rocksdb"] {
        assert_eq!(
            problems(&format!(
                "storage_backend = multi\nmulti_backend.a.storage_backend = {value}"
            )),
            [format!(
                "bad value for `multi_backend.a.storage_backend` on line 2: got `{value}`, expected {engines}"
            )]
        );
    }
    let about = loaded("")
        .describe("multi_backend.a.storage_backend")
        .unwrap();
    assert!(about.contains(&format!("takes     {engines}\n")), "{about}");
}
