//! Listings: every name once, in messages of which only the last is empty.

use std::collections::BTreeSet;

use bytes::Bytes;
use kvorum_client::{Client, pb};
use kvorum_properties::PropertyOverlay;
use kvorum_runtime::Stream;

use crate::node::{bytes, encoded, refusal, with_node};

fn keys_of(bucket: &'static str) -> pb::RpbListKeysReq {
    pb::RpbListKeysReq {
        bucket: bytes(bucket),
        ..Default::default()
    }
}

async fn fill(client: &mut Client<Stream>, count: usize) -> BTreeSet<Bytes> {
    let mut keys = BTreeSet::new();
    for number in 0..count {
        let key = Bytes::from(format!("key-{number}"));
        client.put_value(b"b", &key, bytes("v")).await.unwrap();
        keys.insert(key);
    }
    keys
}

#[test]
fn each_key_is_listed_once_and_tombstones_are_not() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let mut keys = fill(&mut client, 50).await;
        client.put_value(b"other", b"k", bytes("v")).await.unwrap();
        client.delete_key(b"b", b"key-7").await.unwrap();
        keys.remove(&b"key-7"[..]);
        let listed = client
            .list_keys(&keys_of("b"))
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(listed.len(), keys.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), keys);
    });
}

#[test]
fn no_message_of_a_stream_is_empty_but_the_last() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client, 60).await;
        let mut raw = node.raw().await;
        raw.send(&encoded(&keys_of("b"))).await;
        let mut listed = 0;
        loop {
            let message: pb::RpbListKeysResp = raw.receive().await.unwrap().decode().unwrap();
            if message.done() {
                assert!(message.keys.is_empty());
                break;
            }
            assert!(!message.keys.is_empty());
            assert_eq!(message.done, None);
            listed += message.keys.len();
        }
        assert_eq!(listed, 60);
    });
}

#[test]
fn an_empty_bucket_is_listed_as_one_last_message() {
    with_node(|node| async move {
        let mut raw = node.raw().await;
        raw.send(&encoded(&keys_of("empty"))).await;
        let message: pb::RpbListKeysResp = raw.receive().await.unwrap().decode().unwrap();
        assert_eq!((message.keys.len(), message.done), (0, Some(true)));
    });
}

#[test]
fn buckets_come_in_one_message_without_done() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for bucket in [&b"a"[..], b"c", b"b"] {
            for key in [&b"1"[..], b"2", b"3"] {
                client.put_value(bucket, key, bytes("v")).await.unwrap();
            }
        }
        let mut raw = node.raw().await;
        raw.send(&encoded(&pb::RpbListBucketsReq::default())).await;
        let message: pb::RpbListBucketsResp = raw.receive().await.unwrap().decode().unwrap();
        let mut buckets = message.buckets;
        buckets.sort_unstable();
        assert_eq!(buckets, ["a", "b", "c"]);
        assert_eq!(message.done, None);
    });
}

#[test]
fn streamed_buckets_end_with_done() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for number in 0..30 {
            let bucket = format!("bucket-{number}");
            client
                .put_value(bucket.as_bytes(), b"k", bytes("v"))
                .await
                .unwrap();
        }
        let mut raw = node.raw().await;
        let request = pb::RpbListBucketsReq {
            stream: Some(true),
            ..Default::default()
        };
        raw.send(&encoded(&request)).await;
        let mut buckets = BTreeSet::new();
        loop {
            let message: pb::RpbListBucketsResp = raw.receive().await.unwrap().decode().unwrap();
            if message.done() {
                assert!(message.buckets.is_empty());
                break;
            }
            assert!(!message.buckets.is_empty());
            for bucket in message.buckets {
                assert!(buckets.insert(bucket), "each once");
            }
        }
        assert_eq!(buckets.len(), 30);
    });
}

#[test]
fn listings_stay_within_their_type() {
    with_node(|node| async move {
        node.add_type("typed", PropertyOverlay::default());
        let mut client = node.client().await;
        client.put_value(b"b", b"k", bytes("v")).await.unwrap();
        let request = pb::RpbListBucketsReq {
            r#type: Some(bytes("typed")),
            ..Default::default()
        };
        let listed = client
            .list_buckets(&request)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert!(listed.is_empty());
        let request = pb::RpbListKeysReq {
            r#type: Some(bytes("typed")),
            ..keys_of("b")
        };
        let listed = client
            .list_keys(&request)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert!(listed.is_empty());
    });
}

#[test]
fn listings_of_unknown_types_are_refused() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let r#type = Some(bytes("nothing"));
        let request = pb::RpbListBucketsReq {
            r#type: r#type.clone(),
            ..Default::default()
        };
        let outcome = client.list_buckets(&request).await.unwrap().collect().await;
        assert_eq!(refusal(outcome), "No bucket-type named 'nothing'");
        let request = pb::RpbListKeysReq {
            r#type,
            ..keys_of("b")
        };
        let outcome = client.list_keys(&request).await.unwrap().collect().await;
        assert_eq!(refusal(outcome), "No bucket-type named 'nothing'");
    });
}

#[test]
fn a_listing_without_patience_times_out() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let request = pb::RpbListKeysReq {
            timeout: Some(0),
            ..keys_of("b")
        };
        let outcome = client.list_keys(&request).await.unwrap().collect().await;
        assert_eq!(refusal(outcome), "timeout");
        client.ping().await.unwrap();
    });
}
