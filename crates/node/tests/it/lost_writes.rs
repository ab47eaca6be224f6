//! Damage to the value log of a node that was killed: objects that were overwritten or deleted in the
//! damaged part do not come back.
//!
//! Regression: after one flipped bit, the older value or the deleted key was served. Without the
//! newest segments, all of them came back.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use kvorum_client::Client;

use crate::server::Site;

const BUCKET: &[u8] = b"lost_writes";
const KEYS: u8 = 12;

fn key(number: u8) -> Vec<u8> {
    format!("a key that can be found {number:02}").into_bytes()
}

async fn put(client: &mut Client, number: u8, round: u8) {
    let value = Bytes::from(vec![b'0' + round; 300]);
    let key = key(number);
    client.put_value(BUCKET, &key, value).await.unwrap();
}

/// The round of a key's value; `None` when it was not found, and an error when it cannot be read.
async fn round(client: &mut Client, number: u8) -> Result<Option<u8>, String> {
    let reply = client.get_key(BUCKET, &key(number)).await;
    let reply = reply.map_err(|error| error.to_string())?;
    Ok(reply.content.first().map(|it| it.value[0] - b'0'))
}

/// A node after a run that overwrote the even keys, deleted the odd ones, and was killed.
async fn killed(engine: &str) -> Site {
    let mut site = Site::new();
    site.settings = vec![
        format!("storage_backend={engine}"),
        "buckets.default.allow_mult=false".to_owned(),
        "value_log.segment_bytes=64KB".to_owned(),
        "value_log.bytes_max=128KB".to_owned(),
        "leveldb.write_buffer_size_min=64KB".to_owned(),
        "leveldb.write_buffer_size_max=64KB".to_owned(),
        "leveled.ledger_buffer=64KB".to_owned(),
        "hanoidb.top_level=2".to_owned(),
    ];
    let server = site.start();
    let mut client = site.client().await;
    for number in 0..KEYS {
        put(&mut client, number, 1).await;
    }
    server.stop();
    let server = site.start();
    let mut client = site.client().await;
    for number in 0..KEYS {
        match number % 2 {
            0 => put(&mut client, number, 2).await,
            _ => client.delete_key(BUCKET, &key(number)).await.unwrap(),
        }
    }
    // Until the log is idle, and tombstones are removed.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    drop(server);
    fs::remove_file(site.path().join("data/admin.socket")).unwrap();
    site
}

fn segments(site: &Site) -> Vec<PathBuf> {
    let entries = fs::read_dir(site.path().join("data/value_log")).unwrap();
    let paths = entries.map(|it| it.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|it| it.extension().is_some_and(|it| it == "segment"))
        .collect();
    paths.sort();
    paths
}

/// Flips a bit in the key of the last record of a key.
fn flip_last_record(site: &Site, number: u8) {
    let key = key(number);
    let found = segments(site).into_iter().rev().find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(key.len()).rposition(|it| it == key)?;
        Some((path, bytes, at))
    });
    let (path, mut bytes, at) = found.unwrap();
    bytes[at + 3] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// No value is older than the last one, and no deleted key is there; an unreadable one is an error.
async fn nothing_older_is_served(site: &Site) -> u32 {
    let mut client = site.client().await;
    let mut unreadable = 0;
    for number in 0..KEYS {
        match round(&mut client, number).await {
            Ok(found) => assert_eq!(found, (number % 2 == 0).then_some(2), "key {number}"),
            Err(_) => unreadable += 1,
        }
    }
    unreadable
}

async fn a_flip_brings_nothing_back(engine: &str) {
    let site = killed(engine).await;
    for number in [2, 3] {
        flip_last_record(&site, number);
    }
    let server = site.start();
    let unreadable = nothing_older_is_served(&site).await;
    assert!(
        (1..u32::from(KEYS)).contains(&unreadable),
        "{unreadable} keys"
    );
    drop(server);
    // The damage is known now, and still nothing older comes back.
    let server = site.start();
    assert_eq!(nothing_older_is_served(&site).await, unreadable);
    let accepted = site.run(&["admin", "cluster", "accept-loss", "all"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let mut client = site.client().await;
    for number in 0..KEYS {
        let _older_or_gone = round(&mut client, number).await.unwrap_or(None);
        put(&mut client, number, 3).await;
    }
    server.stop();
    let _server = site.start();
    let mut client = site.client().await;
    for number in 0..KEYS {
        assert_eq!(
            round(&mut client, number).await,
            Ok(Some(3)),
            "key {number}"
        );
    }
}

async fn missing_segments_bring_nothing_back(engine: &str) {
    let site = killed(engine).await;
    for path in segments(&site).into_iter().rev().take(2) {
        fs::remove_file(path).unwrap();
    }
    let _server = site.start();
    assert!(nothing_older_is_served(&site).await > 0);
}

#[tokio::test]
async fn a_flip_in_the_log_after_a_kill_brings_nothing_back_on_bitcask() {
    a_flip_brings_nothing_back("bitcask").await;
}

#[tokio::test]
async fn a_flip_in_the_log_after_a_kill_brings_nothing_back_on_leveldb() {
    a_flip_brings_nothing_back("leveldb").await;
}

#[tokio::test]
async fn a_flip_in_the_log_after_a_kill_brings_nothing_back_on_leveled() {
    a_flip_brings_nothing_back("leveled").await;
}

#[tokio::test]
async fn a_flip_in_the_log_after_a_kill_brings_nothing_back_on_hanoidb() {
    a_flip_brings_nothing_back("hanoidb").await;
}

#[tokio::test]
async fn missing_segments_bring_nothing_back_on_hanoidb() {
    missing_segments_bring_nothing_back("hanoidb").await;
}

#[tokio::test]
async fn a_flip_in_the_log_after_a_kill_brings_nothing_back_on_innostore() {
    a_flip_brings_nothing_back("innostore").await;
}

#[tokio::test]
async fn missing_segments_bring_nothing_back_on_innostore() {
    missing_segments_bring_nothing_back("innostore").await;
}

#[tokio::test]
async fn missing_segments_bring_nothing_back_on_bitcask() {
    missing_segments_bring_nothing_back("bitcask").await;
}

#[tokio::test]
async fn missing_segments_bring_nothing_back_on_leveldb() {
    missing_segments_bring_nothing_back("leveldb").await;
}

#[tokio::test]
async fn missing_segments_bring_nothing_back_on_leveled() {
    missing_segments_bring_nothing_back("leveled").await;
}
