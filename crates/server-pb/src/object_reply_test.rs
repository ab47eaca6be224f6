//! The layout against the generated messages.

use bytes::{Bytes, BytesMut};
use kvorum_object::{
    ActorId, Clock, Content, Dot, IndexEntry, Resolution, Stored, Timestamp, UserMetadata, Write,
    update,
};
use kvorum_protocol::frame::FrameDecoder;
use kvorum_protocol::http_fields::format_http_date;
use kvorum_protocol::pb;
use proptest::prelude::*;
use prost::Message as _;

use super::*;

/// The same reply, made with the generated messages.
fn message_of(object: &Object, values: Values, key: Option<&[u8]>) -> pb::RpbPutResp {
    let given = |bytes: &Bytes| (!bytes.is_empty()).then(|| bytes.clone());
    let content = |sibling: &Sibling| {
        let metadata = &sibling.metadata;
        let (last_mod, last_mod_usecs) = last_modified(metadata);
        let link = |link: &Link| pb::RpbLink {
            bucket: Some(link.bucket.clone()),
            key: Some(link.key.clone()),
            tag: Some(link.tag.clone()),
        };
        let user = |pair: &UserMetadata| pb::RpbPair {
            key: pair.name.clone(),
            value: pair.value.clone(),
        };
        let end = metadata.expires_at.map(|end| pb::RpbPair {
            key: Bytes::from_static(b"X-Kvorum-Expires-At"),
            value: Some(format_http_date(end.as_secs()).into()),
        });
        let index = |entry: &IndexEntry| pb::RpbPair {
            key: entry.field.clone(),
            value: Some(entry.value.clone()),
        };
        pb::RpbContent {
            value: match values {
                Values::Whole => sibling.value.clone(),
                Values::Empty => Bytes::new(),
            },
            content_type: given(&metadata.content_type),
            charset: given(&metadata.charset),
            content_encoding: given(&metadata.content_encoding),
            vtag: Some(Bytes::copy_from_slice(sibling.etag().as_bytes())),
            links: metadata.links.iter().map(link).collect(),
            last_mod: Some(last_mod),
            last_mod_usecs: Some(last_mod_usecs),
            usermeta: metadata.user_metadata.iter().map(user).chain(end).collect(),
            indexes: metadata.indexes.iter().map(index).collect(),
            deleted: metadata.deleted.then_some(true),
            expires_at_usecs: None,
        }
    };
    pb::RpbPutResp {
        content: object
            .siblings_by_value()
            .into_iter()
            .map(content)
            .collect(),
        vclock: Some(object.clock().encode()),
        key: key.map(Bytes::copy_from_slice),
    }
}

/// An object with a sibling for each content, all written blindly.
fn object_of(contents: Vec<Content>) -> Object {
    let blind = Clock::new();
    let mut object = None;
    for (counter, content) in (1..).zip(contents) {
        let actor = ActorId(7);
        let write = Write {
            context: &blind,
            content,
            dot: Dot { actor, counter },
            now: Timestamp::from_micros(1_700_000_000_000_001 * counter),
            resolution: Resolution::KeepSiblings,
        };
        let stored = object.take().map_or(Stored::Absent, Stored::Object);
        object = Some(update(stored, write).unwrap());
    }
    object.unwrap()
}

fn name() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let link = (name(), name(), name()).prop_map(|(bucket, key, tag)| Link { bucket, key, tag });
    let user = (name(), proptest::option::of(name()));
    let user = user.prop_map(|(name, value)| UserMetadata { name, value });
    let index = (name(), name()).prop_map(|(field, value)| IndexEntry { field, value });
    let lists = (
        proptest::collection::vec(link, 0..3),
        proptest::collection::vec(user, 0..3),
        proptest::collection::vec(index, 0..3),
    );
    let end = proptest::option::of(any::<u64>().prop_map(Timestamp::from_micros));
    (name(), name(), name(), end, lists).prop_map(
        |(content_type, charset, content_encoding, expires_at, lists)| {
            let (links, user_metadata, indexes) = lists;
            Metadata {
                expires_at,
                content_type,
                charset,
                content_encoding,
                links,
                user_metadata,
                indexes,
                ..Metadata::default()
            }
        },
    )
}

fn content() -> impl Strategy<Value = Content> {
    let value_len = prop_oneof![0usize..200, 16_000usize..17_000];
    let value = (value_len, any::<u8>()).prop_map(|(len, byte)| Bytes::from(vec![byte; len]));
    let live = (metadata(), value).prop_map(|(metadata, value)| Content { metadata, value });
    prop_oneof![4 => live, 1 => Just(Content::tombstone())]
}

fn sent(output: &mut Output) -> BytesMut {
    let mut bytes = Vec::new();
    {
        let mut sending = std::pin::pin!(output.send(&mut bytes));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(sending.as_mut().poll(&mut context).is_ready());
    }
    BytesMut::from(&bytes[..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replies_are_the_bytes_of_the_generated_messages(
        contents in proptest::collection::vec(content(), 1..4),
        key in proptest::option::of(name()),
        is_whole in any::<bool>(),
    ) {
        let object = object_of(contents);
        let values = if is_whole { Values::Whole } else { Values::Empty };
        let key = key.as_deref();
        let code = MessageCode::RPB_PUT_RESP;
        let mut output = Output::default();
        let reply = ObjectReply { code, object: &object, values, key };
        reply.encode(&mut output).unwrap();
        let mut bytes = sent(&mut output);
        let frame = FrameDecoder::new(u32::MAX).decode(&mut bytes).unwrap().unwrap();
        prop_assert_eq!(frame.code, code);
        prop_assert!(bytes.is_empty());
        let expected = message_of(&object, values, key).encode_to_vec();
        prop_assert_eq!(&frame.payload[..], &expected[..]);
    }
}
