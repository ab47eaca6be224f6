//! `kvorum import riak-leveled` into real servers, read back over protocol buffers.

use std::process::{Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use kvorum_client::{Client, Get, GetOptions};
use serde_json::Value;

use crate::journal::{Journal, key, ledger_key, typed_key};
use crate::riak_objects::{binary, dotted, object_v1, plain};
use crate::server::Site;

/// The path of a file of a partition's journal.
fn journal_path(site: &Site, partition: u32, name: &str) -> std::path::PathBuf {
    let index = crate::partitions::partition(partition);
    let directory = format!("riak/leveled/{index}/journal/journal_files");
    site.path().join(directory).join(name)
}

fn write(site: &Site, partition: u32, name: &str, bytes: &[u8]) {
    let path = journal_path(site, partition, name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn object(value: &str) -> Vec<u8> {
    object_v1(&[("a", 1)], &[plain(value)])
}

/// Two partitions: completed and active files, a deleted key, siblings, a type, a head.
fn source(site: &Site) {
    let mut completed = Journal::default();
    completed.put(1, &key("b", "cold"), &object("cold"));
    completed.put(2, &key("b", "gone"), &object("gone"));
    completed.put(3, &key("b", "hot"), &object("older"));
    let mut active = Journal::default();
    active.delete(4, &key("b", "gone"));
    active.put(5, &key("b", "hot"), &object("hot"));
    active.put(6, &typed_key("carts", "b", "k"), &object("typed"));
    write(site, 0, "0_x.cdb", &completed.completed());
    write(site, 0, "4_x.pnd", &active.bytes);
    let siblings = [dotted("x", "a", 1), dotted("y", "b", 1)];
    let siblings = object_v1(&[("a", 1), ("b", 1)], &siblings);
    let mut second = Journal::default();
    second.put(1, &key("b", "cold"), &object("cold"));
    second.put(2, &key("b", "siblings"), &siblings);
    second.put(3, &ledger_key("h", &binary("b"), "head"), b"a head");
    write(site, 1, "0_x.cdb", &second.completed());
}

const WORDS: [&str; 3] = ["import", "riak-leveled", "riak/leveled"];

fn with<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&WORDS[..], words].concat()
}

fn create_type(site: &Site) {
    for verb in ["create", "activate"] {
        let made = site.run(&["admin", "bucket-type", verb, "carts"]);
        assert!(made.status.success());
    }
}

fn counts(output: &Output) -> Value {
    let summary = serde_json::from_slice::<Value>(&output.stdout);
    summary.unwrap()["counts"].clone()
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
    for name in ["cold", "hot"] {
        assert_eq!(values(client, None, name).await, [name]);
    }
    assert_eq!(values(client, None, "siblings").await, ["x", "y"]);
    assert_eq!(values(client, Some(b"carts"), "k").await, ["typed"]);
    assert!(values(client, None, "gone").await.is_empty());
}

#[tokio::test]
async fn a_running_server_takes_journals_in_and_heads_show_in_the_exit_code() {
    let site = Site::new();
    source(&site);
    let _server = site.start();
    let dry = site.run(&with(&["--dry-run", "--json"]));
    assert_eq!(dry.status.code(), Some(3));
    let found = counts(&dry);
    assert_eq!(
        (&found["objects"], &found["other_keys"]),
        (&4.into(), &1.into())
    );
    assert_eq!(
        (&found["keys_deleted"], &found["equal_copies"]),
        (&1.into(), &1.into())
    );
    let refused = site.run(&WORDS);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("bucket-type create carts"), "{text}");
    create_type(&site);
    let imported = site.run(&WORDS);
    assert_eq!(imported.status.code(), Some(3));
    let text = String::from_utf8_lossy(&imported.stdout).into_owned();
    assert!(text.contains("an object of tag h"), "{text}");
    let mut client = site.client().await;
    assert_source(&mut client).await;
    // A second import from the beginning changes nothing.
    assert_eq!(site.run(&with(&["--restart"])).status.code(), Some(3));
    assert_source(&mut client).await;
}

#[tokio::test]
async fn a_stopped_node_has_the_objects_of_journals_when_it_starts() {
    let site = Site::new();
    source(&site);
    let server = site.start();
    create_type(&site);
    server.stop();
    assert_eq!(site.run(&WORDS).status.code(), Some(3));
    let _server = site.start();
    assert_source(&mut site.client().await).await;
}

#[tokio::test]
async fn a_killed_import_of_journals_goes_on() {
    const KEYS: u32 = 6000;
    let site = Site::new();
    for partition in 0..2 {
        let mut journal = Journal::default();
        for number in 0..KEYS {
            let name = number.to_string();
            journal.put(
                number + 1,
                &key("b", &name),
                &object(&format!("value {number}")),
            );
        }
        write(&site, partition, "0_x.cdb", &journal.completed());
    }
    let _server = site.start();
    for millis in [60, 120, 250] {
        let mut command = site.command(&with(&["--json"]));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let imported = site.run(&with(&["--json"]));
    assert!(imported.status.success());
    let found = counts(&imported);
    assert_eq!(
        (&found["objects"], &found["equal_copies"]),
        (&KEYS.into(), &KEYS.into())
    );
    let mut client = site.client().await;
    for number in (0..KEYS).step_by(37) {
        let found = values(&mut client, None, &number.to_string()).await;
        assert_eq!(found, [format!("value {number}")]);
    }
}

#[test]
fn a_journal_that_a_process_has_open_is_not_imported() {
    let site = Site::new();
    source(&site);
    let open = std::fs::File::open(journal_path(&site, 0, "4_x.pnd")).unwrap();
    let refused = site.run(&with(&["--dry-run"]));
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    let holder = format!("4_x.pnd is held by process {}", std::process::id());
    assert!(
        text.contains(&holder) && text.contains("--ignore-locks"),
        "{text}"
    );
    let words = with(&["--dry-run", "--ignore-locks"]);
    assert_eq!(site.run(&words).status.code(), Some(3));
    drop(open);
    assert_eq!(site.run(&with(&["--dry-run"])).status.code(), Some(3));
}
