//! Tombstones of a cluster of three servers are removed from all replicas, and an operator sees why
//! they stay.

use serde_json::{Value, json};

use crate::cluster::{self, admin, cluster_of_three_with, put_new, until};
use crate::leveldb::http;
use crate::server::Site;

const SETTINGS: [&str; 3] = [
    "tictacaae_active=active",
    "tictacaae_exchangetick=1s",
    "delete_mode=immediate",
];

fn put_and_delete(site: &Site, front: &str) {
    for number in 0..30 {
        let key = put_new(site, &format!("{front}{number}"));
        let (status, body) = http(site, &format!("DELETE /buckets/b/keys/{key}"), "");
        assert!(status.contains(" 204 "), "{status} {body}");
    }
}

fn tombstones(site: &Site) -> Value {
    cluster::json(site, &["tictacaae", "tombstones"])
}

/// The value of a metric without labels, or with these.
fn metric(site: &Site, name: &str) -> u64 {
    let lines = site.metrics();
    let value = lines
        .iter()
        .find_map(|it| it.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().trim().parse().unwrap()
}

fn sum(sites: &[Site], name: &str) -> u64 {
    sites.iter().map(|it| metric(it, name)).sum()
}

#[test]
fn they_go_in_rounds_and_stay_while_a_node_is_down_which_is_named() {
    let (sites, mut servers) = cluster_of_three_with(&SETTINGS);
    put_and_delete(&sites[0], "early");
    until("rounds have removed tombstones", || {
        sum(&sites, "kvorum_tombstones_reaped_total") > 0
    });
    let went_through = "kvorum_tombstone_rounds_total{outcome=\"went_through\"}";
    assert!(sum(&sites, went_through) > 0);
    let reaped: u64 = sites
        .iter()
        .filter_map(|it| tombstones(it)["tombstones_reaped_total"].as_u64())
        .sum();
    assert!(reaped > 0);
    let has_round = |it: &Value| it["last_round"].as_u64() > Some(0);
    let lists = tombstones(&sites[0]);
    let lists = lists["lists"].as_array().unwrap().clone();
    let others = sites[1..].iter().map(tombstones);
    let all = others.flat_map(|it| it["lists"].as_array().unwrap().clone());
    assert!(lists.into_iter().chain(all).any(|it| has_round(&it)));

    // Dropping it kills the server.
    drop(servers.pop());
    put_and_delete(&sites[0], "late");
    let is_kept = |it: &Value| it["stay_because"] == "member_down";
    until("the node that is down is the reason", || {
        let shown = tombstones(&sites[0]);
        shown["lists"].as_array().unwrap().iter().any(is_kept)
    });
    let shown = tombstones(&sites[0]);
    let mut kept = shown["lists"].as_array().unwrap().iter();
    let kept = kept.find(|it| is_kept(it)).unwrap();
    assert_eq!(kept["members"], json!(["node3@127.0.0.1"]));
    let text = admin(&sites[0], &["tictacaae", "tombstones"]);
    assert!(text.contains("node3@127.0.0.1 is down"), "{text}");
    assert!(sum(&sites[..2], "kvorum_tombstones_waiting") > 0);
    let fold = ["tictacaae", "fold"];
    let reap = ["reap-tombstones", "b", "all", "all", "all", "local"];
    let said = admin(&sites[0], &[&fold[..], &reap[..]].concat());
    assert!(said.contains("go by themselves"), "{said}");
}
