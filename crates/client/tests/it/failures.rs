//! Every kind of failure, and the state of the connection afterwards.

use std::time::Duration;

use kvorum_client::{Client, ClientSettings, Error, ErrorKind, MessageCode, pb};
use tokio::net::TcpListener;

use crate::fake_server::{bytes, connected, connected_with};

#[tokio::test]
async fn a_refusal_is_reported_in_the_servers_words_and_the_connection_goes_on() {
    let (mut client, mut server) = connected();
    let script = async {
        server.receive().await;
        server.answer_error("no_type").await;
        server.receive().await;
        server
            .answer(&pb::RpbListKeysResp {
                keys: vec![bytes("k")],
                done: None,
            })
            .await;
        server.answer_error("timeout").await;
        server.receive().await;
        server.answer_empty(MessageCode::RPB_PING_RESP).await;
    };
    let requests = async {
        let error = client.get_key(b"b", b"k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Server);
        assert_eq!(error.to_string(), "the server answers: no_type");
        let list = pb::RpbListKeysReq::default();
        let mut answers = client.list_keys(&list).await.unwrap();
        assert_eq!(answers.next().await.unwrap().unwrap().keys, ["k"]);
        let error = answers.next().await.unwrap_err();
        assert!(matches!(error, Error::Server { text, code: 0 } if text == "timeout"));
        assert!(answers.next().await.unwrap().is_none());
        client.ping().await.unwrap();
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn a_server_that_hangs_up_is_a_lost_connection() {
    let (mut client, mut server) = connected();
    let script = async {
        server.receive().await;
        server.send(&[0, 0, 0, 9, 10]).await;
        drop(server);
    };
    let requests = async {
        let error = client.get_key(b"b", b"k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionLost);
        assert_eq!(error.to_string(), "connection lost: reading an answer");
        assert!(!client.is_usable());
        assert!(matches!(client.ping().await, Err(Error::OutOfStep)));
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_a_lost_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Client::connect(address, &ClientSettings::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLost);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_never_reaches_the_next_request() {
    let after = Duration::from_secs(3);
    let settings = ClientSettings {
        answer_timeout: Some(after),
        ..Default::default()
    };
    let (mut client, mut server) = connected_with(&settings, 1 << 16);
    let error = client.ping().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { after: limit } if limit == after));
    server.receive().await;
    server.answer_empty(MessageCode::RPB_PING_RESP).await;
    assert_eq!(
        client.ping().await.unwrap_err().kind(),
        ErrorKind::ConnectionLost
    );
}

#[tokio::test]
async fn an_abandoned_request_gives_the_connection_up() {
    let (mut client, mut server) = connected();
    let answers = client
        .list_keys(&pb::RpbListKeysReq::default())
        .await
        .unwrap();
    drop(answers);
    server.receive().await;
    assert!(!client.is_usable());
    assert!(matches!(client.ping().await, Err(Error::OutOfStep)));
}

#[tokio::test]
async fn nonsense_from_the_server_is_a_protocol_error() {
    let nonsense: [&[u8]; 4] = [
        &[0, 0, 0, 1, 2],        // another request's answer
        &[0, 0, 0, 2, 10, 0xff], // no RpbGetResp
        &[0, 0, 0, 0],           // length zero
        &[0, 0, 0, 2, 0, 0xff],  // an error that cannot be read
    ];
    for answer in nonsense {
        let (mut client, mut server) = connected();
        let script = async {
            server.receive().await;
            server.send(answer).await;
        };
        let requests = async {
            let error = client.get_key(b"b", b"k").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{answer:?}");
            assert!(!client.is_usable(), "{answer:?}");
        };
        tokio::join!(script, requests);
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused() {
    let settings = ClientSettings {
        frame_bytes_max: 100,
        ..Default::default()
    };
    let (mut client, mut server) = connected_with(&settings, 1 << 16);
    let script = async {
        server.receive().await;
        server.send(&[0, 0, 0, 101, 10]).await;
    };
    let requests = async {
        let error = client.get_key(b"b", b"k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    };
    tokio::join!(script, requests);
}
