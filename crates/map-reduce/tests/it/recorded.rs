//! Recorded jobs of a node of Riak 3.2.3, and the node's answers.
//!
//! A failure of Riak's own process has no answer to compare: the job has to fail here too.

use std::collections::BTreeMap;

use kvorum_map_reduce::{Failure, Job, ObjectSibling};
use serde_json::Value;

use crate::store::{PLAIN, Reading, Store, link, sibling};

const BUCKET: &str = "b_abcdef";
const JOBS: &str = include_str!("../fixtures/riak-3.2/jobs.jsonl");
const REFUSALS_PB: &str = include_str!("../fixtures/riak-3.2/refusals_pb.jsonl");

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|it| serde_json::from_str(it).unwrap())
}

/// The objects at this step of the recording.
fn store_at(step: usize) -> Store {
    let mut store = Store::default();
    for number in 0..8 {
        let key = format!("k{number}");
        let value = if number == 7 && step > 121 {
            String::new()
        } else {
            (number * number).to_string()
        };
        store.put("", BUCKET, &key, vec![sibling(&value)]);
        store.index("", BUCKET, ("n_int", number.to_string(), key.clone()));
        store.index(
            "",
            BUCKET,
            ("s_bin", format!("s{}", number % 3), key.clone()),
        );
        if number < 3 {
            store.put("tr_plain", BUCKET, &key, vec![sibling(&value)]);
            store.index("tr_plain", BUCKET, ("n_int", number.to_string(), key));
        }
    }
    if step > 74 {
        let links = vec![link(BUCKET, "k1", "a"), link(BUCKET, "k2", "b")];
        let value = "links".to_string().into();
        store.put("", BUCKET, "l1", vec![ObjectSibling { value, links }]);
    }
    store.put("tr_mult", BUCKET, "s", vec![sibling("one"), sibling("two")]);
    store
}

/// Status and body of the answer.
fn answered(store: &Store, body: &str, reading: Reading) -> (u16, String) {
    let job = match Job::from_json(body.as_bytes()) {
        Ok(job) => job,
        Err(refusal) => {
            let answer = refusal.http();
            return (answer.status, answer.body);
        }
    };
    match store.answer(job, reading) {
        Ok(answer) => (200, answer),
        Err(failure) => (500, failure.json()),
    }
}

fn without_order(value: &Value) -> Value {
    match value {
        Value::Array(elements) => {
            let mut elements: Vec<Value> = elements.iter().map(without_order).collect();
            elements.sort_by_key(Value::to_string);
            Value::Array(elements)
        }
        other => other.clone(),
    }
}

fn comparable(recorded: &Value, body: &str) -> Result<Value, String> {
    let Ok(mut value) = serde_json::from_str::<Value>(body) else {
        return Err(body.to_string());
    };
    for name in recorded["volatile"].as_array().into_iter().flatten() {
        if let Some(member) = value.get_mut(name.as_str().unwrap()) {
            *member = Value::Null;
        }
    }
    if recorded["ordered"] == Value::Bool(true) {
        return Ok(value);
    }
    Ok(without_order(&value))
}

#[test]
fn recorded_jobs_get_riaks_answers() {
    let mut different = Vec::new();
    for recorded in lines(JOBS).filter(|it| it.get("chunks").is_none()) {
        let id = recorded["id"].as_str().unwrap();
        let store = store_at(id[id.len() - 3..].parse().unwrap());
        let (status, body) = answered(&store, recorded["job"].as_str().unwrap(), PLAIN);
        let wanted = recorded["status"].as_u64().unwrap();
        let same = match recorded["body"].as_str() {
            None => status >= 400,
            Some(text) => {
                u64::from(status) == wanted
                    && comparable(&recorded, text) == comparable(&recorded, &body)
            }
        };
        if !same {
            let text = &recorded["body"];
            different.push(format!(
                "{id} ({})\n wanted {wanted} {text}\n got {status} {body:?}",
                recorded["why"]
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn recorded_streams_have_the_same_results_in_each_phase() {
    for recorded in lines(JOBS).filter(|it| it.get("chunks").is_some()) {
        let id = recorded["id"].as_str().unwrap();
        let store = store_at(id[id.len() - 3..].parse().unwrap());
        let job = Job::from_json(recorded["job"].as_str().unwrap().as_bytes()).unwrap();
        let mut got: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for output in store.outputs(job, PLAIN).unwrap() {
            let results: Vec<Value> = serde_json::from_str(&output.json().unwrap()).unwrap();
            let of_phase = got.entry(output.phase as u64).or_default();
            of_phase.extend(results.iter().map(Value::to_string));
        }
        let mut wanted: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for chunk in recorded["chunks"].as_array().unwrap() {
            let of_phase = wanted.entry(chunk["phase"].as_u64().unwrap()).or_default();
            of_phase.extend(
                chunk["data"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(Value::to_string),
            );
        }
        got.values_mut()
            .chain(wanted.values_mut())
            .for_each(|it| it.sort());
        assert_eq!(got, wanted, "{id}");
    }
}

#[test]
fn recorded_refusals_have_riaks_text_over_protocol_buffers() {
    for recorded in lines(REFUSALS_PB) {
        let refusal = Job::from_json(recorded["job"].as_str().unwrap().as_bytes()).unwrap_err();
        assert_eq!(
            refusal.protocol_buffers(),
            recorded["refusal"].as_str().unwrap(),
            "{}",
            recorded["id"]
        );
    }
}

#[test]
fn failures_name_their_phase() {
    let job = |query: &str| {
        let body = format!(r#"{{"inputs":[["{BUCKET}","k1"]],"query":{query}}}"#);
        Job::from_json(body.as_bytes()).unwrap()
    };
    let identity =
        r#"[{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_identity"}}]"#;
    let failure = store_at(0).answer(job(identity), PLAIN).unwrap_err();
    assert!(
        matches!(failure, Failure::NoForm { phase: 0, .. }),
        "{failure}"
    );
    let source = r#"[{"link":{"tag":"none"}},{"map":{"language":"erlang","source":"fun(_,_,_) -> [] end."}}]"#;
    assert_eq!(store_at(0).answer(job(source), PLAIN).unwrap(), "[]");
}
