//! Requests about the connection and the node, and requests that are not served.

use bytes::Bytes;
use kvorum_client::{MessageCode, pb};
use kvorum_protocol::CodedMessage;
use kvorum_server_pb::{JobSwitches, ServerSettings};
use prost::Message as _;

use crate::node::{NAME, bytes, refusal, with_node, with_settings};

#[test]
fn a_ping_is_answered() {
    with_node(|node| async move { node.client().await.ping().await.unwrap() });
}

#[test]
fn the_client_id_is_remembered_on_its_connection() {
    with_node(|node| async move {
        let mut client = node.client().await;
        assert_eq!(
            client.client_id().await.unwrap(),
            Bytes::from_static(&[0; 4])
        );
        client.set_client_id(bytes("me")).await.unwrap();
        assert_eq!(client.client_id().await.unwrap(), bytes("me"));
        let mut other = node.client().await;
        assert_eq!(
            other.client_id().await.unwrap(),
            Bytes::from_static(&[0; 4])
        );
    });
}

#[test]
fn the_server_reports_its_name_and_a_version_of_three_integers() {
    with_node(|node| async move {
        let info = node.client().await.server_info().await.unwrap();
        assert_eq!(info.node.unwrap(), NAME);
        let version = String::from_utf8(info.server_version.unwrap().to_vec()).unwrap();
        let numbers: Vec<u32> = version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect();
        assert_eq!(numbers.len(), 3);
    });
}

#[test]
fn the_preference_list_names_the_replicas_of_a_key() {
    with_node(|node| async move {
        let request = pb::RpbGetBucketKeyPreflistReq {
            bucket: bytes("b"),
            key: bytes("k"),
            r#type: None,
        };
        let payload = request.encode_to_vec().into();
        let code = MessageCode::RPB_GET_BUCKET_KEY_PREFLIST_REQ;
        let answer = node.client().await.request(code, payload).await.unwrap();
        assert_eq!(answer.code, pb::RpbGetBucketKeyPreflistResp::CODE);
        let list: pb::RpbGetBucketKeyPreflistResp = answer.decode().unwrap();
        assert_eq!(list.preflist.len(), 3);
        let first = list.preflist[0].partition;
        for (at, item) in (0..).zip(&list.preflist) {
            assert_eq!(item.partition, (first + at) % 8);
            assert_eq!(item.node, NAME);
            assert!(item.primary);
        }
    });
}

#[test]
fn codes_without_a_handler_are_refused_and_the_connection_goes_on() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for code in [0, 2, 10, 27, 35, 42, 54, 60, 70, 90, 104, 128, 200, 253] {
            let outcome = client.request(MessageCode(code), Bytes::new()).await;
            assert_eq!(refusal(outcome), format!("Unknown message code: {code}"));
        }
        for (code, text) in [
            (202, "queue_not_defined"),
            (206, "membership queries are not supported yet"),
            (210, "folds over cached trees are not supported yet"),
            (217, "replication queues are not supported yet"),
            (255, "Security not enabled; STARTTLS not allowed."),
        ] {
            let outcome = client.request(MessageCode(code), Bytes::new()).await;
            assert_eq!(refusal(outcome), text);
        }
        client.ping().await.unwrap();
    });
}

#[test]
fn jobs_that_are_switched_off_are_refused_by_name() {
    let jobs = JobSwitches {
        list_buckets: false,
        stream_list_buckets: false,
        stream_list_keys: false,
        secondary_index: false,
        stream_secondary_index: false,
        map_reduce: false,
    };
    let settings = ServerSettings {
        jobs,
        ..ServerSettings::new(NAME)
    };
    with_settings(settings, |node| async move {
        let mut client = node.client().await;
        let buckets = |stream| pb::RpbListBucketsReq {
            stream: Some(stream),
            ..Default::default()
        };
        let index = |stream| pb::RpbIndexReq {
            stream: Some(stream),
            ..Default::default()
        };
        for (code, payload, class) in [
            (15, buckets(false).encode_to_vec(), "list_buckets"),
            (15, buckets(true).encode_to_vec(), "stream_list_buckets"),
            (17, Vec::new(), "stream_list_keys"),
            (25, index(false).encode_to_vec(), "secondary_index"),
            (25, index(true).encode_to_vec(), "stream_secondary_index"),
            (23, Vec::new(), "map_reduce"),
        ] {
            let outcome = client.request(MessageCode(code), payload.into()).await;
            let expected = format!("Operation '{{riak_kv,{class}}}' is not enabled");
            assert_eq!(refusal(outcome), expected);
        }
    });
}
