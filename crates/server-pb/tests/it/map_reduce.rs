//! MapReduce: results in messages of their phase, jobs in both forms, and how they end early.

use bytes::Bytes;
use kvorum_client::pb;
use kvorum_erlang_terms::external_term::Term;
use kvorum_protocol::request::PutOptions;
use serde_json::{Value, json};

use crate::node::{Node, RawConnection, bytes, encoded, error_text, put, text_content, with_node};

const JSON: &str = "application/json";
const TERMS: &str = "application/x-erlang-binary";

/// `k0` to `k5`, with their numbers as values and in an index.
async fn fill(node: &Node) {
    let mut client = node.client().await;
    for (number, value) in ["0", "1", "2", "3", "4", "5"].into_iter().enumerate() {
        let content = pb::RpbContent {
            indexes: vec![pb::RpbPair {
                key: bytes("n_int"),
                value: Some(bytes(value)),
            }],
            ..text_content(value)
        };
        let (key, options) = (format!("k{number}"), PutOptions::default());
        put(&mut client, None, Some(&key), None, &content, &options)
            .await
            .unwrap();
    }
}

/// The messages of an answer, or its error.
async fn ask(
    connection: &mut RawConnection,
    request: impl Into<Bytes>,
    content_type: &'static str,
) -> Result<Vec<pb::RpbMapRedResp>, String> {
    let request = pb::RpbMapRedReq {
        request: request.into(),
        content_type: bytes(content_type),
    };
    connection.send(&encoded(&request)).await;
    let mut messages = Vec::new();
    loop {
        let frame = connection.receive().await.unwrap();
        if frame.code.0 == 0 {
            return Err(error_text(&frame));
        }
        let message: pb::RpbMapRedResp = frame.decode().unwrap();
        if message.done == Some(true) {
            assert_eq!((message.phase, message.response), (None, None));
            return Ok(messages);
        }
        messages.push(message);
    }
}

/// The results of each phase in order, as texts.
fn results(messages: &[pb::RpbMapRedResp]) -> Vec<(u32, String)> {
    let mut results = Vec::new();
    for message in messages {
        let list: Vec<Value> = serde_json::from_slice(message.response.as_ref().unwrap()).unwrap();
        assert!(!list.is_empty(), "no message is empty but the last");
        let phase = message.phase.unwrap();
        results.extend(list.iter().map(|it| (phase, it.to_string())));
    }
    results.sort();
    results
}

fn phase(kind: &str, function: &str) -> Value {
    json!({kind: {"language": "erlang", "module": "riak_kv_mapreduce", "function": function,
        "keep": true}})
}

#[test]
fn results_come_in_messages_of_their_phase() {
    with_node(|node| async move {
        fill(&node).await;
        let mut connection = node.raw().await;
        let query = [
            phase("map", "map_object_value"),
            phase("reduce", "reduce_string_to_integer"),
            phase("reduce", "reduce_sum"),
        ];
        let inputs = json!({"bucket": "b", "index": "n_int", "start": 2, "end": 4});
        let job = json!({"inputs": inputs, "query": query}).to_string();
        let messages = ask(&mut connection, job, JSON).await.unwrap();
        let expected = [
            (0, "\"2\""),
            (0, "\"3\""),
            (0, "\"4\""),
            (1, "2"),
            (1, "3"),
            (1, "4"),
            (2, "9"),
        ];
        let expected = expected.map(|(phase, text)| (phase, text.to_owned()));
        assert_eq!(results(&messages), expected);
    });
}

#[test]
fn what_cannot_run_is_refused_and_the_connection_goes_on() {
    with_node(|node| async move {
        fill(&node).await;
        let mut connection = node.raw().await;
        let keys = json!([["b", "none"]]);
        let missing = json!({"inputs": keys, "query": [phase("map", "map_object_value")]});
        let unknown = json!({"inputs": "b", "query": [phase("map", "nothing_here")]});
        let count = json!({"inputs": "b", "query": [phase("reduce", "reduce_count_inputs")]});
        let refused = [
            (missing.to_string(), JSON, "\"error\":\"function_clause\""),
            (
                unknown.to_string(),
                JSON,
                "Phase 0: PhaseSpec specifies riak_kv_mapreduce:nothing_here/3, which is not exported",
            ),
            ("{\"inputs\":\"b\"}".to_owned(), JSON, "missing_field"),
            (count.to_string(), TERMS, "badarg"),
            (
                count.to_string(),
                "text/xml",
                "{unknown_content_type,<<\"text/xml\">>}",
            ),
        ];
        for (job, content_type, text) in refused {
            let error = ask(&mut connection, job, content_type).await.unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        let messages = ask(&mut connection, count.to_string(), JSON).await.unwrap();
        assert_eq!(results(&messages), [(0, "6".to_owned())]);
    });
}

fn atom(name: &'static str) -> Term {
    Term::Atom(bytes(name))
}

fn pair(name: &'static str, value: Term) -> Term {
    Term::Tuple(vec![atom(name), value])
}

fn term_phase(kind: &'static str, function: &'static str) -> Term {
    let call = vec![atom("modfun"), atom("riak_kv_mapreduce"), atom(function)];
    Term::Tuple(vec![
        atom(kind),
        Term::Tuple(call),
        atom("none"),
        atom("true"),
    ])
}

#[test]
fn jobs_as_terms_get_terms() {
    with_node(|node| async move {
        fill(&node).await;
        let mut connection = node.raw().await;
        let place = vec![Term::Binary(bytes("b")), Term::Binary(bytes("k4"))];
        let inputs = Term::List(vec![Term::Tuple(place)], None);
        let query = vec![
            term_phase("map", "map_object_value"),
            term_phase("reduce", "reduce_string_to_integer"),
        ];
        let query = Term::List(query, None);
        let job = Term::List(vec![pair("inputs", inputs), pair("query", query)], None);
        let messages = ask(&mut connection, job.encode(), TERMS).await.unwrap();
        let decoded = |at: usize| {
            let message = &messages[at];
            let term = Term::decode(message.response.as_ref().unwrap()).unwrap();
            (message.phase, term)
        };
        let value = Term::List(vec![Term::Binary(bytes("4"))], None);
        assert_eq!(decoded(0), (Some(0), value));
        assert_eq!(decoded(1), (Some(1), Term::Text(bytes("\u{4}"))));
        assert_eq!(messages.len(), 2);
    });
}
