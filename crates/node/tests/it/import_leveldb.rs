//! `kvorum import riak-leveldb` into real servers, read back over protocol buffers.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use kvorum_client::{Client, Get, GetOptions, pb};
use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;

use crate::level_store::{LevelStore, Packing, index_key, key, sext_integer, typed_key};
use crate::riak_objects::{Sibling, binary, dotted, integer, list, object_v1, plain, tuple};
use crate::server::Site;

/// Writes the files of a partition, those of higher levels into the slow tier.
fn write(site: &Site, partition: u32, store: &LevelStore) {
    for (name, bytes) in store.all_files() {
        let is_slow = name.starts_with("sst_4");
        let tier = if is_slow { "slow" } else { "riak/leveldb" };
        let directory = crate::partitions::partition(partition);
        let path = site.path().join(format!("{tier}/{directory}/{name}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn indexed(value: &str, age: u32) -> Vec<u8> {
    let entry = tuple(&[binary("age_int"), integer(age)]);
    let sibling = Sibling {
        metadata: vec![("index", list(&[entry]))],
        ..plain(value)
    };
    object_v1(&[("a", 1)], &[sibling])
}

/// Two partitions with objects in tables of two tiers and in logs.
fn source(site: &Site) {
    let mut first = LevelStore::default();
    let cold = [
        first.put(&key("b", "cold"), &indexed("cold", 7)),
        first.put(&key("b", "gone"), &indexed("gone", 8)),
        first.put(
            &index_key("b", "age_int", &sext_integer(7, false), "cold"),
            b"",
        ),
    ];
    first.table(4, &cold, Packing::Lz4);
    let warm = [first.put(&key("b", "warm"), &indexed("warm", 42))];
    first.table(1, &warm, Packing::Snappy);
    let hot = vec![
        first.delete(&key("b", "gone")),
        first.put(&key("b", "hot"), &object_v1(&[("a", 1)], &[plain("hot")])),
        first.put(&typed_key("carts", "b", "k"), &indexed("typed", 1)),
    ];
    first.log(&[hot]);
    let mut second = LevelStore::default();
    let siblings = [dotted("x", "a", 1), dotted("y", "b", 1)];
    let writes = [
        second.put(&key("b", "cold"), &indexed("cold", 7)),
        second.put(
            &key("b", "siblings"),
            &object_v1(&[("a", 1), ("b", 1)], &siblings),
        ),
    ];
    second.table(0, &writes, Packing::Plain);
    write(site, 0, &first);
    write(site, 1, &second);
}

fn site() -> Site {
    let mut site = Site::new();
    site.settings = vec!["storage_backend=leveldb".to_owned()];
    source(&site);
    site
}

const WORDS: [&str; 5] = [
    "import",
    "riak-leveldb",
    "riak/leveldb",
    "--tiered-slow",
    "slow",
];

fn with<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&WORDS[..], words].concat()
}

fn create_type(site: &Site) {
    for verb in ["create", "activate"] {
        let made = site.run(&["admin", "bucket-type", verb, "carts"]);
        assert!(made.status.success());
    }
}

async fn values(client: &mut Client, bucket_type: Option<&[u8]>, key: &str) -> Vec<Bytes> {
    let get = Get {
        bucket_type,
        bucket: b"b",
        key: key.as_bytes(),
        options: &GetOptions::default(),
    };
    let reply = client.get(&get).await.unwrap();
    let mut values: Vec<Bytes> = reply.content.into_iter().map(|it| it.value).collect();
    values.sort_unstable();
    values
}

async fn assert_source(client: &mut Client) {
    for name in ["cold", "warm", "hot"] {
        assert_eq!(values(client, None, name).await, [name]);
    }
    assert_eq!(values(client, None, "siblings").await, ["x", "y"]);
    assert_eq!(values(client, Some(b"carts"), "k").await, ["typed"]);
    assert!(values(client, None, "gone").await.is_empty());
    // The server has made index entries of its own.
    let query = pb::RpbIndexReq {
        bucket: Bytes::from_static(b"b"),
        index: Bytes::from_static(b"age_int"),
        qtype: pb::rpb_index_req::IndexQueryType::Range.into(),
        range_min: Some(Bytes::from_static(b"0")),
        range_max: Some(Bytes::from_static(b"100")),
        ..Default::default()
    };
    let mut found = client
        .query_index(&query)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap()
        .keys;
    found.sort_unstable();
    assert_eq!(found, ["cold", "warm"]);
}

#[tokio::test]
async fn a_running_server_takes_in_both_tiers_and_answers_queries() {
    let site = site();
    let _server = site.start();
    let dry = site.run(&with(&["--dry-run", "--json", "--state", "dry"]));
    let counts = &serde_json::from_slice::<Value>(&dry.stdout).unwrap()["counts"];
    assert_eq!(
        (&counts["objects"], &counts["keys_deleted"]),
        (&5.into(), &1.into())
    );
    // The source has no entries of warm, typed and the second replica of cold.
    assert_eq!(counts["index_entries_missing"], 3);

    let refused = site.run(&WORDS);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("bucket-type create carts"), "{text}");
    create_type(&site);
    let imported = site.run(&WORDS);
    let text = String::from_utf8_lossy(&imported.stderr).into_owned();
    assert!(imported.status.success(), "{text}");
    let mut client = site.client().await;
    assert_source(&mut client).await;
    // A second import from the beginning changes nothing.
    assert!(site.run(&with(&["--restart"])).status.success());
    assert_source(&mut client).await;
}

#[tokio::test]
async fn a_stopped_node_has_the_objects_when_it_starts_and_the_source_is_as_it_was() {
    let site = site();
    let server = site.start();
    create_type(&site);
    server.stop();
    let before = listing(&site);
    let imported = site.run(&WORDS);
    let text = String::from_utf8_lossy(&imported.stderr).into_owned();
    assert!(imported.status.success(), "{text}");
    assert_eq!(listing(&site), before);
    let _server = site.start();
    assert_source(&mut site.client().await).await;
}

/// Two replicas of this many keys, in tables and logs.
fn replicas(site: &Site, keys: u32) {
    for partition in 0..2 {
        let mut store = LevelStore::default();
        let mut writes: Vec<_> = (0..keys)
            .map(|number| {
                let object = object_v1(&[("a", 1)], &[plain(&format!("value {number}"))]);
                store.put(&key("b", &number.to_string()), &object)
            })
            .collect();
        let logged = writes.split_off(writes.len() * 3 / 4);
        store.table(1, &writes, Packing::Lz4);
        store.log(&logged.chunks(20).map(<[_]>::to_vec).collect::<Vec<_>>());
        write(site, partition, &store);
    }
}

#[tokio::test]
async fn a_killed_import_of_leveldb_goes_on() {
    const KEYS: u32 = 6000;
    let mut site = Site::new();
    site.settings = vec!["storage_backend=leveldb".to_owned()];
    replicas(&site, KEYS);
    let _server = site.start();
    let words = ["import", "riak-leveldb", "riak/leveldb", "--json"];
    for millis in [60, 120, 250] {
        let mut command = site.command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let imported = site.run(&words);
    let counts = &serde_json::from_slice::<Value>(&imported.stdout).unwrap()["counts"];
    assert_eq!(counts["objects"], KEYS);
    assert_eq!(counts["equal_copies"], KEYS);
    let mut client = site.client().await;
    for number in (0..KEYS).step_by(37) {
        let found = values(&mut client, None, &number.to_string()).await;
        assert_eq!(found, [format!("value {number}")]);
    }
}

/// Names and contents of the source.
fn listing(site: &Site) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut directories = vec![site.path().join("riak"), site.path().join("slow")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                files.push((path, bytes));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_store_that_a_process_holds_is_not_imported_and_a_missing_tier_is_a_loss() {
    let site = site();
    let directory = crate::partitions::partition(1);
    let lock = site.path().join(format!("riak/leveldb/{directory}/LOCK"));
    let held = std::fs::OpenOptions::new().write(true).open(lock).unwrap();
    fcntl_lock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let refused = site.run(&with(&["--dry-run"]));
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    let holder = format!("process {}", std::process::id());
    assert!(text.contains(&holder), "{text}");
    drop(held);
    assert!(site.run(&with(&["--dry-run"])).status.success());

    let without = site.run(&["import", "riak-leveldb", "riak", "--dry-run", "--restart"]);
    assert_eq!(without.status.code(), Some(3));
    let text = String::from_utf8_lossy(&without.stdout).into_owned();
    assert!(text.contains("slow tier"), "{text}");
    let alone = site.run(&["import", "riak-leveldb", "slow", "--dry-run", "--restart"]);
    let text = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(text.contains("--tiered-slow"), "{text}");
}
