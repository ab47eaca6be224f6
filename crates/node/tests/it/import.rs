//! `kvorum import riak-bitcask` into real servers, read back over protocol buffers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use kvorum_client::{Client, Get, GetOptions, Put, PutOptions, pb};
use serde_json::Value;

use crate::basho::{CaskFile, WRITTEN_AT, key, old_key, typed_key};
use crate::riak_objects::{dotted, object_v0, object_v1, plain};
use crate::server::Site;

/// Writes a data file of a partition below `riak`, with its hint file.
fn write(site: &Site, partition: u32, id: u32, file: &CaskFile) {
    let index = crate::partitions::partition(partition);
    let directory = site.path().join(format!("riak/{index}"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(format!("{id}.bitcask.data")), &file.data).unwrap();
    std::fs::write(directory.join(format!("{id}.bitcask.hint")), file.hint()).unwrap();
}

/// Objects of both versions, a deleted key, siblings, and replicas that differ.
fn small_source(site: &Site) {
    let mut first = CaskFile::default();
    let one = object_v1(&[("a", 1)], &[plain("one")]);
    first.put_at(&key("b", "v1"), &one, WRITTEN_AT + 60);
    first.put(
        &old_key("b", "v0"),
        &object_v0(&[("a", 1)], &[plain("zero")]),
    );
    first.put(&key("b", "gone"), &object_v1(&[("a", 1)], &[plain("gone")]));
    first.delete(&key("b", "gone"), 2);
    let siblings = [dotted("x", "a", 1), dotted("y", "b", 1)];
    let clock = [("a", 1), ("b", 1)];
    first.put(&key("b", "siblings"), &object_v1(&clock, &siblings));
    let mut second = CaskFile::default();
    second.put(&key("b", "v1"), &object_v1(&[("a", 1)], &[plain("one")]));
    let newer = object_v1(&[("a", 1), ("c", 1)], &[dotted("newer", "c", 1)]);
    second.put(&old_key("b", "v0"), &newer);
    write(site, 0, 1, &first);
    write(site, 1, 1, &second);
}

fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn get(client: &mut Client, bucket_type: Option<&[u8]>, key: &str) -> pb::RpbGetResp {
    let get = Get {
        bucket_type,
        bucket: b"b",
        key: key.as_bytes(),
        options: &GetOptions::default(),
    };
    client.get(&get).await.unwrap()
}

fn values(reply: &pb::RpbGetResp) -> Vec<&[u8]> {
    let mut values: Vec<&[u8]> = reply
        .content
        .iter()
        .map(|content| &content.value[..])
        .collect();
    values.sort_unstable();
    values
}

async fn assert_small_source(client: &mut Client) {
    let reply = get(client, None, "v1").await;
    let [content] = &reply.content[..] else {
        unreachable!("{reply:?}");
    };
    assert_eq!(content.value, "one");
    assert_eq!(content.content_type.as_deref(), Some(&b"text/plain"[..]));
    assert_eq!(
        (content.last_mod(), content.last_mod_usecs()),
        (1_700_123_456, 42)
    );
    assert_eq!(values(&get(client, None, "v0").await), [b"newer"]);
    assert_eq!(values(&get(client, None, "siblings").await), [b"x", b"y"]);
    assert!(get(client, None, "gone").await.content.is_empty());
}

async fn put(client: &mut Client, key: &str, value: &'static str, vclock: Option<Bytes>) {
    let content = pb::RpbContent {
        value: Bytes::from_static(value.as_bytes()),
        ..Default::default()
    };
    let put = Put {
        bucket_type: None,
        bucket: b"b",
        key: Some(key.as_bytes()),
        vclock: vclock.as_deref(),
        content: &content,
        options: &PutOptions::default(),
    };
    client.put(&put).await.unwrap();
}

#[tokio::test]
async fn a_stopped_node_has_the_objects_when_it_starts() {
    let site = Site::new();
    small_source(&site);
    let output = site.run(&["import", "riak-bitcask", "riak", "--json"]);
    let counts = &summary(&output)["counts"];
    assert_eq!(counts["objects"], 3);
    assert_eq!(counts["keys_deleted"], 1);
    assert_eq!(counts["equal_copies"], 1);
    assert_eq!(counts["merged_objects"], 1);
    let _server = site.start();
    assert_small_source(&mut site.client().await).await;
}

#[tokio::test]
async fn a_running_node_takes_them_in_and_its_clients_writes_count_as_newer() {
    let site = Site::new();
    small_source(&site);
    let _server = site.start();
    let to = site.protobuf.to_string();
    let words = ["import", "riak-bitcask", "riak", "--json", "--to", &to];
    summary(&site.run(&words));
    let mut client = site.client().await;
    assert_small_source(&mut client).await;

    // With the vclock of an imported object a client replaces it; without, it makes a sibling.
    let vclock = get(&mut client, None, "siblings").await.vclock;
    put(&mut client, "siblings", "resolved", vclock).await;
    put(&mut client, "v1", "blind", None).await;
    let again = [&words[..], &["--restart"]].concat();
    summary(&site.run(&again));
    assert_eq!(
        values(&get(&mut client, None, "siblings").await),
        [b"resolved"]
    );
    assert_eq!(
        values(&get(&mut client, None, "v1").await),
        [&b"blind"[..], b"one"]
    );

    // The configuration names the running node as well.
    let words = ["import", "riak-bitcask", "riak", "--state", "other"];
    assert!(site.run(&words).status.success());
}

#[tokio::test]
async fn typed_buckets_wait_for_their_types_and_losses_show_in_the_exit_code() {
    let site = Site::new();
    let _server = site.start();
    let mut file = CaskFile::default();
    file.put(
        &typed_key("carts", "b", "k"),
        &object_v1(&[("a", 1)], &[plain("typed")]),
    );
    file.put(&key("b", "bad"), b"no object");
    write(&site, 0, 1, &file);
    let words = ["import", "riak-bitcask", "riak"];
    let refused = site.run(&words);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("bucket-type create carts"), "{text}");
    assert!(
        site.run(&["admin", "bucket-type", "create", "carts"])
            .status
            .success()
    );
    assert!(
        site.run(&["admin", "bucket-type", "activate", "carts"])
            .status
            .success()
    );
    let imported = site.run(&words);
    assert_eq!(imported.status.code(), Some(3));
    let text = String::from_utf8_lossy(&imported.stdout).into_owned();
    assert!(text.contains("default/b/bad"), "{text}");
    let findings = site.path().join("riak-bitcask-import/findings.jsonl");
    assert!(
        std::fs::read_to_string(findings)
            .unwrap()
            .contains("no object")
    );
    let mut client = site.client().await;
    assert_eq!(
        values(&get(&mut client, Some(b"carts"), "k").await),
        [b"typed"]
    );
}

#[tokio::test]
async fn a_killed_import_goes_on() {
    const KEYS: u32 = 4000;
    let site = Site::new();
    for partition in 0..2 {
        let mut file = CaskFile::default();
        for number in 0..KEYS {
            let value = format!("value {number}");
            let object = object_v1(&[("a", 1)], &[plain(&value)]);
            file.put(&key("b", &number.to_string()), &object);
        }
        write(&site, partition, 1, &file);
    }
    let _server = site.start();
    let words = ["import", "riak-bitcask", "riak", "--json"];
    for _ in 0..3 {
        let mut command = site.command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(250));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let counts = &summary(&site.run(&words))["counts"];
    assert_eq!(counts["objects"], KEYS);
    assert_eq!(counts["equal_copies"], KEYS);
    let mut client = site.client().await;
    for number in (0..KEYS).step_by(37) {
        let reply = get(&mut client, None, &number.to_string()).await;
        assert_eq!(values(&reply), [format!("value {number}").as_bytes()]);
    }
}

/// The partition of a real node that the importer's own tests read.
fn recorded_source(site: &Site) {
    let directory = site
        .path()
        .join("riak/548063113999088594326381812268606132370974703616");
    std::fs::create_dir_all(&directory).unwrap();
    let data = include_bytes!("../../../import-bitcask/tests/fixtures/riak-3.2/1.bitcask.data");
    std::fs::write(directory.join("1.bitcask.data"), data).unwrap();
}

/// The last line of an answer over HTTP.
fn ask(site: &Site, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(site.http).unwrap();
    let len = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().last().unwrap_or_default().to_owned()
}

/// Importers once left data types and the counters of Riak 1.4 out.
#[test]
fn data_types_come_over_and_go_on_counting() {
    let site = Site::new();
    recorded_source(&site);
    let _server = site.start();
    let data_types = [
        ("fx_counter", "counter"),
        ("fx_set", "set"),
        ("fx_gset", "gset"),
    ];
    let plain = ["fx_mult", "fx_lww", "fx_n1"].map(|name| (name, String::new()));
    let typed = data_types.map(|(name, datatype)| {
        (
            name,
            format!("{{\"props\":{{\"datatype\":\"{datatype}\"}}}}"),
        )
    });
    for (name, properties) in plain.into_iter().chain(typed) {
        for words in [&["create", name, &properties][..], &["activate", name]] {
            let made = site.run(&[&["admin", "bucket-type"], words].concat());
            assert!(made.status.success(), "{name}");
        }
    }
    let imported = site.run(&["import", "riak-bitcask", "riak", "--json"]);
    assert_eq!(summary(&imported)["counts"]["data_types"], 6);
    let counter = "/types/fx_counter/buckets/alpha_dt/datatypes/c1";
    assert_eq!(
        ask(&site, "GET", counter, ""),
        r#"{"type":"counter","value":3}"#
    );
    let set = "/types/fx_set/buckets/alpha_dt/datatypes/s1?include_context=false";
    assert_eq!(
        ask(&site, "GET", set, ""),
        r#"{"type":"set","value":["a","c"]}"#
    );
    let legacy = "/buckets/alpha_legacy/counters/lc1";
    assert_eq!(ask(&site, "GET", legacy, ""), "7");
    let props = r#"{"props":{"allow_mult":true}}"#;
    ask(&site, "PUT", "/buckets/alpha_legacy/props", props);
    let counted = format!("{legacy}?returnvalue=true");
    assert_eq!(ask(&site, "POST", &counted, "5"), "12");
}
