//! Pearson's test whether draws follow a law, cell by cell.
//!
//! Seeds are fixed, so that a test passes always or never. The bound is six standard deviations
//! above the mean of the statistic under the right law: about one seed in a hundred million would
//! fail. A law that differs by some percent in some cells fails at once.

/// Asserts that counts of draws fit the probabilities of their cells, which add up to 1.
#[track_caller]
pub(crate) fn assert_fits(what: &str, counts: &[u64], probabilities: &[f64]) {
    assert_eq!(counts.len(), probabilities.len(), "{what}");
    let sum: f64 = probabilities.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{what}: cells add up to {sum}");
    let excess = excess(counts, probabilities);
    assert!(
        excess < 6.0,
        "{what}: the statistic is {excess:.1} standard deviations above its mean"
    );
}

/// Distance of the statistic above its mean, in its standard deviations.
pub(crate) fn excess(counts: &[u64], probabilities: &[f64]) -> f64 {
    let draws = counts.iter().sum::<u64>() as f64;
    let statistic: f64 = counts
        .iter()
        .zip(probabilities)
        .map(|(count, probability)| {
            let expected = draws * probability;
            assert!(expected >= 5.0, "a cell with {expected} draws is too small");
            (*count as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = (counts.len() - 1) as f64;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}

/// Counts of draws in cells. Each cell begins at the end of the previous one; the last has no end.
pub(crate) fn counts_between(draws: &[f64], ends: &[f64]) -> Vec<u64> {
    let mut counts = vec![0; ends.len() + 1];
    for draw in draws {
        counts[ends.partition_point(|end| end <= draw)] += 1;
    }
    counts
}

/// Probabilities of the same cells under a law with this distribution function.
pub(crate) fn law_between(ends: &[f64], distribution: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut below = 0.0;
    let mut probabilities: Vec<f64> = Vec::new();
    for end in ends {
        let up_to = distribution(*end);
        probabilities.push(up_to - below);
        below = up_to;
    }
    probabilities.push(1.0 - below);
    probabilities
}

#[test]
fn a_law_that_is_a_little_wrong_is_found() {
    use crate::random::{Seed, WorkerRandom};

    let mut random = WorkerRandom::new(Seed([1, 2, 3]));
    let draws: Vec<f64> = (0..200_000).map(|_| random.unit()).collect();
    let ends: Vec<f64> = (1..20).map(|cell| f64::from(cell) / 20.0).collect();
    let counts = counts_between(&draws, &ends);
    assert_fits("uniform", &counts, &law_between(&ends, |x| x));
    // Two percent more in the first half than in the second.
    let bent = law_between(&ends, |x| x + 0.01 * (1.0 - (2.0 * x - 1.0).abs()));
    assert!(excess(&counts, &bent) > 6.0);
}
