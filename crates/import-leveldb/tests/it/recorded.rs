//! A store that Google's LevelDB wrote (`fixtures/google/write.py`): the basis of Basho's format,
//! from a writer that is not the tests' own.

use crate::world::World;

const KEYS: usize = 1200;

/// The final value of a key in the script.
fn expected(number: usize) -> Option<String> {
    let deleted = number.is_multiple_of(11) || number == 1;
    let third = number.is_multiple_of(7).then_some("third ");
    let deleted_before = number.is_multiple_of(5);
    let second = number.is_multiple_of(3).then_some("second ");
    if deleted || third.is_none() && deleted_before {
        return None;
    }
    let word = third.or(second).unwrap_or("first ");
    Some(format!("{word}{number}"))
}

#[test]
fn a_store_of_googles_leveldb_is_read_as_its_writer_left_it() {
    let world = World::new();
    for (name, bytes) in [
        ("CURRENT", &include_bytes!("../fixtures/google/CURRENT")[..]),
        (
            "MANIFEST-000002",
            include_bytes!("../fixtures/google/MANIFEST-000002"),
        ),
        (
            "000005.ldb",
            include_bytes!("../fixtures/google/000005.ldb"),
        ),
        (
            "000007.ldb",
            include_bytes!("../fixtures/google/000007.ldb"),
        ),
        (
            "000009.ldb",
            include_bytes!("../fixtures/google/000009.ldb"),
        ),
        (
            "000011.ldb",
            include_bytes!("../fixtures/google/000011.ldb"),
        ),
        (
            "000012.log",
            include_bytes!("../fixtures/google/000012.log"),
        ),
        (
            "000013.ldb",
            include_bytes!("../fixtures/google/000013.ldb"),
        ),
    ] {
        world.write(&format!("riak/0/{name}"), bytes);
    }
    let summary = world.import().unwrap();
    assert!(summary.is_whole(), "{summary}");
    let mut kept = 1;
    for number in 0..KEYS {
        let values = world.values("b", &format!("key {number:05}"));
        match (expected(number), &values[..]) {
            (None, []) => {}
            (Some(start), [value]) => {
                assert!(value.starts_with(&start), "{number}: {value}");
                kept += 1;
            }
            (expected, _) => panic!("{number}: {values:?} instead of {expected:?}"),
        }
    }
    assert_eq!(world.values("b", "in the log"), ["logged"]);
    assert_eq!(summary.counts.objects, kept);
    assert!(summary.first_findings.is_empty());
}
