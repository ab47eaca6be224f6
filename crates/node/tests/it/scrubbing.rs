//! Corruption under a running server, found by a scrub that `scrub.period` starts.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use crate::server::Site;

/// Every finished segment, largest first: there is a later one in the same store.
fn segments(data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for store in fs::read_dir(data.join("bitcask")).unwrap() {
        let files = fs::read_dir(store.unwrap().path()).unwrap();
        let names = files.map(|it| it.unwrap().path());
        let mut own: Vec<PathBuf> = names
            .filter(|it| it.extension().is_some_and(|it| it == "segment"))
            .collect();
        own.sort();
        own.pop();
        found.extend(own);
    }
    let len = |path: &PathBuf| fs::metadata(path).unwrap().len();
    found.sort_by_key(|path| std::cmp::Reverse(len(path)));
    found
}

fn lost_of(site: &Site) -> Vec<Value> {
    let shown = site.run(&["admin", "vnode-status", "--json"]).stdout;
    let vnodes: Vec<Value> = serde_json::from_slice(&shown).unwrap();
    let lost = vnodes.iter().filter_map(|it| it["lost"].as_array());
    lost.flatten().cloned().collect()
}

#[tokio::test]
async fn a_byte_that_rots_under_a_running_server_is_reported_after_the_period() {
    let mut site = Site::new();
    site.settings = [
        "storage_backend=bitcask",
        // Puts then go to the stores' own files.
        "durability=none",
        "bitcask.compression=none",
        "bitcask.max_file_size=1MB",
        "bitcask.merge.policy=never",
        "scrub.period=3s",
    ]
    .map(str::to_owned)
    .into();
    let server = site.start();
    let mut client = site.client().await;
    let value = Bytes::from(vec![7; 100_000]);
    for number in 0..240u32 {
        let key = number.to_be_bytes();
        client.put_value(b"b", &key, value.clone()).await.unwrap();
    }
    let damaged = segments(&site.path().join("data")).remove(0);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&damaged)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    assert_eq!(lost_of(&site), Vec::<Value>::new());
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();

    let deadline = Instant::now() + Duration::from_secs(90);
    while lost_of(&site).is_empty() {
        assert!(Instant::now() < deadline, "nobody has found it");
        std::thread::sleep(Duration::from_millis(200));
    }
    let lost = lost_of(&site);
    let name = damaged.file_name().unwrap().to_str().unwrap();
    assert!(lost[0].to_string().contains(name), "{lost:?}");
    let mut metrics = site.metrics();
    metrics.retain(|line| line.starts_with("kvorum_store_corrupt_reads"));
    assert!(
        metrics.iter().any(|line| !line.ends_with(" 0")),
        "{metrics:?}"
    );
    let shown = site.run(&["admin", "maintenance", "--json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert!(
        shown["kinds"]["scrub"]["bytes"].as_u64() > Some(0),
        "{shown}"
    );
    server.stop();
}
