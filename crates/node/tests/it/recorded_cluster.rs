//! Data directories that a cluster of three left: every later version starts it again, and reads all
//! of it at each node.
//!
//! `recorded/2026-11` has them, packed; `KVORUM_RECORD=2026-11 cargo test -p kvorum-node
//! recorded_cluster` wrote them. The nodes find each other under the addresses that they agreed on,
//! so these are always the same, and one run of this test waits for another.

use std::fs::File;
use std::net::SocketAddr;

use crate::cluster::{admin, has, is_put, join_all, json, put_new, until};
use crate::recorded::{End, archive_in, end_and_pack, is_recording, unpack};
use crate::server::{Server, Site};

const FOLDER: &str = "2026-11";
const NODES: usize = 3;
const KEYS: usize = 30;
/// Below the ports that other tests choose from.
const FIRST_PORT: u16 = 9471;

fn peer(number: usize) -> SocketAddr {
    let port = FIRST_PORT + u16::try_from(number).unwrap();
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn site(number: usize) -> Site {
    let mut site = Site::new();
    site.settings = vec![
        format!("nodename=node{}@127.0.0.1", number + 1),
        format!("listener.peer.internal={}", peer(number)),
    ];
    site
}

fn sites() -> Vec<Site> {
    (0..NODES).map(site).collect()
}

fn archive(number: usize) -> std::path::PathBuf {
    archive_in(FOLDER, &format!("cluster-{}", number + 1))
}

fn value(number: usize) -> String {
    format!("value {number} of the cluster")
}

/// Starts all nodes at the same time: none has to wait for the others.
fn start_all(sites: &[Site]) -> Vec<Server> {
    std::thread::scope(|scope| {
        let starting = sites.iter().map(|site| scope.spawn(|| site.start()));
        let starting: Vec<_> = starting.collect();
        let started = starting.into_iter().map(|it| it.join().unwrap());
        started.collect()
    })
}

fn record() {
    let sites = sites();
    let servers = start_all(&sites);
    let peers: Vec<SocketAddr> = (0..NODES).map(peer).collect();
    join_all(&sites, &peers);
    admin(&sites[1], &["bucket-type", "create", "kept"]);
    admin(&sites[1], &["bucket-type", "activate", "kept"]);
    for number in 0..KEYS {
        let site = &sites[number % NODES];
        assert!(is_put(site, &format!("k{number}"), &value(number)));
    }
    for (number, server) in servers.into_iter().enumerate() {
        end_and_pack(&sites[number], server, End::Stopped, &archive(number));
    }
}

#[test]
fn a_cluster_of_three_opens_what_it_left() {
    let lock = File::create(std::env::temp_dir().join("kvorum-recorded-cluster.lock")).unwrap();
    lock.lock().unwrap();
    if is_recording(FOLDER) {
        record();
    }
    let sites = sites();
    for (number, site) in sites.iter().enumerate() {
        unpack(site, &archive(number));
        // As in a restore of all nodes together.
        File::create(site.path().join("data/restore.in-cluster")).unwrap();
    }
    let servers = start_all(&sites);
    for site in &sites {
        for number in 0..KEYS {
            let (key, value) = (format!("k{number}"), value(number));
            until(&format!("{key} is read"), || has(site, &key, &value));
        }
        let members = json(site, &["member-status"]);
        let members = members.as_array().unwrap();
        assert_eq!(members.len(), NODES);
        assert!(members.iter().all(|it| it["status"] == "valid"));
        let types = admin(site, &["bucket-type", "list"]);
        assert!(types.contains("kept (active)"), "{types}");
    }
    until("every key has three replicas", || {
        let ring = json(&sites[0], &["ring-status"]);
        ring["settled"] == true && ring["replicas_max"] == 3
    });
    let key = put_new(&sites[1], "new");
    until("a new key is read", || has(&sites[2], &key, "value"));
    servers.into_iter().for_each(Server::stop);
    for site in &sites {
        let verified = site.run_alone(&["verify", "data"]);
        assert!(verified.status.success(), "{verified:?}");
    }
}
