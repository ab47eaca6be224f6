//! Servers on the engines over merge trees, leveldb, leveled and hanoidb: both protocols, stopped gracefully and killed.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use kvorum_client::{Client, pb};
use serde_json::Value;

use crate::server::Site;

const KEYS: u16 = 200;

/// Write buffers so small that tables are written and merged all the time.
fn site() -> Site {
    site_of("leveldb")
}

/// The same of any of the engines.
fn site_of(engine: &str) -> Site {
    let mut site = Site::new();
    let buffers: &[&str] = match engine {
        "leveldb" => &[
            "leveldb.write_buffer_size_min=64KB",
            "leveldb.write_buffer_size_max=80KB",
        ],
        "hanoidb" => &["hanoidb.top_level=2"],
        "innostore" => &["innostore.buffer_pool_size=16MB"],
        _ => &["leveled.ledger_buffer=64KB"],
    };
    let others = [
        format!("storage_backend={engine}"),
        match engine {
            "innostore" => "innostore.page_size=4KB".to_owned(),
            _ => format!("{engine}.maximum_memory=64MB"),
        },
        "buckets.default.allow_mult=false".to_owned(),
    ];
    let buffers = buffers.iter().map(|it| (*it).to_owned());
    site.settings = buffers.chain(others).collect();
    site
}

/// Some are kept in tables, some apart from their keys.
fn value(number: u16, round: u8) -> Bytes {
    let len = 10 + usize::from(number % 7) * 300;
    Bytes::from(vec![number.to_le_bytes()[0] ^ round; len])
}

async fn put_round(client: &mut Client, round: u8) {
    for number in 0..KEYS {
        let key = number.to_be_bytes();
        let value = value(number, round);
        client.put_value(b"b", &key, value).await.unwrap();
    }
    for number in (0..KEYS).step_by(3) {
        client
            .delete_key(b"b", &number.to_be_bytes())
            .await
            .unwrap();
    }
}

async fn check_round(client: &mut Client, round: u8) {
    check_objects(client, round).await;
    assert_eq!(listed(client).await.unwrap(), keys());
}

async fn check_objects(client: &mut Client, round: u8) {
    for number in 0..KEYS {
        let reply = client.get_key(b"b", &number.to_be_bytes()).await.unwrap();
        let found: Vec<Bytes> = reply.content.iter().map(|it| it.value.clone()).collect();
        if number % 3 == 0 {
            assert!(found.is_empty(), "{number} is back");
        } else {
            assert_eq!(found, [value(number, round)], "{number}");
        }
    }
}

/// The keys that a round leaves.
fn keys() -> BTreeSet<Bytes> {
    let left = (0..KEYS).filter(|number| number % 3 != 0);
    left.map(|number| Bytes::copy_from_slice(&number.to_be_bytes()))
        .collect()
}

async fn listed(client: &mut Client) -> Result<BTreeSet<Bytes>, kvorum_client::Error> {
    let request = pb::RpbListKeysReq {
        bucket: Bytes::from_static(b"b"),
        ..Default::default()
    };
    let answers = client.list_keys(&request).await?;
    Ok(answers.collect().await?.into_iter().collect())
}

/// Status line and body of an answer.
/// Headers may follow the request's line.
pub(crate) fn http(site: &Site, request: &str, body: &str) -> (String, String) {
    let (line, more) = request.split_once("\r\n").unwrap_or((request, ""));
    let more = match more {
        "" => String::new(),
        more => format!("{more}\r\n"),
    };
    let mut stream = TcpStream::connect(site.http).unwrap();
    let len = body.len();
    let head = "Host: localhost\r\nConnection: close\r\nContent-Type: text/plain\r\n";
    write!(
        stream,
        "{line} HTTP/1.1\r\n{head}{more}Content-Length: {len}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap_or_default().to_owned();
    (status, body.to_owned())
}

#[tokio::test]
async fn objects_survive_a_stop_and_a_kill() {
    objects_survive("leveldb").await;
}

#[tokio::test]
async fn objects_of_leveled_survive_a_stop_and_a_kill() {
    objects_survive("leveled").await;
}

#[tokio::test]
async fn objects_of_hanoidb_survive_a_stop_and_a_kill() {
    objects_survive("hanoidb").await;
}

#[tokio::test]
async fn objects_of_innostore_survive_a_stop_and_a_kill() {
    objects_survive("innostore").await;
}

async fn objects_survive(engine: &str) {
    let site = site_of(engine);
    let server = site.start();
    let mut client = site.client().await;
    put_round(&mut client, 1).await;
    check_round(&mut client, 1).await;
    server.stop();
    let mut verify = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    let verified = verify.current_dir(site.path()).args(["verify", "data"]);
    let text = String::from_utf8(verified.output().unwrap().stdout).unwrap();
    assert!(text.contains(" 0 findings"), "{text}");
    let unchecked = text.lines().filter(|line| line.starts_with("not checked"));
    let of_stores = unchecked.filter(|line| line.contains(engine));
    assert_eq!(of_stores.count(), 0, "{text}");

    let server = site.start();
    let mut client = site.client().await;
    check_round(&mut client, 1).await;
    put_round(&mut client, 2).await;
    // Dropping it kills the process.
    drop(server);

    let server = site.start();
    let mut client = site.client().await;
    check_round(&mut client, 2).await;
    server.stop();
    let _server = site.start();
    check_round(&mut site.client().await, 2).await;
}

#[tokio::test]
async fn without_syncs_a_kill_loses_nothing_either() {
    a_kill_loses_nothing("leveldb", "leveldb.sync_on_write=off").await;
}

#[tokio::test]
async fn without_syncs_a_kill_loses_nothing_of_leveled_either() {
    a_kill_loses_nothing("leveled", "leveled.sync_strategy=none").await;
}

#[tokio::test]
async fn without_syncs_a_kill_loses_nothing_of_hanoidb_either() {
    a_kill_loses_nothing("hanoidb", "hanoidb.sync_strategy=none").await;
}

#[tokio::test]
async fn without_syncs_a_kill_loses_nothing_of_innostore_either() {
    a_kill_loses_nothing("innostore", "innostore.flush_log_at_trx_commit=0").await;
}

async fn a_kill_loses_nothing(engine: &str, without_syncs: &str) {
    let mut site = site_of(engine);
    site.settings.push(without_syncs.to_owned());
    let server = site.start();
    put_round(&mut site.client().await, 1).await;
    drop(server);
    // A store's own log is read again, also by a server that has the node's.
    site.settings.pop();
    let server = site.start();
    check_round(&mut site.client().await, 1).await;
    put_round(&mut site.client().await, 2).await;
    drop(server);
    let _server = site.start();
    check_round(&mut site.client().await, 2).await;
}

#[test]
fn http_and_the_operators_verbs_know_the_engine() {
    they_know_the_engine("leveldb");
}

#[test]
fn http_and_the_operators_verbs_know_leveled() {
    they_know_the_engine("leveled");
}

#[test]
fn http_and_the_operators_verbs_know_hanoidb() {
    they_know_the_engine("hanoidb");
}

fn they_know_the_engine(engine: &str) {
    let site = site_of(engine);
    let _server = site.start();
    let key = "/buckets/b/keys/k";
    let (status, _) = http(&site, &format!("PUT {key}"), "hello");
    assert!(status.contains("204"), "{status}");
    assert_eq!(http(&site, &format!("GET {key}"), "").1, "hello");
    let listed = http(&site, "GET /buckets/b/keys?keys=true", "").1;
    assert_eq!(listed, r#"{"keys":["k"]}"#);
    let (status, _) = http(&site, &format!("DELETE {key}"), "");
    assert!(status.contains("204"), "{status}");
    assert!(http(&site, &format!("GET {key}"), "").0.contains("404"));

    let indexed = "PUT /buckets/b/keys/i\r\nx-riak-index-age_int: 7\r\nx-riak-index-town_bin: x";
    let (status, _) = http(&site, indexed, "hello");
    assert!(status.contains("204"), "{status}");
    let found = http(&site, "GET /buckets/b/index/age_int/7", "").1;
    assert_eq!(found, r#"{"keys":["i"]}"#);
    let (status, _) = http(&site, "DELETE /buckets/b/keys/i", "");
    assert!(status.contains("204"), "{status}");
    let stats: Value = serde_json::from_str(&http(&site, "GET /stats", "").1).unwrap();
    assert_eq!(
        stats["storage_backend"],
        format!("riak_kv_{engine}_backend")
    );
    let of_indexes = |name: &str| stats[format!("vnode_index_{name}_total")].as_u64();
    assert!(of_indexes("writes") > Some(0), "{stats}");
    assert_eq!(of_indexes("writes_postings"), Some(2), "{stats}");
    assert_eq!(of_indexes("deletes_postings"), Some(2), "{stats}");
    assert!(of_indexes("reads") > Some(0), "{stats}");
    assert_eq!(stats["vnode_index_writes_postings"], 2, "{stats}");
    let metrics = http(&site, "GET /metrics", "").1;
    for figure in [
        &format!("backend=\"{engine}\""),
        &format!("kvorum_{engine}_cache_bytes_max "),
        &format!("kvorum_{engine}_memtable_bytes "),
        "kvorum_process_resident_bytes ",
        "kvorum_process_cpu_seconds_total ",
        "kvorum_process_written_bytes_total ",
    ] {
        assert!(metrics.contains(figure), "{figure}: {metrics}");
    }
    // The memory of `maximum_memory` is divided up, and no more than that.
    let most = |what: &str| -> u64 {
        let name = format!("kvorum_{engine}_{what}_bytes_max ");
        let value = metrics.lines().find_map(|it| it.strip_prefix(&name));
        value.unwrap().parse().unwrap()
    };
    let (cache, memtables) = (most("cache"), most("memtable"));
    assert!(cache > 0 && memtables > 0 && cache + memtables <= 64 << 20);
    assert!(cache + memtables > 63 << 20, "{cache} and {memtables}");
    let text = |words: &[&str]| {
        let output = site.run(words);
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let status: Value = serde_json::from_str(&text(&["admin", "vnode-status", "--json"])).unwrap();
    assert!(status.to_string().contains("tables_per_level"), "{status}");
    text(&["admin", "maintenance"]);
    text(&["chkconfig"]);
    let described = text(&["describe", &format!("{engine}.maximum_memory.percent")]);
    assert!(described.contains("70"), "{described}");
}

/// The largest table of a stopped node.
fn largest_table(site: &Site, engine: &str) -> PathBuf {
    let stores = site.path().join("data").join(engine).read_dir().unwrap();
    let files = stores.flat_map(|it| it.unwrap().path().read_dir().unwrap());
    let tables = files.map(|it| it.unwrap().path());
    let tables = tables.filter(|it| it.extension().is_some_and(|it| it == "sst"));
    tables
        .max_by_key(|it| it.metadata().unwrap().len())
        .unwrap()
}

#[tokio::test]
async fn a_missing_table_costs_its_keys_alone_and_is_reported() {
    costs_its_keys_alone(|table| std::fs::remove_file(table).unwrap()).await;
}

#[tokio::test]
async fn a_cut_table_costs_the_keys_behind_the_cut_alone_and_is_reported() {
    costs_its_keys_alone(|table| {
        let file = std::fs::File::options().write(true).open(table).unwrap();
        file.set_len(file.metadata().unwrap().len() / 3).unwrap();
    })
    .await;
}

async fn costs_its_keys_alone(harm: impl Fn(&Path)) {
    let site = site();
    let server = site.start();
    put_round(&mut site.client().await, 1).await;
    server.stop();
    harm(&largest_table(&site, "leveldb"));

    let server = site.start();
    let mut client = site.client().await;
    let (mut right, mut damaged) = (0, 0);
    for number in (0..KEYS).filter(|it| it % 3 != 0) {
        match client.get_key(b"b", &number.to_be_bytes()).await {
            Ok(reply) => {
                let found: Vec<Bytes> = reply.content.into_iter().map(|it| it.value).collect();
                assert_eq!(found, [value(number, 1)], "{number}");
                right += 1;
            }
            Err(_) => damaged += 1,
        }
    }
    assert!(
        right > damaged && damaged > 0,
        "{right} right, {damaged} damaged"
    );
    let output = site.run(&["admin", "vnode-status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = status.to_string();
    assert!(status.contains("with the keys from"), "{status}");
    let metrics = http(&site, "GET /metrics", "").1;
    assert!(metrics.contains("kvorum_store_lost_ranges "), "{metrics}");
    assert!(!metrics.contains("kvorum_store_lost_ranges 0"), "{metrics}");
    let stats: Value = serde_json::from_str(&http(&site, "GET /stats", "").1).unwrap();
    let errors = stats["leveldb_read_block_error"].as_u64();
    assert!(errors > Some(0), "{stats}");
    let refused = listed(&mut client).await.unwrap_err().to_string();
    // The reason, which names files, is in the log.
    assert!(refused.contains("storage: a store failed"), "{refused}");
    // A key that is written again is there again. It is unknown if those were all until a merge has gone
    // on without the table.
    put_round(&mut client, 2).await;
    check_objects(&mut client, 2).await;
    match listed(&mut client).await {
        Ok(listed) => assert_eq!(listed, keys()),
        Err(refused) => assert!(refused.to_string().contains("a store failed"), "{refused}"),
    }
    server.stop();
}

#[tokio::test]
async fn a_node_whose_stores_lost_their_manifests_has_every_object_after_a_repair() {
    has_every_object_after_a_repair("leveldb").await;
}

#[tokio::test]
async fn a_node_of_leveled_whose_stores_lost_their_manifests_has_every_object_after_a_repair() {
    has_every_object_after_a_repair("leveled").await;
}

#[tokio::test]
async fn a_node_of_hanoidb_whose_stores_lost_their_manifests_has_every_object_after_a_repair() {
    has_every_object_after_a_repair("hanoidb").await;
}

async fn has_every_object_after_a_repair(engine: &str) {
    let site = site_of(engine);
    let server = site.start();
    put_round(&mut site.client().await, 1).await;
    let data = site.path().join("data");
    let data = data.to_str().unwrap();
    let refused = tool(&["repair", data]);
    assert!(!refused.status.success(), "{refused:?}");
    server.stop();

    let sound = tool(&["repair", data]);
    assert!(sound.status.success(), "{sound:?}");
    let text = String::from_utf8(sound.stdout).unwrap();
    assert!(text.contains(" sound "), "{text}");

    let store = largest_table(&site, engine).parent().unwrap().to_owned();
    for name in ["manifest-0", "manifest-1"] {
        std::fs::remove_file(store.join(name)).unwrap();
    }
    let verified = tool(&["verify", data]);
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(text.contains("`kvorum repair` makes a new one"), "{text}");
    let repaired = tool(&["repair", data, "--json"]);
    assert!(repaired.status.success(), "{repaired:?}");
    let said: Value = serde_json::from_slice(&repaired.stdout).unwrap();
    let verdicts = said["stores"].as_array().unwrap().iter();
    let verdicts: Vec<&str> = verdicts.filter_map(|it| it["verdict"].as_str()).collect();
    let count = |verdict| verdicts.iter().filter(|it| **it == verdict).count();
    assert_eq!((count("repaired"), count("sound")), (1, verdicts.len() - 1));
    let verified = tool(&["verify", data]);
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.status.success(), "{text}");

    let server = site.start();
    let mut client = site.client().await;
    wait_for_the_ledger(&mut client).await;
    check_round(&mut client, 1).await;
    server.stop();
}

/// Waits for the ledger: keys that it has lost are answered as damaged until it is made again from the
/// journal.
async fn wait_for_the_ledger(client: &mut Client) {
    for _ in 0..600 {
        let mut has_failed = listed(client).await.is_err();
        for number in 0..KEYS {
            let read = client.get_key(b"b", &number.to_be_bytes()).await;
            has_failed |= read.is_err();
        }
        if !has_failed {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("the ledger is not made again");
}

/// A verb that takes no configuration.
fn tool(words: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    command.args(words).output().unwrap()
}
