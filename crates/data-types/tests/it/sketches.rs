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

/// Four standard errors, and a half for rounding; within what the ranks of a precision can tell apart.
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

#[test]
fn full_registers_give_a_number() {
    let registers = vec![PRECISION_MIN + 1; 1 << PRECISION_MIN];
    let full = HyperLogLog::from_registers(registers).unwrap();
    assert!(full.estimate() > 1000);
    assert_eq!(HyperLogLog::from_registers(vec![9; 16]), None);
    assert_eq!(HyperLogLog::from_registers(vec![0; 17]), None);
}
