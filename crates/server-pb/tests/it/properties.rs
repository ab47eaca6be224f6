//! Properties of buckets and bucket types.

use kvorum_client::{MessageCode, PutOptions, pb, quorum};
use kvorum_properties::{Datatype, PropertyOverlay};
use prost::Message as _;

use crate::node::{bytes, put, refusal, text_content, with_node};

fn multi() -> pb::RpbBucketProps {
    pb::RpbBucketProps {
        allow_mult: Some(true),
        ..Default::default()
    }
}

#[test]
fn a_bucket_starts_with_the_defaults_of_its_type() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let props = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!((props.n_val, props.allow_mult), (Some(3), Some(false)));
        assert_eq!(props.r, Some(quorum::QUORUM));
        assert_eq!((props.pr, props.basic_quorum), (Some(0), Some(false)));
        assert_eq!(
            (props.has_precommit, props.has_postcommit),
            (Some(true), Some(true))
        );
        assert_eq!(props.chash_keyfun.unwrap().function, "chash_std_keyfun");
        assert_eq!(props.linkfun.unwrap().module, "riak_kv_wm_link_walker");
        assert_eq!((props.search, props.datatype), (None, None));
    });
}

#[test]
fn what_is_set_is_read_until_it_is_reset() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let set = pb::RpbBucketProps {
            n_val: Some(2),
            w: Some(quorum::ALL),
            search_index: Some(bytes("i")),
            ..multi()
        };
        client
            .set_bucket_properties(None, bytes("b"), set)
            .await
            .unwrap();
        let props = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!((props.n_val, props.allow_mult), (Some(2), Some(true)));
        assert_eq!(props.w, Some(quorum::ALL));
        assert_eq!(props.search_index, Some(bytes("i")));
        let fewer = pb::RpbBucketProps {
            has_precommit: Some(true),
            w: Some(1),
            ..Default::default()
        };
        client
            .set_bucket_properties(None, bytes("b"), fewer)
            .await
            .unwrap();
        let props = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!(
            (props.n_val, props.w),
            (Some(2), Some(1)),
            "the others stay"
        );
        client
            .reset_bucket_properties(None, bytes("b"))
            .await
            .unwrap();
        let props = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!((props.n_val, props.allow_mult), (Some(3), Some(false)));
    });
}

#[test]
fn properties_that_are_set_take_effect() {
    with_node(|node| async move {
        let mut client = node.client().await;
        client
            .set_bucket_properties(None, bytes("b"), multi())
            .await
            .unwrap();
        for value in ["a", "b"] {
            client.put_value(b"b", b"k", bytes(value)).await.unwrap();
        }
        assert_eq!(client.get_key(b"b", b"k").await.unwrap().content.len(), 2);
    });
}

#[test]
fn wrong_properties_are_refused_with_their_names() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let wrong = pb::RpbBucketProps {
            n_val: Some(0),
            ..Default::default()
        };
        let outcome = client.set_bucket_properties(None, bytes("b"), wrong).await;
        assert_eq!(
            refusal(outcome),
            "Invalid bucket properties: [{n_val,not_integer}]"
        );
        let datatype = Some(bytes("set"));
        let forbidden = pb::RpbBucketProps {
            datatype,
            ..multi()
        };
        let text = refusal(
            client
                .set_bucket_properties(None, bytes("b"), forbidden)
                .await,
        );
        assert!(
            text.starts_with("Invalid bucket properties: [{datatype,"),
            "{text}"
        );
    });
}

#[test]
fn buckets_of_unknown_types_are_refused_but_for_a_reset() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let unknown = "No bucket-type named 'nothing'";
        let nothing = || Some(bytes("nothing"));
        let outcome = client.bucket_properties(nothing(), bytes("b")).await;
        assert_eq!(refusal(outcome), unknown);
        let outcome = client
            .set_bucket_properties(nothing(), bytes("b"), multi())
            .await;
        assert_eq!(refusal(outcome), unknown);
        client
            .reset_bucket_properties(nothing(), bytes("b"))
            .await
            .unwrap();
    });
}

#[test]
fn types_have_properties_of_their_own() {
    with_node(|node| async move {
        let datatype = Some(Datatype::Set);
        node.add_type(
            "sets",
            PropertyOverlay {
                datatype,
                ..Default::default()
            },
        );
        let mut client = node.client().await;
        let props = client.bucket_type_properties(bytes("sets")).await.unwrap();
        assert_eq!(props.datatype, Some(bytes("set")));
        assert_eq!(props.allow_mult, Some(true));
        let set = pb::RpbBucketProps {
            n_val: Some(2),
            ..Default::default()
        };
        client
            .set_bucket_type_properties(bytes("sets"), set)
            .await
            .unwrap();
        let props = client
            .bucket_properties(Some(bytes("sets")), bytes("b"))
            .await
            .unwrap();
        assert_eq!((props.n_val, props.datatype), (Some(2), Some(bytes("set"))));
        let default = client
            .bucket_type_properties(bytes("default"))
            .await
            .unwrap();
        assert_eq!(default.n_val, Some(3));
    });
}

#[test]
fn types_that_cannot_be_changed_say_so() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let outcome = client.bucket_type_properties(bytes("nothing")).await;
        assert_eq!(refusal(outcome), "Invalid bucket type: <<\"nothing\">>");
        let outcome = client
            .set_bucket_type_properties(bytes("nothing"), multi())
            .await;
        assert_eq!(refusal(outcome), "Invalid bucket properties: not_active");
        let outcome = client
            .set_bucket_type_properties(bytes("default"), multi())
            .await;
        assert_eq!(
            refusal(outcome),
            "Invalid bucket properties: no_default_update"
        );
    });
}

#[test]
fn buckets_without_a_name_are_refused() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for code in [
            MessageCode::RPB_GET_BUCKET_REQ,
            MessageCode::RPB_RESET_BUCKET_REQ,
        ] {
            let payload = pb::RpbGetBucketReq::default().encode_to_vec();
            let outcome = client.request(code, payload.into()).await;
            assert_eq!(refusal(outcome), "Bucket cannot be zero-length");
        }
    });
}

#[test]
fn what_would_not_be_kept_is_refused_with_a_reason() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let hook = || pb::RpbCommitHook {
            modfun: None,
            name: Some(bytes("js")),
        };
        let nothing = pb::RpbBucketProps::default;
        for (set, property) in [
            (
                pb::RpbBucketProps {
                    has_precommit: Some(true),
                    precommit: vec![hook()],
                    ..nothing()
                },
                "precommit",
            ),
            (
                pb::RpbBucketProps {
                    has_postcommit: Some(true),
                    postcommit: vec![hook()],
                    ..nothing()
                },
                "postcommit",
            ),
            (
                pb::RpbBucketProps {
                    consistent: Some(true),
                    ..nothing()
                },
                "consistent",
            ),
            (
                pb::RpbBucketProps {
                    backend: Some(bytes("elsewhere")),
                    ..nothing()
                },
                "backend",
            ),
            (
                pb::RpbBucketProps {
                    r: Some(quorum::DEFAULT),
                    ..nothing()
                },
                "r",
            ),
        ] {
            let outcome = client.set_bucket_properties(None, bytes("b"), set).await;
            let text = refusal(outcome);
            let start = format!("Invalid bucket properties: [{{{property},");
            assert!(text.starts_with(&start), "{text}");
        }
        let props = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!((props.backend, props.consistent), (None, None));
    });
}

#[test]
fn a_validator_is_set_and_refuses_values_over_this_protocol() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let hook = |function: &'static str| pb::RpbCommitHook {
            modfun: Some(pb::RpbModFun {
                module: bytes("kvorum"),
                function: bytes(function),
            }),
            name: None,
        };
        let set = pb::RpbBucketProps {
            has_precommit: Some(true),
            precommit: vec![hook("json"), hook("max_bytes:4")],
            ..Default::default()
        };
        client
            .set_bucket_properties(None, bytes("b"), set.clone())
            .await
            .unwrap();
        let shown = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!(shown.precommit, set.precommit);
        let no_json = client.put_value(b"b", b"k", bytes("text")).await;
        let text = refusal(no_json);
        assert!(text.starts_with("{precommit_fail,<<\"json: "), "{text}");
        let too_long = client.put_value(b"b", b"k", bytes("12345")).await;
        let text = refusal(too_long);
        assert!(text.contains("max_bytes: the value has 5 bytes"), "{text}");
        assert!(client.get_key(b"b", b"k").await.unwrap().content.is_empty());
        client.put_value(b"b", b"k", bytes("1234")).await.unwrap();
        // An object that is put with `asis` already exists elsewhere.
        let as_is = PutOptions {
            asis: Some(true),
            ..PutOptions::default()
        };
        let content = text_content("plain text");
        put(&mut client, None, Some("copy"), None, &content, &as_is)
            .await
            .unwrap();
    });
}
