//! The contents of a memtable in key order.
//!
//! A leaf has a few dozen neighbouring entries, and a skip list finds a leaf by its first key. In a
//! list of entries, a walk would wait for each node before it could load the next. A leaf has all
//! pointers, so the processor fetches ahead.
//!
//! One writer at a time inserts. A full leaf gives its upper half to a new leaf, or less if entries
//! arrive in order, so that leaves of keys written in order stay full. A leaf has the first key of
//! the next leaf: a thread that looked up a place before a split continues there. Source: P. L.
//! Lehman, S. B. Yao, Efficient Locking for Concurrent Operations on B-Trees, 1981.

use std::cmp::Ordering as Compared;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use parking_lot::RwLock;

use super::piece::Written;
use super::rank::{Rank, Reference};

/// At this size, moving half of a leaf costs less than finding the leaf.
const LEAF_NODES: usize = 32;
/// Bytes of a leaf without its nodes, and of its place in the list: a node, its tower, and the
/// overhead of counts and rounding.
const LEAF_BYTES: u64 = (size_of::<Leaf>() + size_of::<Node>()) as u64 + 72;

/// Bytes of a node and its share of free room in the leaf: one and a half nodes.
pub(super) const NODE_BYTES_EXPECTED: u64 = size_of::<Node>() as u64 * 3 / 2;

/// Writes by key; the newest write of a key comes first.
#[derive(Clone)]
struct Node {
    rank: Rank,
    written: Written,
}

type Leaf = RwLock<Filled>;

/// The nodes of a leaf, and the beginning of the next leaf, if there is one.
#[derive(Default)]
struct Filled {
    nodes: Vec<Node>,
    /// The position behind the node that was inserted last.
    behind_last: usize,
    next_start: Option<Node>,
}

pub(super) struct Leaves {
    /// The first key that was added.
    reference: OnceLock<Reference>,
    /// The leaf before all others.
    first: Leaf,
    /// The other leaves, by their beginnings.
    others: SkipList<Node, Arc<Leaf>>,
    len: AtomicUsize,
}

impl Leaves {
    pub(super) fn new() -> Self {
        Self {
            reference: OnceLock::new(),
            first: Leaf::default(),
            others: SkipList::new(epoch::default_collector().clone()),
            len: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Adds a write, or replaces an equal one, and returns its memory in bytes.
    pub(super) fn insert(&self, written: Written) -> u64 {
        let reference = || Reference::new(written.key());
        let rank = self.reference.get_or_init(reference).rank(written.key());
        let node = Node { rank, written };
        let guard = epoch::pin();
        let mut filled = self.last_from(Bound::Included(&node), &guard).write();
        let at = match filled.nodes.binary_search(&node) {
            Ok(at) => {
                filled.nodes[at] = node;
                return 0;
            }
            Err(at) => at,
        };
        self.len.fetch_add(1, Ordering::Relaxed);
        if filled.nodes.len() < LEAF_NODES {
            return filled.insert(at, node);
        }
        let is_in_order = at == filled.behind_last && at >= LEAF_NODES / 4;
        let kept = if is_in_order { at } else { LEAF_NODES / 2 };
        let mut next = Filled {
            nodes: Vec::with_capacity(LEAF_NODES),
            behind_last: 0,
            next_start: filled.next_start.take(),
        };
        next.nodes.extend(filled.nodes.drain(kept..));
        match at <= kept && kept < LEAF_NODES {
            true => filled.insert(at, node),
            false => next.insert(at - kept, node),
        };
        if let Some(start) = next.nodes.first().cloned() {
            filled.next_start = Some(start.clone());
            // Added while the old leaf is locked, so that every node is in one of the two.
            let next = Arc::new(Leaf::new(next));
            self.others.insert(start, next, &guard).release(&guard);
        }
        LEAF_BYTES + bytes_of(LEAF_NODES)
    }

    /// The leaf of a place at the time of the lookup; a split may have moved the place since.
    fn last_from<'a>(&'a self, from: Bound<&Node>, guard: &'a epoch::Guard) -> &'a Leaf {
        let to = match from {
            Bound::Included(node) | Bound::Excluded(node) => Bound::Included(node),
            Bound::Unbounded => return &self.first,
        };
        let found = self.others.upper_bound(to, guard);
        found.map_or(&self.first, |it| it.value())
    }

    /// Shows the writes in order until `visit` breaks. The call is made under the lock of a leaf,
    /// so writers wait for it.
    pub(super) fn walk(
        &self,
        from: Bound<Written>,
        mut visit: impl FnMut(&Written) -> ControlFlow<()>,
    ) {
        let guard = epoch::pin();
        let mut from = from.map(|written| {
            let reference = self.reference.get();
            let rank = reference.map_or(Rank::UNKNOWN, |it| it.rank(written.key()));
            Node { rank, written }
        });
        loop {
            let filled = self.last_from(from.as_ref(), &guard).read();
            let is_behind = |start: &Node| match &from {
                Bound::Included(node) | Bound::Excluded(node) => node >= start,
                Bound::Unbounded => false,
            };
            if filled.next_start.as_ref().is_some_and(is_behind) {
                continue;
            }
            let first = filled.nodes.partition_point(|it| match &from {
                Bound::Included(node) => it < node,
                Bound::Excluded(node) => it <= node,
                Bound::Unbounded => false,
            });
            let mut nodes = filled.nodes[first..].iter();
            if nodes.try_for_each(|it| visit(&it.written)).is_break() {
                return;
            }
            let Some(start) = filled.next_start.clone() else {
                return;
            };
            drop(filled);
            from = Bound::Included(start);
        }
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Compared {
        let (one, other) = (self, other);
        let keys = || one.written.key().cmp(other.written.key());
        let sequences = || other.written.sequence().cmp(&one.written.sequence());
        let ranks = one.rank.compare(other.rank);
        ranks.then_with(keys).then_with(sequences)
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Compared> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Node {}

impl Filled {
    /// Returns the added bytes.
    fn insert(&mut self, at: usize, node: Node) -> u64 {
        let before = self.nodes.capacity();
        self.nodes.insert(at, node);
        self.behind_last = at + 1;
        bytes_of(self.nodes.capacity() - before)
    }
}

fn bytes_of(nodes: usize) -> u64 {
    (nodes * size_of::<Node>()) as u64
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn written(key: &[u8], sequence: u64) -> Written {
        Written::asked(&Bytes::copy_from_slice(key), sequence)
    }

    fn number(number: u32) -> Written {
        written(&number.to_be_bytes(), 1)
    }

    fn seen(leaves: &Leaves, from: Bound<Written>) -> Vec<(Vec<u8>, u64)> {
        let mut seen = Vec::new();
        leaves.walk(from, |written| {
            seen.push((written.key().to_vec(), written.sequence()));
            ControlFlow::Continue(())
        });
        seen
    }

    proptest! {
        /// Few keys, and many versions of each.
        #[test]
        fn a_walk_from_anywhere_sees_what_is_there_in_order(
            puts in proptest::collection::vec(("[ab]{0,3}", 0_u64..40), 0..600),
            asked in proptest::collection::vec(("[ab]{0,3}", 0_u64..41), 1..8),
        ) {
            let key = |name: &str| format!("long enough, and {name}").into_bytes();
            let leaves = Leaves::new();
            let mut model = BTreeMap::new();
            for (name, sequence) in &puts {
                leaves.insert(written(&key(name), *sequence));
                model.insert((key(name), Reverse(*sequence)), ());
            }
            prop_assert_eq!(leaves.len(), model.len());
            let expected = |from: Bound<(Vec<u8>, Reverse<u64>)>| {
                let found = model.range((from, Bound::Unbounded));
                found.map(|((key, it), ())| (key.clone(), it.0)).collect::<Vec<_>>()
            };
            prop_assert_eq!(seen(&leaves, Bound::Unbounded), expected(Bound::Unbounded));
            for (name, sequence) in &asked {
                let at = (key(name), Reverse(*sequence));
                let asked = || written(&key(name), *sequence);
                let from = Bound::Included(asked());
                prop_assert_eq!(seen(&leaves, from), expected(Bound::Included(at.clone())));
                let behind = Bound::Excluded(asked());
                prop_assert_eq!(seen(&leaves, behind), expected(Bound::Excluded(at)));
            }
        }
    }

    #[test]
    fn what_is_written_in_order_fills_its_leaves() {
        let bytes = |number_at: fn(u32) -> u32| -> u64 {
            let leaves = Leaves::new();
            let all = (0..10_000).map(|it| number(number_at(it)));
            let bytes = all.map(|it| leaves.insert(it)).sum();
            assert_eq!(seen(&leaves, Bound::Unbounded).len(), 10_000);
            bytes
        };
        let in_order = bytes(|it| it);
        let in_two_orders = bytes(|it| it % 2 * 10_000 + it);
        let scattered = bytes(|it| it * 6_185 % 10_007);
        let nodes = bytes_of(10_000);
        assert!(in_order < nodes * 6 / 5, "{in_order} for {nodes}");
        assert!(in_two_orders < nodes * 6 / 5, "{in_two_orders} for {nodes}");
        assert!(scattered < nodes * 2, "{scattered} for {nodes}");
    }

    #[test]
    fn walks_beside_a_writer_miss_nothing_that_was_there_and_show_nothing_twice() {
        const COUNT: u32 = 60_000;
        let leaves = Leaves::new();
        let (known, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
        let key_of = |at: u32| at.wrapping_mul(40_507) % COUNT;
        let check_walk = |from: u32| {
            let known = known.load(Ordering::Acquire);
            let mut numbers = Vec::new();
            leaves.walk(Bound::Excluded(number(from)), |written| {
                let bytes = written.key().try_into().unwrap();
                numbers.push(u32::from_be_bytes(bytes));
                ControlFlow::Continue(())
            });
            assert!(numbers.is_sorted_by(|a, b| a < b));
            assert!(numbers.first().is_none_or(|first| *first > from));
            let missing = (0..known).map(key_of).filter(|it| *it > from);
            let missing = missing.filter(|it| numbers.binary_search(it).is_err());
            assert_eq!(missing.count(), 0);
        };
        std::thread::scope(|scope| {
            for reader in 0..2_u32 {
                let (is_done, check_walk) = (&is_done, &check_walk);
                scope.spawn(move || {
                    let mut from = reader;
                    while !is_done.load(Ordering::Acquire) {
                        check_walk(from);
                        from = from.wrapping_mul(31).wrapping_add(7) % COUNT;
                    }
                });
            }
            for at in 0..COUNT {
                leaves.insert(number(key_of(at)));
                known.store(at + 1, Ordering::Release);
            }
            is_done.store(true, Ordering::Release);
        });
        assert_eq!(leaves.len(), COUNT as usize);
    }
}
