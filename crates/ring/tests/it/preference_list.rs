//! Preference lists follow the circle and never count one machine as two.

use kvorum_ring::{Epoch, NodeId, Position, Ring, Role};
use proptest::prelude::*;

use crate::{cases, node, ring, size};

fn at(top: u8) -> Position {
    let mut bytes = [7; 20];
    bytes[0] = top;
    Position::from_bytes(bytes)
}

#[test]
fn primaries_are_the_partitions_after_the_position() {
    let ring = ring(8, 5, 3);
    let list = ring.primaries(at(0xe0), 3, false);
    let partitions: Vec<_> = list
        .iter()
        .map(|replica| replica.partition.number())
        .collect();
    assert_eq!(partitions, [0, 1, 2]);
    assert!(
        list.iter()
            .all(|replica| replica.role == Role::Primary && replica.epoch == Epoch::FIRST)
    );
    assert!(
        list.iter()
            .all(|replica| replica.node == ring.owner(replica.partition))
    );
}

#[test]
fn a_single_node_keeps_one_copy_unless_several_are_asked_for() {
    let ring = Ring::single(size(64), node(1));
    assert_eq!(ring.primaries(at(0), 3, false).len(), 1);
    let colocated = ring.primaries(at(0), 3, true);
    let partitions: Vec<_> = colocated
        .iter()
        .map(|replica| replica.partition.number())
        .collect();
    assert_eq!(partitions, [1, 2, 3]);
}

#[test]
fn a_fallback_takes_the_partition_of_the_primary_that_is_down() {
    let ring = ring(64, 5, 3);
    let primaries = ring.primaries(at(0), 3, false);
    let down = primaries[1];
    let list = ring.preference_list(at(0), 3, false, |node| node != down.node);
    assert_eq!(list[..2], [primaries[0], primaries[2]]);
    assert_eq!(list[2].partition, down.partition);
    assert_eq!(list[2].role, Role::Fallback);
    assert!(primaries.iter().all(|primary| primary.node != list[2].node));
}

#[test]
fn with_no_node_left_the_list_stays_short() {
    // Four nodes divide the ring: no list needs a detour.
    let ring = ring(64, 4, 4);
    let primaries = ring.primaries(at(0), 4, false);
    let up = |node: NodeId| node != primaries[0].node;
    assert_eq!(
        ring.preference_list(at(0), 4, false, up)[..],
        primaries[1..]
    );
    assert_eq!(ring.preference_list(at(0), 4, true, up).len(), 4);
    assert!(ring.preference_list(at(0), 3, true, |_| false).is_empty());
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn fallbacks_are_up_and_on_nodes_without_a_replica(
        nodes in 1usize..10,
        n_val in 1u32..6,
        top in any::<u8>(),
        down in any::<u16>(),
    ) {
        let ring = ring(32, nodes, 3);
        let is_up = |id: NodeId| (0..nodes).any(|number| node(number) == id && down >> number & 1 == 0);
        let list = ring.preference_list(at(top), n_val, false, is_up);
        let up_count = ring.members().iter().filter(|member| is_up(**member)).count();
        prop_assert!(list.len() <= usize::from(ring.effective_n(n_val, false)));
        for (place, replica) in list.iter().enumerate() {
            prop_assert!(is_up(replica.node));
            if replica.role == Role::Fallback {
                prop_assert!(list[..place].iter().all(|other| other.node != replica.node));
                prop_assert!(!is_up(ring.owner(replica.partition)));
            } else {
                prop_assert_eq!(ring.owner(replica.partition), replica.node);
            }
            prop_assert!(list[..place].iter().all(|other| other.partition != replica.partition));
        }
        // The list skips no node that could stand in.
        let mut used: Vec<_> = list.iter().map(|replica| replica.node).collect();
        used.sort_unstable();
        used.dedup();
        let wanted = usize::from(ring.effective_n(n_val, false));
        prop_assert!(list.len() == wanted || used.len() == up_count);
    }
}
