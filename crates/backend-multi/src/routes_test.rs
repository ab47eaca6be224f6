//! Routes against a model that decodes: names before buckets before types.

use kvorum_encoding::Key;
use proptest::prelude::*;

use super::*;

/// Rules for routes, in the order of their definition.
#[derive(Clone, Debug)]
enum Rule {
    Names(Vec<u8>, ChildNumber),
    Bucket(Vec<u8>, Vec<u8>, ChildNumber),
    Type(Vec<u8>, ChildNumber),
}

/// Few bytes, with awkward ones among them, so that names are beginnings of each other.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, b'a', 0xff]), 0..3)
}

fn type_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(b"default".to_vec()), Just(b"maps".to_vec()), name()]
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (name(), 0..4_usize).prop_map(|(start, child)| Rule::Names(start, child)),
        (type_name(), name(), 0..4_usize)
            .prop_map(|(of_type, bucket, child)| Rule::Bucket(of_type, bucket, child)),
        (type_name(), 0..4_usize).prop_map(|(of_type, child)| Rule::Type(of_type, child)),
    ]
}

fn bucket_type(name: &[u8]) -> BucketType {
    match name.is_empty() {
        true => BucketType::default_type(),
        false => BucketType::from(name.to_vec()),
    }
}

fn table_of(rules: &[Rule]) -> RouteTable {
    let mut table = RouteTable::to(0);
    for rule in rules {
        match rule {
            Rule::Names(start, child) => table.route_names(start, *child),
            Rule::Bucket(of_type, bucket, child) => {
                table.route_bucket(&bucket_type(of_type), &Bucket::from(bucket.clone()), *child);
            }
            Rule::Type(of_type, child) => table.route_type(&bucket_type(of_type), *child),
        }
    }
    table
}

/// The child by names, without the bytes of keys.
fn expected(rules: &[Rule], of_type: &BucketType, bucket: &[u8]) -> ChildNumber {
    let by_name = rules.iter().find_map(|it| match it {
        Rule::Names(start, child) if bucket.starts_with(start) => Some(*child),
        _ => None,
    });
    let by_bucket = rules.iter().rev().find_map(|it| match it {
        Rule::Bucket(named, its, child) if bucket_type(named) == *of_type && its == bucket => {
            Some(*child)
        }
        _ => None,
    });
    let by_type = rules.iter().rev().find_map(|it| match it {
        Rule::Type(named, child) if bucket_type(named) == *of_type => Some(*child),
        _ => None,
    });
    by_name.or(by_bucket).or(by_type).unwrap_or(0)
}

proptest! {
    #[test]
    fn a_key_and_the_start_of_its_bucket_go_where_the_names_say(
        rules in prop::collection::vec(rule(), 0..6),
        of_type in type_name(),
        bucket in name(),
        key in name(),
    ) {
        let table = table_of(&rules);
        let of_type = bucket_type(&of_type);
        let wanted = expected(&rules, &of_type, &bucket);
        let bucket = Bucket::from(bucket);
        let key = StorageKey::new(&of_type, &bucket, &Key::from(key));
        prop_assert_eq!(table.child_of(key.as_bytes()), wanted);
        prop_assert_eq!(table.child_of(&bucket_prefix(&of_type, &bucket)), wanted);
    }
}

#[test]
fn what_is_no_storage_key_is_in_the_default_child() {
    let mut table = RouteTable::to(2);
    table.route_type(&BucketType::default_type(), 1);
    assert_eq!(table.child_of(b"plain"), 2);
    assert_eq!(table.child_of(b""), 2);
}
