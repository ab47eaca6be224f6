//! Tests sizes and contents of generated values against the published distributions.

use std::collections::BTreeSet;

use super::*;
use crate::random::Seed;
use kvorum_erlang_terms::parse_term;

const DRAWS: usize = 100_000;

fn blocks(random_bytes: usize) -> SourceBlocks {
    SourceBlocks::new(BlockSettings {
        random_bytes,
        blob_file: None,
        seed: Seed([1, 2, 3]),
    })
}

fn build(text: &str) -> Result<ValueGenerator, String> {
    ValueGenerator::build(&parse_term(text).unwrap(), &blocks(1 << 20))
}

fn values(text: &str, count: usize) -> Vec<Value> {
    let generator = build(text).unwrap();
    let mut random = WorkerRandom::new(Seed([42, 23, 12]));
    (0..count).map(|_| generator.next(&mut random)).collect()
}

fn sizes(text: &str) -> Vec<u64> {
    let generator = build(text).unwrap();
    let Kind::Slice { size, .. } = generator.kind else {
        panic!("{text} makes no slices")
    };
    let mut random = WorkerRandom::new(Seed([42, 23, 12]));
    (0..DRAWS).map(|_| size.draw(&mut random)).collect()
}

fn mean(sizes: &[u64]) -> f64 {
    sizes.iter().sum::<u64>() as f64 / sizes.len() as f64
}

fn share(sizes: &[u64], accept: impl Fn(u64) -> bool) -> f64 {
    sizes.iter().filter(|size| accept(**size)).count() as f64 / sizes.len() as f64
}

#[track_caller]
fn assert_near(got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance,
        "{got} is not {expected} +- {tolerance}"
    );
}

#[test]
fn fixed_values_have_their_size_and_come_from_the_block() {
    let block = blocks(1 << 20).random().unwrap();
    let mut distinct = BTreeSet::new();
    for value in values("{fixed_bin, 64}", 100) {
        let bytes = value.into_bytes();
        assert_eq!(bytes.len(), 64);
        assert!(block.windows(64).any(|window| window == bytes));
        distinct.insert(bytes);
    }
    assert!(distinct.len() > 90);
    assert_eq!(
        values("{fixed_bin, 3, 7}", 1),
        [Value::Bytes(Bytes::from_static(&[7, 7, 7]))]
    );
}

#[test]
fn a_value_as_large_as_the_block_is_the_whole_block() {
    let generator =
        ValueGenerator::build(&parse_term("{fixed_bin, 500}").unwrap(), &blocks(100)).unwrap();
    let mut random = WorkerRandom::new(Seed([1, 1, 1]));
    assert_eq!(generator.next(&mut random).into_bytes().len(), 100);
}

#[test]
fn characters_are_printable() {
    let value = values("{fixed_char, 5000}", 1).remove(0).into_bytes();
    let distinct: BTreeSet<u8> = value.iter().copied().collect();
    assert_eq!(
        (distinct.first(), distinct.last(), distinct.len()),
        (Some(&32), Some(&126), 95)
    );
}

#[test]
fn exponential_sizes_have_the_published_mean_and_tail() {
    let sizes = sizes("{exponential_bin, 1000, 500}");
    assert_near(mean(&sizes), 1499.5, 10.0);
    assert_eq!(sizes.iter().min(), Some(&1000));
    assert_near(share(&sizes, |size| size >= 1500), 0.368, 0.01);
}

#[test]
fn uniform_sizes_leave_the_minimum_out() {
    let distinct: BTreeSet<u64> = sizes("{uniform_bin, 10, 12}").into_iter().collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [11, 12]);
}

#[test]
fn integers_lie_in_their_range() {
    let drawn = |text| {
        let distinct: BTreeSet<i64> = values(text, 1000)
            .into_iter()
            .map(|value| match value {
                Value::Integer(value) => value,
                Value::Bytes(_) => panic!("not a number"),
            })
            .collect();
        distinct.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(drawn("{uniform_int, 3}"), [1, 2, 3]);
    assert_eq!(drawn("{uniform_int, 3, 6}"), [4, 5, 6]);
}

#[test]
fn semi_compressible_sizes_have_the_published_means() {
    for (text, expected, min) in [
        ("{semi_compressible, 8000, 8000, 10, 0.1}", 30_400.0, 8000),
        ("{semi_compressible, 4000, 4000, 10, 0.1}", 15_200.0, 4000),
        ("{semi_compressible, 8000, 2000, 10, 0.2}", 28_000.0, 8000),
        ("{semi_compressible, 5000, 3000, 5, 0.2}", 14_400.0, 5000),
        (
            "{semi_compressible, 80000, 20000, 2, 0.1}",
            110_000.0,
            80_000,
        ),
        ("{semi_compressible, 6000, 2000, 8, 0.05}", 10_800.0, 6000),
    ] {
        let sizes = sizes(text);
        assert_near(mean(&sizes), expected, expected * 0.02);
        assert!(sizes.iter().min().unwrap() - min < min / 100, "{text}");
    }
    let sizes = sizes("{semi_compressible, 8000, 2000, 10, 0.2}");
    assert_near(share(&sizes, |size| size >= 80_000), 0.2, 0.01);
}

#[test]
fn the_semi_compressible_block_alternates_random_bytes_and_repeated_text() {
    let block = blocks(100).semi_compressible().unwrap();
    assert_eq!(block.len(), SEMI_COMPRESSIBLE_BLOCK_BYTES);
    let mut distinct_total = 0;
    let mut all = BTreeSet::new();
    for round in block.chunks(8192) {
        let text = &round[4096..];
        let strings: BTreeSet<&[u8]> = text.chunks(128).collect();
        distinct_total += strings.len();
        all.extend(strings);
        assert!(text.iter().all(|byte| (32..=126).contains(byte)));
    }
    assert_eq!(all.len(), 16);
    assert_near(distinct_total as f64 / 8192.0, 13.3, 0.2);
    // Only 95 of 256 random bytes are printable.
    let printable = block[..4096]
        .iter()
        .filter(|byte| (32..=126).contains(*byte))
        .count();
    assert_near(printable as f64 / 4096.0, 95.0 / 256.0, 0.05);
}

#[test]
fn equal_seeds_repeat_values() {
    assert_eq!(
        values("{exponential_bin, 10, 50}", 50),
        values("{exponential_bin, 10, 50}", 50)
    );
}

#[test]
fn a_blob_file_replaces_the_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("blob");
    std::fs::write(&path, [9; 1000]).unwrap();
    let blocks = SourceBlocks::new(BlockSettings {
        random_bytes: 10,
        blob_file: Some(path.clone()),
        seed: Seed([1, 2, 3]),
    });
    assert_eq!(
        blocks.random().unwrap(),
        blocks.semi_compressible().unwrap()
    );
    let missing = SourceBlocks::new(BlockSettings {
        random_bytes: 10,
        blob_file: Some(directory.path().join("missing")),
        seed: Seed([1, 2, 3]),
    });
    assert!(
        missing
            .random()
            .unwrap_err()
            .contains("value_generator_blob_file")
    );
}

#[test]
fn refusals_name_the_allowed_forms() {
    for (text, part) in [
        ("{function, m, f, []}", "Erlang"),
        ("{fixed_bin, -1}", "size in bytes"),
        ("{fixed_bin, 1, 256}", "0 to 255"),
        ("{uniform_bin, 5, 5}", "Min below Max"),
        ("{semi_compressible, 1, 0, 10, 0.1}", "above 0"),
        ("{semi_compressible, 1, 1, 10, 2}", "0 to 1"),
        ("{made_up, 1}", "{exponential_bin, Min, Mean}"),
        ("\"x\"", "a tuple"),
        ("{}", "{fixed_bin, Size}"),
        ("{uniform_int, 0}", "not empty"),
    ] {
        let error = build(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
