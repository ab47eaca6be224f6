//! Removes, and the contexts of their clients.

use bytes::Bytes;
use kvorum_data_types::{
    Actor, Clock, Dot, FieldChange, FieldKind, FieldName, FieldOperation, FieldValue, Map, Missing,
    OperationError, Set, SetChange, Update, decode_context, encode_context,
};

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn update(actor: u64, counter: u64, context: Option<&Clock>) -> Update<'_> {
    Update {
        dot: Dot::new(Actor(actor), counter),
        micros: counter,
        context,
    }
}

fn add(member: &'static str) -> [SetChange; 1] {
    [SetChange::Add(text(member))]
}

fn remove(member: &'static str) -> [SetChange; 1] {
    [SetChange::Remove(text(member))]
}

fn set_field(name: &'static str, changes: &[SetChange]) -> [FieldChange; 1] {
    let operation = FieldOperation::Set(changes.to_vec());
    [FieldChange::Update {
        name: text(name),
        operation,
    }]
}

#[test]
fn an_addition_that_the_client_had_not_seen_survives_its_remove() {
    let mut set = Set::default();
    set.update(&add("x"), update(1, 1, None)).unwrap();
    let seen = set.context();
    set.update(&add("x"), update(1, 2, None)).unwrap();
    set.update(&remove("x"), update(1, 3, Some(&seen))).unwrap();
    assert_eq!(set.value(), [text("x")]);
    let seen = set.context();
    set.update(&remove("x"), update(1, 4, Some(&seen))).unwrap();
    assert_eq!(set.members().len(), 0);
}

#[test]
fn a_remove_without_a_context_needs_the_member_and_is_whole_or_nothing() {
    let mut set = Set::default();
    set.update(&add("x"), update(1, 1, None)).unwrap();
    let changes = [add("y"), remove("z")].concat();
    let refused = set.update(&changes, update(1, 2, None));
    let missing = Missing::Member(text("z"));
    assert_eq!(refused, Err(OperationError::NotPresent(missing.clone())));
    assert_eq!(
        missing.riak_text(),
        r#"{precondition,{not_present,<<"z">>}}"#
    );
    assert_eq!(set.value(), [text("x")]);
    let mut map = Map::default();
    let field = FieldName::new(text("none"), FieldKind::Set);
    let refused = map.update(&[FieldChange::Remove(field)], update(1, 1, None));
    let riak_text = r#"{precondition,{not_present,{<<"none">>,riak_dt_orswot}}}"#;
    assert_eq!(refused.unwrap_err().riak_text(), riak_text);
}

#[test]
fn a_remove_that_comes_before_the_addition_waits_for_it() {
    let (mut first, mut second) = (Set::default(), Set::default());
    first.update(&add("x"), update(1, 1, None)).unwrap();
    let seen = first.context();
    second
        .update(&remove("x"), update(2, 1, Some(&seen)))
        .unwrap();
    assert!(!second.deferred().is_empty());
    second.merge(first.clone());
    assert_eq!(second.members().len(), 0);
    assert!(second.deferred().is_empty());
    first.merge(second);
    assert_eq!(first.members().len(), 0);
}

/// Regression: as in Riak, a waiting remove inside a map was kept in the field, and lost when the
/// field was removed; the member came back.
#[test]
fn a_remove_that_waits_in_a_field_outlives_the_field() {
    let (mut first, mut second) = (Map::default(), Map::default());
    let members = [add("a"), add("b")].concat();
    first
        .update(&set_field("s", &members), update(1, 1, None))
        .unwrap();
    let seen = first.context();
    let changes = set_field("s", &remove("a"));
    second.update(&changes, update(2, 1, Some(&seen))).unwrap();
    let field = FieldName::new(text("s"), FieldKind::Set);
    let shown = second.context();
    let changes = [FieldChange::Remove(field.clone())];
    second.update(&changes, update(2, 2, Some(&shown))).unwrap();
    assert_eq!(second.value(), []);
    second.merge(first);
    assert_eq!(second.value(), [(field, FieldValue::Set(vec![text("b")]))]);
}

#[test]
fn a_removed_field_keeps_of_its_set_what_was_added_meanwhile() {
    let mut first = Map::default();
    let members = [add("a"), add("b")].concat();
    first
        .update(&set_field("s", &members), update(1, 1, None))
        .unwrap();
    let mut second = first.clone();
    let field = FieldName::new(text("s"), FieldKind::Set);
    let seen = first.context();
    let changes = [FieldChange::Remove(field.clone())];
    first.update(&changes, update(1, 2, Some(&seen))).unwrap();
    second
        .update(&set_field("s", &add("c")), update(2, 1, None))
        .unwrap();
    first.merge(second);
    assert_eq!(first.value(), [(field, FieldValue::Set(vec![text("c")]))]);
}

#[test]
fn a_context_names_the_actors_of_which_something_is_left() {
    let mut set = Set::default();
    for actor in 1..100 {
        set.update(&add("x"), update(actor, 1, None)).unwrap();
    }
    assert_eq!(set.clock().len(), 99);
    assert_eq!(
        set.context(),
        [Dot::new(Actor(99), 1)].into_iter().collect()
    );
    assert!(encode_context(&set.context()).len() < 20);
}

#[test]
fn contexts_come_back_and_every_other_byte_is_refused() {
    let dots = [Dot::new(Actor(7), 300), Dot::new(Actor(u64::MAX), 1)];
    let clock: Clock = dots.into_iter().collect();
    let bytes = encode_context(&clock);
    assert_eq!(decode_context(&bytes), Ok(clock));
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.to_vec();
            changed[place] ^= 1 << bit;
            assert!(
                decode_context(&changed.into()).is_err(),
                "byte {place}, bit {bit}"
            );
        }
        assert!(decode_context(&bytes.slice(..place)).is_err());
    }
}

/// Riak issued the context before the import.
#[test]
fn a_context_of_riak_is_taken() {
    let riak = b"\x83l\0\0\0\x01h\x02m\0\0\0\x0c\x23\x09\xfe\xf9\x07\xfe\x2e\x7d\0\0\x27\x20a\x06j";
    let clock = decode_context(&Bytes::from_static(riak)).unwrap();
    let counters: Vec<u64> = clock.entries().map(|dot| dot.counter).collect();
    assert_eq!(counters, [6]);
    assert_eq!(
        decode_context(&Bytes::from_static(b"\x83j")),
        Ok(Clock::new())
    );
    assert!(decode_context(&Bytes::from_static(b"\x83a\x05")).is_err());
}
