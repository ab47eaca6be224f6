//! The detours of a ring: those that it has, those that it needs, and the holders of keys while they
//! change.

use smallvec::SmallVec;

use crate::detour::{Detours, STRAIGHT};
use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::phase::List;
use crate::ring::Ring;

/// The source and the target of keys while lists change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fill {
    /// The vnode that has them.
    pub source: Partition,
    /// The vnode that is to have them.
    pub target: Partition,
}

impl Ring {
    /// The present detours; until a change of them has settled, those before it.
    pub fn detours(&self) -> &Detours {
        &self.detours
    }

    /// The next detours, while they or the number of replicas change.
    pub fn next_detours(&self) -> Option<&Detours> {
        self.growth.is_some().then_some(&self.next_detours)
    }

    /// The detours that put `n` replicas on distinct nodes, or on as many as there are.
    pub fn detours_for(&self, n: u16) -> Detours {
        let n = usize::from(n).min(self.members().len());
        let passed = self.size().partitions().map(|owner| {
            let mut nodes = SmallVec::<[NodeId; 4]>::new();
            let mut over = Vec::new();
            for partition in STRAIGHT.walk(self.size(), owner) {
                if nodes.len() >= n {
                    break;
                }
                let node = self.owner(partition);
                if nodes.contains(&node) {
                    over.push(partition);
                } else {
                    nodes.push(node);
                }
            }
            (owner, over)
        });
        Detours::new(passed)
    }

    /// The same ring with these detours; for one that is made, not for one in use.
    #[must_use]
    pub fn with_detours(mut self, now: Detours, next: Detours) -> Self {
        self.detours = now;
        self.next_detours = next;
        self
    }

    /// The detours of reads.
    pub(crate) fn read_detours(&self, colocated: bool) -> &Detours {
        match self.growth {
            // Replicas that share a node on purpose need no other.
            _ if colocated => &STRAIGHT,
            Some(growth) if growth.phase.read_list() == List::New => &self.next_detours,
            _ => &self.detours,
        }
    }

    /// The detours of the old list, and of the new one.
    pub(crate) fn write_detours(&self, colocated: bool) -> [&Detours; 2] {
        match self.growth {
            _ if colocated => [&STRAIGHT, &STRAIGHT],
            Some(_) => [&self.detours, &self.next_detours],
            None => [&self.detours, &self.detours],
        }
    }

    /// True when a vnode holds the keys of an owner partition of which there are up to `n` replicas: now,
    /// or once a change that is under way has settled.
    pub fn is_replica(&self, owner: Partition, n: u16, vnode: Partition) -> bool {
        let holds = |detours: &Detours| {
            let mut list = detours.walk(self.size(), owner).take(usize::from(n));
            list.any(|partition| partition == vnode)
        };
        self.write_detours(false).into_iter().any(holds)
    }

    /// The vnodes that hold an owner partition's keys with up to `n` replicas: now, or once a change under
    /// way has settled.
    pub fn holders(&self, owner: Partition, n: u16) -> Vec<Partition> {
        let mut holders = Vec::with_capacity(usize::from(n));
        for detours in self.write_detours(false) {
            for partition in detours.walk(self.size(), owner).take(usize::from(n)) {
                if !holders.contains(&partition) {
                    holders.push(partition);
                }
            }
        }
        holders
    }

    /// All vnodes that may hold keys of an owner partition, whatever their n_val: those of its present
    /// list, and of the next one while lists change.
    pub fn vnodes_of(&self, owner: Partition) -> Vec<Partition> {
        let next = self.growth.map(|growth| (&self.next_detours, growth.to));
        let present = (&self.detours, self.replicas_max);
        let mut vnodes = Vec::new();
        for (detours, n) in std::iter::once(present).chain(next) {
            for partition in detours.walk(self.size(), owner).take(usize::from(n)) {
                if !vnodes.contains(&partition) {
                    vnodes.push(partition);
                }
            }
        }
        vnodes
    }

    /// The vnodes that newly need the keys of an owner partition while lists change, at up to `n`
    /// replicas.
    ///
    /// A vnode that takes the place of another vnode needs its keys: the other replicas still have everything
    /// that they have confirmed. One that is added needs the keys of any, and takes them from the last.
    pub fn fills(&self, owner: Partition, n: u16) -> SmallVec<[Fill; 2]> {
        let mut fills = SmallVec::new();
        let Some(growth) = self.growth else {
            return fills;
        };
        let list = |detours: &Detours, replicas: u16| -> SmallVec<[Partition; 4]> {
            let walk = detours.walk(self.size(), owner);
            walk.take(usize::from(n.min(replicas))).collect()
        };
        let old = list(&self.detours, self.replicas_max);
        let new = list(&self.next_detours, growth.to);
        let gone = old.iter().filter(|it| !new.contains(it)).copied();
        let come = new.iter().filter(|it| !old.contains(it)).copied();
        let last = |list: &[Partition]| list.last().copied();
        if old.len() == new.len() {
            fills.extend(
                gone.zip(come)
                    .map(|(source, target)| Fill { source, target }),
            );
        } else if old.len() < new.len() {
            let source = last(&old).into_iter().cycle();
            fills.extend(
                source
                    .zip(come)
                    .map(|(source, target)| Fill { source, target }),
            );
        } else {
            let target = last(&new).into_iter().cycle();
            fills.extend(
                gone.zip(target)
                    .map(|(source, target)| Fill { source, target }),
            );
        }
        fills
    }

    /// True when two partitions stand in one list of up to `n` replicas that makes a detour.
    pub(crate) fn share_a_detour(&self, one: Partition, other: Partition, n: u16) -> bool {
        let all = self.detours.passed();
        all.map(|(owner, _)| owner).any(|owner| {
            let mut list = self.detours.walk(self.size(), owner).take(usize::from(n));
            let found = list.by_ref().find(|it| *it == one || *it == other);
            found.is_some() && list.any(|it| it == one || it == other)
        })
    }
}
