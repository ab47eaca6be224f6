//! The same over TCP, for behaviour that pipes in memory do not show.

use bytes::Bytes;
use kvorum_client::{Frame, MessageCode, pb};
use prost::Message as _;

use crate::node::{FRAME_BYTES_MAX, bytes, error_text, with_real_node};

#[test]
fn large_values_cross_a_socket_in_order() {
    with_real_node(|node| async move {
        let mut client = node.client().await;
        let value: Bytes = (0..1_500_000u32).map(|at| at.to_le_bytes()[1]).collect();
        client.put_value(b"b", b"k", value.clone()).await.unwrap();
        let request = pb::RpbGetReq {
            bucket: bytes("b"),
            key: bytes("k"),
            ..Default::default()
        };
        let get = Frame {
            code: MessageCode::RPB_GET_REQ,
            payload: request.encode_to_vec().into(),
        };
        let ping = Frame {
            code: MessageCode::RPB_PING_REQ,
            payload: Bytes::new(),
        };
        let frames = vec![[get, ping]; 4].concat();
        let answers = client.send_pipelined(&frames).await.unwrap();
        for pair in answers.chunks(2) {
            let reply: pb::RpbGetResp = pair[0].decode().unwrap();
            assert!(reply.content[0].value == value);
            assert_eq!(pair[1].code, MessageCode::RPB_PING_RESP);
        }
    });
}

/// If the socket were closed at once, it would be reset, and the error lost with the unread bytes.
#[test]
fn the_sender_of_a_frame_over_the_limit_reads_why_it_was_refused() {
    with_real_node(|node| async move {
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
fn a_stop_ends_every_connection() {
    with_real_node(|node| async move {
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut client = node.client().await;
            client.ping().await.unwrap();
            clients.push(client);
        }
        node.server.stop().await;
        assert_eq!(node.open_connections.count(), 0);
        assert!(node.is_refusing().await);
        for mut client in clients {
            assert!(client.ping().await.is_err());
        }
    });
}
