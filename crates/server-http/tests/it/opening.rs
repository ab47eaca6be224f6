//! A node whose ring and log are still being opened.
//!
//! Regression: its sockets were open, but accepted nothing. An orchestrator got no answer to its
//! liveness probe and ended the process, which then read the same log again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvorum_runtime::{ListenOptions, Runtime};
use kvorum_server_http::Opening;

use crate::client::{Client, Response};
use crate::world::{World, run};

const WAIT_MAX: Duration = Duration::from_secs(60);

/// A listener beside the server's own, of a node that is not open.
fn opening(world: &World) -> (Opening, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = world.runtime.listen(any, ListenOptions::default()).unwrap();
    let address = listener.local_address();
    let opening = Opening::new(world.runtime.clone(), "Kvorum/test", WAIT_MAX);
    opening.listen(listener);
    (opening, address)
}

async fn client(runtime: &Runtime, address: SocketAddr) -> Client {
    Client::new(runtime.connect(address).await.unwrap())
}

/// Sends the beginning of a request, and the rest after a while.
async fn send(client: &mut Client, runtime: &Runtime, request: &str, cut: usize) {
    let (first, rest) = request.as_bytes().split_at(cut.min(request.len()));
    client.send(first).await;
    runtime.sleep(Duration::from_millis(10)).await;
    client.send(rest).await;
}

async fn probe(world: &World, address: SocketAddr, line: &str, cut: usize) -> Response {
    let mut client = client(&world.runtime, address).await;
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
    send(&mut client, &world.runtime, &request, cut).await;
    let answer = client.receive(line.starts_with("HEAD")).await.unwrap();
    assert!(client.receive(false).await.is_none() && client.is_closed);
    answer
}

#[test]
fn probes_are_answered_before_there_is_a_server() {
    run(|world| async move {
        let (_opening, address) = opening(&world);
        for cut in [0, 1, 13, 28, 34, 1_000] {
            let live = probe(&world, address, "GET /health/live", cut).await;
            assert_eq!((live.status, live.text()), (200, r#"{"status":"live"}"#));
        }
        for path in ["/health/ready", "/health", "/health/ready?verbose=1"] {
            let ready = probe(&world, address, &format!("GET {path}"), 20).await;
            assert_eq!(ready.status, 503, "{path}");
            assert_eq!(ready.json()["reasons"][0]["reason"], "opening", "{path}");
            assert_eq!(ready.json()["ready"], false, "{path}");
        }
        let head = probe(&world, address, "HEAD /health/live", 3).await;
        assert_eq!((head.status, head.text()), (200, ""));
    });
}

#[test]
fn requests_wait_for_the_server_and_no_connection_is_refused_meanwhile() {
    run(|world| async move {
        let (opening, address) = opening(&world);
        let mut clients = Vec::new();
        for number in 0..20 {
            let mut client = client(&world.runtime, address).await;
            let request = format!(
                "PUT /riak/b/{number} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n\
                 Content-Length: 3\r\n\r\nabc"
            );
            // Some are whole, some are cut within their line, their headers or their body, and some
            // have sent nothing when the server is there.
            let cut = request.len() * number / 19;
            client.send(&request.as_bytes()[..cut]).await;
            clients.push((client, request, cut));
        }
        world.runtime.sleep(Duration::from_secs(1)).await;
        opening.open(world.server.clone());
        for (client, request, cut) in &mut clients {
            client.send(&request.as_bytes()[*cut..]).await;
            assert_eq!(client.receive(false).await.unwrap().status, 204);
            // The connection continues like any other.
            let answer = client.ask("GET", "/health", &[], b"").await;
            assert_eq!(
                (answer.status, &answer.json()["status"]),
                (200, &"ready".into())
            );
        }
        let mut later = client(&world.runtime, address).await;
        assert_eq!(later.ask("GET", "/riak/b/7", &[], b"").await.text(), "abc");
    });
}

#[test]
fn a_request_that_has_waited_for_its_time_is_refused_with_the_reason() {
    run(|world| async move {
        let (opening, address) = opening(&world);
        let mut client = client(&world.runtime, address).await;
        let before = world.runtime.now();
        let answer = client.ask("GET", "/riak/b/k", &[], b"").await;
        assert!(world.runtime.now().since(before) >= WAIT_MAX);
        assert_eq!(answer.status, 503);
        assert_eq!(answer.json()["reasons"][0]["reason"], "opening");
        drop(opening);
    });
}

/// Each waiting request has a file open, and the stores need some.
#[test]
fn only_so_many_requests_wait_and_probes_are_answered_all_the_same() {
    run(|world| async move {
        let (opening, address) = opening(&world);
        let mut waiting = Vec::new();
        for _ in 0..256 {
            let mut client = client(&world.runtime, address).await;
            client.send(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").await;
            waiting.push(client);
        }
        world.runtime.sleep(Duration::from_millis(10)).await;
        let mut beyond = client(&world.runtime, address).await;
        assert_eq!(beyond.ask("GET", "/ping", &[], b"").await.status, 503);
        let live = probe(&world, address, "GET /health/live", 0).await;
        assert_eq!(live.status, 200);
        opening.open(Arc::clone(&world.server));
        for mut client in waiting {
            assert_eq!(client.receive(false).await.unwrap().text(), "OK");
        }
    });
}
