//! Every decoder on random bytes and on damaged real input: errors are allowed, panics are not.

use bytes::{Bytes, BytesMut};
use kvorum_protocol::frame::{Frame, FrameDecoder};
use kvorum_protocol::http_fields::{
    ContentType, EntityTags, ExactFields, QueryParameters, UrlGeneration, choose_charset,
    choose_encoding, choose_media_type, decode_percent, decode_percent_and_plus, decode_vclock,
    format_entity_tag, format_links, index_response_text, metadata_header_value, parse_http_date,
    parse_index_header, parse_links, parse_quorum, parse_timeout_ms, parse_tristate,
    user_metadata_key,
};
use kvorum_protocol::{MessageCode, pb};
use proptest::prelude::*;
use prost::Message;

/// Decodes a payload as many kinds of messages, nested ones included.
fn decode_as_many_messages(payload: Bytes) {
    let frame = Frame {
        code: MessageCode(0),
        payload,
    };
    let _ = frame.decode::<pb::RpbErrorResp>();
    let _ = frame.decode::<pb::RpbSetBucketReq>();
    let _ = frame.decode::<pb::RpbGetReq>();
    let _ = frame.decode::<pb::RpbGetResp>();
    let _ = frame.decode::<pb::RpbPutReq>();
    let _ = frame.decode::<pb::RpbDelReq>();
    let _ = frame.decode::<pb::RpbListKeysResp>();
    let _ = frame.decode::<pb::RpbIndexReq>();
    let _ = frame.decode::<pb::RpbCsBucketResp>();
    let _ = frame.decode::<pb::RpbAaeFoldReapTombsReq>();
    let _ = frame.decode::<pb::DtFetchResp>();
    let _ = frame.decode::<pb::DtUpdateReq>();
}

fn read_as_every_http_field(field: &[u8]) {
    let _ = decode_percent(field);
    let _ = decode_percent_and_plus(field);
    let _ = decode_vclock(field);
    let _ = parse_http_date(field);
    let _ = ContentType::parse(field);
    let _ = parse_quorum("r", field).map_err(|error| error.response_text());
    let _ = parse_tristate("asis", field).map_err(|error| error.response_text());
    let _ = parse_timeout_ms(field).map_err(|error| error.response_text());
    let _ = choose_media_type(&["text/plain", "multipart/mixed"], Some(field));
    let _ = choose_encoding(&["identity", "gzip"], Some(field));
    let _ = choose_charset(&["utf-8"], Some(field));
    let _ = metadata_header_value(field);
    let _ = std::str::from_utf8(field).map(user_metadata_key);
    let _ = ExactFields::parse(field).map_err(|error| error.response_text());
    let _ = QueryParameters::parse(field).get("r");
    assert!(EntityTags::parse(format_entity_tag(b"x").as_bytes()).matches(b"x"));
    let _ = EntityTags::parse(field).matches(field);
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for name in [&b"a_bin"[..], b"a_int", field] {
        let header = Bytes::copy_from_slice(field);
        parse_index_header(name, &header, &mut entries, &mut errors);
    }
    let _ = index_response_text(&errors);
    let mut links = Vec::new();
    if parse_links(field, &mut links).is_ok() {
        let header = format_links(UrlGeneration::Second, b"bucket", &links);
        let mut again = Vec::new();
        parse_links(header.as_bytes(), &mut again).unwrap();
        assert_eq!(again, links);
    }
}

fn real_payload() -> Vec<u8> {
    let pair = pb::RpbPair {
        key: Bytes::from("key"),
        value: Some(Bytes::from("value")),
    };
    let link = pb::RpbLink {
        bucket: Some(Bytes::from("b")),
        ..Default::default()
    };
    let content = pb::RpbContent {
        value: Bytes::from("some value"),
        links: vec![link],
        usermeta: vec![pair.clone()],
        indexes: vec![pair],
        last_mod: Some(1_700_000_000),
        ..Default::default()
    };
    let put = pb::RpbPutReq {
        bucket: Bytes::from("bucket"),
        key: Some(Bytes::from("key")),
        content,
        return_body: Some(true),
        ..Default::default()
    };
    put.encode_to_vec()
}

#[test]
fn deeply_nested_maps_are_refused_instead_of_overflowing_the_stack() {
    const MAP_OP_FIELD: u8 = 6 << 3 | 2; // of MapUpdate
    const UPDATES_FIELD: u8 = 2 << 3 | 2; // of MapOp
    let mut payload = Vec::new();
    for level in 0..20_000 {
        let tag = if level % 2 == 0 {
            UPDATES_FIELD
        } else {
            MAP_OP_FIELD
        };
        let mut outer = vec![tag];
        prost::encoding::encode_varint(payload.len() as u64, &mut outer);
        outer.extend_from_slice(&payload);
        payload = outer;
        if level == 9 {
            assert!(pb::MapUpdate::decode(&payload[..]).is_ok());
        }
    }
    assert!(pb::MapUpdate::decode(&payload[..]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..Default::default() })]

    #[test]
    fn random_streams_never_panic_the_frame_decoder(
        bytes in prop::collection::vec(any::<u8>(), 0..400), frame_bytes_max in any::<u32>(),
    ) {
        let decoder = FrameDecoder::new(frame_bytes_max);
        let mut buffer = BytesMut::from(&bytes[..]);
        let mut consumed = 0;
        while let Ok(Some(frame)) = decoder.decode(&mut buffer) {
            consumed += 5 + frame.payload.len();
        }
        prop_assert_eq!(consumed + buffer.len(), bytes.len());
    }

    #[test]
    fn random_payloads_never_panic_a_message_decoder(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        decode_as_many_messages(Bytes::from(bytes));
    }

    #[test]
    fn damaged_payloads_never_panic_a_message_decoder(
        position in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<prop::sample::Index>(),
    ) {
        let mut payload = real_payload();
        payload[position.index(real_payload().len())] ^= flip;
        payload.truncate(cut.index(payload.len() + 1));
        decode_as_many_messages(Bytes::from(payload));
    }

    #[test]
    fn random_bytes_never_panic_an_http_field(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_as_every_http_field(&bytes);
    }

    #[test]
    fn random_header_text_never_panics_an_http_field(
        text in r#"[</a-z>;=", \\%+*q0-9.:_-]{0,80}"#,
    ) {
        read_as_every_http_field(text.as_bytes());
    }

    #[test]
    fn near_links_never_panic(
        text in r#"(</(riak|buckets)/[a%+]{0,3}(/(keys/)?[a2%/]{0,3})?> ?; ?(rel|riaktag)="[a",u%p]{0,4}"[, ]{0,2}){0,3}"#,
    ) {
        read_as_every_http_field(text.as_bytes());
    }
}
