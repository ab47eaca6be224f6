//! `kvorum import riak-multi`: a partition that a node of Riak 3.2.3 with three backends wrote, brought into a
//! server with the same three.
//!
//! `contents.json` has for each key of the partition its type, its bucket, the key in hexadecimal, and its
//! values in hexadecimal as that node answered them; for counters and data types, only the value,
//! as JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvorum_client::{Client, Get, GetOptions};
use serde_json::Value;

use crate::leveldb::http;
use crate::server::Site;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/riak-3.2-multi");
const ENGINES: [&str; 3] = ["bitcask", "leveldb", "leveled"];
/// The types of the node, with the backend and the data type that each has there.
const TYPES: [(&str, &str, Option<&str>); 8] = [
    ("fx_bitcask", "bc", None),
    ("fx_counter", "ldb", Some("counter")),
    ("fx_gset", "lvl", Some("gset")),
    ("fx_hll", "ldb", Some("hll")),
    ("fx_leveldb_mult", "ldb", None),
    ("fx_map", "lvl", Some("map")),
    ("fx_mult", "lvl", None),
    ("fx_set", "bc", Some("set")),
];

/// A server with that node's configuration, and the node's data in `riak`.
fn site() -> Site {
    let mut site = Site::new();
    site.settings = [
        "storage_backend=multi",
        "multi_backend.bc.storage_backend=bitcask",
        "multi_backend.ldb.storage_backend=leveldb",
        "multi_backend.lvl.storage_backend=leveled",
        "multi_backend.default=ldb",
        "leveldb.maximum_memory=64MB",
        "buckets.default.n_val=1",
    ]
    .map(str::to_owned)
    .to_vec();
    copy(Path::new(FIXTURE), &site.path().join("riak"));
    site
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(&source, &target),
            false => drop(std::fs::copy(source, target).unwrap()),
        }
    }
}

fn create_types(site: &Site) {
    for (name, backend, data_type) in TYPES {
        let mut properties = serde_json::json!({ "backend": backend });
        if let Some(data_type) = data_type {
            properties["datatype"] = data_type.into();
        }
        let properties = serde_json::json!({ "props": properties }).to_string();
        let create = ["admin", "bucket-type", "create", name, &properties];
        let activate = ["admin", "bucket-type", "activate", name];
        for words in [&create[..], &activate[..]] {
            let output = site.run(words);
            assert!(output.status.success(), "{output:?}");
        }
    }
}

/// The import's counts by engine; nothing is left out.
fn import(site: &Site, directories: &[&str]) -> BTreeMap<String, Value> {
    let words = [&["import", "riak-multi", "--json"][..], directories].concat();
    let output = site.run(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summaries: BTreeMap<String, Value> = serde_json::from_slice(&output.stdout).unwrap();
    let counts = summaries
        .into_iter()
        .map(|(engine, it)| (engine, it["counts"].clone()));
    counts.collect()
}

/// A key, and its node's answer.
struct Answer {
    bucket_type: String,
    bucket: String,
    key: Vec<u8>,
    content: Content,
}

enum Content {
    /// Sorted, without tombstones.
    Values(Vec<Vec<u8>>),
    DataType(Value),
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16));
    pairs.collect::<Result<_, _>>().unwrap()
}

fn answers() -> Vec<Answer> {
    let contents = std::fs::read(PathBuf::from(FIXTURE).join("contents.json")).unwrap();
    let contents: Vec<Value> = serde_json::from_slice(&contents).unwrap();
    let answers = contents.iter().map(|object| {
        let part = |number: usize| object[number].as_str().unwrap().to_owned();
        let content = match object[3].as_array() {
            Some(values) => Content::Values(live_values(values)),
            None => Content::DataType(object[3]["value"].clone()),
        };
        Answer {
            bucket_type: part(0),
            bucket: part(1),
            key: bytes_of(&part(2)),
            content,
        }
    });
    answers.collect()
}

fn live_values(values: &[Value]) -> Vec<Vec<u8>> {
    let live = values.iter().filter_map(Value::as_str);
    let mut values: Vec<Vec<u8>> = live.filter(|it| *it != "(deleted)").map(bytes_of).collect();
    values.sort();
    // Siblings that differ in nothing but their time are one version here.
    values.dedup();
    values
}

async fn values(client: &mut Client, answer: &Answer) -> Vec<Vec<u8>> {
    let is_typed = answer.bucket_type != "default";
    let get = Get {
        bucket_type: is_typed.then_some(answer.bucket_type.as_bytes()),
        bucket: answer.bucket.as_bytes(),
        key: &answer.key,
        options: &GetOptions::default(),
    };
    let reply = client.get(&get).await.unwrap();
    let live = reply
        .content
        .into_iter()
        .filter(|it| it.deleted != Some(true));
    let mut values: Vec<Vec<u8>> = live.map(|it| it.value.to_vec()).collect();
    values.sort();
    values
}

/// The value of a data type, or of a counter of Riak 1.4 if the bucket has no type.
fn data_type(site: &Site, answer: &Answer) -> Value {
    let Answer {
        bucket_type,
        bucket,
        key,
        ..
    } = answer;
    let key = String::from_utf8_lossy(key);
    let path = match bucket_type.as_str() {
        "default" => format!("/buckets/{bucket}/counters/{key}"),
        _ => format!("/types/{bucket_type}/buckets/{bucket}/datatypes/{key}"),
    };
    let (_, body) = http(site, &format!("GET {path}"), "");
    let found: Value = serde_json::from_str(&body).unwrap();
    match found.get("value") {
        Some(value) => value.clone(),
        None => found,
    }
}

async fn assert_all_there(site: &Site) {
    let mut client = site.client().await;
    for answer in answers() {
        let Answer {
            bucket_type,
            bucket,
            key,
            content,
        } = &answer;
        let name = format!("{bucket_type}/{bucket}/{}", String::from_utf8_lossy(key));
        match content {
            Content::Values(expected) => {
                assert_eq!(&values(&mut client, &answer).await, expected, "{name}");
            }
            Content::DataType(expected) => {
                assert_eq!(&data_type(site, &answer), expected, "{name}");
            }
        }
    }
}

/// Keys with objects of each engine, which are in the backends of the same names in Riak.
fn assert_counts(counts: &BTreeMap<String, Value>) {
    let keys: Vec<(&str, u64)> = counts
        .iter()
        .map(|(engine, it)| (&**engine, it["keys"].as_u64().unwrap()))
        .collect();
    assert_eq!(keys, [("bitcask", 34), ("leveldb", 56), ("leveled", 36)]);
    for (engine, counts) in counts {
        assert_eq!(counts["unreadable"], 0, "{engine}");
    }
}

#[tokio::test]
async fn a_node_with_several_backends_is_imported_by_one_command_into_the_same() {
    let site = site();
    let server = site.start();
    create_types(&site);
    assert_counts(&import(&site, &["riak"]));
    assert_all_there(&site).await;
    let (status, body) = http(&site, "GET /buckets/alpha_idx/index/age_int/99", "");
    assert!(status.contains("200"), "{status}: {body}");
    assert_eq!(body, "{\"keys\":[\"i00\"]}");
    server.stop();
    let _server = site.start();
    assert_all_there(&site).await;
}

/// A directory of one backend's stores has none of the others', whose imports must still find
/// theirs.
#[tokio::test]
async fn directories_of_single_backends_are_imported_by_the_same_command() {
    let site = site();
    let _server = site.start();
    create_types(&site);
    let roots = ENGINES.map(|engine| format!("riak/{engine}"));
    let roots: Vec<&str> = roots.iter().map(|it| &**it).collect();
    assert_counts(&import(&site, &roots));
    assert_all_there(&site).await;
}

#[test]
fn a_directory_without_stores_of_any_backend_is_refused_by_name() {
    let site = site();
    std::fs::create_dir(site.path().join("empty")).unwrap();
    let output = site.run(&["import", "riak-multi", "--dry-run", "riak", "empty"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("empty"), "{printed}");
}
