//! Connections: order of replies, split input, the end of the server.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kvorum_client::{Error, Frame, MessageCode, pb};
use kvorum_server_pb::ServerSettings;
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;

use crate::node::{
    ROOM_BYTES, bytes, encoded, error_text, with_node, with_node_that_may_panic, with_settings,
};

const PING: &[u8] = &[0, 0, 0, 1, 1];

fn put_frame(key: &'static str, value: Bytes) -> Frame {
    let request = pb::RpbPutReq {
        bucket: bytes("b"),
        key: Some(bytes(key)),
        content: pb::RpbContent {
            value,
            ..Default::default()
        },
        ..Default::default()
    };
    let payload = request.encode_to_vec().into();
    Frame {
        code: MessageCode::RPB_PUT_REQ,
        payload,
    }
}

fn get_frame(key: &'static str) -> Frame {
    let request = pb::RpbGetReq {
        bucket: bytes("b"),
        key: bytes(key),
        ..Default::default()
    };
    let payload = request.encode_to_vec().into();
    Frame {
        code: MessageCode::RPB_GET_REQ,
        payload,
    }
}

fn value_of(frame: &Frame) -> Bytes {
    let reply: pb::RpbGetResp = frame.decode().unwrap();
    reply.content[0].value.clone()
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let mut frames = Vec::new();
        for value in ["1", "2", "3"] {
            frames.push(put_frame("k", bytes(value)));
            frames.push(get_frame("k"));
            frames.push(Frame {
                code: MessageCode(99),
                payload: Bytes::new(),
            });
        }
        let answers = client.send_pipelined(&frames).await.unwrap();
        for (value, answers) in ["1", "2", "3"].into_iter().zip(answers.chunks(3)) {
            assert_eq!(answers[0].code, MessageCode::RPB_PUT_RESP);
            assert_eq!(value_of(&answers[1]), value);
            assert_eq!(error_text(&answers[2]), "Unknown message code: 99");
        }
    });
}

/// The pipe holds 64 KiB, so that neither side can send all before the other reads.
#[test]
fn a_long_pipeline_of_large_values_flows() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let value = Bytes::from(vec![7; 100_000]);
        let mut frames = vec![put_frame("k", value.clone())];
        frames.extend((0..50).map(|_| get_frame("k")));
        let answers = client.send_pipelined(&frames).await.unwrap();
        assert_eq!(answers.len(), 51);
        assert!(answers[1..].iter().all(|answer| value_of(answer) == value));
    });
}

#[test]
fn a_request_behind_a_listing_is_answered_after_it() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for key in [&b"1"[..], b"2", b"3", b"4"] {
            client.put_value(b"b", key, bytes("v")).await.unwrap();
        }
        let mut raw = node.raw().await;
        let request = pb::RpbListKeysReq {
            bucket: bytes("b"),
            ..Default::default()
        };
        raw.send(&[&encoded(&request), PING].concat()).await;
        let mut is_done = false;
        while !is_done {
            let message: pb::RpbListKeysResp = raw.receive().await.unwrap().decode().unwrap();
            is_done = message.done();
        }
        assert_eq!(
            raw.receive().await.unwrap().code,
            MessageCode::RPB_PING_RESP
        );
    });
}

#[test]
fn requests_may_arrive_byte_by_byte() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        let request = encoded(&pb::RpbGetReq {
            bucket: bytes("b"),
            key: bytes("k"),
            ..Default::default()
        });
        for byte in request.iter().chain(PING) {
            raw.send(&[*byte]).await;
            node.runtime.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(raw.receive().await.unwrap().code, MessageCode::RPB_GET_RESP);
        assert_eq!(
            raw.receive().await.unwrap().code,
            MessageCode::RPB_PING_RESP
        );
    });
}

#[test]
fn connections_are_counted_while_they_are_open() {
    with_node(|node| async move {
        let mut first = node.client().await;
        let mut second = node.client().await;
        first.ping().await.unwrap();
        second.ping().await.unwrap();
        assert_eq!(node.open_connections.count(), 2);
        drop(first);
        node.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.open_connections.count(), 1);
    });
}

#[test]
fn a_stop_closes_idle_connections_and_frees_the_address() {
    with_node(|node| async move {
        let mut idle = node.raw().await;
        idle.send(PING).await;
        idle.receive().await.unwrap();
        node.server.stop().await;
        assert!(idle.receive().await.is_none());
        assert!(node.is_refusing().await);
        assert_eq!(node.open_connections.count(), 0);
        node.server.stop().await; // a second stop does nothing
    });
}

/// The reply is larger than the pipe, so it is still being sent when the server stops.
#[test]
fn a_stop_waits_for_the_reply_that_is_being_sent() {
    with_node(|node| async move {
        let value = Bytes::from(vec![7; 1_000_000]);
        let mut client = node.client().await;
        client.put_value(b"b", b"k", value.clone()).await.unwrap();
        let mut raw = node.raw().await;
        let request = pb::RpbGetReq {
            bucket: bytes("b"),
            key: bytes("k"),
            ..Default::default()
        };
        raw.send(&encoded(&request)).await;
        node.runtime.sleep(Duration::from_millis(10)).await;
        let server = node.server.clone();
        let stopping = node
            .runtime
            .spawn("stop", async move { server.stop().await });
        node.runtime.sleep(Duration::from_secs(1)).await;
        assert!(!stopping.is_finished());
        let reply = raw.receive().await.unwrap();
        assert!(value_of(&reply) == value);
        assert!(raw.receive().await.is_none());
        stopping.await.unwrap();
    });
}

#[test]
fn a_panic_ends_its_connection_and_nothing_else() {
    with_node_that_may_panic(|node| async move {
        let mut bystander = node.client().await;
        bystander.ping().await.unwrap();
        let mut victim = node.client().await;
        node.vnodes.set_broken(true);
        let outcome = victim.get_key(b"b", b"k").await;
        assert!(
            matches!(outcome, Err(Error::ConnectionLost { .. })),
            "{outcome:?}"
        );
        node.vnodes.set_broken(false);
        assert!(bystander.get_key(b"b", b"k").await.is_ok());
        assert!(node.client().await.get_key(b"b", b"k").await.is_ok());
        node.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(
            node.open_connections.count(),
            1,
            "the victim is not counted any more"
        );
        assert_eq!(node.open_connections.panicked(), 1);
    });
}

#[test]
fn a_peer_that_shuts_its_side_still_gets_its_replies() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        raw.send(&[PING, PING].concat()).await;
        raw.stream.shutdown().await.unwrap();
        assert!(raw.receive().await.is_some());
        assert!(raw.receive().await.is_some());
        assert!(raw.receive().await.is_none());
    });
}

#[test]
fn connections_beyond_the_bound_are_closed_and_those_there_are_go_on() {
    let settings = ServerSettings {
        connections_max: 2,
        ..ServerSettings::new("few")
    };
    with_settings(settings, |node| async move {
        let mut first = node.client().await;
        let mut second = node.client().await;
        first.ping().await.unwrap();
        second.ping().await.unwrap();
        let mut third = node.client().await;
        assert!(third.ping().await.is_err());
        first.ping().await.unwrap();
        drop(second);
        node.runtime.sleep(Duration::from_secs(1)).await;
        let mut fourth = node.client().await;
        fourth.ping().await.unwrap();
    });
}

#[test]
fn large_requests_are_refused_while_others_take_the_room_and_small_ones_are_answered() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let large = put_frame("large", vec![7; 1 << 20].into());
        let others = node.room.take_anyway(ROOM_BYTES);
        let small = put_frame("small", vec![7; 1 << 10].into());
        // Pipelined, so that bytes behind a refused frame are found in their place.
        let replies = client
            .send_pipelined(&[
                small.clone(),
                large.clone(),
                get_frame("small"),
                large.clone(),
            ])
            .await
            .unwrap();
        assert_eq!(replies[0].code, MessageCode::RPB_PUT_RESP);
        assert_eq!(error_text(&replies[1]), "overload");
        assert_eq!(value_of(&replies[2]).len(), 1 << 10);
        assert_eq!(error_text(&replies[3]), "overload");
        drop(others);
        let replies = client
            .send_pipelined(&[large, get_frame("large")])
            .await
            .unwrap();
        assert_eq!(replies[0].code, MessageCode::RPB_PUT_RESP);
        assert_eq!(value_of(&replies[1]).len(), 1 << 20);
        assert_eq!(node.room.taken_bytes(), 0);
    });
}

#[test]
fn a_large_request_that_does_not_come_to_its_end_gives_its_room_back() {
    with_node(|node| async move {
        let mut frame = BytesMut::new();
        let large = put_frame("large", vec![7; 1 << 20].into());
        large.encode(&mut frame).unwrap();
        let mut raw = node.raw().await;
        // A single byte at intervals is not enough.
        raw.send(&frame[..100]).await;
        for at in 100..107 {
            node.runtime.sleep(Duration::from_secs(10)).await;
            assert_eq!(node.room.taken_bytes(), frame.len() as u64);
            raw.send(&frame[at..=at]).await;
        }
        node.runtime.sleep(Duration::from_secs(10)).await;
        assert_eq!(node.room.taken_bytes(), 0);
    });
}

#[test]
fn a_large_request_takes_room_from_its_beginning_until_it_is_answered_or_its_peer_has_gone() {
    with_node(|node| async move {
        let mut frame = BytesMut::new();
        let large = put_frame("large", vec![7; 1 << 20].into());
        large.encode(&mut frame).unwrap();
        let mut raw = node.raw().await;
        raw.send(&frame[..100]).await;
        node.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.room.taken_bytes(), frame.len() as u64);
        drop(raw);
        node.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.room.taken_bytes(), 0);
    });
}
