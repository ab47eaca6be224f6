//! The ring's guarantees, over all small configurations and random larger ones.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its input should fail"
)]

mod arrangement;
mod claim;
mod coverage;
mod detours;
mod placement;
mod preference_list;
mod stale_reads;
mod transition;
mod updates;
mod weights;

use kvorum_ring::{Claimant, NodeId, Ring, RingSize};
use proptest::test_runner::Config;

fn node(number: usize) -> NodeId {
    let mut bytes = [0; 16];
    bytes[14..].copy_from_slice(&u16::try_from(number).unwrap().to_be_bytes());
    NodeId::from_bytes(bytes)
}

fn claimants(count: usize) -> Vec<Claimant> {
    (0..count)
        .map(|number| Claimant::new(node(number)))
        .collect()
}

fn size(partitions: u64) -> RingSize {
    RingSize::new(partitions).unwrap()
}

fn ring(partitions: u64, nodes: usize, n: u16) -> Ring {
    kvorum_ring::claim(size(partitions), &claimants(nodes), n, None).unwrap()
}

fn cases(count: u32) -> Config {
    Config {
        cases: count,
        failure_persistence: None,
        ..Config::default()
    }
}
