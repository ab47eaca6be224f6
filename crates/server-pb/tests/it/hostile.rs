//! Input that no honest client sends: answered or dropped, and never the end of the server.

use std::time::Duration;

use kvorum_client::{MessageCode, pb};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::node::{FRAME_BYTES_MAX, Node, encoded, error_text, with_node};

async fn is_alive(node: &Node) -> bool {
    node.client().await.ping().await.is_ok()
}

#[test]
fn a_frame_over_the_limit_gets_an_error_and_ends_the_connection() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        let length = (FRAME_BYTES_MAX + 1).to_be_bytes();
        raw.send(&[&length[..], &[11]].concat()).await;
        let text = error_text(&raw.receive().await.unwrap());
        assert!(
            text.starts_with("Invalid message packet, reason: "),
            "{text}"
        );
        assert!(raw.receive().await.is_none());
        assert!(is_alive(&node).await);
    });
}

#[test]
fn the_sender_of_a_frame_over_the_limit_may_send_it_to_its_end_first() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        let length = FRAME_BYTES_MAX + 1;
        raw.send(&length.to_be_bytes()).await;
        raw.send(&vec![0; length as usize]).await;
        let text = error_text(&raw.receive().await.unwrap());
        assert!(
            text.starts_with("Invalid message packet, reason: "),
            "{text}"
        );
        assert!(raw.receive().await.is_none());
    });
}

#[test]
fn a_frame_of_the_largest_length_is_taken() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        raw.send(&FRAME_BYTES_MAX.to_be_bytes()).await;
        let mut payload = vec![0; FRAME_BYTES_MAX as usize];
        payload[0] = 99;
        raw.send(&payload).await;
        let text = error_text(&raw.receive().await.unwrap());
        assert_eq!(text, "Unknown message code: 99");
        raw.send(&[0, 0, 0, 1, 1]).await;
        assert_eq!(
            raw.receive().await.unwrap().code,
            MessageCode::RPB_PING_RESP
        );
    });
}

#[test]
fn a_frame_without_a_code_gets_an_error_and_ends_the_connection() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        raw.send(&[0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]).await;
        assert_eq!(
            raw.receive().await.unwrap().code,
            MessageCode::RPB_PING_RESP
        );
        let text = error_text(&raw.receive().await.unwrap());
        assert!(
            text.starts_with("Invalid message packet, reason: "),
            "{text}"
        );
        assert!(raw.receive().await.is_none());
    });
}

#[test]
fn a_payload_that_is_no_message_gets_an_error_and_the_connection_goes_on() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        for code in [5, 9, 11, 13, 15, 17, 19, 21, 25, 29, 31, 32, 33] {
            raw.send(&[0, 0, 0, 3, code, 0x0a, 0x7f]).await;
            let text = error_text(&raw.receive().await.unwrap());
            assert!(
                text.starts_with("Message decoding error: "),
                "{code}: {text}"
            );
        }
        raw.send(&[0, 0, 0, 1, 1]).await;
        assert_eq!(
            raw.receive().await.unwrap().code,
            MessageCode::RPB_PING_RESP
        );
    });
}

#[test]
fn a_connection_that_ends_within_a_frame_is_closed() {
    with_node(|node| async move {
        for bytes in [&[0][..], &[0, 0, 0, 9], &[0, 0, 0, 9, 9, 1]] {
            let mut raw = node.raw().await;
            raw.send(bytes).await;
            raw.stream.shutdown().await.unwrap();
            assert!(raw.receive().await.is_none());
        }
        node.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.open_connections.count(), 0);
    });
}

#[test]
fn a_peer_that_dribbles_holds_up_nobody() {
    with_node(|node| async move {
        let mut slow = node.raw().await;
        slow.send(&[0, 0, 1, 0, 9, 0x0a]).await;
        node.runtime.sleep(Duration::from_secs(3600)).await;
        assert!(is_alive(&node).await);
        slow.send(&[1]).await;
    });
}

/// Sends bytes, closes, and reads to the end: the server must close too, and keep running.
fn survives(bytes: Vec<u8>) {
    with_node(|node| async move {
        let (mut read, mut write) = node.connect().await.into_split();
        let sending = node.runtime.spawn("sender", async move {
            // The server may have closed already.
            let _ = write.write_all(&bytes).await;
            let _ = write.shutdown().await;
        });
        let mut replies = Vec::new();
        read.read_to_end(&mut replies).await.unwrap();
        sending.await.unwrap();
        assert!(is_alive(&node).await);
        node.runtime.sleep(Duration::from_secs(2)).await;
        assert_eq!(node.open_connections.count(), 0);
    });
}

/// Frames with correct lengths, known codes and almost valid payloads.
fn near_frames() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![0u8..=60, Just(80), Just(82), any::<u8>()];
    let noise = proptest::collection::vec(any::<u8>(), 0..40);
    let changed = (0usize..64, any::<u8>()).prop_map(|(at, byte)| {
        let mut frame = encoded(&pb::RpbPutReq {
            bucket: "bucket".into(),
            key: Some("key".into()),
            content: pb::RpbContent {
                value: "value".into(),
                usermeta: vec![pb::RpbPair {
                    key: "k".into(),
                    value: None,
                }],
                ..Default::default()
            },
            return_body: Some(true),
            ..Default::default()
        });
        let at = 4 + at % (frame.len() - 4);
        frame[at] = byte;
        frame
    });
    let noisy = (code, noise).prop_map(|(code, noise)| {
        let length = u32::try_from(noise.len() + 1).unwrap();
        [&length.to_be_bytes()[..], &[code], &noise].concat()
    });
    let frames = proptest::collection::vec(prop_oneof![changed, noisy], 1..8);
    frames.prop_map(|frames| frames.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_never_take_the_server_down(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        survives(bytes);
    }

    #[test]
    fn random_frames_never_take_the_server_down(bytes in near_frames()) {
        survives(bytes);
    }
}
