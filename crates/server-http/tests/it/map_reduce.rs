//! MapReduce: results of jobs from every form of input, in one answer and in parts, and early ends.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, Response};
use crate::world::{Options, ROOM_BYTES, World, run, run_with};

type Headers<'a> = &'a [(&'a str, &'a str)];

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// `k00` to `k29` in the type `typed` and in none: with their numbers as values and in an index.
async fn filled(world: &World) -> Client {
    let mut client = world.client().await;
    for number in 0..30 {
        for bucket in ["/buckets/b", "/types/typed/buckets/b"] {
            let path = format!("{bucket}/keys/k{number:02}");
            let value = number.to_string();
            let headers = [
                ("Content-Type", "text/plain"),
                ("X-Riak-Index-n_int", &value),
            ];
            let stored = client.ask("PUT", &path, &headers, value.as_bytes()).await;
            assert_eq!(stored.status, 204, "{}", stored.text());
        }
    }
    client
}

fn map(function: &str) -> Value {
    json!({"map": {"language": "erlang", "module": "riak_kv_mapreduce", "function": function}})
}

fn reduce(function: &str) -> Value {
    json!({"reduce": {"language": "erlang", "module": "riak_kv_mapreduce", "function": function}})
}

async fn post(client: &mut Client, path: &str, job: &Value) -> Response {
    let body = job.to_string();
    client.ask("POST", path, &[JSON], body.as_bytes()).await
}

async fn results(client: &mut Client, inputs: Value, query: &[Value]) -> Value {
    let job = json!({"inputs": inputs, "query": query});
    let answer = post(client, "/mapred", &job).await;
    assert_eq!(answer.status, 200, "{job}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// The JSON of the parts of a stream.
fn parts(answer: &Response) -> Vec<Value> {
    let content_type = answer.header("content-type").unwrap();
    let boundary = content_type
        .strip_prefix("multipart/mixed;boundary=")
        .unwrap();
    let end = format!("\r\n--{boundary}--\r\n");
    let body = answer.text().strip_suffix(&end).unwrap();
    let between = format!("\r\n--{boundary}\r\nContent-Type: application/json\r\n\r\n");
    let pieces = body.split(&between).skip(1);
    pieces.map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn every_form_of_inputs_gives_its_objects() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let sum = [
            map("map_object_value"),
            reduce("reduce_string_to_integer"),
            reduce("reduce_sum"),
        ];
        let bucket = json!(["typed", "b"]);
        for (inputs, expected) in [
            (json!("b"), 435),
            (bucket.clone(), 435),
            (json!([["b", "k07"], ["b", "k20"]]), 27),
            (json!([["b", "k07", null, "typed"]]), 7),
            (json!({"bucket": "b", "index": "n_int", "key": 9}), 9),
            (
                json!({"bucket": bucket, "index": "n_int", "start": 1, "end": 3}),
                6,
            ),
            (
                json!({"bucket": "b", "index": "$key", "start": "k28", "end": "k99"}),
                57,
            ),
            (json!({"bucket": "b", "index": "$bucket", "key": "b"}), 435),
            (
                json!({"bucket": "b", "key_filters": [["ends_with", "9"]]}),
                57,
            ),
            (json!("nothing here"), 0),
        ] {
            let found = results(&mut client, inputs.clone(), &sum).await;
            assert_eq!(found, json!([expected]), "{inputs}");
        }
    });
}

#[test]
fn results_of_several_phases_come_together_or_in_parts() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let mut values = map("map_object_value");
        values["map"]["keep"] = json!(true);
        let query = [values, reduce("reduce_count_inputs")];
        let inputs = json!({"bucket": "b", "index": "n_int", "start": 4, "end": 6});
        let mut both = results(&mut client, inputs.clone(), &query).await;
        both[0]
            .as_array_mut()
            .unwrap()
            .sort_by_key(Value::to_string);
        assert_eq!(both, json!([["4", "5", "6"], [3]]));
        let job = json!({"inputs": inputs, "query": query});
        let answer = post(&mut client, "/mapred?chunked=true", &job).await;
        let mut of_phases = [Vec::new(), Vec::new()];
        for part in parts(&answer) {
            let phase = part["phase"].as_u64().unwrap();
            let data = part["data"].as_array().unwrap();
            of_phases[usize::try_from(phase).unwrap()].extend(data.iter().map(Value::to_string));
        }
        of_phases[0].sort();
        assert_eq!(of_phases[0], ["\"4\"", "\"5\"", "\"6\""]);
        assert_eq!(of_phases[1], ["3"]);
    });
}

#[test]
fn what_cannot_run_is_refused_in_riaks_words() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let count = json!({"inputs": "b", "query": [reduce("reduce_count_inputs")]}).to_string();
        let unknown = json!({"inputs": "b", "query": [map("nothing_here")]}).to_string();
        let long = format!("{{\"inputs\":\"{}\"}}", "b".repeat(17 << 20));
        let text = ("Content-Type", "text/plain");
        let cases: &[(&str, &str, Headers<'_>, &str, u16, &str)] = &[
            (
                "GET",
                "/mapred",
                &[],
                "",
                400,
                "This resource accepts POSTs",
            ),
            ("PUT", "/mapred", &[JSON], "{}", 405, "Not Allowed"),
            (
                "POST",
                "/mapred",
                &[JSON],
                "{",
                400,
                "The POST body was not valid JSON.",
            ),
            (
                "POST",
                "/mapred",
                &[JSON],
                "[]",
                400,
                "The POST body was not a JSON object.\n",
            ),
            (
                "POST",
                "/mapred",
                &[JSON],
                &unknown,
                400,
                "{\"phase\":0,\"error\":\"PhaseSpec",
            ),
            (
                "POST",
                "/mapred",
                &[text],
                &count,
                415,
                "Unsupported Media Type",
            ),
            (
                "POST",
                "/mapred",
                &[],
                &count,
                415,
                "Unsupported Media Type",
            ),
            (
                "POST",
                "/mapred",
                &[JSON, ("Accept", "text/plain")],
                &count,
                406,
                "",
            ),
            (
                "POST",
                "/mapred?chunked=true",
                &[JSON, ("Accept", "application/json")],
                &count,
                406,
                "",
            ),
            (
                "POST",
                "/mapred",
                &[JSON, ("Origin", "null")],
                &count,
                403,
                "",
            ),
            (
                "POST",
                "/mapred",
                &[JSON],
                &long,
                413,
                "at most 16777216 are read",
            ),
            ("POST", "/mapred", &[JSON], &count, 200, "[30]"),
        ];
        for (method, path, headers, body, status, text) in cases {
            let answer = client.ask(method, path, headers, body.as_bytes()).await;
            let context = format!("{method} {path} {headers:?}: {}", answer.text());
            assert_eq!(answer.status, *status, "{context}");
            assert!(answer.text().contains(text), "{context}");
        }
    });
}

#[test]
fn jobs_can_be_switched_off() {
    let mut options = Options::default();
    options.http.jobs.map_reduce = false;
    run_with(options, |world| async move {
        let mut client = world.client().await;
        let job = json!({"inputs": "b", "query": []});
        let answer = post(&mut client, "/mapred", &job).await;
        assert_eq!(answer.status, 403);
        assert_eq!(
            answer.text(),
            "Operation '{riak_kv,map_reduce}' is not enabled"
        );
    });
}

#[test]
fn failures_are_named_in_json() {
    run(|world| async move {
        let mut client = filled(&world).await;
        for chunked in ["", "?chunked=true"] {
            let path = format!("/mapred{chunked}");
            let missing = json!([["b", "none"]]);
            let job = json!({"inputs": missing, "query": [map("map_object_value")]});
            let answer = post(&mut client, &path, &job).await;
            assert_eq!(answer.status, 500);
            assert_eq!(answer.json()["error"], "function_clause");
            assert_eq!(answer.json()["phase"], 0);
            let job = json!({"inputs": ["no_such_type", "b"], "query": []});
            let answer = post(&mut client, &path, &job).await;
            assert_eq!(answer.status, 500);
            assert_eq!(answer.json(), json!({"error": "no_type"}));
        }
    });
}

async fn put_megabytes(client: &mut Client, count: usize) {
    let value = "v".repeat(1 << 20);
    for number in 0..count {
        client
            .put(&format!("/buckets/large/keys/{number}"), &value)
            .await;
    }
}

#[test]
fn a_job_that_holds_too_much_ends_with_the_phase_that_wanted_more() {
    run(|world| async move {
        let mut client = world.client().await;
        put_megabytes(&mut client, 70).await;
        let query = [map("map_object_value"), reduce("reduce_sort")];
        let job = json!({"inputs": "large", "query": query});
        let answer = post(&mut client, "/mapred", &job).await;
        assert_eq!(answer.status, 500);
        let failure = answer.json();
        let expected = "the job would hold more than 67108864 bytes";
        assert!(
            failure["error"].as_str().unwrap().contains(expected),
            "{failure}"
        );
        assert!(failure["phase"].is_u64(), "{failure}");
        let count = [map("map_identity"), reduce("reduce_count_inputs")];
        let counted = results(&mut client, json!("large"), &count).await;
        assert_eq!(counted, json!([70]), "and the next job runs");
    });
}

#[test]
fn a_job_is_refused_while_other_requests_take_the_memory() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let job = json!({"inputs": "b", "query": [reduce("reduce_count_inputs")]});
        let taken = world.room.take_anyway(ROOM_BYTES);
        let answer = post(&mut client, "/mapred", &job).await;
        assert_eq!((answer.status, answer.text()), (503, "overload\n"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        drop(taken);
        assert_eq!(post(&mut client, "/mapred", &job).await.json(), json!([30]));
        assert_eq!(world.room.taken_bytes(), 0);
    });
}

#[test]
fn a_stream_that_is_not_taken_in_time_ends_with_the_time_out() {
    run(|world| async move {
        let mut client = world.client().await;
        put_megabytes(&mut client, 8).await;
        let job = json!({"inputs": "large", "query": [map("map_object_value")], "timeout": 5_000});
        let body = job.to_string();
        let head = format!(
            "POST /mapred?chunked=true HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.send(head.as_bytes()).await;
        world.runtime.sleep(Duration::from_secs(6)).await;
        assert_eq!(
            world.room.taken_bytes(),
            0,
            "it is over whether or not it is looked at"
        );
        let answer = client.receive(false).await.unwrap();
        let end: String = answer.text().chars().rev().take(19).collect();
        let end: String = end.chars().rev().collect();
        assert_eq!(end, "{\"error\":\"timeout\"}");
    });
}
