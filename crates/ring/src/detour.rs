//! Detours: partitions that the lists of a key pass over, so that its replicas are on distinct nodes.
//!
//! Three nodes cannot alternate evenly around a circle of 2^k partitions: any arrangement has two
//! partitions of one owner too close together, and a plain list there has two replicas on one node.
//! Such a list passes over the second. Detours are agreed, and change in the same steps as the
//! number of replicas. If they followed from the owners alone, each move of a partition would
//! change lists at other places, whose new replicas would not be filled.
//!
//! Most rings have no detours; the check costs one comparison.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::partition::{Partition, RingSize};

/// Partitions that lists pass over, by the owner partition that the lists begin at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detours(BTreeMap<Partition, SmallVec<[Partition; 2]>>);

/// No detours.
pub(crate) static STRAIGHT: Detours = Detours(BTreeMap::new());

impl Detours {
    /// Detours that pass over these partitions, by the owner partition at which the lists begin.
    pub fn new(passed: impl IntoIterator<Item = (Partition, Vec<Partition>)>) -> Self {
        let passed = passed.into_iter();
        Self(
            passed
                .map(|(owner, over)| (owner, over.into()))
                .filter(|(_, over): &(_, SmallVec<_>)| !over.is_empty())
                .collect(),
        )
    }

    /// True when no list makes a detour.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The partitions passed over, by the owner partition that the lists begin at.
    pub fn passed(&self) -> impl Iterator<Item = (Partition, &[Partition])> {
        self.0.iter().map(|(owner, over)| (*owner, &over[..]))
    }

    fn of(&self, owner: Partition) -> &[Partition] {
        if self.0.is_empty() {
            return &[];
        }
        self.0.get(&owner).map_or(&[], |over| &over[..])
    }

    /// All partitions from `owner` on that its lists may contain, in order.
    pub(crate) fn walk(
        &self,
        size: RingSize,
        owner: Partition,
    ) -> impl Iterator<Item = Partition> + '_ {
        let over = self.of(owner);
        let around = (0..size.get()).map(move |step| size.after(owner, step));
        around.filter(move |partition| !over.contains(partition))
    }
}
