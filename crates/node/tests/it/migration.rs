//! The published migration from one backend to another, node by node: its output, and its refusals. The
//! stage `cluster` of `cargo xtask test` runs it while clients read and write.

use serde_json::Value;

use crate::cluster::{admin, cluster_of_three, has, is_put, json, until};
use crate::server::{Server, Site};

const KEYS: usize = 60;

fn key(number: usize) -> String {
    format!("key{number}")
}

/// Number of keys in the stores of a node, if all of them are complete and of this engine.
fn keys_in(site: &Site, engine: &str) -> Option<u64> {
    let vnodes = json(site, &["vnode-status"]);
    let vnodes = vnodes.as_array().unwrap();
    let is_whole = |it: &Value| it["complete"] == true && it["backend"] == engine;
    let keys = vnodes.iter().map(|it| it["keys"].as_u64().unwrap());
    vnodes.iter().all(is_whole).then(|| keys.sum())
}

fn hinted(site: &Site) -> u64 {
    let summary = json(site, &["handoff", "summary"]);
    let nodes = summary["nodes"].as_array().unwrap().clone();
    nodes
        .iter()
        .map(|it| it["hinted_objects"].as_u64().unwrap())
        .sum()
}

/// Checks that each of these nodes finds all keys.
fn check(sites: &[&Site]) {
    for site in sites {
        for number in 0..KEYS {
            assert!(has(site, &key(number), "value"), "{}", key(number));
        }
    }
}

#[test]
fn three_nodes_change_their_backend_one_after_the_other() {
    let (mut sites, mut servers) = cluster_of_three();
    for number in 0..KEYS {
        assert!(is_put(&sites[0], &key(number), "value"));
    }
    let before: Vec<u64> = sites
        .iter()
        .map(|it| keys_in(it, "bitcask").unwrap())
        .collect();
    for number in 0..3 {
        until("no hints wait", || hinted(&sites[0]) == 0);
        let server: Server = servers.remove(number);
        server.stop();
        sites[number]
            .settings
            .push("storage_backend=leveldb".to_owned());
        let checked = sites[number].run(&["chkconfig"]);
        assert!(checked.status.success());
        servers.insert(number, sites[number].start());
        let node = format!("node{}@127.0.0.1", number + 1);
        admin(&sites[number], &["wait-for-service", "riak_kv", &node]);
        // Its stores are empty: a key that they lack is not mistaken for a key that was never written.
        until("its stores are repaired", || {
            keys_in(&sites[number], "leveldb").is_some()
        });
        until("nothing is under way", || {
            admin(&sites[0], &["transfers"]).contains("No transfers active")
        });
        check(&sites.iter().collect::<Vec<_>>());
        assert!(is_put(&sites[number], &format!("after{number}"), "value"));
    }
    for (site, before) in sites.iter().zip(before) {
        assert!(keys_in(site, "leveldb").unwrap() >= before);
    }
    admin(&sites[0], &["repair-node", "node2@127.0.0.1"]);
    for server in servers {
        server.stop();
    }
}

#[test]
fn a_node_that_is_alone_does_not_start_over_with_another_backend() {
    let mut site = Site::new();
    let server = site.start();
    assert!(is_put(&site, "key", "value"));
    server.stop();
    site.settings.push("storage_backend=leveldb".to_owned());
    let refused = site.run(&["server"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("storage_backend = bitcask"),
        "{text}"
    );
    site.settings.pop();
    let server = site.start();
    assert!(has(&site, "key", "value"));
    drop(server);
    // The killed node may hold objects for other nodes.
    site.settings.push("storage_backend=leveldb".to_owned());
    let refused = site.run(&["server"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("not stopped gracefully"),
        "{text}"
    );
}
