//! Coverage plans: the fewest vnodes that together hold every key of a bucket.
//!
//! The vnode of partition p holds the keys of the n owner partitions p-n+1 to p. A plan picks vnodes
//! that together hold each owner partition, and lists for each vnode the owner partitions that it
//! answers for: every key is reported exactly once although the vnodes overlap.

use crate::detour::Detours;
use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::ring::{Epoch, Ring};

/// One vnode's part in a coverage query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverageVnode {
    /// The vnode to ask.
    pub partition: Partition,
    /// The node that serves its reads: the owner, or the receiver of a closing partition.
    pub node: NodeId,
    /// Its epoch in the ring that the plan was made from.
    pub epoch: Epoch,
    /// The owner partitions whose keys it reports, in ring order.
    pub owners: Vec<Partition>,
    /// True when these are all owner partitions whose keys it holds: no key has to be hashed as a
    /// filter.
    pub whole: bool,
}

/// The vnodes of a coverage query with their owner partitions, in ring order from the start of the
/// plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveragePlan {
    /// The vnodes, each once.
    pub vnodes: Vec<CoverageVnode>,
}

/// The reason why no plan covers all keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no replica is up for {} of the ring's owner partitions", missing.len())]
pub struct CoverageError {
    /// The owner partitions whose replicas are all down.
    pub missing: Vec<Partition>,
}

/// `count` owner partitions from `first` on, which one vnode answers for.
struct Span {
    first: Partition,
    count: u16,
    vnode: Partition,
}

impl Ring {
    /// The smallest plan for a bucket with `n_val`, on nodes that are `up`.
    ///
    /// The search begins at `offset` modulo the ring's size. Plans for different offsets ask
    /// different vnodes, which spreads the load of many queries.
    pub fn coverage_plan(
        &self,
        n_val: u32,
        colocated: bool,
        offset: u16,
        up: impl Fn(NodeId) -> bool,
    ) -> Result<CoveragePlan, CoverageError> {
        self.coverage_plan_of(n_val, colocated, offset, |node, _| up(node))
    }

    /// Like [`Ring::coverage_plan`], with only the `available` vnodes; the filter receives each
    /// vnode with its node.
    pub fn coverage_plan_of(
        &self,
        n_val: u32,
        colocated: bool,
        offset: u16,
        available: impl Fn(NodeId, Partition) -> bool,
    ) -> Result<CoveragePlan, CoverageError> {
        let n = self.effective_n(n_val, colocated).max(1);
        let is_available = |partition| available(self.reader(partition), partition);
        let available: Vec<bool> = self.size().partitions().map(is_available).collect();
        let detours = self.read_detours(colocated);
        self.all_covered(detours, n, &available)?;
        // In a smallest plan, one of the n vnodes that hold the owner partition at the offset
        // answers for it. A greedy search from behind each of the n finds a smallest plan.
        let fewest = (1..=n)
            .map(|step| self.size().wrap(offset.wrapping_add(step)))
            .map(|start| self.spans_from(start, detours, n, &available))
            .min_by_key(Vec::len);
        let mut vnodes: Vec<CoverageVnode> = Vec::new();
        for span in fewest.unwrap_or_default() {
            let covering = self.covering(&span, n);
            // Because of a detour, a vnode may appear twice.
            match vnodes.iter_mut().find(|it| it.partition == span.vnode) {
                Some(twice) if !detours.is_empty() => {
                    twice.owners.extend(covering.owners);
                    twice.whole = false;
                }
                _ => vnodes.push(covering),
            }
        }
        Ok(CoveragePlan { vnodes })
    }

    fn all_covered(
        &self,
        detours: &Detours,
        n: u16,
        available: &[bool],
    ) -> Result<(), CoverageError> {
        let covered = |owner| {
            let mut list = detours.walk(self.size(), owner).take(usize::from(n));
            list.any(|partition| available[partition.slot()])
        };
        let missing: Vec<_> = self
            .size()
            .partitions()
            .filter(|owner| !covered(*owner))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(CoverageError { missing })
        }
    }

    /// For each owner partition that is not covered yet, takes the available vnode that reaches
    /// furthest.
    fn spans_from(
        &self,
        start: Partition,
        detours: &Detours,
        n: u16,
        available: &[bool],
    ) -> Vec<Span> {
        let size = self.size();
        let mut spans = Vec::with_capacity(usize::from(size.get() / n) + 1);
        let mut done = 0;
        while done < size.get() {
            let first = size.after(start, done);
            let list = detours.walk(size, first).take(usize::from(n));
            let furthest = list
                .filter(|vnode| available[vnode.slot()])
                .map(|vnode| (self.reach(detours, first, n, vnode), vnode))
                .max_by_key(|(reach, _)| *reach);
            // Every owner partition has an available vnode, as `all_covered` has checked.
            let Some((reach, vnode)) = furthest else {
                break;
            };
            let count = reach.min(size.get() - done);
            spans.push(Span {
                first,
                count,
                vnode,
            });
            done += count;
        }
        spans
    }

    /// Number of owner partitions from `first` on whose keys the vnode holds, `first` included.
    fn reach(&self, detours: &Detours, first: Partition, n: u16, vnode: Partition) -> u16 {
        let size = self.size();
        if detours.is_empty() {
            return size.distance(first, vnode) + 1;
        }
        let holds = |step: &u16| {
            let owner = size.after(first, *step);
            let mut list = detours.walk(size, owner).take(usize::from(n));
            list.any(|partition| partition == vnode)
        };
        let held = (1..size.get()).take_while(holds).count();
        u16::try_from(held).unwrap_or(0) + 1
    }

    fn covering(&self, span: &Span, n: u16) -> CoverageVnode {
        CoverageVnode {
            partition: span.vnode,
            node: self.reader(span.vnode),
            epoch: self.epoch(span.vnode),
            owners: (0..span.count)
                .map(|step| self.size().after(span.first, step))
                .collect(),
            // A vnode that has never moved holds these keys only. Any other may hold more: keys
            // that it received before reads use it, and keys from a time with more replicas.
            whole: span.count == n && self.epoch(span.vnode) == Epoch::FIRST,
        }
    }
}
