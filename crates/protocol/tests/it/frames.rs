//! Frames against bytes computed by hand, and requests against the generated encoder.

use bytes::{Bytes, BytesMut};
use kvorum_protocol::frame::{self, Frame, FrameDecoder, FrameError};
use kvorum_protocol::request::{Delete, DeleteOptions, Get, GetOptions, Put, PutOptions};
use kvorum_protocol::{MessageCode, pb};
use proptest::prelude::*;
use prost::Message;

const FRAME_BYTES_MAX: u32 = 1 << 20;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_all(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let decoder = FrameDecoder::new(FRAME_BYTES_MAX);
    let mut buffer = BytesMut::from(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(&mut buffer)? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn known_messages_have_known_bytes() {
    let mut buffer = BytesMut::new();
    frame::encode_empty(MessageCode::RPB_PING_REQ, &mut buffer);
    assert_eq!(hex(&buffer.split()), "0000000101");

    frame::encode_error(b"no", &mut buffer);
    assert_eq!(hex(&buffer.split()), "00000007000a026e6f1000");

    let get = pb::RpbGetReq {
        bucket: Bytes::from("b"),
        key: Bytes::from("k1"),
        r: Some(kvorum_protocol::quorum::ONE),
        r#type: Some(Bytes::from("t")),
        ..Default::default()
    };
    frame::encode(&get, &mut buffer).unwrap();
    // length 17 | code 9 | bucket "b" | key "k1" | r 4294967294 | type "t"
    assert_eq!(
        hex(&buffer.split()),
        "00000011090a016212026b3118feffffff0f6a0174"
    );

    let counter = pb::RpbCounterUpdateReq {
        bucket: Bytes::from("b"),
        key: Bytes::from("k"),
        amount: -2,
        ..Default::default()
    };
    frame::encode(&counter, &mut buffer).unwrap();
    // amount is zig-zag: -2 is 3
    assert_eq!(hex(&buffer.split()), "00000009320a016212016b1803");

    // Required fields are written even when empty, an absent option is not.
    let put = pb::RpbPutReq::default();
    frame::encode(&put, &mut buffer).unwrap();
    assert_eq!(hex(&buffer.split()), "000000070b0a0022020a00");
    frame::encode(&pb::RpbGetResp::default(), &mut buffer).unwrap();
    assert_eq!(hex(&buffer.split()), "000000010a");
}

#[test]
fn newer_fields_have_their_numbers() {
    let props = pb::RpbBucketProps {
        node_confirms: Some(1),
        sync_on_write: Some(pb::RpbSyncOnWrite::All.into()),
        aae_tree_exclude: Some(true),
        repl: Some(pb::rpb_bucket_props::RpbReplMode::True.into()),
        ..Default::default()
    };
    // repl 24 = c0 01, node_confirms 30 = f0 01, sync_on_write 31 = f8 01, exclude 32 = 80 02
    assert_eq!(hex(&props.encode_to_vec()), "c00103f00101f80102800201");
    let put = pb::RpbPutReq {
        sync_on_write: Some(Bytes::from("one")),
        ..Default::default()
    };
    assert!(hex(&put.encode_to_vec()).ends_with("9201036f6e65"));
}

#[test]
fn frames_come_out_whole_whatever_the_pieces() {
    let mut stream = BytesMut::new();
    frame::encode_empty(MessageCode::RPB_PING_REQ, &mut stream);
    frame::encode_error(b"timeout", &mut stream);
    frame::encode_empty(MessageCode(99), &mut stream);
    let expected = decode_all(&stream).unwrap();
    assert_eq!(expected.len(), 3);
    assert_eq!(
        expected[1].decode::<pb::RpbErrorResp>().unwrap().errmsg,
        "timeout"
    );
    assert_eq!(expected[2].code, MessageCode(99));

    let decoder = FrameDecoder::new(FRAME_BYTES_MAX);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for byte in &stream {
        buffer.extend_from_slice(&[*byte]);
        frames.extend(decoder.decode(&mut buffer).unwrap());
    }
    assert_eq!(frames, expected);
    assert!(buffer.is_empty());
}

#[test]
fn a_payload_is_a_slice_of_the_receive_buffer() {
    let mut buffer = BytesMut::new();
    let content = pb::RpbContent {
        value: Bytes::from(vec![7; 1000]),
        ..Default::default()
    };
    let put = pb::RpbPutReq {
        content,
        ..Default::default()
    };
    frame::encode(&put, &mut buffer).unwrap();
    let received = buffer.as_ptr_range();
    let frame = FrameDecoder::new(FRAME_BYTES_MAX)
        .decode(&mut buffer)
        .unwrap()
        .unwrap();
    let put: pb::RpbPutReq = frame.decode().unwrap();
    assert_eq!(put.content.value.len(), 1000);
    assert!(received.contains(&put.content.value.as_ptr()));
}

#[test]
fn impossible_lengths_are_refused_before_anything_is_read() {
    assert!(matches!(
        decode_all(&[0, 0, 0, 0]),
        Err(FrameError::LengthZero)
    ));
    let over_limit = (FRAME_BYTES_MAX + 1).to_be_bytes();
    assert!(matches!(
        decode_all(&over_limit),
        Err(FrameError::TooLong {
            length: 1_048_577,
            frame_bytes_max: FRAME_BYTES_MAX
        })
    ));
    assert!(
        decode_all(&FRAME_BYTES_MAX.to_be_bytes())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn an_announced_length_alone_reserves_little() {
    let mut buffer = BytesMut::from(&[0x3f, 0xff, 0xff, 0xff, 9][..]);
    assert!(
        FrameDecoder::new(u32::MAX)
            .decode(&mut buffer)
            .unwrap()
            .is_none()
    );
    assert!(buffer.capacity() < 1 << 18, "{}", buffer.capacity());
    assert!(buffer.capacity() >= 1 << 16, "{}", buffer.capacity());
}

#[test]
fn a_payload_of_another_shape_is_an_error_and_the_stream_goes_on() {
    let frames = decode_all(&[0, 0, 0, 3, 9, 0x0a, 0x05, 0, 0, 0, 1, 1]).unwrap();
    let error = frames[0].decode::<pb::RpbGetReq>().unwrap_err();
    assert!(matches!(
        error,
        FrameError::Payload {
            code: MessageCode::RPB_GET_REQ,
            ..
        }
    ));
    assert_eq!(frames[1].code, MessageCode::RPB_PING_REQ);
}

#[test]
fn a_very_long_error_text_is_cut() {
    let mut buffer = BytesMut::new();
    frame::encode_error(&vec![b'x'; 1 << 20], &mut buffer);
    let frames = decode_all(&buffer).unwrap();
    let error: pb::RpbErrorResp = frames[0].decode().unwrap();
    assert_eq!((error.errmsg.len(), error.errcode), (1 << 16, 0));
}

fn only_frame<M: Message + Default>(buffer: &BytesMut, code: MessageCode) -> M {
    let frames = decode_all(buffer).unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].code, code);
    frames[0].decode().unwrap()
}

prop_compose! {
    fn bytes_up_to(length: usize)(bytes in prop::collection::vec(any::<u8>(), 0..length)) -> Bytes {
        Bytes::from(bytes)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..Default::default() })]

    #[test]
    fn borrowed_gets_are_the_generated_message(
        bucket_type in prop::option::of(bytes_up_to(200)),
        (bucket, key) in (bytes_up_to(200), bytes_up_to(200)),
        numbers in any::<[Option<u32>; 5]>(),
        switches in any::<[Option<bool>; 5]>(),
        if_modified in prop::option::of(bytes_up_to(40)),
    ) {
        let [r, pr, timeout, n_val, node_confirms] = numbers;
        let [basic_quorum, notfound_ok, head, deletedvclock, sloppy_quorum] = switches;
        let options = GetOptions {
            r, pr, basic_quorum, notfound_ok, head, deletedvclock, sloppy_quorum, n_val,
            node_confirms, timeout_ms: timeout, if_modified: if_modified.clone(),
        };
        let get = Get { bucket_type: bucket_type.as_deref(), bucket: &bucket, key: &key, options: &options };
        let mut buffer = BytesMut::new();
        get.encode(&mut buffer).unwrap();
        let expected = pb::RpbGetReq {
            bucket: bucket.clone(), key: key.clone(), r, pr, basic_quorum, notfound_ok, head,
            deletedvclock, sloppy_quorum, n_val, node_confirms, timeout, if_modified,
            r#type: bucket_type.clone(),
        };
        prop_assert_eq!(only_frame::<pb::RpbGetReq>(&buffer, MessageCode::RPB_GET_REQ), expected);
    }

    #[test]
    fn borrowed_puts_are_the_generated_message(
        (bucket_type, key, vclock) in (
            prop::option::of(bytes_up_to(9)), prop::option::of(bytes_up_to(9)),
            prop::option::of(bytes_up_to(9)),
        ),
        (bucket, value) in (bytes_up_to(20), bytes_up_to(3000)),
        numbers in any::<[Option<u32>; 6]>(),
        switches in any::<[Option<bool>; 6]>(),
        sync_on_write in prop::option::of(bytes_up_to(9)),
    ) {
        let [w, dw, pw, node_confirms, timeout, n_val] = numbers;
        let [return_body, return_head, if_not_modified, if_none_match, asis, sloppy_quorum] = switches;
        let options = PutOptions {
            w, dw, pw, node_confirms, n_val, return_body, return_head, if_not_modified,
            if_none_match, asis, sloppy_quorum, timeout_ms: timeout,
            sync_on_write: sync_on_write.clone(),
        };
        let usermeta = vec![pb::RpbPair { key: bucket.clone(), value: None }];
        let content = pb::RpbContent { value, usermeta, ..Default::default() };
        let put = Put {
            bucket_type: bucket_type.as_deref(), bucket: &bucket, key: key.as_deref(),
            vclock: vclock.as_deref(), content: &content, options: &options,
        };
        let mut buffer = BytesMut::new();
        put.encode(&mut buffer).unwrap();
        let expected = pb::RpbPutReq {
            bucket: bucket.clone(), key: key.clone(), vclock: vclock.clone(),
            content: content.clone(), w, dw, pw, node_confirms, n_val, return_body, return_head,
            if_not_modified, if_none_match, asis, sloppy_quorum, timeout, sync_on_write,
            r#type: bucket_type.clone(),
        };
        prop_assert_eq!(only_frame::<pb::RpbPutReq>(&buffer, MessageCode::RPB_PUT_REQ), expected);
    }

    #[test]
    fn borrowed_deletes_are_the_generated_message(
        (bucket_type, vclock) in (prop::option::of(bytes_up_to(9)), prop::option::of(bytes_up_to(9))),
        (bucket, key) in (bytes_up_to(20), bytes_up_to(20)),
        numbers in any::<[Option<u32>; 8]>(),
        sloppy_quorum in any::<Option<bool>>(),
    ) {
        let [rw, r, w, pr, pw, dw, timeout, n_val] = numbers;
        let options = DeleteOptions { rw, r, w, pr, pw, dw, timeout_ms: timeout, sloppy_quorum, n_val };
        let delete = Delete {
            bucket_type: bucket_type.as_deref(), bucket: &bucket, key: &key,
            vclock: vclock.as_deref(), options: &options,
        };
        let mut buffer = BytesMut::new();
        delete.encode(&mut buffer).unwrap();
        let expected = pb::RpbDelReq {
            bucket: bucket.clone(), key: key.clone(), rw, vclock: vclock.clone(), r, w, pr, pw, dw,
            timeout, sloppy_quorum, n_val, r#type: bucket_type.clone(),
        };
        prop_assert_eq!(only_frame::<pb::RpbDelReq>(&buffer, MessageCode::RPB_DEL_REQ), expected);
    }
}
