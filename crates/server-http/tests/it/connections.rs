//! Connections: pipelining, keep-alive, stopping, limits, and handlers that panic.

use std::time::Duration;

use crate::world::{Options, run, run_with};

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(|world| async move {
        let mut client = world.client().await;
        for key in 0..20 {
            client
                .put(&format!("/riak/b/{key}"), &format!("value {key}"))
                .await;
        }
        let requests: String = (0..20)
            .map(|key| format!("GET /riak/b/{key} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .collect();
        client.send(requests.as_bytes()).await;
        for key in 0..20 {
            assert_eq!(
                client.receive(false).await.unwrap().text(),
                format!("value {key}")
            );
        }
    });
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    run(|world| async move {
        let mut client = world.client().await;
        client
            .send(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\nGET /pi")
            .await;
        let answer = world
            .runtime
            .timeout(Duration::from_secs(1), client.receive(false))
            .await;
        assert_eq!(answer.unwrap().unwrap().text(), "OK");
        client.send(b"ng HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(client.receive(false).await.unwrap().text(), "OK");
    });
}

#[test]
fn connections_close_when_the_client_says_so() {
    run(|world| async move {
        let mut client = world.client().await;
        assert_eq!(
            client
                .ask("GET", "/ping", &[("Connection", "close")], b"")
                .await
                .status,
            200
        );
        assert!(client.receive(false).await.is_none() && client.is_closed);
        let mut old = world.client().await;
        old.send(b"GET /ping HTTP/1.0\r\n\r\n").await;
        assert_eq!(old.receive(false).await.unwrap().text(), "OK");
        assert!(old.receive(false).await.is_none() && old.is_closed);
    });
}

#[test]
fn a_refused_body_leaves_the_connection_usable() {
    run(|world| async move {
        let mut client = world.client().await;
        let refused = client
            .ask(
                "PUT",
                "/buckets/b/keys/k?w=x",
                &[("Content-Type", "a/b")],
                &[7; 500_000],
            )
            .await;
        assert_eq!(refused.status, 400);
        assert_eq!(client.get("/ping").await.text(), "OK");
    });
}

#[test]
fn a_handler_that_panics_costs_its_own_request_only() {
    run(|world| async move {
        let mut client = world.client().await;
        assert_eq!(client.get("/stats").await.status, 200);
        world.facts.panic_from_now_on();
        assert_eq!(client.get("/stats").await.status, 500);
        assert_eq!(client.get("/ping").await.text(), "OK");
        assert_eq!(world.client().await.get("/ping").await.text(), "OK");
    });
}

#[test]
fn a_stopping_server_ends_idle_connections_and_accepts_no_more() {
    run(|world| async move {
        let mut idle = world.client().await;
        assert_eq!(idle.get("/ping").await.status, 200);
        world.stop().await;
        assert!(idle.receive(false).await.is_none() && idle.is_closed);
        let late = world
            .runtime
            .connect("127.0.0.1:49152".parse().unwrap())
            .await;
        assert!(late.is_err());
    });
}

#[test]
fn a_stopping_server_lets_requests_end_but_does_not_wait_for_ever() {
    run(|world| async move {
        let mut slow = world.client().await;
        let head =
            "PUT /riak/b/k HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nContent-Length: 4\r\n\r\n";
        slow.send(head.as_bytes()).await;
        let mut stuck = world.client().await;
        stuck.send(head.as_bytes()).await;
        world.runtime.sleep(Duration::from_millis(10)).await;
        let server = world.server.clone();
        let stopping =
            world.runtime.spawn(
                "stop",
                async move { server.stop(Duration::from_secs(5)).await },
            );
        world.runtime.sleep(Duration::from_secs(1)).await;
        slow.send(b"done").await;
        assert_eq!(slow.receive(false).await.unwrap().status, 204);
        stopping.await.unwrap();
        assert!(stuck.receive(false).await.is_none() && stuck.is_closed);
    });
}

#[test]
fn connections_beyond_the_limit_wait_for_their_turn() {
    let mut options = Options::default();
    options.http.connections_max = 1;
    run_with(options, |world| async move {
        let mut first = world.client().await;
        assert_eq!(first.get("/ping").await.status, 200);
        let mut second = world.client().await;
        second.send(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let wait = world
            .runtime
            .timeout(Duration::from_secs(1), second.receive(false))
            .await;
        assert!(wait.is_err());
        drop(first);
        assert_eq!(second.receive(false).await.unwrap().text(), "OK");
    });
}

#[test]
fn a_client_that_falls_silent_is_let_go() {
    run(|world| async move {
        let mut idle = world.client().await;
        assert!(idle.receive(false).await.is_none() && idle.is_closed);
        let mut silent = world.client().await;
        silent.send(b"PUT /riak/b/k HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nContent-Length: 4\r\n\r\nab").await;
        assert_eq!(silent.receive(false).await.unwrap().status, 408);
        assert!(silent.receive(false).await.is_none() && silent.is_closed);
    });
}

#[test]
fn a_reader_that_does_not_read_holds_up_its_own_listing_only() {
    run(|world| async move {
        let mut client = world.client().await;
        let long = "k".repeat(8_000);
        for number in 0..300 {
            client
                .put(&format!("/buckets/b/keys/{number}{long}"), "v")
                .await;
        }
        let mut lazy = world.client().await;
        lazy.send(b"GET /buckets/b/keys?keys=stream HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        world.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.get("/ping").await.text(), "OK");
        let listing = lazy.receive(false).await.unwrap();
        assert!(listing.is_complete && listing.body.len() > 300 * 8_000);
    });
}
