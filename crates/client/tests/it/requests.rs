//! The bytes that each request sends, and the results of its answers.

use bytes::Bytes;
use kvorum_client::{
    Client, ClientSettings, Delete, DeleteOptions, Frame, Get, GetOptions, MessageCode, Put,
    PutOptions, pb, quorum,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fake_server::{bytes, connected, connected_with};

#[tokio::test]
async fn ping_server_info_and_client_id_go_over_one_connection() {
    let (mut client, mut server) = connected();
    let script = async {
        assert_eq!(server.receive().await.code, MessageCode::RPB_PING_REQ);
        server.answer_empty(MessageCode::RPB_PING_RESP).await;
        assert_eq!(
            server.receive().await.code,
            MessageCode::RPB_GET_SERVER_INFO_REQ
        );
        let node = Some(bytes("kvorum@127.0.0.1"));
        server
            .answer(&pb::RpbGetServerInfoResp {
                node,
                server_version: None,
            })
            .await;
        let set: pb::RpbSetClientIdReq = server.receive_as().await;
        server
            .answer_empty(MessageCode::RPB_SET_CLIENT_ID_RESP)
            .await;
        assert_eq!(
            server.receive().await.code,
            MessageCode::RPB_GET_CLIENT_ID_REQ
        );
        server
            .answer(&pb::RpbGetClientIdResp {
                client_id: set.client_id,
            })
            .await;
    };
    let requests = async {
        client.ping().await.unwrap();
        assert_eq!(
            client.server_info().await.unwrap().node.unwrap(),
            "kvorum@127.0.0.1"
        );
        client.set_client_id(bytes("me")).await.unwrap();
        assert_eq!(client.client_id().await.unwrap(), "me");
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn get_put_and_delete_carry_their_options() {
    let (mut client, mut server) = connected();
    let script = async {
        let get: pb::RpbGetReq = server.receive_as().await;
        assert_eq!((&get.bucket[..], &get.key[..]), (&b"b"[..], &b"k"[..]));
        assert_eq!(
            (get.r, get.r#type),
            (Some(quorum::ALL), Some(bytes("maps")))
        );
        let content = pb::RpbContent {
            value: bytes("v"),
            ..Default::default()
        };
        let vclock = Some(bytes("clock"));
        let answer = pb::RpbGetResp {
            content: vec![content],
            vclock,
            unchanged: None,
        };
        server.answer(&answer).await;
        let put: pb::RpbPutReq = server.receive_as().await;
        assert_eq!((put.key, put.vclock), (None, Some(bytes("clock"))));
        assert_eq!(
            (put.return_body, put.content.value),
            (Some(true), bytes("w"))
        );
        let key = Some(bytes("generated"));
        server
            .answer(&pb::RpbPutResp {
                key,
                ..Default::default()
            })
            .await;
        let delete: pb::RpbDelReq = server.receive_as().await;
        assert_eq!((delete.rw, delete.vclock), (Some(2), Some(bytes("clock"))));
        server.answer_empty(MessageCode::RPB_DEL_RESP).await;
    };
    let requests = async {
        let options = GetOptions {
            r: Some(quorum::ALL),
            ..Default::default()
        };
        let get = Get {
            bucket_type: Some(b"maps"),
            bucket: b"b",
            key: b"k",
            options: &options,
        };
        let found = client.get(&get).await.unwrap();
        assert_eq!(found.content[0].value, "v");
        let vclock = found.vclock.as_deref();
        let options = PutOptions {
            return_body: Some(true),
            ..Default::default()
        };
        let content = pb::RpbContent {
            value: bytes("w"),
            ..Default::default()
        };
        let (bucket_type, bucket) = (None, &b"b"[..]);
        let put = Put {
            bucket_type,
            bucket,
            key: None,
            vclock,
            content: &content,
            options: &options,
        };
        assert_eq!(client.put(&put).await.unwrap().key.unwrap(), "generated");
        let options = DeleteOptions {
            rw: Some(2),
            ..Default::default()
        };
        let delete = Delete {
            bucket_type,
            bucket,
            key: b"k",
            vclock,
            options: &options,
        };
        client.delete(&delete).await.unwrap();
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn the_short_forms_send_nothing_but_the_address_and_the_value() {
    let (mut client, mut server) = connected();
    let value = Bytes::from(vec![7; 300_000]);
    let script = async {
        let put: pb::RpbPutReq = server.receive_as().await;
        let content = pb::RpbContent {
            value: value.clone(),
            content_type: Some(bytes("application/octet-stream")),
            ..Default::default()
        };
        let expected = pb::RpbPutReq {
            bucket: bytes("b"),
            key: Some(bytes("k")),
            content: content.clone(),
            ..Default::default()
        };
        assert_eq!(put, expected);
        server.answer(&pb::RpbPutResp::default()).await;
        let get: pb::RpbGetReq = server.receive_as().await;
        let expected = pb::RpbGetReq {
            bucket: bytes("b"),
            key: bytes("k"),
            ..Default::default()
        };
        assert_eq!(get, expected);
        server
            .answer(&pb::RpbGetResp {
                content: vec![content],
                ..Default::default()
            })
            .await;
        let _: pb::RpbDelReq = server.receive_as().await;
        server.answer_empty(MessageCode::RPB_DEL_RESP).await;
        let _: pb::RpbGetReq = server.receive_as().await;
        server.answer(&pb::RpbGetResp::default()).await;
    };
    let requests = async {
        client.put_value(b"b", b"k", value.clone()).await.unwrap();
        assert_eq!(
            client.get_key(b"b", b"k").await.unwrap().content[0].value,
            value
        );
        client.delete_key(b"b", b"k").await.unwrap();
        assert_eq!(
            client.get_key(b"b", b"k").await.unwrap(),
            pb::RpbGetResp::default()
        );
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn listings_and_queries_are_read_to_their_last_message() {
    let (mut client, mut server) = connected();
    let script = async {
        let list: pb::RpbListKeysReq = server.receive_as().await;
        assert_eq!((list.bucket, list.timeout), (bytes("b"), Some(9)));
        for keys in [vec![bytes("1"), bytes("2")], vec![bytes("3")]] {
            server
                .answer(&pb::RpbListKeysResp { keys, done: None })
                .await;
        }
        server
            .answer(&pb::RpbListKeysResp {
                keys: vec![],
                done: Some(true),
            })
            .await;
        let list: pb::RpbListBucketsReq = server.receive_as().await;
        assert_eq!(list.stream, None);
        let buckets = vec![bytes("x")];
        server
            .answer(&pb::RpbListBucketsResp {
                buckets,
                done: None,
            })
            .await;
        let list: pb::RpbListBucketsReq = server.receive_as().await;
        assert_eq!(list.stream, Some(true));
        server
            .answer(&pb::RpbListBucketsResp {
                buckets: vec![],
                done: Some(true),
            })
            .await;
        let _: pb::RpbIndexReq = server.receive_as().await;
        let keys = vec![bytes("k")];
        let continuation = Some(bytes("next"));
        let answer = pb::RpbIndexResp {
            keys,
            continuation,
            ..Default::default()
        };
        server.answer(&answer).await;
    };
    let requests = async {
        let list = pb::RpbListKeysReq {
            bucket: bytes("b"),
            timeout: Some(9),
            ..Default::default()
        };
        let keys = client
            .list_keys(&list)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(keys, ["1", "2", "3"]);
        let mut list = pb::RpbListBucketsReq::default();
        let buckets = client
            .list_buckets(&list)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(buckets, ["x"]);
        list.stream = Some(true);
        let buckets = client
            .list_buckets(&list)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert!(buckets.is_empty());
        let query = pb::RpbIndexReq {
            bucket: bytes("b"),
            index: bytes("a_int"),
            ..Default::default()
        };
        let found = client
            .query_index(&query)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(
            (found.keys, found.continuation),
            (vec![bytes("k")], Some(bytes("next")))
        );
        assert!(client.is_usable());
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn properties_of_buckets_and_types_use_their_own_codes() {
    let (mut client, mut server) = connected();
    let props = pb::RpbBucketProps {
        n_val: Some(1),
        ..Default::default()
    };
    let script = async {
        let get: pb::RpbGetBucketReq = server.receive_as().await;
        assert_eq!((get.bucket, get.r#type), (bytes("b"), Some(bytes("t"))));
        server
            .answer(&pb::RpbGetBucketResp {
                props: props.clone(),
            })
            .await;
        let set: pb::RpbSetBucketReq = server.receive_as().await;
        assert_eq!(set.props, props);
        server.answer_empty(MessageCode::RPB_SET_BUCKET_RESP).await;
        let _: pb::RpbResetBucketReq = server.receive_as().await;
        server
            .answer_empty(MessageCode::RPB_RESET_BUCKET_RESP)
            .await;
        let _: pb::RpbGetBucketTypeReq = server.receive_as().await;
        server
            .answer(&pb::RpbGetBucketResp {
                props: props.clone(),
            })
            .await;
        let _: pb::RpbSetBucketTypeReq = server.receive_as().await;
        server.answer_empty(MessageCode::RPB_SET_BUCKET_RESP).await;
    };
    let requests = async {
        let bucket_type = Some(bytes("t"));
        let got = client
            .bucket_properties(bucket_type.clone(), bytes("b"))
            .await
            .unwrap();
        assert_eq!(got, props);
        client
            .set_bucket_properties(None, bytes("b"), props.clone())
            .await
            .unwrap();
        client
            .reset_bucket_properties(bucket_type, bytes("b"))
            .await
            .unwrap();
        assert_eq!(
            client.bucket_type_properties(bytes("t")).await.unwrap(),
            props
        );
        client
            .set_bucket_type_properties(bytes("t"), props.clone())
            .await
            .unwrap();
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn any_code_can_be_sent_and_any_answer_is_handed_back() {
    let (mut client, mut server) = connected();
    let script = async {
        let frame = server.receive().await;
        assert_eq!(
            frame,
            Frame {
                code: MessageCode(99),
                payload: bytes("raw")
            }
        );
        server.answer_empty(MessageCode(98)).await;
    };
    let requests = async {
        let answer = client.request(MessageCode(99), bytes("raw")).await.unwrap();
        assert_eq!(
            answer,
            Frame {
                code: MessageCode(98),
                payload: Bytes::new()
            }
        );
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn a_pipeline_larger_than_the_stream_runs_both_ways_at_once() {
    let (mut client, mut server) = connected_with(&ClientSettings::default(), 64);
    let pipeline: Vec<Frame> = (0..100)
        .map(|number| Frame {
            code: MessageCode(number),
            payload: Bytes::from(vec![number; 50]),
        })
        .collect();
    let script = async {
        for number in 0..100 {
            let frame = server.receive().await;
            match number {
                50 => server.answer_error("no").await,
                _ => {
                    let mut answer = bytes::BytesMut::new();
                    frame.encode(&mut answer).unwrap();
                    server.send(&answer).await;
                }
            }
        }
    };
    let requests = async {
        let answers = client.send_pipelined(&pipeline).await.unwrap();
        assert_eq!(answers.len(), 100);
        assert_eq!(answers[50].code, MessageCode::RPB_ERROR_RESP);
        assert_eq!(answers[99], pipeline[99]);
        assert!(client.is_usable());
    };
    tokio::join!(script, requests);
}

#[tokio::test]
async fn a_client_connects_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut ping = [0; 5];
        stream.read_exact(&mut ping).await.unwrap();
        assert_eq!(ping, [0, 0, 0, 1, 1]);
        stream.write_all(&[0, 0, 0, 1, 2]).await.unwrap();
    };
    let requests = async {
        let mut client = Client::connect(address, &ClientSettings::default())
            .await
            .unwrap();
        client.ping().await.unwrap();
    };
    tokio::join!(script, requests);
}
