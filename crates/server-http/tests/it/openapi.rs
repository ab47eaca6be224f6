//! The description of the interface: it is served, and answers agree with it.

use serde_json::Value;

use crate::client::{Client, Response};
use crate::world::run;

type Header = (&'static str, &'static str);

/// Values for each query parameter: some are valid, some are not.
const VALUES: [&str; 4] = ["true", "stream", "0", "x"];

/// Headers that change the answer.
const HEADERS: [Header; 12] = [
    ("Accept", "image/png"),
    ("Accept", "multipart/mixed"),
    ("Accept", "text/plain"),
    ("Content-MD5", "x"),
    ("If-Match", "\"x\""),
    ("If-None-Match", "*"),
    ("Origin", "null"),
    ("Range", "bytes=0-1"),
    ("Referer", "http://elsewhere/"),
    ("X-Kvorum-TTL", "x"),
    ("X-Riak-If-Not-Modified", ""),
    ("X-Riak-Vclock", "?"),
];

/// A MapReduce job.
const JOB: &str = concat!(
    r#"{"inputs":[["b","k"]],"query":[{"map":{"language":"erlang","#,
    r#""module":"riak_kv_mapreduce","function":"map_object_value"}}]}"#
);

/// Types and texts of bodies, beside the one that a resource accepts.
const BODIES: [Header; 8] = [
    ("text", "1"),
    ("text/plain", "x"),
    ("application/json", ""),
    ("application/json", "[]"),
    ("application/json", r#"{"props":{"n_val":"x"}}"#),
    ("application/json", r#"{"remove":"absent"}"#),
    ("application/json", r#"{"inputs":"b","query":[{}]}"#),
    (
        "application/json",
        r#"{"inputs":{"bucket":"b","key_filters":[["unknown"]]},"query":[]}"#,
    ),
];

#[test]
fn the_description_is_served() {
    run(|world| async move {
        let mut client = world.client().await;
        let answer = client.get("/openapi.json").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.json()["openapi"], "3.1.0");
        let head = client.ask("HEAD", "/openapi.json", &[], b"").await;
        assert_eq!(head.status, 200);
        let posted = client.ask("POST", "/openapi.json", &[], b"").await;
        assert_eq!(
            (posted.status, posted.header("allow")),
            (405, Some("GET, HEAD"))
        );
    });
}

#[test]
fn every_answer_has_a_status_and_a_media_type_that_are_described() {
    run(|world| async move {
        let mut client = world.client().await;
        let document = client.get("/openapi.json").await.json();
        for operation in operations(&document) {
            for path in paths(operation.template) {
                for request in requests(&operation, &path) {
                    let answer = request.answer(&mut client, &operation.method).await;
                    let asked = format!("{} {request:?}", operation.method);
                    check(&document, operation.responses, &answer, &asked);
                }
            }
        }
    });
}

/// A method of a path.
struct Operation<'a> {
    method: String,
    template: &'a str,
    /// The names of its query parameters.
    query: Vec<&'a str>,
    responses: &'a Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    for (template, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().iter();
        for (method, operation) in methods.filter(|(name, _)| *name != "parameters") {
            operations.push(Operation {
                method: method.to_uppercase(),
                template,
                query: query_parameters(document, item, operation),
                responses: &operation["responses"],
            });
        }
    }
    operations
}

fn query_parameters<'a>(
    document: &'a Value,
    item: &'a Value,
    operation: &'a Value,
) -> Vec<&'a str> {
    let lists = [item, operation].map(|it| it["parameters"].as_array());
    let parameters = lists.into_iter().flatten().flatten();
    let parameters = parameters.map(|it| resolved(document, it));
    let query = parameters.filter(|it| it["in"] == "query");
    query.map(|it| it["name"].as_str().unwrap()).collect()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref") {
        Some(reference) => {
            let pointer = reference.as_str().unwrap().strip_prefix('#');
            document.pointer(pointer.unwrap()).unwrap()
        }
        None => value,
    }
}

/// The paths of a template: with a bucket type of each kind, if it has one.
fn paths(template: &str) -> Vec<String> {
    let bucket_types: &[&str] = match template.contains("{bucket_type}") {
        true => &["typed", "sets", "default", "unknown"],
        false => &[""],
    };
    let path = |bucket_type: &&str| {
        let pieces = template.split(['{', '}']);
        pieces.map(|it| named(it, bucket_type)).collect()
    };
    bucket_types.iter().map(path).collect()
}

/// A value for the parameter of this name; anything else stays.
fn named<'a>(piece: &'a str, bucket_type: &'a str) -> &'a str {
    match piece {
        "bucket_type" => bucket_type,
        "bucket" => "b",
        "key" => "k",
        "field" => "n_int",
        "first" | "last" | "keep" | "limit" => "1",
        "size" => "small",
        "linked_bucket" | "tag" => "_",
        piece => piece,
    }
}

#[derive(Clone, Debug)]
struct Request {
    target: String,
    header: Option<Header>,
    content: Option<Header>,
}

impl Request {
    async fn answer(&self, client: &mut Client, method: &str) -> Response {
        let (content_type, body) = self.content.unzip();
        let content_type = content_type.map(|it| ("Content-Type", it));
        let headers: Vec<Header> = self.header.into_iter().chain(content_type).collect();
        let body = body.unwrap_or_default().as_bytes();
        client.ask(method, &self.target, &headers, body).await
    }
}

/// Requests for an operation, each with one difference from the first.
fn requests(operation: &Operation<'_>, path: &str) -> Vec<Request> {
    // Without this one, a listing of buckets is refused.
    let needed = match operation.query.contains(&"buckets") {
        true => "buckets=true",
        false => "",
    };
    let takes_body = matches!(operation.method.as_str(), "PUT" | "POST");
    let plain = Request {
        target: format!("{path}?{needed}"),
        header: None,
        content: takes_body.then_some(("application/json", taken_body(path))),
    };
    let mut requests = vec![plain.clone()];
    for name in &operation.query {
        requests.extend(VALUES.map(|value| Request {
            target: format!("{path}?{name}={value}&{needed}"),
            ..plain.clone()
        }));
    }
    requests.extend(HEADERS.map(|header| Request {
        header: Some(header),
        ..plain.clone()
    }));
    if takes_body {
        let bodies = BODIES.map(Some).into_iter().chain([None]);
        requests.extend(bodies.map(|content| Request {
            content,
            ..plain.clone()
        }));
    }
    requests
}

/// A body that the resource accepts.
fn taken_body(path: &str) -> &'static str {
    if path.ends_with("/props") || path == "/riak/b" {
        r#"{"props":{}}"#
    } else if path.contains("/datatypes") {
        r#"{"add":"a"}"#
    } else if path == "/mapred" {
        JOB
    } else {
        "1"
    }
}

/// Checks that the answer's status is described, with its media type or the lack of one.
fn check(document: &Value, responses: &Value, answer: &Response, asked: &str) {
    let text = String::from_utf8_lossy(&answer.body);
    let described = &responses[answer.status.to_string()];
    assert!(!described.is_null(), "{asked}: {} {text}", answer.status);
    let media_type = answer.header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default();
    match resolved(document, described)["content"].as_object() {
        Some(content) => assert!(
            content.contains_key(media_type) || content.contains_key("*/*"),
            "{asked}: {} {media_type}",
            answer.status
        ),
        // A value under a new key is in the answer if the client asks for it.
        None => assert!(
            answer.body.is_empty() || answer.status == 201,
            "{asked}: {} {text}",
            answer.status
        ),
    }
}
