//! Hostile jobs: all are refused, fail or end, and nothing panics.

use kvorum_map_reduce::Job;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::store::{PLAIN, Store, link, sibling};

/// Values of all kinds, among them names and texts with a meaning in jobs.
fn values() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "b",
        "k",
        "t",
        "_",
        "erlang",
        "javascript",
        "riak_kv_mapreduce",
        "map_object_value",
        "map_identity",
        "reduce_sum",
        "reduce_sort",
        "reduce_plist_sum",
        "reduce_identity",
        "eq",
        "matches",
        "tokenize",
        "and",
        "not",
        "n_int",
        "$key",
        "include_notfound",
        "include_keydata",
        "\u{e9}\"\\\n",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "map",
        "reduce",
        "link",
        "bucket",
        "key",
        "start",
        "end",
        "index",
        "key_filters",
        "keep",
        "language",
        "module",
        "function",
        "arg",
        "source",
        "tag",
        "sub",
        "x",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let members = prop::collection::vec((names.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(Value::from),
            members.prop_map(|it| it.into_iter().collect::<Value>()),
        ]
    })
}

fn store() -> Store {
    let mut store = Store::default();
    let mut linked = sibling("7");
    linked.links = vec![link("b", "k", "t"), link("b", "none", "k")];
    store.put("", "b", "k", vec![linked]);
    store.put("t", "b", "k", vec![sibling("x"), sibling("y")]);
    store
}

fn run(body: &[u8]) {
    match Job::from_json(body) {
        Err(refusal) => {
            let answer = refusal.http();
            assert!(!answer.body.is_empty());
            assert!(!refusal.protocol_buffers().is_empty());
            if answer.content_type == "application/json" {
                serde_json::from_str::<Value>(&answer.body).unwrap();
            }
        }
        Ok(job) => match store().answer(job, PLAIN) {
            Ok(answer) => drop(serde_json::from_str::<Value>(&answer).unwrap()),
            Err(failure) => drop(serde_json::from_str::<Value>(&failure.json()).unwrap()),
        },
    }
}

/// A valid phase, with some value in each place.
fn phases() -> impl Strategy<Value = Value> {
    let functions = prop::sample::select(vec![
        ("map", "map_identity"),
        ("map", "map_object_value"),
        ("map", "map_object_value_list"),
        ("reduce", "reduce_identity"),
        ("reduce", "reduce_set_union"),
        ("reduce", "reduce_sort"),
        ("reduce", "reduce_string_to_integer"),
        ("reduce", "reduce_sum"),
        ("reduce", "reduce_plist_sum"),
        ("reduce", "reduce_count_inputs"),
        ("link", ""),
    ]);
    let arguments = prop_oneof![
        values(),
        Just(json!("include_notfound")),
        values().prop_map(|it| json!({ "sub": it })),
        values().prop_map(|it| json!({ "sub": [it.clone(), it] })),
        (0..3).prop_map(|it| json!({ "reduce_phase_batch_size": it })),
    ];
    (functions, arguments, any::<bool>()).prop_map(|((kind, function), argument, keep)| {
        json!({ kind: {
            "language": "erlang", "module": "riak_kv_mapreduce", "function": function,
            "arg": argument, "keep": keep,
        }})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn bytes_are_no_danger(body in prop::collection::vec(any::<u8>(), 0..200)) {
        run(&body);
    }

    #[test]
    fn values_in_the_wrong_places_are_no_danger(inputs in values(), query in values()) {
        run(json!({ "inputs": inputs, "query": query }).to_string().as_bytes());
    }

    #[test]
    fn filters_and_key_data_are_no_danger(
        filters in prop::collection::vec(prop::collection::vec(values(), 0..4), 1..4),
        data in values(),
        phases in prop::collection::vec(phases(), 0..4),
    ) {
        let filtered = json!({ "bucket": "b", "key_filters": filters });
        run(json!({ "inputs": filtered, "query": phases }).to_string().as_bytes());
        let keys = json!([["b", "k", data], ["b", "none", data], ["b", "k", data, "t"]]);
        run(json!({ "inputs": keys, "query": phases }).to_string().as_bytes());
        let keys = json!([["b", "none", data]]);
        run(json!({ "inputs": keys, "query": phases }).to_string().as_bytes());
    }
}

#[test]
fn deep_and_long_jobs_are_no_danger() {
    let deep = "[".repeat(100_000);
    run(deep.as_bytes());
    run(format!("{{\"inputs\":{deep}").as_bytes());
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    run(format!("{{\"inputs\":{nested},\"query\":[]}}").as_bytes());
    let filter = format!("{}[[\"eq\",1]]{}", "[[\"not\",".repeat(50), "]]".repeat(50));
    run(
        format!("{{\"inputs\":{{\"bucket\":\"b\",\"key_filters\":{filter}}},\"query\":[]}}")
            .as_bytes(),
    );
    let long = vec!["[\"b\"]"; 100_000].join(",");
    run(format!("{{\"inputs\":5,\"query\":[{long}]}}").as_bytes());
    run(format!("{{\"inputs\":[[[{long}]]],\"query\":[]}}").as_bytes());
}
