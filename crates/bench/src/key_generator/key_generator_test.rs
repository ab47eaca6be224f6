//! Tests keys against the published distributions, and wrappers against known bytes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use bytes::Bytes;

use super::node::integer_bytes;
use super::*;
use crate::random::{Seed, WorkerRandom};
use crate::value_generator::{BlockSettings, SourceBlocks};
use kvorum_erlang_terms::parse_term;

const DRAWS: usize = 200_000;

fn blocks() -> SourceBlocks {
    SourceBlocks::new(BlockSettings {
        random_bytes: 4096,
        blob_file: None,
        seed: Seed([1, 2, 3]),
    })
}

fn build(text: &str, worker: u32, concurrent: u32) -> Result<KeyGenerator, String> {
    let blocks = blocks();
    KeySources::new(&blocks, concurrent).build(&parse_term(text).unwrap(), worker)
}

fn random() -> WorkerRandom {
    WorkerRandom::new(Seed([42, 23, 12]).of_worker(1))
}

fn keys(text: &str, count: usize) -> Vec<Key> {
    let mut generator = build(text, 1, 1).unwrap();
    let mut random = random();
    (0..count)
        .map_while(|_| generator.next(&mut random).ok())
        .collect()
}

fn numbers(text: &str) -> Vec<i64> {
    keys(text, DRAWS).iter().map(Key::integer).collect()
}

fn share(numbers: &[i64], accept: impl Fn(i64) -> bool) -> f64 {
    numbers.iter().filter(|number| accept(**number)).count() as f64 / numbers.len() as f64
}

#[track_caller]
fn assert_near(got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance,
        "{got} is not {expected} +- {tolerance}"
    );
}

#[test]
fn uniform_keys_fill_their_range() {
    let drawn = numbers("{uniform_int, 1000}");
    assert_eq!(
        (drawn.iter().min(), drawn.iter().max()),
        (Some(&1), Some(&1000))
    );
    assert_near(share(&drawn, |key| key <= 200), 0.2, 0.005);
    let distinct: BTreeSet<i64> = numbers("{uniform_int, 10, 5}").into_iter().collect();
    assert_eq!(
        distinct.into_iter().collect::<Vec<_>>(),
        [10, 11, 12, 13, 14]
    );
}

#[test]
fn eighty_percent_of_keys_hit_the_first_fifth() {
    let drawn = numbers("{eightytwenty_int, 1000}");
    assert_near(share(&drawn, |key| key <= 200), 0.8, 0.005);
    // A hot key is drawn sixteen times as often as a cold one.
    let hot = share(&drawn, |key| key <= 100) / 100.0;
    let cold = share(&drawn, |key| key > 500) / 500.0;
    assert_near(hot / cold, 16.0, 0.8);
    let small: BTreeSet<i64> = numbers("{eightytwenty_int, 12}").into_iter().collect();
    assert_eq!((small.first(), small.last()), (Some(&1), Some(&10)));
}

#[test]
fn pareto_keys_follow_the_published_curve() {
    const MAX: i64 = 1_000_000;
    let drawn = numbers("{pareto_int, 1000000}");
    for (share_of_max, expected) in [
        (0.01, 0.1332),
        (0.05, 0.4557),
        (0.1, 0.6464),
        (0.2, 0.8075),
        (0.5, 0.9320),
        (1.0, 0.9726),
    ] {
        let bound = share_of_max * MAX as f64;
        assert_near(share(&drawn, |key| (key as f64) < bound), expected, 0.005);
    }
    assert!(drawn.iter().all(|key| *key >= 0));
    assert!(drawn.iter().any(|key| *key > MAX));
    assert!(numbers("{pareto_int, 100}").contains(&0));
}

#[test]
fn truncated_pareto_keys_pile_up_at_the_maximum() {
    let drawn = numbers("{truncated_pareto_int, 1000000}");
    assert_eq!(drawn.iter().max(), Some(&1_000_000));
    assert_near(share(&drawn, |key| key == 1_000_000), 0.0274, 0.002);
}

#[test]
fn sequential_keys_repeat_in_every_worker_and_then_end() {
    for worker in 1..=2 {
        let mut generator = build("{sequential_int, 3}", worker, 2).unwrap();
        let mut random = random();
        for expected in 0..3 {
            assert_eq!(generator.next(&mut random), Ok(Key::Integer(expected)));
        }
        assert_eq!(generator.next(&mut random), Err(Exhausted));
        assert_eq!(generator.next(&mut random), Err(Exhausted));
    }
}

#[test]
fn generators_of_a_name_share_their_numbers_within_a_worker() {
    let blocks = blocks();
    let mut sources = KeySources::new(&blocks, 2);
    let term = parse_term("{named_sequential_int, mine, 10}").unwrap();
    let mut generators = [1, 1, 2].map(|worker| sources.build(&term, worker).unwrap());
    let mut random = random();
    let mut next = |index: usize| generators[index].next(&mut random).unwrap().integer();
    assert_eq!([next(0), next(1), next(0), next(2)], [0, 1, 2, 0]);
}

#[test]
fn partitioned_keys_are_shared_out_among_workers() {
    let share_of = |text: &str, worker, concurrent| {
        let mut generator = build(text, worker, concurrent).unwrap();
        let mut random = random();
        let keys: Vec<i64> = std::iter::from_fn(|| generator.next(&mut random).ok())
            .map(|key| key.integer())
            .collect();
        keys
    };
    let text = "{partitioned_sequential_int, 0, 10}";
    assert_eq!(share_of(text, 1, 3), [0, 1, 2]);
    assert_eq!(share_of(text, 2, 3), [3, 4, 5]);
    assert_eq!(share_of(text, 3, 3), [6, 7, 8, 9]);
    assert_eq!(
        share_of("{partitioned_sequential_int, 2}", 1, 3),
        Vec::<i64>::new()
    );
    assert_eq!(share_of("{partitioned_sequential_int, 2}", 3, 3), [0, 1]);
    assert_eq!(share_of("{partitioned_sequential_int, 5, 4}", 2, 2), [7, 8]);
}

#[test]
fn wrappers_make_the_published_bytes() {
    let one = |text: &str| keys(text, 1).remove(0);
    let binary = |bytes: &'static [u8]| Key::Binary(Bytes::from_static(bytes));
    let string = |bytes: &'static [u8]| Key::String(Bytes::from_static(bytes));
    for (text, expected) in [
        (
            "{int_to_bin_bigendian, {uniform_int, 1}}",
            binary(&[0, 0, 0, 1]),
        ),
        (
            "{int_to_bin_littleendian, {uniform_int, 1}}",
            binary(&[1, 0, 0, 0]),
        ),
        (
            "{{int_to_bin_bigendian, 64}, {uniform_int, 1}}",
            binary(&[0, 0, 0, 0, 0, 0, 0, 1]),
        ),
        (
            "{{int_to_bin_littleendian, 16}, {uniform_int, 65537, 1}}",
            binary(&[1, 0]),
        ),
        (
            "{int_to_bin_bigendian, {uniform_int, -1, 1}}",
            binary(&[255; 4]),
        ),
        (
            "{{int_to_bin_bigendian, 80}, {uniform_int, -1, 1}}",
            binary(&[255; 10]),
        ),
        (
            "{base64, {int_to_bin_bigendian, {uniform_int, 1}}}",
            binary(b"AAAAAQ=="),
        ),
        (
            "{base64, {int_to_bin_bigendian, {uniform_int, 65536, 1}}}",
            binary(b"AAEAAA=="),
        ),
        ("{int_to_str, {uniform_int, 42, 1}}", string(b"42")),
        (
            "{str_to_bin, {int_to_str, {uniform_int, 42, 1}}}",
            binary(b"42"),
        ),
        ("{bin_to_str, <<\"ab\">>}", string(b"ab")),
        (
            "{to_binstr, \"k~8..0B\", {uniform_int, 42, 1}}",
            binary(b"k00000042"),
        ),
        ("{to_str, \"~w\", {uniform_int, 42, 1}}", string(b"42")),
        (
            "{concat_binary, <<\"pre-\">>, {base64, \"a\"}}",
            binary(b"pre-YQ=="),
        ),
        (
            "{concat_string, \"a\", {int_to_str, {uniform_int, 42, 1}}}",
            string(b"a42"),
        ),
        ("{iolist_to_bin, \"ab\"}", binary(b"ab")),
        (
            "{term_to_bin, {uniform_int, 42, 1}}",
            binary(&[131, 97, 42]),
        ),
        ("{uniform_int_bin, 65537, 1}", binary(&[1, 0, 1, 0])),
        ("{uniform_int_str, 42, 1}", string(b"42")),
        ("{sequential_int, 7, 9}", Key::Integer(7)),
        ("\"constant\"", string(b"constant")),
        ("[97, 98]", string(b"ab")),
        ("<<1,2>>", binary(&[1, 2])),
        ("{valgen, {fixed_bin, 2, 9}}", binary(&[9, 9])),
        ("{int_to_str, {valgen, {uniform_int, 1}}}", string(b"1")),
    ] {
        assert_eq!(one(text), expected, "{text}");
    }
}

#[test]
fn digests_are_those_of_the_empty_text() {
    for (algorithm, prefix) in [
        ("md4", "31d6cfe0d16ae931"),
        ("md5", "d41d8cd98f00b204"),
        ("ripemd160", "9c1185a5c5e9fc54"),
        ("sha", "da39a3ee5e6b4b0d"),
        ("sha224", "d14a028c2a3a2bc9"),
        ("sha256", "e3b0c44298fc1c14"),
        ("sha384", "38b060a751ac9638"),
        ("sha512", "cf83e1357eefb8bd"),
    ] {
        let key = keys(&format!("{{{{crypto_hash, {algorithm}}}, <<>>}}"), 1).remove(0);
        let digest: String = key
            .into_bytes()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(digest, prefix, "{algorithm}");
    }
}

#[test]
fn identifiers_have_their_form_and_do_not_repeat() {
    let uuids = keys("uuid_v4", 1000);
    for key in &uuids {
        let bytes = key.clone().into_bytes();
        assert_eq!((bytes.len(), bytes[6] >> 4, bytes[8] >> 6), (16, 4, 2));
    }
    let distinct: BTreeSet<Bytes> = uuids.into_iter().map(Key::into_bytes).collect();
    assert_eq!(distinct.len(), 1000);
    let text = keys("{uuid_v4_s, \"+\"}", 1).remove(0).into_bytes();
    assert_eq!(text.len(), 36);
    assert_eq!((text[8], text[14]), (b'+', b'4'));
    let text = keys("{random_dynamo_style_string, 35000}", 1)
        .remove(0)
        .into_bytes();
    assert_eq!(text.len(), 67);
    assert_eq!(text.iter().filter(|byte| **byte == b'-').count(), 3);
}

#[test]
fn lines_of_a_file_are_shared_by_all_workers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    std::fs::write(&path, "one\ntwo\n\nlast").unwrap();
    let blocks = blocks();
    for (mode, expected) in [
        ("repeat", ["one", "two", "", "last", "one"].as_slice()),
        ("once", &["one", "two", "", "last"]),
    ] {
        let term = parse_term(&format!(
            "{{file_line_bin, \"{}\", {mode}}}",
            path.display()
        ))
        .unwrap();
        let mut sources = KeySources::new(&blocks, 2);
        let mut workers = [
            sources.build(&term, 1).unwrap(),
            sources.build(&term, 2).unwrap(),
        ];
        let mut random = random();
        let got: Vec<Bytes> = (0..5)
            .map_while(|turn| {
                workers[turn % 2]
                    .next(&mut random)
                    .ok()
                    .map(Key::into_bytes)
            })
            .collect();
        assert_eq!(got, expected, "{mode}");
    }
    assert!(
        build("{file_line_bin, \"/no/such/file\"}", 1, 1)
            .unwrap_err()
            .contains("cannot open")
    );
}

#[test]
fn refusals_name_what_would_work() {
    for (text, part) in [
        ("{function, m, f, []}", "Erlang"),
        ("{int_to_bin, {uniform_int, 5}}", "int_to_bin_bigendian"),
        ("{eightytwenty_int, 4}", "at least 5"),
        ("{uniform_int, 0}", "above 0"),
        ("{uniform_int, a}", "64 bits"),
        ("{base64, {uniform_int, 5}}", "makes integers"),
        ("{int_to_str, uuid_v4}", "expects a generator of integers"),
        ("{concat_binary, \"a\", <<\"b\">>}", "makes strings"),
        ("{to_str, \"~s\", {uniform_int, 5}}", "does not take"),
        ("{to_str, \"x\", {uniform_int, 5}}", "no argument"),
        (
            "{{int_to_bin_bigendian, 7}, {uniform_int, 5}}",
            "multiple of 8",
        ),
        ("{{crypto_hash, crc}, uuid_v4}", "sha512"),
        ("{external, m, f, []}", "Erlang"),
        ("{ts_sequential, a}", "time series"),
        ("{uuid_v4_s, 5}", "separator"),
        ("{made_up, 5}", "truncated_pareto_int"),
        ("made_up", "uuid_v4"),
        ("{valgen, {fixed_bin, x}}", "size in bytes"),
        ("{}", "no key generator"),
    ] {
        let error = build(text, 1, 1).err().unwrap_or_default();
        assert!(error.contains(part), "{text}: {error}");
    }
    let deep = format!("{}<<>>{}", "{base64, ".repeat(90), "}".repeat(90));
    assert!(build(&deep, 1, 1).unwrap_err().contains("wrappers"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_seeds_repeat_keys(seed in any::<[i64; 3]>(), max in 5_i64..1_000_000) {
        for tag in ["uniform_int", "eightytwenty_int", "pareto_int"] {
            let draw = || {
                let mut generator = build(&format!("{{{tag}, {max}}}"), 1, 1).unwrap();
                let mut random = WorkerRandom::new(Seed(seed));
                (0..20).map(|_| generator.next(&mut random).unwrap()).collect::<Vec<_>>()
            };
            prop_assert_eq!(draw(), draw());
        }
    }

    #[test]
    fn any_integer_keeps_its_low_bytes(value in any::<i64>(), bytes in 1_usize..20) {
        let big = integer_bytes(value, bytes, true);
        let little = integer_bytes(value, bytes, false);
        prop_assert!(big.iter().rev().eq(little.iter()));
        let kept = bytes.min(8);
        prop_assert_eq!(&little[..kept], &value.to_le_bytes()[..kept]);
    }
}
