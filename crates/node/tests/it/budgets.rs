//! Budgets that run out: memory and open files.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use crate::server::Site;

const MEBIBYTE: usize = 1 << 20;

fn maintenance(site: &Site) -> Value {
    let shown = site.run(&["admin", "maintenance", "--json"]);
    serde_json::from_slice(&shown.stdout).unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The memory engine holds all objects put, and frees deleted ones.
#[tokio::test]
async fn r36_a_node_whose_memory_is_used_up_refuses_puts_until_deletions_have_made_room() {
    let mut site = Site::new();
    site.settings = [
        "storage_backend=memory",
        "maintenance.memory_bytes_max=16MB",
    ]
    .map(str::to_owned)
    .into();
    let server = site.start();
    let mut client = site.client().await;
    let value = Bytes::from(vec![7; MEBIBYTE]);
    let mut stored = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let refusal = loop {
        assert!(Instant::now() < deadline, "{} are stored", stored.len());
        let key = u32::try_from(stored.len()).unwrap().to_be_bytes();
        match client.put_value(b"b", &key, value.clone()).await {
            Ok(()) => stored.push(key),
            Err(error) => break error.to_string(),
        }
        // The size of the stores is queried once a second.
        std::thread::sleep(Duration::from_millis(150));
    };
    assert!(refusal.contains("overload"), "{refusal}");
    assert!((15..60).contains(&stored.len()), "{}", stored.len());
    let shown = maintenance(&site);
    assert_eq!(shown["refuses_puts"], true, "{shown}");
    assert!(shown["budgets"]["memory_bytes_used"].as_u64() >= Some(15 << 20));
    let text = site.run(&["admin", "maintenance"]).stdout;
    assert!(String::from_utf8_lossy(&text).contains("puts are refused"));
    // Reads still succeed, and deletes make room.
    let read = client.get_key(b"b", &stored[0]).await.unwrap();
    assert_eq!(read.content[0].value.len(), MEBIBYTE);
    for key in &stored {
        client.delete_key(b"b", key).await.unwrap();
    }
    wait_until("puts are still refused", || {
        maintenance(&site)["refuses_puts"] == false
    });
    client.put_value(b"b", b"new", value).await.unwrap();
    server.stop();
}

/// A large request takes room when its first bytes arrive, so that many at once cannot take more
/// than there is.
#[tokio::test]
async fn r36_large_requests_have_a_part_of_the_budget_and_what_they_hold_is_counted() {
    let mut site = Site::new();
    site.settings = vec!["maintenance.memory_bytes_max=16MB".to_owned()];
    let server = site.start();
    let mut client = site.client().await;
    let value = Bytes::from(vec![7; MEBIBYTE]);
    // The request announces 3 MB and stops there. An eighth of the budget is 2 MB.
    let slow = TcpStream::connect(site.protobuf).unwrap();
    (&slow).write_all(&[0, 0x30, 0, 0, 11]).unwrap();
    wait_until("the request is not counted", || {
        maintenance(&site)["budgets"]["request_bytes_used"].as_u64() >= Some(3 << 20)
    });
    assert!(maintenance(&site)["budgets"]["memory_bytes_used"].as_u64() >= Some(3 << 20));
    let refused = client.put_value(b"b", b"large", value.clone()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("overload"), "{refused}");
    client
        .put_value(b"b", b"small", Bytes::from_static(b"small"))
        .await
        .unwrap();
    drop(slow);
    wait_until("the request that was given up is still counted", || {
        maintenance(&site)["budgets"]["request_bytes_used"] == 0
    });
    client.put_value(b"b", b"large", value).await.unwrap();
    server.stop();
}

#[test]
fn a_start_that_could_not_keep_its_files_open_is_refused_with_a_way_out() {
    let mut site = Site::new();
    site.settings = vec!["maintenance.open_files_max=200".to_owned()];
    let refused = site.run(&["server"]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("200 are allowed"), "{said}");
    assert!(said.contains("ulimit -n"), "{said}");
    // Enough files for a node without peers are not enough for one of a cluster.
    site.settings = vec![
        "maintenance.open_files_max=260".to_owned(),
        "listener.peer.internal=127.0.0.1:0".to_owned(),
    ];
    let refused = site.run(&["server"]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("112 connections of other nodes"), "{said}");
}
