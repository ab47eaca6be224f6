//! Three servers as one cluster: joined and planned over the admin interface, one killed and started.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::{Server, Site};

/// Far more than it takes; the machine may be busy.
const WITHIN: Duration = Duration::from_secs(120);

fn site(number: u8) -> (Site, SocketAddr) {
    let mut site = Site::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = free.local_addr().unwrap();
    site.settings = vec![
        format!("nodename=node{number}@127.0.0.1"),
        format!("listener.peer.internal={peer}"),
    ];
    (site, peer)
}

fn admin(site: &Site, words: &[&str]) -> String {
    let output = site.run(&[&["admin"], words].concat());
    let text = String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap();
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

fn json(site: &Site, words: &[&str]) -> Value {
    serde_json::from_str(&admin(site, &[words, &["--json"]].concat())).unwrap()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !holds() {
        assert!(
            Instant::now() < deadline,
            "it never comes to hold that {what}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn ask(site: &Site, request: &str) -> String {
    let mut stream = TcpStream::connect(site.http).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn put(site: &Site, key: &str, value: &str) {
    assert!(is_put(site, key, value), "{key}");
}

fn is_put(site: &Site, key: &str, value: &str) -> bool {
    let request = format!(
        "PUT /buckets/b/keys/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{value}",
        value.len()
    );
    ask(site, &request).starts_with("HTTP/1.1 204")
}

fn has(site: &Site, key: &str, value: &str) -> bool {
    let request =
        format!("GET /buckets/b/keys/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = ask(site, &request);
    answer.starts_with("HTTP/1.1 200") && answer.ends_with(value)
}

#[test]
fn three_servers_become_one_cluster_and_outlive_a_kill() {
    let (sites, peers): (Vec<Site>, Vec<SocketAddr>) = (1..=3).map(site).unzip();
    let mut servers: Vec<Server> = sites.iter().map(Site::start).collect();
    put(&sites[0], "early", "before the others");
    for site in &sites[1..] {
        let first = format!("node1@127.0.0.1:{}", peers[0].port());
        let said = admin(site, &["cluster", "join", &first]);
        assert!(said.contains("Success: staged join request"), "{said}");
    }
    let plan = admin(&sites[0], &["cluster", "plan"]);
    assert!(plan.contains("join           'node2@127.0.0.1'"), "{plan}");
    assert!(plan.contains("Valid:3"), "{plan}");
    admin(&sites[0], &["cluster", "commit"]);
    until("every key has three replicas", || {
        let ring = json(&sites[2], &["ring-status"]);
        ring["ring_ready"] == true && ring["replicas_max"] == 3
    });
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
    for server in servers {
        server.stop();
    }
}
