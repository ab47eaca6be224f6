//! The tree: leaves by branch, and the root above them.

use std::mem::size_of;

use crate::leaf_hash::{HASH_VERSION, LeafHash};
use crate::size::{LEAVES_A_BRANCH, TreeSize};

type Branch = [u32; LEAVES_A_BRANCH];

static EMPTY: Branch = [0; LEAVES_A_BRANCH];

/// A tree over a set of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    size: TreeSize,
    hash_version: u8,
    /// The exclusive or of each branch's leaves.
    root: Vec<u32>,
    /// Branches that were never changed are absent.
    branches: Vec<Option<Box<Branch>>>,
    /// The number of branches that are present.
    touched: usize,
    keys: u64,
}

impl Tree {
    /// The tree over no entries, under the present hash version.
    pub fn new(size: TreeSize) -> Self {
        Self::of_version(size, HASH_VERSION)
    }

    pub(crate) fn of_version(size: TreeSize, hash_version: u8) -> Self {
        Self {
            size,
            hash_version,
            root: vec![0; size.branches()],
            branches: vec![None; size.branches()],
            touched: 0,
            keys: 0,
        }
    }

    /// The number of its branches, as a size.
    pub fn size(&self) -> TreeSize {
        self.size
    }

    /// The hash version of its leaves.
    pub fn hash_version(&self) -> u8 {
        self.hash_version
    }

    /// Entries added less entries removed. An estimate, since an entry may be removed without a
    /// change of this tree.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// True when it has too many keys for its size, and has to be built again.
    pub fn is_outgrown(&self) -> bool {
        TreeSize::for_keys(self.keys) > self.size
    }

    /// One number for each branch.
    pub fn root(&self) -> &[u32] {
        &self.root
    }

    /// The leaves of a branch; all zero for a branch that was never changed.
    ///
    /// # Panics
    /// When the tree has no such branch.
    pub fn branch(&self, number: usize) -> &[u32] {
        match &self.branches[number] {
            Some(branch) => &branch[..],
            None => &EMPTY,
        }
    }

    /// The leaves of a branch of the tree folded to `size`, which is at most its own.
    ///
    /// # Panics
    /// When a tree of that size has no such branch.
    pub fn branch_at(&self, size: TreeSize, number: usize) -> Vec<u32> {
        assert!(number < size.branches(), "a branch beyond the last one");
        let mut folded = EMPTY.to_vec();
        for onto in (number..self.size.branches()).step_by(size.branches()) {
            for (leaf, other) in folded.iter_mut().zip(self.branch(onto)) {
                *leaf ^= other;
            }
        }
        folded
    }

    /// One leaf, by its number in this tree.
    ///
    /// # Panics
    /// When the tree has no such leaf.
    pub fn leaf(&self, number: u32) -> u32 {
        let (branch, leaf) = place(number);
        self.branch(branch)[leaf]
    }

    /// Records the change of one entry, with its stored segment, from the old hash to the new one.
    pub fn change(&mut self, segment: u32, old: Option<LeafHash>, new: Option<LeafHash>) {
        match (old, new) {
            (None, Some(_)) => self.keys += 1,
            (Some(_), None) => self.keys = self.keys.saturating_sub(1),
            _ => {}
        }
        let bits = |hash: Option<LeafHash>| hash.map_or(0, LeafHash::get);
        self.turn(self.size.leaf_of(segment), bits(old) ^ bits(new));
    }

    /// Corrects a leaf, given its number in this tree; true when the leaf was wrong.
    pub fn correct(&mut self, number: u32, leaf: u32) -> bool {
        let wrong = self.leaf(number) ^ leaf;
        self.turn(number, wrong);
        wrong != 0
    }

    /// Adds the entries of another tree, which shares none with this one. The result has the
    /// smaller of the two sizes.
    ///
    /// # Panics
    /// When the trees are of two versions of the hash.
    #[must_use]
    pub fn merged(self, other: &Self) -> Self {
        assert_eq!(
            self.hash_version, other.hash_version,
            "trees of two versions of the hash cannot be merged"
        );
        let size = self.size.min(other.size);
        let mut merged = self.folded_to(size);
        merged.take_in(other);
        merged
    }

    /// The same tree at a smaller size; at its own size or a larger one, the tree as it is.
    #[must_use]
    pub fn folded_to(self, size: TreeSize) -> Self {
        if size >= self.size {
            return self;
        }
        let mut folded = Self::of_version(size, self.hash_version);
        folded.take_in(&self);
        folded
    }

    /// The memory of the tree, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.root.len() * (size_of::<u32>() + size_of::<Option<Box<Branch>>>())
            + self.touched * size_of::<Branch>()
    }

    /// The most memory that a tree of a size takes, in bytes.
    pub const fn memory_bytes_max(size: TreeSize) -> usize {
        let a_branch = size_of::<u32>() + size_of::<Option<Box<Branch>>>() + size_of::<Branch>();
        size_of::<Self>() + size.branches() * a_branch
    }

    /// The branches that were changed, with their numbers.
    pub(crate) fn touched(&self) -> impl Iterator<Item = (usize, &Branch)> {
        let numbered = self.branches.iter().enumerate();
        numbered.filter_map(|(number, branch)| Some((number, &**branch.as_ref()?)))
    }

    /// Clears all leaves that fold onto the given leaves of a tree of `size`, which is at most its
    /// own. The number of keys stays, since [`Tree::refill`] fills these leaves again.
    pub fn forget_leaves(&mut self, size: TreeSize, leaves: &[u32]) {
        for leaf in leaves {
            for number in (*leaf..self.size.leaves()).step_by(size.leaves() as usize) {
                self.turn(number, self.leaf(number));
            }
        }
    }

    /// Adds an entry, with its stored segment, to a cleared leaf.
    pub fn refill(&mut self, segment: u32, hash: LeafHash) {
        self.turn(self.size.leaf_of(segment), hash.get());
    }

    pub(crate) fn set_keys(&mut self, keys: u64) {
        self.keys = keys;
    }

    /// Adds a tree of the same or a larger size.
    fn take_in(&mut self, other: &Self) {
        for (number, branch) in other.touched() {
            let number = number % self.size.branches();
            self.add_branch(number, branch);
        }
        self.keys += other.keys;
    }

    pub(crate) fn add_branch(&mut self, number: usize, leaves: &Branch) {
        let mut of_all = 0;
        for (into, leaf) in self.branch_mut(number).iter_mut().zip(leaves) {
            *into ^= leaf;
            of_all ^= leaf;
        }
        self.root[number] ^= of_all;
    }

    fn turn(&mut self, number: u32, bits: u32) {
        if bits == 0 {
            return;
        }
        let (branch, leaf) = place(number);
        self.root[branch] ^= bits;
        self.branch_mut(branch)[leaf] ^= bits;
    }

    /// A branch that is about to change.
    fn branch_mut(&mut self, number: usize) -> &mut Branch {
        let branch = &mut self.branches[number];
        self.touched += usize::from(branch.is_none());
        branch.get_or_insert_with(|| Box::new(EMPTY))
    }
}

fn place(number: u32) -> (usize, usize) {
    let number = number as usize;
    (number / LEAVES_A_BRANCH, number % LEAVES_A_BRANCH)
}

/// The places in which two roots, or two branches, differ.
///
/// # Panics
/// When their lengths differ: [`folded_root`] makes roots equally long.
pub fn differing(one: &[u32], other: &[u32]) -> Vec<usize> {
    assert_eq!(one.len(), other.len(), "levels of two sizes of trees");
    let places = one.iter().zip(other).enumerate();
    let places = places.filter(|(_, (one, other))| one != other);
    places.map(|(place, _)| place).collect()
}

/// The root of a tree folded to a smaller size.
pub fn folded_root(root: &[u32], size: TreeSize) -> Vec<u32> {
    let mut folded = vec![0; size.branches().min(root.len())];
    let width = folded.len().max(1);
    for (place, bits) in root.iter().enumerate() {
        if let Some(into) = folded.get_mut(place % width) {
            *into ^= bits;
        }
    }
    folded
}
