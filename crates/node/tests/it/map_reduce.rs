//! MapReduce and link walking on a running server, over both protocols.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bytes::{Bytes, BytesMut};
use kvorum_client::{Put, PutOptions, pb};
use kvorum_protocol::frame::{self, FrameDecoder};
use serde_json::{Value, json};

use crate::server::Site;

/// More than a page of an index.
const KEYS: u32 = 2_500;

fn site() -> Site {
    let mut site = Site::new();
    site.settings = vec![
        "storage_backend=leveldb".to_owned(),
        "buckets.default.allow_mult=false".to_owned(),
    ];
    site
}

/// Each key's value and index entry is its number, and it links to the next one.
async fn fill(site: &Site) {
    let mut client = site.client().await;
    for number in 0..KEYS {
        let text = |number: u32| Bytes::from(number.to_string());
        let content = pb::RpbContent {
            value: text(number),
            content_type: Some("text/plain".into()),
            links: vec![pb::RpbLink {
                bucket: Some("b".into()),
                key: Some(text(number + 1)),
                tag: Some("next".into()),
            }],
            indexes: vec![pb::RpbPair {
                key: "n_int".into(),
                value: Some(text(number)),
            }],
            ..Default::default()
        };
        let put = Put {
            bucket_type: None,
            bucket: b"b",
            key: Some(&text(number)),
            vclock: None,
            content: &content,
            options: &PutOptions::default(),
        };
        client.put(&put).await.unwrap();
    }
}

fn phase(kind: &str, function: &str) -> Value {
    json!({kind: {"language": "erlang", "module": "riak_kv_mapreduce", "function": function}})
}

fn sum(inputs: &Value) -> String {
    let query = [
        phase("map", "map_object_value"),
        phase("reduce", "reduce_string_to_integer"),
        phase("reduce", "reduce_sum"),
    ];
    json!({"inputs": inputs, "query": query}).to_string()
}

/// An answer: its head and its body, which is not chunked if its length is known.
fn http(site: &Site, request: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(site.http).unwrap();
    let (len, head) = (body.len(), "Host: h\r\nConnection: close\r\n");
    write!(
        stream,
        "{request} HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The results of each message over protocol buffers, up to the last one; or an error.
fn protobuf(site: &Site, job: &str) -> Result<Vec<Value>, String> {
    let mut stream = TcpStream::connect(site.protobuf).unwrap();
    let request = pb::RpbMapRedReq {
        request: Bytes::copy_from_slice(job.as_bytes()),
        content_type: "application/json".into(),
    };
    let mut buffer = BytesMut::new();
    frame::encode(&request, &mut buffer).unwrap();
    stream.write_all(&buffer).unwrap();
    buffer.clear();
    let (decoder, mut results, mut read) = (FrameDecoder::new(u32::MAX), Vec::new(), [0; 4096]);
    loop {
        let Some(frame) = decoder.decode(&mut buffer).unwrap() else {
            let count = stream.read(&mut read).unwrap();
            assert!(count > 0, "closed within an answer");
            buffer.extend_from_slice(&read[..count]);
            continue;
        };
        if frame.code.0 == 0 {
            let error: pb::RpbErrorResp = frame.decode().unwrap();
            return Err(String::from_utf8(error.errmsg.to_vec()).unwrap());
        }
        let message: pb::RpbMapRedResp = frame.decode().unwrap();
        match message.response {
            Some(response) => results.push(serde_json::from_slice(&response).unwrap()),
            None => {
                assert_eq!(message.done, Some(true));
                return Ok(results);
            }
        }
    }
}

#[tokio::test]
async fn jobs_and_walks_run_over_both_protocols_before_and_after_a_restart() {
    let site = site();
    let mut server = site.start();
    fill(&site).await;
    let all: u32 = (0..KEYS).sum();
    for _ in 0..2 {
        for (inputs, expected) in [
            (json!("b"), all),
            (
                json!({"bucket": "b", "index": "n_int", "start": 0, "end": KEYS}),
                all,
            ),
            (
                json!({"bucket": "b", "index": "$key", "start": "12", "end": "12z"}),
                (120..130).chain(1_200..1_300).chain([12]).sum(),
            ),
            (
                json!({"bucket": "b", "key_filters": [["ends_with", "499"]]}),
                499 + 1_499 + 2_499,
            ),
            (json!([["b", "7"], ["b", "35"]]), 42),
        ] {
            let job = sum(&inputs);
            let (head, body) = http(&site, "POST /mapred", &job);
            assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
            assert_eq!(body, format!("[{expected}]"), "{inputs}");
            assert_eq!(
                protobuf(&site, &job).unwrap(),
                [json!([expected])],
                "{inputs}"
            );
        }
        let (head, body) = http(&site, "GET /buckets/b/keys/3/_,next,1/_,_,_", "");
        assert!(head.contains("multipart/mixed"), "{head}");
        let values: Vec<&str> = ["\r\n\r\n4\r\n--", "\r\n\r\n5\r\n--"].into();
        assert!(values.iter().all(|it| body.contains(it)), "{body}");
        server.stop();
        server = site.start();
    }
}

#[tokio::test]
async fn a_stream_has_a_part_for_some_results_and_failures_are_named() {
    let site = site();
    let _server = site.start();
    fill(&site).await;
    let values = json!({"inputs": "b", "query": [phase("map", "map_object_value")]}).to_string();
    let (head, body) = http(&site, "POST /mapred?chunked=true", &values);
    assert!(head.contains("multipart/mixed;boundary="), "{head}");
    let parts = body.matches("{\"phase\":0,\"data\":[").count();
    assert!(parts > 10, "{parts} parts");
    let messages = protobuf(&site, &values).unwrap();
    let results: usize = messages.iter().map(|it| it.as_array().unwrap().len()).sum();
    assert_eq!(results, KEYS as usize);
    assert!(messages.len() > 10);
    let missing = json!({"inputs": [["b", "none"]], "query": [phase("map", "map_object_value")]});
    let expected = r#"{"phase":0,"error":"function_clause","input":"{{error,notfound},{<<\"b\">>,<<\"none\">>},undefined}","type":"error","stack":"[]"}"#;
    let (head, body) = http(&site, "POST /mapred", &missing.to_string());
    assert!(head.starts_with("HTTP/1.1 500"), "{head}");
    assert_eq!(body, expected);
    assert_eq!(
        protobuf(&site, &missing.to_string()),
        Err(expected.to_owned())
    );
    let slow =
        json!({"inputs": "b", "query": [phase("map", "map_object_value")], "timeout": 0.001});
    let (head, body) = http(&site, "POST /mapred", &slow.to_string());
    assert!(head.starts_with("HTTP/1.1 500"), "{head}");
    assert_eq!(body, r#"{"error":"timeout"}"#);
    assert_eq!(
        protobuf(&site, &slow.to_string()),
        Err("timeout".to_owned())
    );
}

#[tokio::test]
async fn bitcask_runs_jobs_over_buckets_and_refuses_those_over_an_index() {
    let mut site = Site::new();
    site.settings = vec!["storage_backend=bitcask".to_owned()];
    let _server = site.start();
    fill(&site).await;
    let all: u32 = (0..KEYS).sum();
    assert_eq!(protobuf(&site, &sum(&json!("b"))).unwrap(), [json!([all])]);
    let indexed = sum(&json!({"bucket": "b", "index": "n_int", "key": 1}));
    let (head, body) = http(&site, "POST /mapred", &indexed);
    assert!(head.starts_with("HTTP/1.1 500"), "{head}");
    assert!(body.contains("indexes_not_supported"), "{body}");
}
