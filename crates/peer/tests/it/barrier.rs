//! A request behind all earlier ones, and the end of older connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_peer::{Caller, Lane, Message, PeerError, Peers};
use kvorum_runtime::Runtime;

use crate::{Known, answering, answering_over, asking, in_ms, node, settings, simulated};

/// Sends a request that takes this long, in the background.
fn ask_slowly(runtime: &Runtime, peers: &Peers, milliseconds: u64) {
    let (peers, deadline) = (peers.clone(), in_ms(runtime, 60_000));
    runtime.spawn("slow", async move {
        let wait = Message::of_head(format!("wait {milliseconds}"));
        let _answered_or_not = peers.request(node(2), Lane::Requests, wait, deadline).await;
    });
}

#[test]
fn a_question_behind_others_is_asked_when_they_are_answered() {
    simulated(|runtime| async move {
        let (echo, _guard) = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        for milliseconds in [3_000, 100, 5_000] {
            ask_slowly(&runtime, &peers, milliseconds);
        }
        runtime.sleep(Duration::from_millis(10)).await;
        let before = runtime.now();
        let question = Message::of_head("echo");
        let deadline = in_ms(&runtime, 20_000);
        let behind = peers.request_behind(node(2), Lane::Requests, question.clone(), deadline);
        assert_eq!(behind.await, Ok(question));
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 0);
        assert!(runtime.now().since(before) >= Duration::from_millis(4_900));
    });
}

#[test]
fn it_does_not_wait_for_what_is_asked_later_or_on_another_lane() {
    simulated(|runtime| async move {
        let (_echo, _guard) = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        ask_slowly(&runtime, &peers, 30_000);
        runtime.sleep(Duration::from_millis(10)).await;
        let before = runtime.now();
        let bulk = peers.request_behind(
            node(2),
            Lane::Bulk,
            Message::of_head("echo"),
            in_ms(&runtime, 20_000),
        );
        assert!(bulk.await.is_ok());
        assert!(runtime.now().since(before) < Duration::from_millis(100));
        let deadline = in_ms(&runtime, 1_000);
        let late =
            peers.request_behind(node(2), Lane::Requests, Message::of_head("echo"), deadline);
        assert_eq!(late.await, Err(PeerError::Timeout { node: node(2) }));
    });
}

#[test]
fn a_request_that_was_cancelled_has_ended_at_the_peer_before_the_question_comes() {
    simulated(|runtime| async move {
        let (echo, _guard) = answering(&runtime, 2, settings());
        let peers = asking(&runtime, settings());
        let never = Message::of_head("never");
        let late = peers.request(node(2), Lane::Requests, never, in_ms(&runtime, 50));
        assert!(late.await.is_err());
        let question = Message::of_head("echo");
        let deadline = in_ms(&runtime, 1_000);
        let behind = peers.request_behind(node(2), Lane::Requests, question, deadline);
        assert!(behind.await.is_ok());
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 0);
    });
}

/// Older connections belong to an earlier run of the caller, or to a broken link whose end the peer
/// has not detected.
#[test]
fn older_connections_of_a_caller_are_ended_and_others_are_not() {
    simulated(|runtime| async move {
        let answering = Peers::new(runtime.clone(), Known::of(2), settings());
        let (echo, _guard) = answering_over(&runtime, 2, answering.clone());
        let (older, newer) = (asking(&runtime, settings()), asking(&runtime, settings()));
        let other = Peers::new(runtime.clone(), Known::of(3), settings());
        for peers in [&other, &older, &newer] {
            ask_slowly(&runtime, peers, 1_000_000);
            runtime.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 3);
        let caller = Caller {
            node: node(1),
            lane: Lane::Requests,
            is_member: true,
            connection: 2,
        };
        answering.end_older(caller).await;
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(echo.in_progress.load(Ordering::Relaxed), 2);
        let standing = answering.connections();
        let of_caller = standing.iter().filter(|it| it.node == node(1));
        assert_eq!(of_caller.count(), 1);
    });
}
