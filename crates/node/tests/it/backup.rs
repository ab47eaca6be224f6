//! Backups of a running server: their contents, their shared files, and a server on a restored one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvorum_client::Client;
use serde_json::Value;

use crate::server::Site;

const KEYS: u16 = 300;

fn site(engine: &str) -> Site {
    let mut site = Site::new();
    site.settings = [
        &format!("storage_backend={engine}"),
        "leveldb.write_buffer_size_min=64KB",
        "leveldb.write_buffer_size_max=80KB",
        "leveldb.maximum_memory=64MB",
        "leveled.ledger_buffer=64KB",
        "hanoidb.top_level=2",
        "innostore.buffer_pool_size=16MB",
        "buckets.default.allow_mult=false",
    ]
    .map(str::to_owned)
    .into();
    site
}

/// Bytes that cannot be compressed.
fn value(number: u16, round: u8) -> Bytes {
    let mut state = u32::from(number) << 8 | u32::from(round);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(2_000).collect()
}

async fn put(client: &mut Client, keys: impl Iterator<Item = u16>, round: u8) {
    for number in keys {
        let key = number.to_be_bytes();
        client
            .put_value(b"b", &key, value(number, round))
            .await
            .unwrap();
    }
}

async fn check(client: &mut Client, round_of: impl Fn(u16) -> Option<u8>) {
    for number in 0..KEYS {
        let reply = client.get_key(b"b", &number.to_be_bytes()).await.unwrap();
        let found: Vec<Bytes> = reply.content.iter().map(|it| it.value.clone()).collect();
        let expected: Vec<Bytes> = round_of(number)
            .map(|round| value(number, round))
            .into_iter()
            .collect();
        assert_eq!(found, expected, "{number}");
    }
}

fn back_up(site: &Site, name: &str) -> Value {
    let made = site.run(&["admin", "backup", name, "--json"]);
    let text = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Every file below a directory: its inode and length.
fn files(directory: &Path) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let info = fs::metadata(&path).unwrap();
            found.insert(path, (info.ino(), info.len()));
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg("-rT")
        .args([from, to])
        .status()
        .unwrap();
    assert!(copied.success());
}

/// No file of a data directory is passed over by `verify`.
fn every_file_is_known_and_whole(site: &Site, directory: &str) {
    let verified = Command::new(env!("CARGO_BIN_EXE_kvorum"))
        .current_dir(site.path())
        .args(["verify", directory, "--json"])
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&verified.stdout).unwrap();
    let none = Value::Array(Vec::new());
    assert_eq!((&found["findings"], &found["not_checked"]), (&none, &none));
}

fn actors(site: &Site) -> BTreeSet<String> {
    let shown = site.run(&["admin", "vnode-status", "--json"]).stdout;
    let vnodes: Vec<Value> = serde_json::from_slice(&shown).unwrap();
    let actors = vnodes
        .iter()
        .map(|it| it["actor"].as_str().unwrap().to_owned());
    actors.collect()
}

async fn a_backup_is_a_data_directory_and_the_next_one_shares_its_files(engine: &str) {
    let site = site(engine);
    let server = site.start();
    let mut client = site.client().await;
    put(&mut client, 0..KEYS, 1).await;
    let first_made = back_up(&site, "first");
    assert!(
        first_made["linked_bytes"].as_u64().unwrap() > 2_000 * u64::from(KEYS),
        "{first_made}"
    );
    // Changes after it: one key in a hundred, and some go.
    put(&mut client, (0..KEYS).step_by(100), 2).await;
    client.delete_key(b"b", &7u16.to_be_bytes()).await.unwrap();
    back_up(&site, "second");
    // Far more than is in either.
    for round in 3..6 {
        put(&mut client, 0..KEYS, round).await;
    }

    let [first, second] = ["first", "second"].map(|name| files(&site.path().join(name)));
    let shared: BTreeSet<u64> = first.values().map(|(inode, _)| *inode).collect();
    let new = second.values().filter(|(inode, _)| !shared.contains(inode));
    let new_bytes: u64 = new.map(|(_, len)| *len).sum();
    let all_bytes: u64 = second.values().map(|(_, len)| *len).sum();
    assert!(
        new_bytes < all_bytes / 4,
        "{new_bytes} of {all_bytes} bytes are new"
    );
    for made in [&first, &second] {
        let names = made.keys().map(|it| it.file_name().unwrap());
        assert_eq!(names.filter(|it| *it == "dot_leases").count(), 0);
    }
    let shown = site.run(&["admin", "maintenance", "--json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(shown["backups"].as_array().unwrap().len(), 2, "{shown}");
    let before = actors(&site);
    server.stop();
    every_file_is_known_and_whole(&site, "data");

    for (name, round_of) in [
        ("first", (|_| Some(1)) as fn(u16) -> Option<u8>),
        ("second", |number| match number {
            7 => None,
            number if number % 100 == 0 => Some(2),
            _ => Some(1),
        }),
    ] {
        every_file_is_known_and_whole(&site, name);
        let leases = fs::read(site.path().join("data/dot_leases")).unwrap();
        fs::remove_dir_all(site.path().join("data")).unwrap();
        copy(&site.path().join(name), &site.path().join("data"));
        // Put back as if they had not been taken away.
        fs::write(site.path().join("data/dot_leases"), leases).unwrap();
        let server = site.start();
        let mut client = site.client().await;
        check(&mut client, round_of).await;
        assert_eq!(actors(&site).intersection(&before).count(), 0);
        put(&mut client, 0..10, 9).await;
        server.stop();
    }
}

#[tokio::test]
async fn a_backup_of_bitcask_is_a_data_directory_and_the_next_one_shares_its_files() {
    a_backup_is_a_data_directory_and_the_next_one_shares_its_files("bitcask").await;
}

#[tokio::test]
async fn a_backup_of_leveldb_is_a_data_directory_and_the_next_one_shares_its_files() {
    a_backup_is_a_data_directory_and_the_next_one_shares_its_files("leveldb").await;
}

#[tokio::test]
async fn a_backup_of_leveled_is_a_data_directory_and_the_next_one_shares_its_files() {
    a_backup_is_a_data_directory_and_the_next_one_shares_its_files("leveled").await;
}

#[tokio::test]
async fn a_backup_of_hanoidb_is_a_data_directory_and_the_next_one_shares_its_files() {
    a_backup_is_a_data_directory_and_the_next_one_shares_its_files("hanoidb").await;
}

#[tokio::test]
async fn a_backup_of_innostore_is_a_data_directory_and_the_next_one_shares_its_files() {
    a_backup_is_a_data_directory_and_the_next_one_shares_its_files("innostore").await;
}

/// The backups in `kvorum admin maintenance`.
fn kept(site: &Site) -> Vec<Value> {
    let shown = site.run(&["admin", "maintenance", "--json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    shown["backups"].as_array().unwrap().clone()
}

/// Bytes on disk that a backup has for itself alone.
fn own_bytes(site: &Site) -> u64 {
    kept(site)[0]["own_bytes"].as_u64().unwrap()
}

#[tokio::test]
async fn what_the_node_has_let_go_of_counts_as_the_backups_own_until_that_is_removed() {
    const VALUES_BYTES: u64 = 2_000 * KEYS as u64;
    let mut site = site("bitcask");
    site.settings.push("value_log.segment_bytes=64KB".into());
    site.settings.push("value_log.bytes_max=1MB".into());
    let server = site.start();
    let mut client = site.client().await;
    put(&mut client, 0..KEYS, 1).await;
    let made = back_up(&site, "kept");
    // Checkpoints, and files that are a backup's own by nature: next to all is shared.
    let at_once = own_bytes(&site);
    assert!(at_once < VALUES_BYTES / 10, "{at_once}");
    assert!(made["linked_bytes"].as_u64().unwrap() > VALUES_BYTES);
    // Everything in it is superseded, and in time the node has none of its segments any more; upkeep
    // yields to requests, so there are pauses.
    let deadline = Instant::now() + Duration::from_secs(600);
    let mut rounds = (2..250).cycle();
    while own_bytes(&site) < VALUES_BYTES {
        assert!(Instant::now() < deadline, "{}", own_bytes(&site));
        put(&mut client, 0..KEYS, rounds.next().unwrap()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let all = kept(&site)[0]["bytes"].as_u64().unwrap();
    assert!(own_bytes(&site) <= all);
    fs::remove_dir_all(site.path().join("kept")).unwrap();
    assert_eq!(kept(&site), Vec::<Value>::new());
    server.stop();
}

#[test]
fn a_backup_goes_to_a_directory_of_its_own() {
    let site = site("bitcask");
    let _server = site.start();
    fs::create_dir(site.path().join("full")).unwrap();
    fs::write(site.path().join("full/file"), "kept").unwrap();
    for (name, problem) in [
        ("full", "is not empty"),
        ("full/file", "is a file"),
        ("data/backup", "inside the data directory"),
    ] {
        let refused = site.run(&["admin", "backup", name]);
        assert!(!refused.status.success());
        let text = String::from_utf8(refused.stdout).unwrap();
        assert!(text.contains(problem), "{text}");
    }
    assert_eq!(fs::read(site.path().join("full/file")).unwrap(), b"kept");
    // Memory as a filesystem is another one than any disk, where there is one.
    let elsewhere = Path::new("/dev/shm").join(format!("kvorum-backup-{}", std::process::id()));
    let is_other = fs::metadata("/dev/shm")
        .is_ok_and(|it| it.dev() != fs::metadata(site.path()).unwrap().dev());
    if is_other {
        let refused = site.run(&["admin", "backup", elsewhere.to_str().unwrap()]);
        let text = String::from_utf8(refused.stdout).unwrap();
        let _removed_or_not_there = fs::remove_dir(&elsewhere);
        assert!(text.contains("another filesystem"), "{text}");
    }
}

#[test]
fn memory_has_nothing_to_back_up() {
    let site = site("memory");
    let _server = site.start();
    let refused = site.run(&["admin", "backup", "copy"]);
    let text = String::from_utf8(refused.stdout).unwrap();
    assert!(text.contains("keeps nothing on disk"), "{text}");
    assert!(!site.path().join("copy").exists());
}

/// A file system without times of birth makes copies undetectable.
fn knows_copies(site: &Site) -> bool {
    fs::metadata(site.path()).unwrap().created().is_ok()
}

#[tokio::test]
async fn a_copied_data_directory_of_a_node_alone_starts_with_fresh_actors_and_a_moved_one_as_it_was()
 {
    let site = site("bitcask");
    if !knows_copies(&site) {
        return;
    }
    let server = site.start();
    put(&mut site.client().await, 0..KEYS, 1).await;
    let before = actors(&site);
    server.stop();
    // It is the same after a move.
    fs::rename(site.path().join("data"), site.path().join("moved")).unwrap();
    fs::rename(site.path().join("moved"), site.path().join("data")).unwrap();
    let place = site.path().join("data/place");
    let written = fs::read(&place).unwrap();
    let server = site.start();
    assert_eq!(fs::read(&place).unwrap(), written);
    assert_eq!(actors(&site), before);
    server.stop();

    copy(&site.path().join("data"), &site.path().join("copy"));
    fs::remove_dir_all(site.path().join("data")).unwrap();
    fs::rename(site.path().join("copy"), site.path().join("data")).unwrap();
    let server = site.start();
    check(&mut site.client().await, |_| Some(1)).await;
    assert!(actors(&site).is_disjoint(&before));
    server.stop();
    assert_ne!(fs::read(&place).unwrap(), written);
}

#[test]
fn a_copied_data_directory_of_a_node_of_several_is_refused_until_the_operator_means_it() {
    let site = site("bitcask");
    if !knows_copies(&site) {
        return;
    }
    site.start().stop();
    let data = site.path().join("data");
    copy(&data, &site.path().join("copy"));
    fs::remove_dir_all(&data).unwrap();
    fs::rename(site.path().join("copy"), &data).unwrap();
    // The note of a node of five.
    let others =
        kvorum_cluster::checked_text::encode("kvorum number of other members", 1, "others 4\n");
    fs::write(data.join("others"), others).unwrap();
    for _ in 0..2 {
        let refused = site.run(&["server"]);
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("was copied here"), "{said}");
        assert!(said.contains("4 others"), "{said}");
        assert!(said.contains("restore.in-cluster"), "{said}");
    }
    fs::write(data.join("restore.in-cluster"), "").unwrap();
    site.start().stop();
    assert!(!data.join("restore.in-cluster").exists());
    site.start().stop();
}
