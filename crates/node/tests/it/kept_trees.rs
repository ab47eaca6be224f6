//! Hash trees of a node survive its stop, and are built again after a kill.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use crate::server::Site;

const KEYS: u32 = 200;

fn trees(site: &Site) -> Vec<Value> {
    let shown = site.run(&["admin", "tictacaae", "treestatus", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown["trees"].as_array().unwrap().clone()
}

/// The trees of all vnodes, as soon as they have every entry.
fn whole_trees(site: &Site) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let trees = trees(site);
        if trees.len() == 8 && trees.iter().all(|it| it["status"] == "built") {
            return trees;
        }
        assert!(Instant::now() < deadline, "{trees:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn keys_in(trees: &[Value]) -> u64 {
    trees.iter().filter_map(|it| it["keys"].as_u64()).sum()
}

fn files(site: &Site) -> usize {
    let directory = site.path().join("data/hash_trees");
    std::fs::read_dir(directory).unwrap().count()
}

async fn put(site: &Site, keys: std::ops::Range<u32>) {
    let mut client = site.client().await;
    for number in keys {
        let (key, value) = (number.to_be_bytes(), Bytes::from_static(b"value"));
        client.put_value(b"b", &key, value).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_that_was_stopped_has_its_trees_and_one_that_died_has_them_again() {
    let mut site = Site::new();
    site.settings = vec!["tictacaae_active=active".to_owned()];
    let server = site.start();
    put(&site, 0..KEYS).await;
    assert_eq!(keys_in(&whole_trees(&site)), u64::from(KEYS));
    server.stop();
    assert_eq!(files(&site), 8);

    let server = site.start();
    let kept = whole_trees(&site);
    let are_kept = |it: &Value| it["were_kept"] == true && it["builds"] == 0;
    assert!(kept.iter().all(are_kept), "{kept:?}");
    assert_eq!(keys_in(&kept), u64::from(KEYS));
    put(&site, KEYS..KEYS + 20).await;
    // Dropping it kills the server.
    drop(server);

    let server = site.start();
    whole_trees(&site);
    server.stop();
    let verified = site.run_alone(&["verify", "data"]);
    assert!(verified.status.success(), "{verified:?}");
}
