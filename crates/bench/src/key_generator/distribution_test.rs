//! Tests every source of random keys against its law, cell by cell.

use super::*;
use crate::goodness_of_fit::{assert_fits, counts_between, excess, law_between};
use crate::random::{Seed, WorkerRandom};
use crate::value_generator::{BlockSettings, SourceBlocks};
use kvorum_erlang_terms::parse_term;

const DRAWS: usize = 200_000;

fn keys(text: &str, count: usize) -> Vec<Key> {
    let blocks = SourceBlocks::new(BlockSettings {
        random_bytes: 4096,
        blob_file: None,
        seed: Seed([1, 2, 3]),
    });
    let mut generator = KeySources::new(&blocks, 1)
        .build(&parse_term(text).unwrap(), 1)
        .unwrap();
    let mut random = WorkerRandom::new(Seed([42, 23, 12]).of_worker(1));
    (0..count)
        .map(|_| generator.next(&mut random).unwrap())
        .collect()
}

fn numbers(text: &str) -> Vec<f64> {
    keys(text, DRAWS)
        .iter()
        .map(|key| key.integer() as f64)
        .collect()
}

/// Ends of cells at these shares of a maximum; a cell includes its last number.
fn ends(max: f64, shares: impl IntoIterator<Item = f64>) -> Vec<f64> {
    shares.into_iter().map(|share| share * max + 0.5).collect()
}

fn percents() -> impl Iterator<Item = f64> {
    (1..100).map(|percent| f64::from(percent) / 100.0)
}

#[test]
fn uniform_keys_are_uniform() {
    for (text, start) in [
        ("{uniform_int, 1000000}", 0.0),
        ("{uniform_int, 5000001, 1000000}", 5e6),
        ("{valgen, {uniform_int, 1000000}}", 0.0),
    ] {
        let ends = ends(1e6, percents());
        let draws: Vec<f64> = numbers(text).iter().map(|key| key - start).collect();
        let law = law_between(&ends, |x| (x - 0.5) / 1e6);
        assert_fits(text, &counts_between(&draws, &ends), &law);
    }
}

#[test]
fn eighty_twenty_keys_are_uniform_on_either_side_of_the_step() {
    let ends = ends(1e6, percents());
    let counts = counts_between(&numbers("{eightytwenty_int, 1000000}"), &ends);
    let law = law_between(&ends, |x| {
        let share = (x - 0.5) / 1e6;
        if share <= 0.2 {
            share * 4.0
        } else {
            0.8 + (share - 0.2) * 0.25
        }
    });
    assert_fits("eightytwenty_int", &counts, &law);
    // The test distinguishes four fifths from three quarters.
    let wrong = law_between(&ends, |x| {
        let share = (x - 0.5) / 1e6;
        if share <= 0.2 {
            share * 3.75
        } else {
            0.75 + (share - 0.2) * 0.3125
        }
    });
    assert!(excess(&counts, &wrong) > 6.0);
}

/// Distribution of `pareto_int` below a key; `max` is the generator's argument.
fn pareto_below(key: f64, max: f64) -> f64 {
    1.0 - (1.0 + 10.0 * key / max).powf(-1.5)
}

#[test]
fn pareto_keys_follow_their_law_up_to_ten_times_the_maximum() {
    const MAX: f64 = 1e6;
    // Cells with about equal numbers of draws: the law's own percentiles.
    let ends: Vec<f64> = percents()
        .map(|share| (((1.0 - share).powf(-1.0 / 1.5) - 1.0) * MAX / 10.0).ceil())
        .collect();
    let counts = counts_between(&numbers("{pareto_int, 1000000}"), &ends);
    let law = law_between(&ends, |key| pareto_below(key, MAX));
    assert_fits("pareto_int", &counts, &law);
    // The test detects another shape.
    let wrong = law_between(&ends, |key| 1.0 - (1.0 + 10.0 * key / MAX).powf(-1.4));
    assert!(excess(&counts, &wrong) > 6.0);
}

#[test]
fn truncated_pareto_keys_have_the_tail_in_one_key() {
    const MAX: f64 = 1e6;
    let ends: Vec<f64> = (1..=20).map(|cell| f64::from(cell) * MAX / 20.0).collect();
    let counts = counts_between(&numbers("{truncated_pareto_int, 1000000}"), &ends);
    let law = law_between(&ends, |key| pareto_below(key, MAX));
    assert_fits("truncated_pareto_int", &counts, &law);
}

#[test]
fn random_identifiers_use_every_digit_equally() {
    let digits = |text: &str, is_fixed: fn(usize) -> bool| {
        let mut counts = [0_u64; 16];
        for key in keys(text, 5000) {
            let bytes = key.into_bytes();
            for (place, letter) in bytes.iter().enumerate() {
                let digit = char::from(*letter).to_digit(16);
                if let Some(digit) = digit.filter(|_| !is_fixed(place)) {
                    counts[digit as usize] += 1;
                }
            }
        }
        assert_fits(text, &counts, &[1.0 / 16.0; 16]);
    };
    digits("{random_dynamo_style_string, 35000}", |_| false);
    // The digits of the version and of the variant.
    digits("uuid_v4_s", |place| place == 14 || place == 19);
    let mut counts = [0_u64; 256];
    for key in keys("uuid_v4", 20_000) {
        for (place, byte) in key.into_bytes().iter().enumerate() {
            if place != 6 && place != 8 {
                counts[usize::from(*byte)] += 1;
            }
        }
    }
    assert_fits("uuid_v4", &counts, &[1.0 / 256.0; 256]);
}

#[test]
fn wrapped_keys_keep_the_law_of_what_they_wrap() {
    for text in [
        "{int_to_bin_bigendian, {uniform_int, 0, 256}}",
        "{{int_to_bin_bigendian, 8}, {uniform_int, 0, 256}}",
    ] {
        let mut counts = [0_u64; 256];
        for key in keys(text, DRAWS) {
            let bytes = key.into_bytes();
            counts[usize::from(bytes[bytes.len() - 1])] += 1;
        }
        assert_fits(text, &counts, &[1.0 / 256.0; 256]);
    }
    // Every byte of a digest is uniform, under any law of the keys.
    let mut counts = [0_u64; 256];
    for key in keys(
        "{{crypto_hash, sha256}, {int_to_bin_bigendian, {pareto_int, 1000000000}}}",
        5000,
    ) {
        for byte in key.into_bytes() {
            counts[usize::from(byte)] += 1;
        }
    }
    assert_fits("crypto_hash", &counts, &[1.0 / 256.0; 256]);
}
