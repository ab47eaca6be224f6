//! Tests every value generator against its law, cell by cell: sizes, and positions of slices.

use super::*;
use crate::goodness_of_fit::{assert_fits, counts_between, excess, law_between};
use crate::random::Seed;
use kvorum_erlang_terms::parse_term;

const DRAWS: usize = 200_000;

fn build(text: &str, random_bytes: usize) -> ValueGenerator {
    let blocks = SourceBlocks::new(BlockSettings {
        random_bytes,
        blob_file: None,
        seed: Seed([1, 2, 3]),
    });
    ValueGenerator::build(&parse_term(text).unwrap(), &blocks).unwrap()
}

fn random() -> WorkerRandom {
    WorkerRandom::new(Seed([42, 23, 12]))
}

fn sizes(text: &str) -> Vec<f64> {
    let generator = build(text, 1000);
    let Kind::Slice { size, .. } = generator.kind else {
        panic!("{text} makes no slices")
    };
    let mut random = random();
    (0..DRAWS).map(|_| size.draw(&mut random) as f64).collect()
}

#[test]
fn uniform_sizes_and_numbers_are_uniform() {
    let ends: Vec<f64> = (101..200).map(f64::from).map(|size| size + 0.5).collect();
    let law = law_between(&ends, |size| (size - 100.5) / 100.0);
    let counts = counts_between(&sizes("{uniform_bin, 100, 200}"), &ends);
    assert_fits("uniform_bin", &counts, &law);

    for text in ["{uniform_int, 100, 200}", "{random_int, 100}"] {
        let generator = build(text, 1000);
        let mut random = random();
        let mut counts = [0_u64; 100];
        for _ in 0..DRAWS {
            let Value::Integer(number) = generator.next(&mut random) else {
                panic!("{text} makes numbers")
            };
            counts[usize::try_from((number - 1) % 100).unwrap()] += 1;
        }
        assert_fits(text, &counts, &[0.01; 100]);
    }
}

/// Distribution of min + trunc(Exponential(mean)) below a whole size.
fn exponential_below(size: f64, min: f64, mean: f64) -> f64 {
    1.0 - (-(size - min).max(0.0) / mean).exp()
}

#[test]
fn exponential_sizes_follow_their_law() {
    let ends: Vec<f64> = (1..40)
        .map(|cell| 1000.0 + f64::from(cell) * 50.0)
        .collect();
    let counts = counts_between(&sizes("{exponential_bin, 1000, 500}"), &ends);
    let law = law_between(&ends, |size| exponential_below(size, 1000.0, 500.0));
    assert_fits("exponential_bin", &counts, &law);
    let wrong = law_between(&ends, |size| exponential_below(size, 1000.0, 490.0));
    assert!(
        excess(&counts, &wrong) > 6.0,
        "the test would find a mean of 490"
    );
}

#[test]
fn semi_compressible_sizes_are_the_published_mixture() {
    for (min, mean, multiplier, probability) in [
        (8000.0, 8000.0, 10.0, 0.1),
        (4000.0, 4000.0, 10.0, 0.1),
        (5000.0, 3000.0, 5.0, 0.2),
    ] {
        let text = format!("{{semi_compressible, {min}, {mean}, {multiplier}, {probability}}}");
        let Size::MixedExponential { .. } = mixed_of(&text) else {
            panic!("{text} is a mixture")
        };
        let mut random = random();
        let size = mixed_of(&text);
        let draws: Vec<f64> = (0..DRAWS).map(|_| size.draw(&mut random) as f64).collect();
        let shares = [
            1.1, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0, 5.5, 8.0, 11.0, 15.0, 20.0,
        ];
        let ends: Vec<f64> = shares.map(|share| share * min).to_vec();
        let law = law_between(&ends, |size| {
            (1.0 - probability) * exponential_below(size, min, mean)
                + probability * exponential_below(size, multiplier * min, multiplier * mean)
        });
        assert_fits(&text, &counts_between(&draws, &ends), &law);
    }
}

/// The law of sizes alone, without the block of 64 MiB.
fn mixed_of(text: &str) -> Size {
    let Term::Tuple(parts) = parse_term(text).unwrap() else {
        panic!("{text} is a tuple")
    };
    let [_, min, mean, multiplier, probability] = &parts[..] else {
        panic!("{text} has four arguments")
    };
    mixed(min, mean, multiplier, probability).unwrap()
}

#[test]
fn poisson_sizes_follow_their_law() {
    let ends: Vec<f64> = (3..20).map(f64::from).collect();
    let law = law_between(&ends, |size| {
        let mut term = (-10.0_f64).exp();
        let mut sum = 0.0;
        let mut count = 0.0;
        while count < size {
            sum += term;
            count += 1.0;
            term *= 10.0 / count;
        }
        sum
    });
    let counts = counts_between(&sizes("{poisson_bin, 10}"), &ends);
    assert_fits("poisson_bin", &counts, &law);
}

#[test]
fn slices_begin_anywhere_in_the_block_but_at_its_first_byte() {
    // The content shows the position: every two bytes of this block are a different number.
    let block: Bytes = (0..1000_u16).flat_map(u16::to_be_bytes).collect();
    let mut random = random();
    let mut counts = [0_u64; 100];
    for _ in 0..DRAWS {
        let value = slice(&block, 20, &mut random);
        let start = value.as_ptr() as usize - block.as_ptr() as usize;
        assert!((1..=1980).contains(&start), "{start}");
        counts[(start - 1) * 100 / 1980] += 1;
    }
    let cells: Vec<f64> = (0..100_usize)
        .map(|cell| {
            let places = (0..1980).filter(|place| place * 100 / 1980 == cell).count();
            places as f64 / 1980.0
        })
        .collect();
    assert_fits("offsets", &counts, &cells);
}

#[test]
fn characters_and_random_bytes_are_uniform() {
    let mut counts = [0_u64; 95];
    let characters = build("{fixed_char, 100000}", 1000).next(&mut random());
    for character in characters.into_bytes() {
        counts[usize::from(character - 32)] += 1;
    }
    assert_fits("fixed_char", &counts, &[1.0 / 95.0; 95]);
    let mut counts = [0_u64; 256];
    let bytes = build("{fixed_bin, 100000}", 200_000).next(&mut random());
    for byte in bytes.into_bytes() {
        counts[usize::from(byte)] += 1;
    }
    assert_fits("fixed_bin", &counts, &[1.0 / 256.0; 256]);
}

#[test]
fn a_set_of_values_is_drawn_from_equally() {
    let generator = build("{fixed_bin_set, 10, 50}", 1000);
    let mut random = random();
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..20_000 {
        let value = generator.next(&mut random).into_bytes();
        assert_eq!(value.len(), 10);
        *counts.entry(value).or_insert(0_u64) += 1;
    }
    let counts: Vec<u64> = counts.into_values().collect();
    assert_fits("fixed_bin_set", &counts, &[0.02; 50]);
}

#[test]
fn semi_compressible_values_compress_as_published() {
    use std::io::Write as _;

    // One value contains every kind of the block's content at many places.
    let generator = build("{semi_compressible, 8000, 8000, 10, 0.1}", 1000);
    let mut random = random();
    let (mut plain, mut packed) = (0, 0);
    for _ in 0..100 {
        let value = generator.next(&mut random).into_bytes();
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(&value).unwrap();
        packed += encoder.finish().unwrap().len();
        plain += value.len();
    }
    let ratio = packed as f64 / plain as f64;
    assert!((ratio - 0.58).abs() < 0.05, "{ratio}");
}
