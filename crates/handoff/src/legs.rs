//! Legs of transfers: the sources, and the data to fetch from each, for a repair or a change of the
//! number of replicas.
//!
//! Legs follow from the ring, and are kept until it changes. The wanted transfers are computed
//! after every transfer and every agreed command. If most partitions of a large ring need a repair,
//! computing all legs each time would take longer than the transfers.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_cluster::ClusterState;
use kvorum_ring::{Partition, Ring};

use crate::transfer_id::{Leg, Wanted};

/// Legs computed for one ring and one largest n_val.
#[derive(Default)]
pub(crate) struct LegBook {
    of: Option<(Arc<Ring>, u32)>,
    growth: Option<BTreeMap<Partition, Vec<Leg>>>,
    repairs: BTreeMap<Partition, Vec<Leg>>,
}

impl LegBook {
    fn turn_to(&mut self, state: &ClusterState) {
        let of = (state.ring(), state.n_val_max());
        let is_same = |(ring, n_val): &(Arc<Ring>, u32)| Arc::ptr_eq(ring, of.0) && *n_val == of.1;
        if !self.of.as_ref().is_some_and(is_same) {
            *self = Self {
                of: Some((of.0.clone(), of.1)),
                ..Self::default()
            };
        }
    }

    /// The parts of a partition's keys that the other replicas have, by vnode.
    pub(crate) fn repair(
        &mut self,
        state: &ClusterState,
        partition: Partition,
        colocated: bool,
    ) -> Vec<Leg> {
        self.turn_to(state);
        let legs = self.repairs.entry(partition);
        legs.or_insert_with(|| repair_legs(state, partition, colocated))
            .clone()
    }

    /// The data that a vnode newly needs while the number of replicas becomes `to`.
    pub(crate) fn growth(
        &mut self,
        state: &ClusterState,
        partition: Partition,
        to: u16,
    ) -> Vec<Leg> {
        self.turn_to(state);
        let ring = state.ring();
        let growth = self.growth.get_or_insert_with(|| growth_legs(ring, to));
        growth.get(&partition).cloned().unwrap_or_default()
    }
}

/// The data that each vnode newly needs while replica lists change.
///
/// If n grows by one, a vnode becomes the last replica of keys whose last replica was the vnode
/// before it. If n falls by one, a vnode becomes the last replica, and fetches the data that only
/// the vnode behind it may have. With other detours, a vnode fetches the data of the vnode that it
/// replaces.
fn growth_legs(ring: &Ring, to: u16) -> BTreeMap<Partition, Vec<Leg>> {
    let mut owners = BTreeMap::<(Partition, Partition), Vec<Partition>>::new();
    for owner in ring.size().partitions() {
        for n in 1..=to.max(ring.replicas_max()) {
            for fill in ring.fills(owner, n) {
                let owners = owners.entry((fill.target, fill.source)).or_default();
                if !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
        }
    }
    let mut legs = BTreeMap::<Partition, Vec<Leg>>::new();
    for ((target, source), owners) in owners {
        let replicas = to;
        let wanted = Wanted::Owners { owners, replicas };
        legs.entry(target).or_default().push(Leg { source, wanted });
    }
    legs
}

/// The parts of a partition's keys that the other replicas have, by vnode.
pub(crate) fn repair_legs(state: &ClusterState, partition: Partition, colocated: bool) -> Vec<Leg> {
    let ring = state.ring();
    let size = ring.size();
    let largest = u16::try_from(state.n_val_max()).unwrap_or(u16::MAX);
    let agreed = if colocated {
        size.get()
    } else {
        let to = ring.growth().map_or(0, |growth| growth.to);
        ring.replicas_max().max(to)
    };
    let replicas = largest.min(agreed).min(size.get());
    let holders = |owner: Partition| -> Vec<Partition> {
        if colocated {
            (0..replicas)
                .map(|steps| size.after(owner, steps))
                .collect()
        } else {
            ring.holders(owner, replicas)
        }
    };
    let mut shared = BTreeMap::<Partition, Vec<Partition>>::new();
    for owner in (0..size.get()).map(|steps| size.before(partition, steps)) {
        let holders = holders(owner);
        if !holders.contains(&partition) {
            continue;
        }
        for source in holders.into_iter().filter(|it| *it != partition) {
            shared.entry(source).or_default().push(owner);
        }
    }
    let leg = |(source, owners)| {
        let wanted = Wanted::Owners { owners, replicas };
        Leg { source, wanted }
    };
    shared.into_iter().map(leg).collect()
}
