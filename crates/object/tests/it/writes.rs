//! Single writes, deletes and merges, case by case.

use bytes::Bytes;
use kvorum_object::{
    ActorId, Clock, Content, Dot, Head, Merged, Metadata, Object, Resolution, Sibling, Stored,
    Succession, Timestamp, UpdateError, Write, merge, merge_into_stored, merge_needs_body, resolve,
    succeed, update, update_needs_body,
};

use crate::replica::{content, decoded};

const KEEP: Resolution = Resolution::KeepSiblings;
const NEWEST: Resolution = Resolution::NewestWins;

fn dot(actor: u64, counter: u64) -> Dot {
    Dot {
        actor: ActorId(actor),
        counter,
    }
}

fn put(
    stored: Option<&Object>,
    context: &Clock,
    content: Content,
    dot: Dot,
    now: u64,
    resolution: Resolution,
) -> Result<Object, UpdateError> {
    let stored = stored.cloned().map_or(Stored::Absent, Stored::Object);
    let now = Timestamp::from_micros(now);
    update(
        stored,
        Write {
            context,
            content,
            dot,
            now,
            resolution,
        },
    )
}

fn first(value: &'static str, dot: Dot, now: u64) -> Object {
    put(None, &Clock::new(), content(value), dot, now, KEEP).unwrap()
}

fn values(object: &Object) -> Vec<&[u8]> {
    object
        .siblings()
        .iter()
        .map(|sibling| &sibling.value[..])
        .collect()
}

fn head(object: &Object) -> Head {
    Head::decode(&object.encode().head).unwrap()
}

#[test]
fn a_blind_write_stands_beside_what_is_stored() {
    let stored = first("one", dot(1, 1), 10);
    let both = put(
        Some(&stored),
        &Clock::new(),
        content("two"),
        dot(1, 2),
        20,
        KEEP,
    )
    .unwrap();
    assert_eq!(values(&both), [b"one", b"two"]);
    assert!(both.clock().dominates(stored.clock()));
    let resolved = put(
        Some(&both),
        both.clock(),
        content("three"),
        dot(1, 3),
        30,
        KEEP,
    )
    .unwrap();
    assert_eq!(values(&resolved), [b"three"]);
}

#[test]
fn a_context_supersedes_what_it_covers_and_nothing_else() {
    let one = first("one", dot(1, 1), 10);
    let two = put(
        Some(&one),
        &Clock::new(),
        content("two"),
        dot(1, 2),
        20,
        KEEP,
    )
    .unwrap();
    let three = put(
        Some(&two),
        one.clock(),
        content("three"),
        dot(1, 3),
        30,
        KEEP,
    )
    .unwrap();
    assert_eq!(values(&three), [&b"two"[..], b"three"]);
}

#[test]
fn a_context_from_a_replica_that_knew_more_is_taken_in() {
    let one = first("one", dot(1, 1), 10);
    let elsewhere = put(Some(&one), one.clock(), content("two"), dot(2, 7), 99, KEEP).unwrap();
    let three = put(
        Some(&one),
        elsewhere.clock(),
        content("three"),
        dot(1, 2),
        5,
        KEEP,
    )
    .unwrap();
    assert_eq!(values(&three), [b"three"]);
    assert!(three.clock().dominates(elsewhere.clock()));
    assert_eq!(three.last_modified(), Timestamp::from_micros(100));
    assert_eq!(values(&merge(elsewhere, three, NEWEST)), [b"three"]);
}

#[test]
fn where_one_value_is_kept_a_blind_write_wins_over_a_newer_wall_clock() {
    let stored = first("one", dot(1, 1), 1000);
    let blind = put(
        Some(&stored),
        &Clock::new(),
        content("two"),
        dot(1, 2),
        3,
        NEWEST,
    )
    .unwrap();
    assert_eq!(values(&blind), [b"two"]);
    assert_eq!(blind.last_modified(), Timestamp::from_micros(1001));
}

#[test]
fn a_dot_that_was_seen_before_is_refused() {
    let stored = first("one", dot(1, 5), 10);
    for counter in [0, 4, 5] {
        let result = put(
            Some(&stored),
            &Clock::new(),
            content("two"),
            dot(1, counter),
            20,
            KEEP,
        );
        let dot = dot(1, counter);
        assert_eq!(result, Err(UpdateError::DotNotFresh { dot, seen: 5 }));
    }
    let seen_by_client = put(None, stored.clock(), content("two"), dot(1, 5), 20, KEEP);
    assert_eq!(
        seen_by_client,
        Err(UpdateError::DotNotFresh {
            dot: dot(1, 5),
            seen: 5
        })
    );
    let reserved = Dot {
        actor: ActorId::CONTENT,
        counter: 9,
    };
    let result = put(None, &Clock::new(), content("two"), reserved, 20, KEEP);
    assert_eq!(result, Err(UpdateError::ActorReserved { dot: reserved }));
}

#[test]
fn the_head_suffices_when_no_stored_value_survives() {
    let stored = first("one", dot(1, 1), 10);
    let head = head(&stored);
    assert!(!update_needs_body(&head, stored.clock(), KEEP));
    assert!(!update_needs_body(&head, &Clock::new(), NEWEST));
    assert!(update_needs_body(&head, &Clock::new(), KEEP));
    let write = Write {
        context: &Clock::new(),
        content: content("two"),
        dot: dot(1, 2),
        now: Timestamp::from_micros(20),
        resolution: KEEP,
    };
    assert_eq!(
        update(Stored::Head(&head), write),
        Err(UpdateError::BodyNeeded)
    );
}

#[test]
fn a_delete_leaves_a_tombstone_that_a_later_write_replaces() {
    let stored = first("one", dot(1, 1), 10);
    let gone = put(
        Some(&stored),
        stored.clock(),
        Content::tombstone(),
        dot(1, 2),
        20,
        KEEP,
    )
    .unwrap();
    assert!(gone.is_tombstone());
    assert!(head(&gone).is_tombstone());
    let back = put(
        Some(&gone),
        &Clock::new(),
        content("two"),
        dot(1, 3),
        30,
        KEEP,
    )
    .unwrap();
    assert!(!back.is_tombstone());
    assert_eq!(
        back.siblings().len(),
        2,
        "the tombstone is a sibling of a blind write"
    );
    let back = put(
        Some(&gone),
        gone.clock(),
        content("two"),
        dot(1, 3),
        30,
        KEEP,
    )
    .unwrap();
    assert_eq!(values(&back), [b"two"]);
}

/// Regression: a tombstone left on a fallback removed a key that was written again after the
/// primaries had removed theirs, because the new write got the old write's count.
#[test]
fn an_old_tombstone_does_not_swallow_a_key_written_anew() {
    let stored = first("one", dot(1, 1), 10);
    let tombstone = put(
        Some(&stored),
        stored.clock(),
        Content::tombstone(),
        dot(1, 2),
        20,
        KEEP,
    )
    .unwrap();
    for resolution in [KEEP, NEWEST] {
        let anew = put(
            None,
            &Clock::new(),
            content("two"),
            dot(1, 3),
            30,
            resolution,
        )
        .unwrap();
        let merged = merge(anew, tombstone.clone(), resolution);
        assert!(values(&merged).contains(&&b"two"[..]));
    }
}

#[test]
fn of_two_versions_with_one_time_the_living_one_is_kept() {
    let value = first("one", dot(1, 1), 10);
    let tombstone = put(
        None,
        &Clock::new(),
        Content::tombstone(),
        dot(2, 1),
        10,
        NEWEST,
    )
    .unwrap();
    assert_eq!(
        values(&merge(tombstone.clone(), value.clone(), NEWEST)),
        [b"one"]
    );
    assert_eq!(values(&merge(value, tombstone, NEWEST)), [b"one"]);
}

#[test]
fn a_replica_that_has_seen_it_all_writes_nothing() {
    let one = first("one", dot(1, 1), 10);
    let two = put(Some(&one), one.clock(), content("two"), dot(1, 2), 20, KEEP).unwrap();
    for incoming in [one.clone(), two.clone()] {
        let head = head(&two);
        let merged = merge_into_stored(Stored::Head(&head), incoming, KEEP);
        assert_eq!(merged, Ok(Merged::Unchanged));
    }
    let old = head(&one);
    assert!(!merge_needs_body(&old, &two, KEEP));
    let merged = merge_into_stored(Stored::Head(&old), two.clone(), KEEP);
    assert_eq!(merged, Ok(Merged::Changed(two)));
}

#[test]
fn a_newer_incoming_version_needs_no_stored_body_where_one_is_kept() {
    let (old, new) = (first("one", dot(1, 1), 10), first("two", dot(2, 1), 20));
    assert!(!merge_needs_body(&head(&old), &new, NEWEST));
    assert!(merge_needs_body(&head(&new), &old, NEWEST));
    assert!(merge_needs_body(&head(&old), &new, KEEP));
    let Ok(Merged::Changed(merged)) = merge_into_stored(Stored::Head(&head(&old)), new, NEWEST)
    else {
        panic!("concurrent versions change the stored one")
    };
    assert_eq!(values(&merged), [b"two"]);
    assert!(merged.clock().descends(old.clock()));
}

#[test]
fn siblings_of_a_bucket_that_changed_its_mind_are_resolved_to_the_newest() {
    let both = merge(
        first("one", dot(1, 1), 20),
        first("two", dot(2, 1), 10),
        KEEP,
    );
    assert_eq!(values(&resolve(both.clone(), KEEP)), [b"one", b"two"]);
    assert_eq!(values(&resolve(both, NEWEST)), [b"one"]);
}

#[test]
fn bucket_properties_name_the_resolution() {
    assert_eq!(Resolution::keeping_siblings(true), KEEP);
    assert_eq!(Resolution::keeping_siblings(false), NEWEST);
}

#[test]
fn a_value_stored_as_it_is_keeps_its_clock_and_follows_it() {
    let mut clock = first("one", dot(1, 1), 10).clock().clone();
    let now = Timestamp::from_micros(20);
    let copied = Object::as_is(clock.clone(), content("two"), now);
    assert_eq!(*copied.clock(), clock);
    assert_eq!(decoded(&copied.encode()), copied);

    let again = Object::as_is(clock.clone(), content("two"), Timestamp::from_micros(30));
    let twice = merge(copied.clone(), again.clone(), KEEP);
    assert_eq!(values(&twice), [b"two"]);
    assert_eq!(twice, merge(again, copied.clone(), KEEP));

    let local = first("three", dot(9, 1), 15);
    assert_eq!(values(&merge(local.clone(), copied.clone(), KEEP)).len(), 2);

    clock.observe(dot(1, 2), now);
    let newer = Object::as_is(clock, content("four"), now);
    assert_eq!(values(&merge(copied.clone(), newer, KEEP)), [b"four"]);

    let next = put(
        Some(&copied),
        copied.clock(),
        content("five"),
        dot(1, 2),
        5,
        KEEP,
    )
    .unwrap();
    assert_eq!(values(&next), [b"five"]);
    assert_eq!(next.last_modified(), Timestamp::from_micros(21));
}

#[test]
fn copies_of_a_value_stored_as_it_is_count_by_the_later_time() {
    let base = first("one", dot(1, 1), 1).clock().clone();
    let copy = |now| Object::as_is(base.clone(), content("copy"), Timestamp::from_micros(now));
    let left = merge(copy(20), first("left", dot(8, 1), 25), KEEP);
    let right = merge(copy(30), first("right", dot(9, 1), 5), KEEP);
    assert_eq!(
        values(&merge(left.clone(), right.clone(), NEWEST)),
        [b"copy"]
    );
    assert_eq!(values(&merge(right, left, NEWEST)), [b"copy"]);
}

#[test]
fn the_newest_time_is_never_forgotten_in_a_merge() {
    let stored = first("one", dot(1, 1), 50);
    let mut timeless = Clock::new();
    timeless.observe(dot(1, 1), Timestamp::ZERO);
    timeless.observe(dot(2, 1), Timestamp::ZERO);
    let copied = Object::as_is(timeless, content("copy"), Timestamp::from_micros(5));
    let newest = |object: &Object| object.clock().newest();
    let merged = merge(stored.clone(), copied.clone(), KEEP);
    assert_eq!(values(&merged), [b"copy"]);
    assert_eq!(newest(&merged), Timestamp::from_micros(50));
    let taken_in = merge_into_stored(Stored::Object(stored), copied, KEEP);
    assert!(matches!(taken_in, Ok(Merged::Changed(object)) if newest(&object) == newest(&merged)));
}

#[test]
fn entity_tags_differ_by_version_and_by_set_of_siblings() {
    let one = first("one", dot(1, 1), 10);
    let two = put(Some(&one), one.clock(), content("one"), dot(1, 2), 20, KEEP).unwrap();
    let both = put(
        Some(&two),
        &Clock::new(),
        content("two"),
        dot(1, 3),
        30,
        KEEP,
    )
    .unwrap();
    assert_eq!(one.etag(), one.siblings()[0].etag());
    assert_ne!(one.etag(), two.etag());
    assert!(
        both.siblings()
            .iter()
            .all(|sibling| sibling.etag() != both.etag())
    );
    assert_eq!(both.etag(), head(&both).etag());
    assert_eq!(both.etag().as_str().len(), 22);
}

#[test]
fn an_object_expires_with_its_last_sibling() {
    let expiring = |at: Option<u64>| Content {
        metadata: Metadata {
            expires_at: at.map(Timestamp::from_micros),
            ..Metadata::default()
        },
        value: Bytes::from_static(b"v"),
    };
    let expiry = |a, b| {
        let none = Clock::new();
        let one = put(None, &none, expiring(a), dot(1, 1), 1, KEEP).unwrap();
        let both = put(Some(&one), &none, expiring(b), dot(1, 2), 2, KEEP).unwrap();
        assert_eq!(head(&both).expires_at(), both.expires_at());
        both.expires_at().map(Timestamp::as_micros)
    };
    assert_eq!(expiry(Some(5), Some(9)), Some(9));
    assert_eq!(expiry(Some(5), None), None);
}

#[test]
fn content_made_of_siblings_stands_in_their_place_everywhere() {
    let one = first("one", dot(1, 1), 10);
    let blind = Clock::new();
    let both = put(Some(&one), &blind, content("two"), dot(1, 2), 20, KEEP).unwrap();
    let succession = Succession {
        content: content("one and more"),
        dot: dot(1, 3),
        now: Timestamp::from_micros(5),
    };
    let is_one = |sibling: &Sibling| &sibling.value[..] == b"one";
    let after = succeed(Some(both.clone()), is_one, succession.clone()).unwrap();
    assert_eq!(values(&after), [&b"two"[..], b"one and more"]);
    assert_eq!(
        after.siblings()[1].metadata.last_modified,
        Timestamp::from_micros(21)
    );
    assert_eq!(values(&merge(one, after.clone(), KEEP)), values(&after));
    // A concurrent write elsewhere is not among the siblings taken up.
    let elsewhere = put(Some(&both), &blind, content("one"), dot(2, 1), 20, KEEP).unwrap();
    let merged = merge(elsewhere, after, KEEP);
    assert_eq!(values(&merged), [&b"two"[..], b"one and more", b"one"]);
    let stale = succeed(
        Some(both),
        is_one,
        Succession {
            dot: dot(1, 2),
            ..succession
        },
    );
    assert!(matches!(stale, Err(UpdateError::DotNotFresh { .. })));
}
