//! The table: defaults, layers, JSON, and every reason for a refusal.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::function::ModuleFunction;

fn read(value: Value) -> Result<PropertyOverlay, PropertyErrors> {
    PropertyOverlay::from_json(&object(value))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is not an object"),
    }
}

#[test]
fn untyped_and_typed_defaults_are_riaks() {
    let untyped = Value::Object(BucketProperties::untyped_defaults().to_json());
    let expected = json!({
        "n_val": 3, "r": "quorum", "w": "quorum", "dw": "quorum", "pr": 0, "pw": 0, "rw": "quorum",
        "node_confirms": 0, "sync_on_write": "backend", "basic_quorum": false, "notfound_ok": true,
        "allow_mult": false, "last_write_wins": false, "dvv_enabled": false,
        "young_vclock": 20, "old_vclock": 86400, "small_vclock": 50, "big_vclock": 50,
        "precommit": [], "postcommit": [],
        "chash_keyfun": {"mod": "riak_core_util", "fun": "chash_std_keyfun"},
        "linkfun": {"mod": "riak_kv_wm_link_walker", "fun": "mapreduce_linkfun"},
        "repl": true, "write_once": false,
    });
    assert_eq!(untyped, expected);
    let typed = BucketProperties::typed_defaults();
    assert!(typed.allow_mult && typed.dvv_enabled);
    let back = BucketProperties {
        allow_mult: false,
        dvv_enabled: false,
        repl: Some(Replication::On),
        write_once: Some(false),
        ..typed
    };
    assert_eq!(back, BucketProperties::untyped_defaults());
}

#[test]
fn layers_nearer_to_the_bucket_win() {
    let defaults = BucketProperties::typed_defaults();
    let of_type = read(json!({"n_val": 5, "r": 1, "pr": 2, "backend": "b"})).unwrap();
    let of_bucket = read(json!({"r": "all", "backend": "c"})).unwrap();
    let resolved = defaults.with(&of_type).with(&of_bucket);
    assert_eq!(resolved.n_val, 5);
    assert_eq!(resolved.r, Quorum::All);
    assert_eq!(resolved.pr, Quorum::Number(2));
    assert_eq!(resolved.w, Quorum::Quorum);
    assert_eq!(resolved.backend.as_deref(), Some("c"));
    assert_eq!(defaults.with(&of_type.with(&of_bucket)), resolved);
}

/// Each quorum property has the same effect from either layer: one omitted in a merge would not.
#[test]
fn every_property_reaches_the_result_from_every_layer() {
    let all = json!({
        "n_val": 2, "r": 2, "w": 2, "dw": 0, "pr": 1, "pw": 1, "rw": 2, "node_confirms": 2,
        "sync_on_write": "all", "basic_quorum": true, "notfound_ok": false, "allow_mult": true,
        "last_write_wins": true, "dvv_enabled": true, "young_vclock": 1, "old_vclock": 2,
        "small_vclock": 3, "big_vclock": 4, "precommit": [{"mod": "m", "fun": "f"}],
        "postcommit": [{"name": "js"}],
        "chash_keyfun": {"mod": "riak_core_util", "fun": "chash_bucketonly_keyfun"},
        "linkfun": {"jsanon": "function(){}"}, "datatype": "hll", "hll_precision": 9,
        "consistent": true, "write_once": true, "backend": "b", "object_tag": "h",
        "expiry_secs": 60, "search": true, "search_index": "i", "repl": "realtime",
        "stat_tracked": true, "aae_tree_exclude": true,
    });
    let expected = object(all);
    assert_eq!(expected.len(), PropertyOverlay::NAMES.len());
    let overlay = PropertyOverlay::from_json(&expected).unwrap();
    assert_eq!(
        Value::Object(overlay.to_json()),
        Value::Object(expected.clone())
    );
    let nothing = PropertyOverlay::default();
    for merged in [overlay.with(&nothing), nothing.with(&overlay)] {
        assert_eq!(merged, overlay);
        let resolved = BucketProperties::untyped_defaults()
            .with(&merged)
            .with(&nothing);
        assert_eq!(
            Value::Object(resolved.to_json()),
            Value::Object(expected.clone())
        );
    }
}

#[test]
fn every_bad_property_is_reported_with_its_reason() {
    let errors = read(json!({
        "n_val": 0, "allow_mult": "maybe", "r": 0, "w": "most", "pr": 0, "dw": -1, "rw": "default",
        "sync_on_write": "none", "old_vclock": "old", "hll_precision": 17, "datatype": "tree",
        "chash_keyfun": {"mod": "my", "fun": "own"}, "precommit": [{"mod": "m"}], "backend": "",
        "colour": "red", "notfound_ok": "false", "basic_quorum": 1, "name": "b", "active": true,
    }))
    .unwrap_err();
    let mut pairs: Vec<_> = errors
        .pairs
        .iter()
        .map(|(name, reason)| (name.as_str(), reason.text().into_owned()))
        .collect();
    pairs.sort_unstable();
    let precision = Reason::Precision("17".to_owned()).text().into_owned();
    let expected = [
        ("allow_mult", "not_boolean"),
        ("backend", "not_string"),
        ("chash_keyfun", "not_supported"),
        ("colour", "unknown_property"),
        (
            "datatype",
            "tree not supported for bucket datatype property",
        ),
        ("dw", "not_valid_quorum"),
        ("hll_precision", &precision),
        ("n_val", "not_integer"),
        ("old_vclock", "not_integer"),
        ("precommit", "not_function"),
        ("r", "not_valid_quorum"),
        ("rw", "not_valid_quorum"),
        ("sync_on_write", "not_valid_sync_param"),
        ("w", "not_valid_quorum"),
    ];
    assert_eq!(pairs, expected.map(|(name, text)| (name, text.to_owned())));
}

#[test]
fn booleans_are_words_in_any_case_and_integers_too() {
    let multiple = |value: Value| read(json!({ "allow_mult": value })).map(|it| it.allow_mult);
    for yes in [
        json!(true),
        json!("true"),
        json!("TRUE"),
        json!(1),
        json!(7),
    ] {
        assert_eq!(multiple(yes), Ok(Some(true)));
    }
    for no in [json!(false), json!("False"), json!(0), json!(-3)] {
        assert_eq!(multiple(no), Ok(Some(false)));
    }
    for bad in [json!("yes"), json!(null), json!(1.5), json!([true])] {
        assert_eq!(
            multiple(bad),
            Err(PropertyErrors::one("allow_mult", Reason::NotBoolean))
        );
    }
}

#[test]
fn a_hyperloglog_has_a_precision() {
    let created = |value: Value| BucketProperties::typed_defaults().with(&read(value).unwrap());
    assert_eq!(created(json!({"datatype": "hll"})).hll_precision, Some(14));
    let chosen = created(json!({"datatype": "hll", "hll_precision": 9}));
    assert_eq!(chosen.hll_precision, Some(9));
    assert_eq!(created(json!({"datatype": "set"})).hll_precision, None);
}

#[test]
fn an_expiry_is_a_whole_number_of_seconds_and_0_takes_it_back() {
    let of_type = read(json!({"expiry_secs": 60})).unwrap();
    let of_bucket = read(json!({"expiry_secs": 0})).unwrap();
    let typed = BucketProperties::typed_defaults().with(&of_type);
    assert_eq!(typed.expiry_secs(), Some(60));
    assert_eq!(typed.with(&of_bucket).expiry_secs(), None);
    assert_eq!(BucketProperties::untyped_defaults().expiry_secs(), None);
    for bad in [
        json!(-1),
        json!(0.5),
        json!("60"),
        json!(true),
        json!(1u64 << 32),
    ] {
        let refused = read(json!({ "expiry_secs": bad }));
        let reason = PropertyErrors::one("expiry_secs", Reason::NotInteger);
        assert_eq!(refused, Err(reason), "{bad}");
    }
}

#[test]
fn only_one_kind_of_bucket_keeps_siblings() {
    let keeps = |value: Value| {
        let overlay = read(value).unwrap();
        BucketProperties::typed_defaults()
            .with(&overlay)
            .keeps_siblings()
    };
    assert!(keeps(json!({})));
    assert!(!keeps(json!({"allow_mult": false})));
    assert!(!keeps(
        json!({"last_write_wins": true, "dvv_enabled": false})
    ));
    assert!(!keeps(json!({"write_once": true})));
}

#[test]
fn n_val_is_a_whole_positive_number() {
    for bad in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!("3"),
        json!(null),
        json!(1u64 << 40),
    ] {
        let refused = read(json!({ "n_val": bad }));
        assert_eq!(
            refused,
            Err(PropertyErrors::one("n_val", Reason::NotInteger)),
            "{bad}"
        );
    }
}

#[test]
fn values_from_other_sources_are_checked_too() {
    let overlay = PropertyOverlay {
        n_val: Some(0),
        r: Some(Quorum::Number(0)),
        ..Default::default()
    };
    assert_eq!(overlay.check_values().unwrap_err().pairs.len(), 2);
    assert_eq!(PropertyOverlay::default().check_values(), Ok(()));
}

#[test]
fn hooks_keep_their_forms_and_order() {
    let hooks = json!([{"name": "a"}, {"mod": "m", "fun": "f"}, {"name": "b"}]);
    let overlay = read(json!({ "precommit": hooks })).unwrap();
    let precommit = overlay.precommit.as_ref().unwrap();
    assert_eq!(
        precommit[1],
        CommitHook::Module(ModuleFunction::new("m", "f"))
    );
    assert_eq!(overlay.to_json()["precommit"], hooks);
}

#[test]
fn validators_are_read_from_hooks_and_keep_their_form() {
    let hooks = json!([
        {"mod": "kvorum", "fun": "max_bytes:10"},
        {"mod": "kvorum", "fun": "nothing"},
        {"mod": "m", "fun": "json"},
        {"mod": "kvorum", "fun": "json_schema:{\"type\": \"object\"}"},
    ]);
    let overlay = read(json!({ "precommit": hooks })).unwrap();
    assert_eq!(overlay.to_json()["precommit"], hooks);
    let properties = BucketProperties::typed_defaults().with(&overlay);
    let verdicts = |value: &[u8]| {
        let checked = properties.validators().map(|it| it.check(value, b""));
        checked.map(|it| it.is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(b"{}"), [true, true]);
    assert_eq!(verdicts(b"[1]"), [true, false]);
    assert_eq!(verdicts(b"{\"a\": 12345}"), [false, true]);
}

#[test]
fn replication_reads_booleans_and_words() {
    let repl = |value: Value| read(json!({ "repl": value })).unwrap().repl.unwrap();
    assert_eq!(repl(json!(true)), Replication::On);
    assert_eq!(repl(json!("true")), Replication::On);
    assert_eq!(repl(json!("both")), Replication::Both);
    assert_eq!(repl(json!(false)), Replication::Off);
    assert_eq!(repl(json!("fullsync")), Replication::Fullsync);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["one", "quorum", "all", "true", "backend", "set"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("mod|fun|name|jsfun", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_accepted_reads_back_the_same(
        values in prop::collection::vec((0..PropertyOverlay::NAMES.len(), any_json()), 0..6),
    ) {
        let named = |(at, value): (usize, Value)| (PropertyOverlay::NAMES[at].to_owned(), value);
        if let Ok(overlay) = PropertyOverlay::from_json(&values.into_iter().map(named).collect()) {
            prop_assert_eq!(overlay.check_values(), Ok(()));
            prop_assert_eq!(PropertyOverlay::from_json(&overlay.to_json()), Ok(overlay));
        }
    }
}
