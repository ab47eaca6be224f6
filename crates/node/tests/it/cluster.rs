//! Three servers as one cluster: joined and planned over the admin interface, one killed and started.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::{Server, Site, free_address};

/// Far more than it takes; the machine may be busy.
const WITHIN: Duration = Duration::from_secs(120);

pub(crate) fn site(number: u8) -> (Site, SocketAddr) {
    let mut site = Site::new();
    let peer = free_address();
    site.settings = vec![
        format!("nodename=node{number}@127.0.0.1"),
        format!("listener.peer.internal={peer}"),
    ];
    (site, peer)
}

pub(crate) fn admin(site: &Site, words: &[&str]) -> String {
    let output = site.run(&[&["admin"], words].concat());
    let text = String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap();
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

pub(crate) fn json(site: &Site, words: &[&str]) -> Value {
    serde_json::from_str(&admin(site, &[words, &["--json"]].concat())).unwrap()
}

pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !holds() {
        assert!(
            Instant::now() < deadline,
            "it never comes to hold that {what}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Sends a request over HTTP; the whole answer.
pub(crate) fn answer(site: &Site, request: &str) -> String {
    let mut stream = TcpStream::connect(site.http).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn put(site: &Site, key: &str, value: &str) {
    assert!(is_put(site, key, value), "{key}");
}

pub(crate) fn is_put(site: &Site, key: &str, value: &str) -> bool {
    let request = format!(
        "PUT /buckets/b/keys/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{value}",
        value.len()
    );
    answer(site, &request).starts_with("HTTP/1.1 204")
}

pub(crate) fn has(site: &Site, key: &str, value: &str) -> bool {
    let request =
        format!("GET /buckets/b/keys/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = answer(site, &request);
    answer.starts_with("HTTP/1.1 200") && answer.ends_with(value)
}

/// Waits until a node has a key for its clients.
pub(crate) fn finds(site: &Site, key: &str) {
    until(&format!("{key} is found"), || has(site, key, "value"));
}

/// Puts a new key; one whose put failed may be there or not, and is not put again.
pub(crate) fn put_new(site: &Site, front: &str) -> String {
    let tried = Cell::new(0);
    let key = || format!("{front}.{}", tried.get());
    until("a put finds its quorum", || {
        tried.set(tried.get() + 1);
        is_put(site, &key(), "value")
    });
    key()
}

/// Three servers that have become one cluster in which each key has three replicas.
pub(crate) fn cluster_of_three() -> (Vec<Site>, Vec<Server>) {
    cluster_of_three_with(&[])
}

/// The same with further settings.
pub(crate) fn cluster_of_three_with(settings: &[&str]) -> (Vec<Site>, Vec<Server>) {
    let (mut sites, peers): (Vec<Site>, Vec<SocketAddr>) = (1..=3).map(site).unzip();
    for site in &mut sites {
        let further = settings.iter().map(|it| (*it).to_owned());
        site.settings.extend(further);
    }
    let servers: Vec<Server> = sites.iter().map(Site::start).collect();
    join_all(&sites, &peers);
    (sites, servers)
}

pub(crate) fn join_all(sites: &[Site], peers: &[SocketAddr]) {
    for site in &sites[1..] {
        let first = format!("node1@127.0.0.1:{}", peers[0].port());
        let said = admin(site, &["cluster", "join", &first]);
        assert!(said.contains("Success: staged join request"), "{said}");
    }
    // Every node shows the entry that another one has just agreed to, or warns that it may be behind
    // (the leader may not be heard on a busy machine).
    let planner = &sites[sites.len() - 1];
    until("a plan is not behind", || {
        let plan = json(planner, &["cluster", "plan"]);
        let is_newest = plan["behind"].is_null();
        let staged = plan["staged"].to_string();
        let has_both = (2..=3).all(|it| staged.contains(&format!("'node{it}@")));
        assert!(has_both || !is_newest, "{plan}");
        is_newest
    });
    // The plan that one node has shown is committed on another.
    admin(&sites[0], &["cluster", "commit"]);
    until("every key has three replicas", || {
        let ring = json(&sites[2], &["ring-status"]);
        ring["settled"] == true && ring["replicas_max"] == 3
    });
}

/// Limits, switches, repairs and services, asked at one node about another.
fn operators_verbs_reach_every_node(sites: &[Site]) {
    let limit = admin(&sites[0], &["transfer-limit", "node3@127.0.0.1", "5"]);
    assert!(limit.contains("for node3@127.0.0.1 to 5"), "{limit}");
    let limits = json(&sites[1], &["transfer-limit"]);
    let limits: Vec<u64> = limits["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["limit"].as_u64().unwrap())
        .collect();
    let mut sorted = limits.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [2, 2, 5]);
    admin(
        &sites[0],
        &["handoff", "disable", "inbound", "--node", "node2@127.0.0.1"],
    );
    let repaired = json(&sites[0], &["repair-node", "node2@127.0.0.1"]);
    assert!(
        !repaired["partitions"].as_array().unwrap().is_empty(),
        "{repaired}"
    );
    let known = |site: &Site| {
        let summary = json(site, &["handoff", "summary"]);
        let nodes = summary["nodes"].as_array().unwrap().clone();
        let of = |node: &Value| node["repair"]["known"].as_u64().unwrap();
        nodes.iter().map(of).sum::<u64>()
    };
    assert!(known(&sites[2]) > 0);
    let details = admin(&sites[2], &["handoff", "details"]);
    assert!(details.contains("Rp"), "{details}");
    let waiting = admin(&sites[2], &["transfers"]);
    assert!(
        waiting.contains("'node2@127.0.0.1' waiting to receive"),
        "{waiting}"
    );
    admin(&sites[2], &["handoff", "enable", "both", "--all"]);
    until("all is repaired", || known(&sites[0]) == 0);
    admin(&sites[0], &["repair-partition", "3"]);
    let refused = sites[0].run(&["admin", "repair-partition", "8"]);
    assert!(!refused.status.success());
    assert_eq!(
        admin(&sites[0], &["services", "node3@127.0.0.1"]).trim(),
        "[riak_kv]"
    );
}

#[test]
fn three_servers_become_one_cluster_and_outlive_a_kill() {
    let (sites, peers): (Vec<Site>, Vec<SocketAddr>) = (1..=3).map(site).unzip();
    let mut servers: Vec<Server> = sites.iter().map(Site::start).collect();
    put(&sites[0], "early", "before the others");
    join_all(&sites, &peers);
    let members = json(&sites[1], &["member-status"]);
    assert_eq!(members.as_array().unwrap().len(), 3);
    assert!(
        members
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["status"] == "valid")
    );
    admin(&sites[1], &["ringready"]);
    for (number, site) in sites.iter().enumerate() {
        assert!(has(site, "early", "before the others"));
        put(site, &format!("key{number}"), "value");
        assert!(
            sites
                .iter()
                .all(|it| has(it, &format!("key{number}"), "value"))
        );
    }

    operators_verbs_reach_every_node(&sites);
    drop(servers.pop());
    until("the kill is noticed", || {
        !json(&sites[0], &["ring-status"])["unreachable"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    // Eight partitions do not go round three nodes evenly: a few keys have two replicas on one.
    let mut keys = (0..20).map(|number| format!("late{number}"));
    let late = keys.find(|key| is_put(&sites[0], key, "while one was away"));
    let late = late.unwrap();
    assert!(has(&sites[1], &late, "while one was away"));
    servers.push(sites[2].start());
    until("it is seen again", || {
        json(&sites[0], &["ring-status"])["unreachable"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    assert!(has(&sites[2], &late, "while one was away"));
    // Without a majority a plan is shown all the same, with a warning.
    servers.truncate(1);
    let plan = json(&sites[0], &["cluster", "plan"]);
    assert!(plan["behind"]["seconds"].as_u64() >= Some(1), "{plan}");
    assert_eq!(plan["staged"], Value::Array(Vec::new()));
    for server in servers {
        server.stop();
    }
}
