//! Folds over keys: Riak's messages of AAE folds.

use kvorum_client::{Client, pb};
use kvorum_properties::PropertyOverlay;
use kvorum_protocol::CodedMessage;
use kvorum_runtime::Stream;

use crate::node::{Node, bytes, encoded, error_text, with_node};

async fn ask(node: &Node, request: &impl CodedMessage) -> kvorum_protocol::frame::Frame {
    let mut raw = node.raw().await;
    raw.send(&encoded(request)).await;
    raw.receive().await.unwrap()
}

async fn counts(node: &Node, request: &impl CodedMessage) -> (String, Vec<pb::RpbKeysCount>) {
    let reply: pb::RpbAaeFoldKeyCountResp = ask(node, request).await.decode().unwrap();
    let kind = String::from_utf8(reply.response_type.to_vec()).unwrap();
    (kind, reply.keys_count)
}

fn count(tag: &'static str, order: Option<u32>, count: u32) -> pb::RpbKeysCount {
    pb::RpbKeysCount {
        tag: bytes(tag),
        order,
        count,
    }
}

async fn fill(client: &mut Client<Stream>) {
    for key in ["a", "b", "c"] {
        let put = client.put_value(b"b", key.as_bytes(), bytes("value"));
        put.await.unwrap();
    }
    client.delete_key(b"b", b"c").await.unwrap();
}

#[test]
fn statistics_of_a_bucket_and_of_a_range_are_counted() {
    with_node(|node| async move {
        fill(&mut node.client().await).await;
        let mut request = pb::RpbAaeFoldObjectStatsReq {
            bucket: bytes("b"),
            ..Default::default()
        };
        let (kind, stats) = counts(&node, &request).await;
        assert_eq!(kind, "stats");
        assert_eq!(stats[0], count("total_count", None, 3));
        assert_eq!(stats[1].tag, "total_size");
        assert_eq!(stats.last(), Some(&count("siblings", Some(1), 3)));
        request.key_range = true;
        request.start_key = Some(bytes("b"));
        request.end_key = Some(bytes("b"));
        let (_, stats) = counts(&node, &request).await;
        assert_eq!(stats[0], count("total_count", None, 1));
        request.end_key = None;
        let refused = error_text(&ask(&node, &request).await);
        assert_eq!(refused, "\"Invalid AAE fold definition\"");
    });
}

#[test]
fn keys_are_found_by_size_and_tombstones_with_their_clocks() {
    with_node(|node| async move {
        fill(&mut node.client().await).await;
        let mut find = pb::RpbAaeFoldFindKeysReq {
            bucket: bytes("b"),
            finder: i32::from(pb::FindType::ObjectSize),
            find_limit: 1,
            ..Default::default()
        };
        let (kind, found) = counts(&node, &find).await;
        let tags: Vec<_> = found.iter().map(|it| it.tag.clone()).collect();
        assert_eq!(
            (&kind[..], tags),
            ("find_keys", vec![bytes("a"), bytes("b"), bytes("c")])
        );
        find.finder = i32::from(pb::FindType::SiblingCount);
        assert!(counts(&node, &find).await.1.is_empty());
        find.finder = 2;
        let refused = error_text(&ask(&node, &find).await);
        assert_eq!(refused, "\"Invalid AAE fold definition\"");
        let graves = pb::RpbAaeFoldFindTombsReq {
            bucket: bytes("b"),
            ..Default::default()
        };
        let graves: pb::RpbAaeFoldKeyValueResp = ask(&node, &graves).await.decode().unwrap();
        assert_eq!(graves.response_type, "clock");
        let [grave] = &graves.keys_value[..] else {
            panic!("{graves:?}");
        };
        assert_eq!((&grave.key[..], &grave.r#type), (&b"c"[..], &None));
        assert!(!grave.value.is_empty());
    });
}

#[test]
fn tombstones_are_counted_and_reaped_and_objects_erased() {
    with_node(|node| async move {
        fill(&mut node.client().await).await;
        let dispatched = |number| vec![count("dispatched_count", None, number)];
        let mut reap = pb::RpbAaeFoldReapTombsReq {
            bucket: bytes("b"),
            change_method: i32::from(pb::ChangeMethod::Count),
            ..Default::default()
        };
        let once = ("reap_tombs".to_owned(), dispatched(1));
        assert_eq!(counts(&node, &reap).await, once);
        reap.change_method = i32::from(pb::ChangeMethod::Job);
        assert_eq!(counts(&node, &reap).await, once);
        assert_eq!(counts(&node, &reap).await.1, dispatched(0));
        let erase = pb::RpbAaeFoldEraseKeysReq {
            bucket: bytes("b"),
            key_range: true,
            start_key: Some(bytes("a")),
            end_key: Some(bytes("a")),
            change_method: i32::from(pb::ChangeMethod::Local),
            ..Default::default()
        };
        let once = ("erase_keys".to_owned(), dispatched(1));
        assert_eq!(counts(&node, &erase).await, once);
        assert_eq!(counts(&node, &erase).await.1, dispatched(0));
        let repair = pb::RpbAaeFoldRepairKeysReq {
            bucket: bytes("b"),
            ..Default::default()
        };
        let twice = ("repair_keys".to_owned(), dispatched(2));
        assert_eq!(counts(&node, &repair).await, twice);
    });
}

#[test]
fn trees_clocks_and_buckets_are_shown() {
    with_node(|node| async move {
        node.add_type("typed", PropertyOverlay::default());
        fill(&mut node.client().await).await;
        let mut tree = pb::RpbAaeFoldMergeTreesRangeReq {
            bucket: bytes("b"),
            tree_size: i32::from(pb::RpbTreeSize::Xsmall),
            use_prehash: true,
            ..Default::default()
        };
        let shown: pb::RpbAaeFoldTreeResp = ask(&node, &tree).await.decode().unwrap();
        assert_eq!((shown.size, shown.level_two.len()), (1, 64));
        assert_eq!(shown.level_one.as_ref().unwrap().len(), 256);
        tree.use_prehash = false;
        tree.init_vector = Some(5);
        let seeded: pb::RpbAaeFoldTreeResp = ask(&node, &tree).await.decode().unwrap();
        assert_ne!(seeded.level_one, shown.level_one);
        tree.tree_size = 9;
        let refused = error_text(&ask(&node, &tree).await);
        assert_eq!(refused, "\"Invalid AAE fold definition\"");
        let clocks = pb::RpbAaeFoldFetchClocksRangeReq {
            bucket: bytes("b"),
            ..Default::default()
        };
        let clocks: pb::RpbAaeFoldKeyValueResp = ask(&node, &clocks).await.decode().unwrap();
        assert_eq!(clocks.keys_value.len(), 3);
        let buckets = pb::RpbAaeFoldListBucketsReq { n_val: Some(1) };
        let buckets: pb::RpbAaeFoldListBucketsResp = ask(&node, &buckets).await.decode().unwrap();
        let expected = pb::RpbAaeFoldBucket {
            r#type: None,
            bucket: bytes("b"),
        };
        assert_eq!(buckets.bucket_list, [expected]);
    });
}
