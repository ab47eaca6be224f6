//! HyperLogLogs: errors within bounds, merges, lower precisions, and the estimates that Riak gives.

use kvorum_data_types::{HyperLogLog, PRECISION_MAX, PRECISION_MIN};

fn sketch(precision: u8, values: impl IntoIterator<Item = String>) -> HyperLogLog {
    let mut sketch = HyperLogLog::new(precision);
    for value in values {
        sketch.add(value.as_bytes());
    }
    sketch
}

fn numbered(numbers: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    numbers.map(|number| format!("v{number}"))
}

/// Four standard errors, and a half for rounding; within the range of the ranks of a precision.
#[test]
fn estimates_are_within_their_error_at_every_precision() {
    for precision in PRECISION_MIN..=PRECISION_MAX {
        let registers = f64::from(1u32 << precision);
        for count in [0, 1, 10, 100, 1000, 10_000, 50_000] {
            if count > 1u32 << (2 * precision - 2) {
                continue;
            }
            let estimate = sketch(precision, numbered(0..count)).estimate();
            let error = (estimate as f64 - f64::from(count)).abs();
            let bound = 4.0 * 1.04 / registers.sqrt() * f64::from(count) + 0.5;
            assert!(error <= bound, "{precision} bits: {estimate} for {count}");
        }
    }
}

/// Recorded from a node of Riak 3.2.3.
#[test]
fn estimates_of_few_values_are_those_of_riak() {
    let elements = (0..100).map(|number| format!("element-{number}"));
    assert_eq!(sketch(14, elements).estimate(), 100);
    let users = (0..1000).map(|number| format!("user{number:05}"));
    assert_eq!(sketch(14, users).estimate(), 996);
}

#[test]
fn a_merged_sketch_is_that_of_all_values() {
    let mut merged = sketch(10, numbered(0..2000));
    let other = sketch(10, numbered(1000..4000));
    let mut reversed = other.clone();
    reversed.merge(&merged);
    merged.merge(&other);
    assert_eq!(merged, sketch(10, numbered(0..4000)));
    assert_eq!(merged, reversed);
    merged.merge(&other);
    assert_eq!(merged, reversed);
}

#[test]
fn a_reduced_sketch_is_that_of_the_lower_precision() {
    let full = sketch(PRECISION_MAX, numbered(0..20_000));
    for precision in PRECISION_MIN..=PRECISION_MAX {
        let mut reduced = full.clone();
        reduced.reduce(precision);
        assert_eq!(
            reduced,
            sketch(precision, numbered(0..20_000)),
            "{precision}"
        );
        let mut merged = sketch(precision, numbered(0..10));
        merged.merge(&full);
        assert_eq!(merged, reduced);
        let mut merged = full.clone();
        merged.merge(&sketch(precision, numbered(0..10)));
        assert_eq!(merged, reduced);
    }
}

/// Regression: the estimate was 9,000,000,000,000,000,000. Riak's estimates are a half to an eighth
/// of these, since its sum over the registers ignores that ranks are limited.
#[test]
fn full_registers_give_the_greatest_estimate_of_their_precision() {
    for precision in PRECISION_MIN..=PRECISION_MAX {
        let full = |low: usize, by: u8| {
            let mut registers = vec![precision + 1; 1 << precision];
            registers[..low].fill(precision + 1 - by);
            HyperLogLog::from_registers(registers).unwrap().estimate()
        };
        let estimates = [full(0, 0), full(1, 1), full(1, 2), full(2, 1)];
        assert_eq!(estimates[0], estimates[1], "{precision}");
        assert!(estimates[1] > estimates[2], "{precision}: {estimates:?}");
        assert!(estimates[1] > estimates[3], "{precision}: {estimates:?}");
        let riaks = RIAKS_FULL[usize::from(precision - PRECISION_MIN)];
        assert!(estimates[0] > riaks, "{precision}: {estimates:?}");
        assert!(estimates[0] < 10 * riaks, "{precision}: {estimates:?}");
    }
    let least = HyperLogLog::from_registers(vec![5; 16]).unwrap();
    assert_eq!(least.estimate(), 721);
}

/// Riak's answers for full registers: alpha * m * 2^(precision + 1), by precision.
const RIAKS_FULL: [u64; 13] = [
    345,
    1_427,
    5_808,
    23_438,
    94_145,
    377_374,
    1_511_083,
    6_047_517,
    24_196_438,
    96_798_498,
    387_219_488,
    1_548_928_951,
    6_195_817_812,
];

#[test]
fn registers_that_are_none_are_refused() {
    assert_eq!(HyperLogLog::from_registers(vec![9; 16]), None);
    assert_eq!(HyperLogLog::from_registers(vec![0; 17]), None);
}
