//! Tags: each row of the table meets the requirements of its users.

use std::collections::BTreeSet;

use super::*;
use crate::{Clock, Content, Head, Timestamp};

fn object(content: Content) -> Object {
    Object::as_is(Clock::new(), content, Timestamp::from_micros(7))
}

fn valued(value: &str) -> Object {
    object(Content {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..Content::default()
    })
}

const TASK: &str = r#"{"kind":"task","title":"Rest"}"#;

#[test]
fn rows_are_distinct_and_leave_tombstones_their_number() {
    let numbers: BTreeSet<u8> = ObjectTag::all().map(ObjectTag::number).collect();
    let names: BTreeSet<&str> = ObjectTag::all().map(ObjectTag::name).collect();
    assert_eq!((numbers.len(), names.len()), (TAGS.len(), TAGS.len()));
    assert!(!numbers.contains(&TOMBSTONE));
    assert!(numbers.iter().all(|it| *it <= 127));
    assert_eq!(ObjectTag::default().number(), 0);
    for tag in ObjectTag::all() {
        assert_eq!(ObjectTag::named(tag.name()), Some(tag));
        assert_eq!(ObjectTag::numbered(tag.number()), Some(tag));
    }
    assert_eq!(ObjectTag::named("O_RKV"), None);
}

#[test]
fn an_object_of_any_kind_comes_back() {
    for tag in ObjectTag::all() {
        for value in ["", "plain", TASK] {
            let stored = tag.encode(&valued(value));
            let opened = OpenedHead::of(tag.number(), &stored.head).unwrap();
            Head::from_engine(&opened.head).unwrap();
            let whole = opened.with_body(stored.body);
            let read = Object::from_engine(&whole.head, whole.body).unwrap();
            assert_eq!(*read, valued(value), "{tag:?}");
        }
    }
}

#[test]
fn a_tombstone_is_stored_alike_whatever_it_buries() {
    let tombstone = object(Content::tombstone());
    for tag in ObjectTag::all() {
        let stored = tag.encode(&tombstone);
        assert_eq!(stored, tombstone.encode());
        let opened = OpenedHead::of(TOMBSTONE, &stored.head).unwrap();
        assert_eq!(opened.head, stored.head);
        assert_eq!(tag.index_terms(&tombstone), Vec::new());
    }
}

#[test]
fn a_head_only_object_has_no_body() {
    let tag = ObjectTag::named("h").unwrap();
    let stored = tag.encode(&valued("all of it"));
    assert_eq!(stored.body, Bytes::new());
    let opened = OpenedHead::of(tag.number(), &stored.head).unwrap();
    assert_eq!(opened.beside, "all of it");
}

#[test]
fn a_document_is_found_by_its_kind() {
    let tag = ObjectTag::named("document").unwrap();
    let terms = |value: &str| tag.index_terms(&valued(value));
    let task = (Bytes::from("kind_bin"), Bytes::from("task"));
    assert_eq!(terms(TASK), [task]);
    let long = format!(r#"{{"kind":"{}"}}"#, "k".repeat(KIND_MAX + 1));
    for value in ["", "7", "{", "[]", r#"{"kind":7}"#, r#"{"kind":""}"#, &long] {
        assert_eq!(terms(value), [], "{value}");
        let stored = tag.encode(&valued(value));
        let opened = OpenedHead::of(tag.number(), &stored.head).unwrap();
        assert_eq!(opened.beside, Bytes::new(), "{value}");
    }
    let stored = tag.encode(&valued(TASK));
    let opened = OpenedHead::of(tag.number(), &stored.head).unwrap();
    assert_eq!(opened.beside, "\x04task");
    assert_eq!(stored.body, TASK);
}

const KIND_MAX: usize = 255;

#[test]
fn the_bytes_of_a_head_are_as_drawn() {
    let tag = ObjectTag::named("h").unwrap();
    let object = valued("v");
    let plain = object.encode();
    let stored = tag.encode(&object);
    let mut expected = Vec::new();
    put_varint(&mut expected, plain.head.len() as u64);
    expected.extend_from_slice(&plain.head);
    expected.extend_from_slice(b"v");
    assert_eq!(stored.head, expected);
}

#[test]
fn what_nobody_knows_is_refused() {
    let stored = ObjectTag::default().encode(&valued("v"));
    let unknown = OpenedHead::of(99, &stored.head).unwrap_err();
    assert_eq!(unknown, DecodeError::Tag { number: 99 });
    let cut = OpenedHead::of(2, &Bytes::from_static(&[9, 1]));
    assert!(matches!(cut, Err(DecodeError::Malformed { .. })));
}
