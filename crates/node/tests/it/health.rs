//! The health of a server whose companions are gone.
//!
//! The last of three servers answered every put with 503, as a quorum of two is two machines, and said that
//! it was ready: a load balancer kept sending it writes.

use crate::cluster::{admin, answer, cluster_of_three, is_put, json, until};
use crate::server::Site;

fn get(site: &Site, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    answer(site, &request)
}

fn is_ready(site: &Site) -> bool {
    get(site, "/health/ready").starts_with("HTTP/1.1 200")
}

#[test]
fn the_last_of_three_servers_is_not_ready_for_writes() {
    let (sites, mut servers) = cluster_of_three();
    let site = &sites[0];
    until("the first is ready", || is_ready(site));
    until("a put finds its quorum", || is_put(site, "before", "value"));
    drop(servers.pop());
    drop(servers.pop());
    until("the health knows that both are gone", || !is_ready(site));
    assert!(!is_put(site, "after", "value"));
    let health = get(site, "/health/ready");
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(health.contains("no_write_quorum"), "{health}");
    assert!(get(site, "/health/live").starts_with("HTTP/1.1 200"));
    let ping = site.run(&["ping", "--verbose"]);
    let said = String::from_utf8(ping.stdout).unwrap();
    assert!(
        !ping.status.success() && said.contains("no_write_quorum"),
        "{said}"
    );
    assert!(site.run(&["ping"]).status.success());
    let services = json(site, &["services"]);
    assert_eq!(services["services"], serde_json::json!([]), "{services}");

    // Both verbs say the same of the ring.
    let ring = json(site, &["ring-status"]);
    assert_eq!(ring["ring_ready"], false);
    assert!(!site.run(&["admin", "ringready"]).status.success());

    // One companion is enough.
    servers.push(sites[1].start());
    until("it is ready again", || is_ready(site));
    until("puts find their quorum again", || {
        is_put(site, "again", "value")
    });
    assert!(admin(site, &["services"]).starts_with("[riak_kv]"));
}
