//! Data types and the counters of Riak 1.4. The replies of a real node are among the transcripts of the
//! conformance tests; the tests here are for everything else.

use bytes::Bytes;
use kvorum_client::{Client, Error, Frame, MessageCode, pb};
use kvorum_properties::{Datatype, PropertyOverlay};
use kvorum_runtime::Stream;
use prost::Message;

use crate::node::{Node, bytes, refusal, with_node};

type Reply = Result<Frame, Error>;

impl Node {
    async fn typed_client(&self) -> Client<Stream> {
        for (name, datatype) in [
            ("counters", Datatype::Counter),
            ("sets", Datatype::Set),
            ("gsets", Datatype::GrowOnlySet),
            ("maps", Datatype::Map),
        ] {
            let properties = PropertyOverlay {
                datatype: Some(datatype),
                ..PropertyOverlay::default()
            };
            self.add_type(name, properties);
        }
        self.client().await
    }
}

async fn send(client: &mut Client<Stream>, code: MessageCode, message: &impl Message) -> Reply {
    client.request(code, message.encode_to_vec().into()).await
}

async fn update(
    client: &mut Client<Stream>,
    bucket_type: &'static str,
    op: pb::DtOp,
    context: Option<Bytes>,
) -> Result<pb::DtUpdateResp, Error> {
    let request = pb::DtUpdateReq {
        bucket: bytes("b"),
        key: Some(bytes("k")),
        r#type: bytes(bucket_type),
        context,
        op,
        return_body: Some(true),
        ..pb::DtUpdateReq::default()
    };
    let reply = send(client, MessageCode::DT_UPDATE_REQ, &request).await;
    reply.map(|frame| frame.decode().unwrap())
}

async fn fetch(client: &mut Client<Stream>, bucket_type: &'static str) -> pb::DtFetchResp {
    let request = pb::DtFetchReq {
        bucket: bytes("b"),
        key: bytes("k"),
        r#type: bytes(bucket_type),
        ..pb::DtFetchReq::default()
    };
    let reply = send(client, MessageCode::DT_FETCH_REQ, &request).await;
    reply.unwrap().decode().unwrap()
}

fn count(increment: i64) -> pb::DtOp {
    pb::DtOp {
        counter_op: Some(pb::CounterOp {
            increment: Some(increment),
        }),
        ..pb::DtOp::default()
    }
}

fn set(adds: &[&'static str], removes: &[&'static str]) -> pb::DtOp {
    let all = |names: &[&'static str]| names.iter().map(|name| bytes(name)).collect();
    pb::DtOp {
        set_op: Some(pb::SetOp {
            adds: all(adds),
            removes: all(removes),
        }),
        ..pb::DtOp::default()
    }
}

#[test]
fn a_counter_beyond_64_bits_is_shown_as_the_greatest_that_a_message_holds() {
    with_node(|node| async move {
        let mut client = node.typed_client().await;
        for (by, shown) in [(i64::MAX, i64::MAX), (i64::MAX, i64::MAX), (-1, i64::MAX)] {
            let value = update(&mut client, "counters", count(by), None).await;
            assert_eq!(value.unwrap().counter_value, Some(shown));
        }
        let back = [i64::MIN, i64::MIN, 2];
        let mut last = None;
        for by in back {
            last = update(&mut client, "counters", count(by), None)
                .await
                .unwrap()
                .counter_value;
        }
        assert_eq!(last, Some(-1));
    });
}

/// Regression: the Go client sends fields that its caller left out as zero. With a time limit of
/// zero, every update of a counter failed at once.
#[test]
fn a_time_limit_of_zero_is_none_for_data_types() {
    with_node(|node| async move {
        let mut client = node.typed_client().await;
        let request = pb::DtUpdateReq {
            bucket: bytes("b"),
            r#type: bytes("counters"),
            op: count(10),
            w: Some(0),
            dw: Some(0),
            pw: Some(0),
            return_body: Some(true),
            timeout: Some(0),
            ..pb::DtUpdateReq::default()
        };
        let reply = send(&mut client, MessageCode::DT_UPDATE_REQ, &request).await;
        let updated: pb::DtUpdateResp = reply.unwrap().decode().unwrap();
        assert_eq!(updated.counter_value, Some(10));
        let request = pb::DtFetchReq {
            bucket: bytes("b"),
            key: updated.key.unwrap(),
            r#type: bytes("counters"),
            timeout: Some(0),
            ..pb::DtFetchReq::default()
        };
        let reply = send(&mut client, MessageCode::DT_FETCH_REQ, &request).await;
        let fetched: pb::DtFetchResp = reply.unwrap().decode().unwrap();
        assert_eq!(fetched.value.unwrap().counter_value, Some(10));
    });
}

#[test]
fn a_context_that_was_not_given_out_is_refused_and_nothing_is_changed() {
    with_node(|node| async move {
        let mut client = node.typed_client().await;
        let added = update(&mut client, "sets", set(&["a"], &[]), None)
            .await
            .unwrap();
        let forged = Some(bytes("made up"));
        let outcome = update(&mut client, "sets", set(&[], &["a"]), forged).await;
        assert!(refusal(outcome).starts_with("Invalid context: "));
        assert_eq!(
            fetch(&mut client, "sets").await.value.unwrap().set_value,
            ["a"]
        );
        let removed = update(&mut client, "sets", set(&[], &["a"]), added.context).await;
        assert_eq!(removed.unwrap().set_value, Vec::<Bytes>::new());
        let empty = fetch(&mut client, "sets").await;
        assert_eq!(empty.value, Some(pb::DtValue::default()));
    });
}

#[test]
fn an_operation_that_says_too_little_is_refused() {
    with_node(|node| async move {
        let mut client = node.typed_client().await;
        let none = update(&mut client, "counters", pb::DtOp::default(), None).await;
        assert_eq!(refusal(none), "Invalid operation: no operation is given");
        for kind in [1, 2, 3, 4, 5, 9] {
            let field = pb::MapField {
                name: bytes("f"),
                r#type: kind,
            };
            let updates = vec![pb::MapUpdate {
                field,
                ..pb::MapUpdate::default()
            }];
            let op = pb::DtOp {
                map_op: Some(pb::MapOp {
                    removes: vec![],
                    updates,
                }),
                ..pb::DtOp::default()
            };
            let outcome = update(&mut client, "maps", op, None).await;
            assert!(
                refusal(outcome).starts_with("Invalid operation: "),
                "{kind}"
            );
        }
        assert_eq!(fetch(&mut client, "maps").await.value, None);
    });
}

#[test]
fn a_set_that_only_grows_answers_an_update() {
    with_node(|node| async move {
        let mut client = node.typed_client().await;
        let adds = vec![bytes("y"), bytes("x")];
        let op = pb::DtOp {
            gset_op: Some(pb::GSetOp { adds }),
            ..pb::DtOp::default()
        };
        let reply = update(&mut client, "gsets", op, None).await.unwrap();
        assert_eq!(reply.gset_value, ["x", "y"]);
        assert_eq!(reply.context, None);
    });
}

#[test]
fn older_counters_count_in_buckets_that_keep_siblings() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let mut request = pb::RpbCounterUpdateReq {
            bucket: bytes("b"),
            key: bytes("k"),
            amount: 5,
            returnvalue: Some(true),
            ..pb::RpbCounterUpdateReq::default()
        };
        let code = MessageCode::RPB_COUNTER_UPDATE_REQ;
        let outcome = send(&mut client, code, &request).await;
        let text = "\"Counters require bucket property 'allow_mult=true'\"";
        assert_eq!(refusal(outcome), text);
        let siblings = pb::RpbBucketProps {
            allow_mult: Some(true),
            ..pb::RpbBucketProps::default()
        };
        let set = client.set_bucket_properties(None, bytes("b"), siblings);
        set.await.unwrap();
        for expected in [5, 10] {
            let frame = send(&mut client, code, &request).await.unwrap();
            let reply: pb::RpbCounterUpdateResp = frame.decode().unwrap();
            assert_eq!(reply.value, Some(expected));
        }
        request.key = Bytes::new();
        let outcome = send(&mut client, code, &request).await;
        assert_eq!(refusal(outcome), "Key cannot be zero-length");
    });
}
