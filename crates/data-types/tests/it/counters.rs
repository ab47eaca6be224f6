//! Counters: exact sums for any merges, any number of times and in any order.

use kvorum_data_types::{Actor, Counter, Dot, OperationError};
use proptest::prelude::*;

const REPLICAS: usize = 3;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    /// Each replica shows the sum of the increments that it has: for each actor all up to some point.
    #[test]
    fn counters_are_exact(
        steps in prop::collection::vec((0..REPLICAS, 0..REPLICAS, -9..9i128, any::<bool>()), 1..40),
    ) {
        let mut counters = vec![Counter::default(); REPLICAS];
        let mut made = vec![Vec::<i128>::new(); REPLICAS];
        let mut known = [[0usize; REPLICAS]; REPLICAS];
        for ((at, from, by, is_merge), dot) in steps.into_iter().zip(1..) {
            if is_merge {
                let other = counters[from].clone();
                counters[at].merge_alone(other);
                let theirs = known[from];
                for (ours, theirs) in known[at].iter_mut().zip(theirs) {
                    *ours = theirs.max(*ours);
                }
            } else {
                counters[at].count(by, Dot::new(Actor(at as u64), dot)).unwrap();
                made[at].push(by);
                known[at][at] = made[at].len();
            }
            for replica in 0..REPLICAS {
                let sums = (0..REPLICAS).map(|it| made[it][..known[replica][it]].iter().sum::<i128>());
                prop_assert_eq!(counters[replica].value(), sums.sum::<i128>());
            }
        }
    }
}

#[test]
fn a_sum_beyond_128_bits_is_refused_and_changes_nothing() {
    let mut counter = Counter::default();
    for dot in 1..=2 {
        counter.count(i128::MAX, Dot::new(Actor(1), dot)).unwrap();
    }
    let before = counter.clone();
    let refused = counter.count(i128::MAX, Dot::new(Actor(1), 3));
    assert_eq!(refused, Err(OperationError::CounterRange));
    assert_eq!(counter, before);
    assert_eq!(counter.value(), i128::MAX);
}
