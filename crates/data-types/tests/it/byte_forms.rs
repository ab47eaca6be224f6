//! Byte forms: written bytes are read back, and no other bytes bring a decoder down.

use bytes::Bytes;
use kvorum_data_types::{
    Actor, DataType, DecodeError, Dot, FieldChange, FieldKind, FieldName, FieldOperation, Kind,
    MapDelta, Operation, PagedSet, Set, SetChange, SetDelta, Update, decode_context,
    decode_riak_value, encode_context, encode_legacy_counter, encode_riak_value,
};
use proptest::prelude::*;

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn field(name: &'static str, operation: FieldOperation) -> FieldChange {
    let name = text(name);
    FieldChange::Update { name, operation }
}

fn apply(value: &mut DataType, actor: u64, counter: u64, operation: &Operation) {
    let update = Update {
        dot: Dot::new(Actor(actor), counter),
        micros: counter * 1000,
        context: None,
    };
    value.update(operation, update).unwrap();
}

fn map_operation(by: i128) -> Operation {
    let members = vec![SetChange::Add(text("m")), SetChange::Add(text("n"))];
    let inner = vec![
        field("deep", FieldOperation::Register(text("value"))),
        field("deep", FieldOperation::Set(members)),
    ];
    Operation::Map(vec![
        field("c", FieldOperation::Counter(by)),
        field("f", FieldOperation::Flag(by > 0)),
        field("s", FieldOperation::Set(vec![])),
        field("m", FieldOperation::Map(inner)),
    ])
}

/// One value of each type, merged of two replicas, and a set with a remove that waits.
fn values() -> Vec<DataType> {
    let operations: [[Operation; 2]; 5] = [
        [Operation::Counter(5), Operation::Counter(-70_000)],
        [
            Operation::Set(vec![SetChange::Add(text("a")), SetChange::Add(text(""))]),
            Operation::Set(vec![SetChange::Add(text("a"))]),
        ],
        [
            Operation::GrowSet(vec![text("x"), text("y")]),
            Operation::GrowSet(vec![text("z")]),
        ],
        [map_operation(3), map_operation(-4)],
        [
            Operation::HyperLogLog(vec![text("x"), text("y")]),
            Operation::HyperLogLog(vec![text("z")]),
        ],
    ];
    let mut values = Vec::new();
    for [first, second] in operations {
        let mut ours = DataType::new(first.kind(), 5);
        let mut theirs = ours.clone();
        apply(&mut ours, 1, 7, &first);
        apply(&mut ours, 1, 300, &second);
        apply(&mut theirs, u64::MAX, 1, &second);
        ours.merge(theirs).unwrap();
        values.push(ours);
    }
    values.push(with_a_remove_that_waits(&values[1]));
    values.push(DataType::new(Kind::HyperLogLog, 14));
    values
}

fn with_a_remove_that_waits(set: &DataType) -> DataType {
    let context = set.context().unwrap();
    let mut behind = DataType::new(Kind::Set, 0);
    let update = Update {
        dot: Dot::new(Actor(3), 1),
        micros: 0,
        context: Some(&context),
    };
    let operation = Operation::Set(vec![SetChange::Remove(text("a"))]);
    behind.update(&operation, update).unwrap();
    behind
}

#[test]
fn values_are_read_back() {
    for value in values() {
        assert_eq!(DataType::decode(&value.encode()), Ok(value));
    }
}

fn operations() -> Vec<Operation> {
    let remove = FieldName::new("gone", FieldKind::Set);
    vec![
        Operation::Counter(i128::MAX),
        Operation::Counter(i128::MIN),
        Operation::Counter(0),
        Operation::Set(vec![SetChange::Add(text("a")), SetChange::Remove(text(""))]),
        Operation::GrowSet(vec![text("x"), text("y")]),
        Operation::HyperLogLog(vec![]),
        map_operation(-3),
        Operation::Map(vec![FieldChange::Remove(remove)]),
    ]
}

#[test]
fn operations_are_read_back() {
    for operation in operations() {
        assert_eq!(Operation::decode(&operation.encode()), Ok(operation));
    }
}

#[test]
fn an_operation_that_is_nested_too_deep_is_refused() {
    let mut changes = vec![field("c", FieldOperation::Counter(1))];
    for _ in 0..80 {
        changes = vec![field("m", FieldOperation::Map(changes))];
    }
    assert!(Operation::decode(&Operation::Map(changes).encode()).is_err());
}

#[test]
fn a_value_is_found_in_content_of_its_own_type_alone() {
    for value in values() {
        let bytes = value.encode();
        let content_type = value.kind().content_type().as_bytes();
        assert_eq!(
            DataType::in_content(content_type, &bytes),
            Some(value.clone())
        );
        assert_eq!(DataType::in_content(b"text/plain", &bytes), None);
        assert_eq!(DataType::in_content(content_type, b"plain"), None);
        let others = Kind::ALL.into_iter().filter(|kind| *kind != value.kind());
        for other in others {
            let content_type = other.content_type().as_bytes();
            assert_eq!(DataType::in_content(content_type, &bytes), None);
        }
    }
}

#[test]
fn a_value_of_a_newer_version_says_so() {
    let mut bytes = values()[0].encode().to_vec();
    bytes[0] = 9;
    let expected = DecodeError::Version {
        got: 9,
        expected: 1,
    };
    assert_eq!(DataType::decode(&bytes), Err(expected));
}

/// The drawings above the encoders, byte by byte.
#[test]
fn the_bytes_are_as_drawn() {
    let mut counter = DataType::new(Kind::Counter, 0);
    apply(&mut counter, 2, 1, &Operation::Counter(300));
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    // Version, kind; one actor, 2, counter 1; one tally: actor 0, counter 1, sums 300 and 0.
    let drawn = "0101 01 0200000000000000 01 01 00 01 ac02 00 00 00".replace(' ', "");
    assert_eq!(hex(&counter.encode()), drawn);
    let mut set = DataType::new(Kind::Set, 0);
    let operation = Operation::Set(vec![SetChange::Add(text("ab"))]);
    apply(&mut set, 2, 5, &operation);
    // Version, kind; the clock; nothing waits; one member: 2 bytes, one dot: actor 0, counter 5.
    let drawn = "0102 01 0200000000000000 05 00 01 02 6162 01 00 05".replace(' ', "");
    assert_eq!(hex(&set.encode()), drawn);
}

#[test]
fn riaks_forms_of_our_values_are_read_back() {
    for value in values() {
        let read = decode_riak_value(&encode_riak_value(&value)).unwrap();
        assert_eq!(read.value.value(), value.value());
        assert_eq!(read.value.context(), value.context());
        assert!(!read.is_legacy);
        if let DataType::Counter(counter) = &value {
            let read = decode_riak_value(&encode_legacy_counter(counter)).unwrap();
            assert_eq!(read.value.value(), value.value());
            assert!(read.is_legacy);
        }
        if value.kind() != Kind::Counter {
            // Counters of Riak's name no updates; all else comes back as it was.
            assert_eq!(read.value, value);
        }
    }
}

/// All bytes that any decoder accepts.
fn samples() -> Vec<Bytes> {
    let mut samples: Vec<Bytes> = Vec::new();
    for value in values() {
        samples.extend([value.encode(), encode_riak_value(&value)]);
        samples.extend(value.context().map(|clock| encode_context(&clock)));
        if let DataType::Counter(counter) = &value {
            samples.push(encode_legacy_counter(counter));
        }
    }
    samples.extend(operations().iter().map(Operation::encode));
    let mut set = Set::default();
    let update = Update {
        dot: Dot::new(Actor(1), 1),
        micros: 0,
        context: None,
    };
    let delta = set.update(&[SetChange::Add(text("a"))], update).unwrap();
    samples.extend([delta.encode(), PagedSet::split(&set).head.encode()]);
    samples
}

/// Decodes bytes as each form, and uses the results as a server would.
fn take_as_anything(bytes: &Bytes) {
    let mut found: Vec<DataType> = DataType::decode(bytes).into_iter().collect();
    found.extend(decode_riak_value(bytes).map(|read| read.value));
    for value in found {
        assert_eq!(DataType::decode(&value.encode()), Ok(value.clone()));
        let _shown = value.value();
        for mut other in values() {
            if other.merge(value.clone()).is_ok() {
                assert_eq!(DataType::decode(&other.encode()), Ok(other.clone()));
                let _riak = encode_riak_value(&other);
            }
        }
    }
    let _context = decode_context(bytes);
    let _head = PagedSet::decode(bytes);
    if let Ok(operation) = Operation::decode(bytes) {
        assert_eq!(Operation::decode(&operation.encode()), Ok(operation));
    }
    take_as_delta(bytes);
}

fn take_as_delta(bytes: &Bytes) {
    if let Ok(delta) = MapDelta::decode(bytes) {
        assert_eq!(MapDelta::decode(&delta.encode()), Ok(delta));
    }
    if let Ok(delta) = SetDelta::decode(bytes) {
        assert_eq!(SetDelta::decode(&delta.encode()), Ok(delta.clone()));
        let mut set = Set::default();
        if set.join(delta).is_ok() {
            let set = DataType::Set(set);
            assert_eq!(DataType::decode(&set.encode()), Ok(set));
        }
    }
}

#[test]
fn no_single_flip_and_no_cut_brings_a_decoder_down() {
    for sample in samples() {
        for place in 0..sample.len().min(600) {
            for bit in 0..8 {
                let mut changed = sample.to_vec();
                changed[place] ^= 1 << bit;
                take_as_anything(&changed.into());
            }
            take_as_anything(&sample.slice(..place));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_whatever_bring_a_decoder_down(
        kind in 0..9u8,
        bytes in prop::collection::vec(prop_oneof![3 => 0..6u8, 1 => any::<u8>()], 0..80),
    ) {
        take_as_anything(&[&[1, kind][..], &bytes].concat().into());
        take_as_anything(&bytes.into());
    }

    #[test]
    fn no_mixture_of_values_brings_a_decoder_down(
        (first, second) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        (cut, from) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let samples = samples();
        let (first, second) = (first.get(&samples), second.get(&samples));
        let front = &first[..cut.index(first.len())];
        let back = &second[from.index(second.len())..];
        take_as_anything(&[front, back].concat().into());
    }
}
