//! Every node has its weight's share to within one partition, in fresh rings and after updates.
//!
//! Only a limited number of partitions of one node fit on the circle n apart. A node with a larger
//! share has as many as fit, and the others share the rest.

use kvorum_ring::{Claimant, Ring, claim};
use proptest::prelude::*;

use crate::arrangement::{counts, located};
use crate::{cases, size};

/// The share of each weight as a fraction; a share that does not fit is cut to the largest that
/// fits.
fn shares(partitions: usize, weights: &[u32], n: usize) -> Vec<f64> {
    let claiming = weights.iter().filter(|weight| **weight > 0).count();
    let replicas = n.min(claiming);
    let spaced = partitions / replicas;
    let fits = match spaced * claiming >= partitions {
        true => spaced,
        false => partitions.div_ceil(replicas),
    } as f64;
    let mut shares = vec![None; weights.len()];
    loop {
        let fixed: f64 = shares.iter().flatten().sum();
        let open = |at: &usize| shares[*at].is_none();
        let total: f64 = (0..weights.len())
            .filter(open)
            .map(|at| f64::from(weights[at]))
            .sum();
        let share = |at: usize| (partitions as f64 - fixed) * f64::from(weights[at]) / total;
        let Some(over) = (0..weights.len()).filter(open).find(|at| share(*at) > fits) else {
            return (0..weights.len())
                .map(|at| shares[at].unwrap_or_else(|| share(at)))
                .collect();
        };
        shares[over] = Some(fits);
    }
}

fn weighted(nodes: &[(u32, usize)], has_locations: bool) -> Vec<Claimant> {
    let map: Vec<usize> = nodes.iter().map(|(_, location)| *location).collect();
    let mut weighted = located(&map);
    for (claimant, (weight, _)) in weighted.iter_mut().zip(nodes) {
        claimant.weight = *weight;
        if !has_locations {
            claimant.location = None;
        }
    }
    weighted
}

fn is_due(ring: &Ring, claimants: &[Claimant], n: u16) -> Result<(), TestCaseError> {
    let weights: Vec<u32> = claimants.iter().map(|claimant| claimant.weight).collect();
    let partitions = usize::from(ring.size().get());
    let shares = shares(partitions, &weights, usize::from(n));
    for (count, share) in counts(ring, claimants).into_iter().zip(shares) {
        let off = (count as f64 - share).abs();
        prop_assert!(
            off < 1.0 + 1e-9,
            "{} partitions for a share of {}",
            count,
            share
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn every_share_is_that_of_its_weight_in_fresh_rings_and_after_updates(
        bits in 3u32..=8,
        before in prop::collection::vec((1u32..5, 0usize..4), 1..12),
        after in prop::collection::vec((0u32..5, 0usize..4), 1..12),
        n in 1u16..=4,
        has_locations in any::<bool>(),
    ) {
        prop_assume!(after.iter().any(|(weight, _)| *weight > 0));
        let size = size(1 << bits);
        let (before, after) = (weighted(&before, has_locations), weighted(&after, has_locations));
        let fresh = claim(size, &before, n, None).unwrap();
        is_due(&fresh, &before, n)?;
        let updated = claim(size, &after, n, Some(&fresh)).unwrap();
        is_due(&updated, &after, n)?;
    }
}
