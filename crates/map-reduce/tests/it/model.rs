//! Results against a model: they must not depend on pages, batches, or the order of objects.

use std::collections::BTreeSet;

use kvorum_map_reduce::Job;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::store::{Reading, Store, link, sibling};

fn map() -> Value {
    json!({"map": {"language": "erlang", "module": "riak_kv_mapreduce",
        "function": "map_object_value", "arg": "filter_notfound"}})
}

fn reduce(function: &str, batch: usize) -> Value {
    let argument = if batch == 0 {
        json!({"reduce_phase_only_1": true})
    } else {
        json!({"reduce_phase_batch_size": batch})
    };
    json!({"reduce": {"language": "erlang", "module": "riak_kv_mapreduce",
        "function": function, "arg": argument}})
}

/// The objects `0`, `1`, ... with these numbers as values; each links to the next.
fn store(values: &[i64]) -> Store {
    let mut store = Store::default();
    for (key, value) in values.iter().enumerate() {
        let mut object = sibling(&value.to_string());
        object.links = vec![link("b", &(key + 1).to_string(), "next")];
        store.put("", "b", &key.to_string(), vec![object]);
    }
    store
}

fn answer(store: &Store, query: &[Value], reading: Reading) -> Value {
    let body = json!({"inputs": "b", "query": query}).to_string();
    let job = Job::from_json(body.as_bytes()).unwrap();
    serde_json::from_str(&store.answer(job, reading).unwrap()).unwrap()
}

fn numbers(answer: &Value) -> Vec<i64> {
    let number = |it: &Value| match it {
        Value::String(text) => text.parse().unwrap(),
        other => other.as_i64().unwrap(),
    };
    answer.as_array().unwrap().iter().map(number).collect()
}

fn sorted(mut numbers: Vec<i64>) -> Vec<i64> {
    numbers.sort_unstable();
    numbers
}

fn readings() -> impl Strategy<Value = Reading> {
    (1_usize..50, any::<bool>(), 1_usize..80).prop_map(|(page_keys, last_first, at_a_time)| {
        Reading {
            page_keys,
            last_first,
            at_a_time,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn results_are_those_of_the_model(
        values in prop::collection::vec(-50_i64..50, 0..150),
        reading in readings(),
        batch in 0_usize..30,
    ) {
        let store = store(&values);
        let to_number = reduce("reduce_string_to_integer", batch);
        let through = |query: &[Value]| numbers(&answer(&store, query, reading));
        let reduced = |function: &str| through(&[map(), to_number.clone(), reduce(function, batch)]);

        prop_assert_eq!(sorted(through(&[map()])), sorted(values.clone()));
        prop_assert_eq!(reduced("reduce_sum"), vec![values.iter().sum::<i64>()]);
        prop_assert_eq!(reduced("reduce_sort"), sorted(values.clone()));
        let distinct: BTreeSet<i64> = values.iter().copied().collect();
        prop_assert_eq!(sorted(reduced("reduce_set_union")), distinct.into_iter().collect::<Vec<_>>());
        let count = i64::try_from(values.len()).unwrap();
        prop_assert_eq!(through(&[reduce("reduce_count_inputs", batch)]), vec![count]);
        let links = json!({"link": {"tag": "next"}});
        let linked = values.get(1..).unwrap_or_default().to_vec();
        prop_assert_eq!(sorted(through(&[links, map()])), sorted(linked));
    }

    #[test]
    fn kept_phases_are_all_there(values in prop::collection::vec(0_i64..50, 1..50), reading in readings()) {
        let mut mapped = map();
        mapped["map"]["keep"] = Value::Bool(true);
        let query = [mapped, reduce("reduce_count_inputs", 3)];
        let both = answer(&store(&values), &query, reading);
        prop_assert_eq!(sorted(numbers(&both[0])), sorted(values.clone()));
        prop_assert_eq!(both[1].clone(), json!([values.len()]));
    }
}
