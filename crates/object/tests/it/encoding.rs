//! Heads and bodies: round trips, damage, hostile bytes.

use bytes::Bytes;
use kvorum_encoding::{checksum, mask_checksum};
use kvorum_object::{
    ActorId, Clock, Content, DecodeError, Dot, Head, IndexEntry, Link, Metadata, Object,
    Resolution, Stored, Timestamp, UserMetadata, Write, update,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::replica::decoded;

fn text() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let link = (text(), text(), text()).prop_map(|(bucket, key, tag)| Link { bucket, key, tag });
    let pair = (text(), proptest::option::of(text()))
        .prop_map(|(name, value)| UserMetadata { name, value });
    let index = (text(), text()).prop_map(|(field, value)| IndexEntry { field, value });
    let expiry = proptest::option::of(any::<u64>().prop_map(Timestamp::from_micros));
    let texts = (text(), text(), text());
    (
        texts,
        any::<bool>(),
        expiry,
        vec(link, 0..3),
        vec(pair, 0..3),
        vec(index, 0..3),
    )
        .prop_map(
            |(texts, deleted, expires_at, links, user_metadata, indexes)| Metadata {
                content_type: texts.0,
                charset: texts.1,
                content_encoding: texts.2,
                deleted,
                expires_at,
                links,
                user_metadata,
                indexes,
                ..Metadata::default()
            },
        )
}

/// Objects of one to three siblings by as many actors.
fn object() -> impl Strategy<Value = Object> {
    let write = (metadata(), text(), 1..u64::MAX, 1..u64::MAX, any::<u64>());
    vec(write, 1..4).prop_map(|writes| {
        let mut object = None;
        for (index, (metadata, value, actor, counter, now)) in writes.into_iter().enumerate() {
            // Distinct actors, so that every dot is fresh.
            let actor = ActorId((actor & !3) | (index as u64 + 1));
            let write = Write {
                context: &Clock::new(),
                content: Content { metadata, value },
                dot: Dot { actor, counter },
                now: Timestamp::from_micros(now),
                resolution: Resolution::KeepSiblings,
            };
            let stored = object.take().map_or(Stored::Absent, Stored::Object);
            object = Some(update(stored, write).unwrap());
        }
        object.unwrap()
    })
}

fn sample() -> Object {
    let mut object = None;
    for (index, value) in [&b"first value"[..], b"", b"third"].into_iter().enumerate() {
        let metadata = Metadata {
            content_type: Bytes::from_static(b"text/plain"),
            deleted: value.is_empty(),
            user_metadata: vec![UserMetadata {
                name: Bytes::from_static(b"n"),
                value: None,
            }],
            ..Metadata::default()
        };
        let write = Write {
            context: &Clock::new(),
            content: Content {
                metadata,
                value: Bytes::from_static(value),
            },
            dot: Dot {
                actor: ActorId(7),
                counter: index as u64 + 1,
            },
            now: Timestamp::from_micros(1_700_000_000_000_000),
            resolution: Resolution::KeepSiblings,
        };
        let stored = object.take().map_or(Stored::Absent, Stored::Object);
        object = Some(update(stored, write).unwrap());
    }
    object.unwrap()
}

/// Makes damaged bytes pass the checksum.
fn sealed(mut bytes: Vec<u8>) -> Bytes {
    let end = bytes.len() - 4;
    let sum = mask_checksum(checksum(&bytes[..end]));
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    bytes.into()
}

#[test]
fn the_bytes_of_a_small_object_are_as_drawn() {
    let write = Write {
        context: &Clock::new(),
        content: Content {
            metadata: Metadata {
                content_type: "a/b".into(),
                ..Metadata::default()
            },
            value: Bytes::from_static(b"hello"),
        },
        dot: Dot {
            actor: ActorId(0x0102),
            counter: 3,
        },
        now: Timestamp::from_micros(0x0a0b),
        resolution: Resolution::KeepSiblings,
    };
    let encoded = update(Stored::Absent, write).unwrap().encode();
    let hash = Head::decode(&encoded.head).unwrap().body_hash();
    let drawn = [
        &[1, 0][..],
        &hash.to_le_bytes(),
        &[0x0b, 0x0a, 0, 0, 0, 0, 0, 0],
        &[1],
        &[2, 1, 0, 0, 0, 0, 0, 0, 3],
        &[1],
        &[2, 1, 0, 0, 0, 0, 0, 0, 3],
        &[0x0b, 0x0a, 0, 0, 0, 0, 0, 0],
        &[5, 5],
        b"\x01\x03a/b",
    ]
    .concat();
    assert_eq!(encoded.head[..encoded.head.len() - 4], drawn);
    assert_eq!(encoded.body, "hello");
}

#[test]
fn the_value_of_a_single_sibling_is_not_copied() {
    let value = Bytes::from(vec![7u8; 100]);
    let object = Object::as_is(
        Clock::new(),
        Content {
            metadata: Metadata::default(),
            value: value.clone(),
        },
        Timestamp::from_micros(1),
    );
    let encoded = object.encode();
    assert_eq!(encoded.body.as_ptr(), value.as_ptr());
    assert_eq!(
        decoded(&encoded).siblings()[0].value.as_ptr(),
        value.as_ptr()
    );
}

#[test]
fn decoded_metadata_shares_the_heads_buffer() {
    let encoded = sample().encode();
    let head = Head::decode(&encoded.head).unwrap();
    let buffer = encoded.head.as_ptr_range();
    for sibling in head.siblings() {
        assert!(buffer.contains(&sibling.metadata.content_type.as_ptr()));
        assert!(buffer.contains(&sibling.metadata.user_metadata[0].name.as_ptr()));
    }
}

#[test]
fn every_flipped_or_missing_byte_of_a_head_is_refused() {
    let encoded = sample().encode();
    for index in 0..encoded.head.len() {
        for bit in 0..8 {
            let mut flipped = encoded.head.to_vec();
            flipped[index] ^= 1 << bit;
            assert!(
                Head::decode(&flipped.into()).is_err(),
                "byte {index} bit {bit}"
            );
        }
        assert!(
            Head::decode(&encoded.head.slice(..index)).is_err(),
            "cut at {index}"
        );
    }
}

#[test]
fn every_flipped_or_missing_byte_of_a_body_is_refused() {
    let encoded = sample().encode();
    let head = Head::decode(&encoded.head).unwrap();
    for index in 0..encoded.body.len() {
        for bit in 0..8 {
            let mut flipped = encoded.body.to_vec();
            flipped[index] ^= 1 << bit;
            let result = Object::from_parts(head.clone(), &flipped.into());
            assert!(
                matches!(result, Err(DecodeError::BodyHash { .. })),
                "byte {index} bit {bit}"
            );
        }
        let expected = encoded.body.len() as u64;
        assert_eq!(
            Object::from_parts(head.clone(), &encoded.body.slice(..index)),
            Err(DecodeError::BodyLength {
                got: index as u64,
                expected
            })
        );
    }
}

#[test]
fn what_an_engine_returns_is_read_without_checksums_and_with_its_layout_checked() {
    let encoded = sample().encode();
    let head = Head::decode(&encoded.head).unwrap();
    assert_eq!(Head::from_engine(&encoded.head).unwrap(), head);
    let read = Object::from_engine(&encoded.head, encoded.body.clone()).unwrap();
    assert_eq!(*read, Object::from_parts(head, &encoded.body).unwrap());
    for index in 0..encoded.head.len() {
        let cut = Object::from_engine(&encoded.head.slice(..index), encoded.body.clone());
        assert!(cut.is_err(), "head cut at {index}");
    }
    for body in [
        encoded.body.slice(1..),
        [&encoded.body[..], b"x"].concat().into(),
    ] {
        let (got, expected) = (body.len() as u64, encoded.body.len() as u64);
        assert_eq!(
            Object::from_engine(&encoded.head, body),
            Err(DecodeError::BodyLength { got, expected })
        );
    }
}

#[test]
fn errors_say_what_was_found_and_what_was_expected() {
    let encoded = sample().encode();
    let mut newer = encoded.head.to_vec();
    newer[0] = 9;
    let error = Head::decode(&newer.into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "object head has version 9, this program reads up to 1"
    );
    let head = Head::decode(&encoded.head).unwrap();
    let error = Object::from_parts(head, &Bytes::from_static(b"x")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "object body of 1 bytes, its head expects 16"
    );
}

#[test]
fn an_unknown_flag_or_a_false_one_is_refused() {
    let encoded = sample().encode();
    for flags in [1, 2, 0x80] {
        let mut bytes = encoded.head.to_vec();
        bytes[1] = flags;
        let result = Head::decode(&sealed(bytes));
        assert!(
            matches!(result, Err(DecodeError::Malformed { .. })),
            "{flags}: {result:?}"
        );
    }
}

#[test]
fn a_checksum_does_not_excuse_a_broken_layout() {
    // Under a clock that has seen two writes of actor 1.
    let head = |siblings: &[u8]| {
        let clock = [1, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        let parts = [&[1, 0][..], &[0; 8], &[0; 8], &clock, siblings, &[0; 4]];
        Head::decode(&sealed(parts.concat()))
    };
    let sibling = |counter: u8| [&[1, 0, 0, 0, 0, 0, 0, 0, counter][..], &[0; 8], &[0, 0]].concat();
    assert!(head(&[&[2][..], &sibling(1), &sibling(2)].concat()).is_ok());
    let cases = [
        ("no sibling", vec![0]),
        ("unsorted", [&[2][..], &sibling(2), &sibling(1)].concat()),
        ("repeated", [&[2][..], &sibling(1), &sibling(1)].concat()),
        ("counter zero", [&[1][..], &sibling(0)].concat()),
        (
            "a dot that the clock has not seen",
            [&[1][..], &sibling(3)].concat(),
        ),
        ("fewer siblings than said", [&[2][..], &sibling(1)].concat()),
        ("trailing byte", [&[1][..], &sibling(1), &[0]].concat()),
    ];
    for (name, siblings) in cases {
        let result = head(&siblings);
        assert!(
            matches!(result, Err(DecodeError::Malformed { .. })),
            "{name}: {result:?}"
        );
    }
}

#[test]
fn value_lengths_that_overflow_are_refused_by_the_body() {
    // The only sibling's value length, at its place in the drawing, made as large as it may be.
    let head = [
        &[1, 0][..],
        &[0; 8],
        &[0; 8],
        &[1, 1, 0, 0, 0, 0, 0, 0, 0, 2],
        &[2],
        &[1, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0; 8],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0, 2],
        &[0; 8],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0],
        &[0; 4],
    ]
    .concat();
    let head = Head::decode(&sealed(head)).unwrap();
    let result = Object::from_parts(head, &Bytes::from_static(b"abc"));
    assert!(
        matches!(result, Err(DecodeError::BodyLength { got: 3, .. })),
        "{result:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn objects_round_trip(object in object()) {
        let encoded = object.encode();
        let head = Head::decode(&encoded.head).unwrap();
        prop_assert_eq!(head.size(), object.size());
        prop_assert_eq!(object.size().bytes, (encoded.head.len() + encoded.body.len()) as u64);
        prop_assert_eq!(head.clock(), object.clock());
        prop_assert_eq!(head.clock().newest(), object.clock().newest());
        prop_assert_eq!(head.index_entries(), object.index_entries());
        prop_assert_eq!(head.last_modified(), object.last_modified());
        prop_assert_eq!(head.is_tombstone(), object.is_tombstone());
        let without_values = head.into_object_without_values();
        prop_assert!(without_values.siblings().iter().all(|sibling| sibling.value.is_empty()));
        let read = decoded(&encoded);
        prop_assert_eq!(read.encode(), encoded);
        prop_assert_eq!(read, object);
    }

    #[test]
    fn damage_under_a_right_checksum_never_panics(
        object in object(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let encoded = object.encode();
        let mut bytes = encoded.head.to_vec();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let sealed = sealed(bytes);
        if let Ok(head) = Head::decode(&sealed) {
            let _ = Object::from_parts(head, &encoded.body);
            let _ = Object::from_engine(&sealed, encoded.body.clone());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Head::decode(&Bytes::from(bytes.clone()));
        let _ = Object::from_engine(&Bytes::from(bytes.clone()), Bytes::from_static(b"body"));
        let framed = [&[1, 0][..], &bytes, &[0; 4]].concat();
        if let Ok(head) = Head::decode(&sealed(framed)) {
            let _ = Object::from_parts(head, &Bytes::from(bytes));
        }
    }
}
