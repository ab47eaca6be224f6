//! `repair-partition` and `repair-node`: keys that a replica lacks come back from the others.
//!
//! Each key has a replica on each of three nodes, so that a node's stores have all keys between them.
//! In the end a node is asked alone: no other is there, and one answer is enough.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{admin, cluster_of_three, finds, json, put_new, until};
use crate::server::Site;

const KEYS: usize = 90;
const THIRD: &str = "node3@127.0.0.1";

/// Number of keys in the store of each partition, of those that are complete.
fn keys_of(site: &Site) -> BTreeMap<u64, u64> {
    let vnodes = json(site, &["vnode-status"]);
    let vnodes = vnodes.as_array().unwrap().iter();
    let complete = vnodes.filter(|it| it["complete"] == true);
    let number = |it: &Value, field| it[field].as_u64().unwrap();
    complete
        .map(|it| (number(it, "partition"), number(it, "keys")))
        .collect()
}

/// True when nothing of a node is to be repaired any more, and its stores have all keys at least: a put
/// that was given up may be there as well.
fn is_whole(site: &Site) -> bool {
    let summary = json(site, &["handoff", "summary"]);
    let mut nodes = summary["nodes"].as_array().unwrap().iter();
    let is_idle = nodes.all(|it| it["repair"]["known"] == 0);
    is_idle && keys_of(site).values().sum::<u64>() >= u64::try_from(KEYS).unwrap()
}

/// Has so many partitions of the third node repaired. It has just been started, and may not be reached yet.
fn repair(site: &Site, words: &[&str], count: usize) {
    let wanted = match count {
        1 => format!("1 partition of '{THIRD}' is repaired"),
        count => format!("{count} partitions of '{THIRD}' are repaired"),
    };
    until(&wanted, || {
        let said = site.run(&[&["admin"], words].concat()).stdout;
        String::from_utf8(said).unwrap().starts_with(&wanted)
    });
}

/// Removes the files of a partition from a node that is off, as if they had been on a disk of their
/// own.
fn lose(site: &Site, index: &str) {
    let directory = site.path().join("data/bitcask").join(index);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_a_replica_lacks_comes_back_from_the_others() {
    let (mut sites, mut servers) = cluster_of_three();
    servers.remove(2).stop();
    // No node stands in for the third, since the others have replicas themselves: it gets no hints.
    let put = |number| put_new(&sites[0], &format!("key{number}"));
    let keys: Vec<String> = (0..KEYS).map(put).collect();
    servers.push(sites[2].start());
    let before = keys_of(&sites[2]);
    assert_eq!(before.values().sum::<u64>(), 0, "{before:?}");
    let own: Vec<u64> = before.keys().copied().collect();

    // One partition is repaired by the one, the others by the other.
    let first = own[0].to_string();
    repair(&sites[0], &["repair-partition", &first], 1);
    until("a partition is repaired", || {
        keys_of(&sites[2])[&own[0]] > 0
    });
    let others = own[1..].iter();
    let after = keys_of(&sites[2]);
    assert!(others.clone().all(|it| after[it] == 0), "{after:?}");
    repair(&sites[1], &["repair-node", THIRD], own.len());
    until("all is repaired", || is_whole(&sites[2]));

    // A store that is lost. It would be repaired without a command as well, but not by a node that
    // fetches nothing: its requests wait.
    let vnodes = json(&sites[2], &["vnode-status"]);
    let lost = vnodes.as_array().unwrap()[1].clone();
    servers.remove(2).stop();
    lose(&sites[2], lost["index"].as_str().unwrap());
    sites[2].settings.push("handoff.inbound=off".to_owned());
    servers.push(sites[2].start());
    let left = keys_of(&sites[2]);
    assert_eq!(left.len(), own.len() - 1, "{left:?}");
    let number = lost["partition"].to_string();
    repair(&sites[0], &["repair-partition", &number], 1);
    admin(&sites[2], &["handoff", "enable", "inbound"]);
    until("the lost store is repaired", || is_whole(&sites[2]));
    let now = keys_of(&sites[2]);
    assert_eq!(
        Some(now[&lost["partition"].as_u64().unwrap()]),
        lost["keys"].as_u64()
    );

    // Alone with its own data.
    servers.drain(..2);
    for key in keys {
        finds(&sites[2], &format!("{key}?r=1"));
    }
}
