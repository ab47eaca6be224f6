//! The health of a server without its companions.
//!
//! Regression: the last of three servers answered every put with 503, since a quorum of two takes
//! two machines, but reported that it was ready. So a load balancer kept sending it writes.

use serde_json::Value;

use crate::cluster::{admin, answer, cluster_of_three, is_put, json, until};
use crate::server::Site;

fn get(site: &Site, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    answer(site, &request)
}

/// True if the server is ready for a balancer, and its own report.
fn health(site: &Site) -> (bool, Value) {
    let answer = get(site, "/health/ready");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let is_ready = head.starts_with("HTTP/1.1 200");
    assert!(is_ready || head.starts_with("HTTP/1.1 503"), "{head}");
    (is_ready, serde_json::from_str(body).unwrap())
}

fn refusing_writes(health: &Value) -> usize {
    let refusing = health["partitions_writes_refused"].as_array();
    refusing.unwrap().len()
}

#[test]
fn the_last_of_three_servers_says_that_it_refuses_writes() {
    let (sites, mut servers) = cluster_of_three();
    let site = &sites[0];
    until("the first is ready with nothing to report", || {
        health(site).1["status"] == "ready"
    });
    drop(servers.pop());
    drop(servers.pop());
    until("the health knows that both are gone", || {
        refusing_writes(&health(site).1) > 0
    });
    let (is_ready, said) = health(site);
    assert!(
        said["reasons"].to_string().contains("no_write_quorum"),
        "{said}"
    );
    // Three servers cannot share eight partitions evenly: a few keys may have two replicas on one.
    assert!(refusing_writes(&said) >= 4, "{said}");
    assert_eq!(is_ready, refusing_writes(&said) < 8, "{said}");
    let mut keys = (0..40).map(|number| format!("after{number}"));
    assert!(keys.any(|key| !is_put(site, &key, "value")));
    assert!(get(site, "/health/live").starts_with("HTTP/1.1 200"));
    let ping = site.run(&["ping", "--verbose"]);
    let text = String::from_utf8(ping.stdout).unwrap();
    assert!(text.contains("no_write_quorum"), "{text}");
    assert_eq!(ping.status.success(), is_ready, "{text}");
    assert!(site.run(&["ping"]).status.success());
    let services = json(site, &["services"]);
    let count = services["services"].as_array().unwrap().len();
    assert_eq!(count, usize::from(is_ready), "{services}");

    // Both verbs report the same about the ring.
    let ring = json(site, &["ring-status"]);
    assert_eq!(ring["ring_ready"], false);
    assert!(!site.run(&["admin", "ringready"]).status.success());

    // One companion is enough.
    servers.push(sites[1].start());
    until("no partition refuses writes", || {
        refusing_writes(&health(site).1) == 0
    });
    assert!(health(site).0);
    assert!(admin(site, &["services"]).starts_with("[riak_kv]"));
}
