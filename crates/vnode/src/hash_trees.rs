//! The trees of one vnode: changed in the same step as the store, and built from folds beside writes.
//!
//! A fold shows the store page by page, each page on a snapshot of its own, while writes go on. Each entry
//! has to be in its tree exactly once:
//!
//! - Behind the pages that were taken, a change is applied as it is shown, from the old entry to the new one.
//!   Before them it is left to the fold.
//! - While a page is read, the present entry of each key that is changed is *recorded*. When the page has been
//!   read, and every write that the page may have seen has been shown, a recorded key counts as recorded and
//!   all others as the page has them. So it does not matter on which side of the snapshot a write fell.
//!
//! Leaves are corrected in the same way: by a fold of the leaves and the changes recorded meanwhile.
//!
//! Trees are in memory alone, and are built after each start. A change that their vnode cannot show (an
//! entry that expired, a write that failed and took effect all the same) makes a leaf wrong; exchanges
//! find such leaves and have them corrected.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use kvorum_tictac::{LeafHash, Tree, TreeSize};
use parking_lot::Mutex;

use crate::tree_name::{TreeName, TreePlacing};

/// Keys that are recorded during one page. A page during which more were changed is read again.
const RECORDED_MAX: usize = 100_000;

/// One entry, as trees take it in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeEntry {
    pub(crate) segment: u32,
    pub(crate) hash: LeafHash,
}

/// The state of a vnode's trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreesStatus {
    /// They have every entry.
    pub is_built: bool,
    /// Number of times that they have been built since the vnode was opened.
    pub builds: u64,
    /// Number of trees.
    pub trees: usize,
    /// Entries in them; an estimate.
    pub keys: u64,
    /// The memory that they take, in bytes.
    pub memory_bytes: u64,
    /// Leaves that were wrong and were put right.
    pub leaves_corrected: u64,
}

/// See the module's description.
pub(crate) struct HashTrees {
    placing: Arc<dyn TreePlacing>,
    state: Mutex<Trees>,
}

#[derive(Default)]
struct Trees {
    trees: BTreeMap<TreeName, Tree>,
    progress: Progress,
    recording: Option<Recording>,
    /// Numbers of keys at the last building, by tree; `keys_expected` is for other trees.
    keys_before: BTreeMap<TreeName, u64>,
    keys_expected: u64,
    builds: u64,
    leaves_corrected: u64,
}

#[derive(Default, PartialEq, Eq)]
enum Progress {
    /// Nothing has been taken in, and nothing is.
    #[default]
    Unbuilt,
    /// Everything before this key has been taken in.
    Before(StorageKey),
    Built,
}

/// Present entries of keys that were changed while a fold went on.
#[derive(Default)]
struct Recording {
    present: BTreeMap<StorageKey, Option<(TreeName, TreeEntry)>>,
    is_overfull: bool,
}

/// A fold of leaves that goes on.
pub(crate) struct RecountOrder {
    pub(crate) tree: TreeName,
    pub(crate) size: TreeSize,
    pub(crate) leaves: Arc<[u32]>,
}

impl HashTrees {
    pub(crate) fn new(placing: Arc<dyn TreePlacing>) -> Self {
        Self {
            placing,
            state: Mutex::default(),
        }
    }

    pub(crate) fn tree_of(&self, key: &StorageKey) -> Option<TreeName> {
        self.placing.tree_of(key)
    }

    /// Takes in one change. The caller holds the key's lock.
    pub(crate) fn changed(
        &self,
        key: &StorageKey,
        segment: u32,
        old: Option<LeafHash>,
        new: Option<LeafHash>,
    ) {
        let Some(name) = self.placing.tree_of(key) else {
            return;
        };
        let mut state = self.state.lock();
        if let Some(recording) = &mut state.recording {
            let present = new.map(|hash| (name, TreeEntry { segment, hash }));
            recording.note(key, present);
        }
        if state.has_taken_in(key) {
            state.tree(name).change(segment, old, new);
        }
    }

    /// Drops the trees; they are to be built anew.
    pub(crate) fn drop_all(&self) {
        let mut state = self.state.lock();
        let trees = std::mem::take(&mut state.trees);
        let of_tree = |(name, tree): (TreeName, Tree)| (name, tree.keys());
        state.keys_before = trees.into_iter().map(of_tree).collect();
        state.progress = Progress::Unbuilt;
        state.recording = None;
    }

    /// True unless nothing has been taken in since the trees were dropped last.
    pub(crate) fn are_begun(&self) -> bool {
        self.state.lock().progress != Progress::Unbuilt
    }

    /// The beginning of the next page of the fold; `None` when none is needed. Changes are recorded
    /// from here on. `keys_expected` is the number of keys of a tree without a record; it counts at the
    /// first page.
    pub(crate) fn begin_page(&self, keys_expected: u64) -> Option<StorageKey> {
        let mut state = self.state.lock();
        let from = match &state.progress {
            Progress::Built => return None,
            Progress::Before(from) => from.clone(),
            Progress::Unbuilt => {
                let from = StorageKey::from_encoded(Bytes::new());
                state.progress = Progress::Before(from.clone());
                state.keys_expected = keys_expected;
                from
            }
        };
        state.recording = Some(Recording::default());
        Some(from)
    }

    /// Takes in a page that reaches up to `next`, or to the last key. The caller has waited for the writes that
    /// the page may have seen. False when the page is to be read again.
    pub(crate) fn take_page(
        &self,
        page: Vec<(StorageKey, TreeEntry)>,
        next: Option<StorageKey>,
    ) -> bool {
        let page = page.into_iter();
        let placed = page.filter_map(|(key, entry)| Some((self.tree_of(&key)?, key, entry)));
        let placed: Vec<(TreeName, StorageKey, TreeEntry)> = placed.collect();
        let mut state = self.state.lock();
        let Progress::Before(from) = &state.progress else {
            return false;
        };
        let from = from.clone();
        let Some(recording) = state.recording.take().filter(|it| !it.is_overfull) else {
            return false;
        };
        for (name, key, entry) in placed {
            if !recording.present.contains_key(&key) || is_planted!(ChangeDuringPageTakenTwice) {
                state
                    .tree(name)
                    .change(entry.segment, None, Some(entry.hash));
            }
        }
        for (key, present) in recording.present {
            let is_of_page = key >= from && next.as_ref().is_none_or(|next| key < *next);
            if let Some((name, entry)) = present.filter(|_| is_of_page) {
                state
                    .tree(name)
                    .change(entry.segment, None, Some(entry.hash));
            }
        }
        match next {
            Some(next) => state.progress = Progress::Before(next),
            None => {
                state.progress = Progress::Built;
                state.builds += 1;
            }
        }
        true
    }

    /// Records no more: the page could not be read.
    pub(crate) fn give_up(&self) {
        self.state.lock().recording = None;
    }

    /// Begins to record for a fold of leaves; false when the trees are not built, or another fold goes on.
    pub(crate) fn begin_recount(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.progress == Progress::Built && state.recording.is_none();
        if is_free {
            state.recording = Some(Recording::default());
        }
        is_free
    }

    /// Puts the leaves right by all that is stored in them.
    pub(crate) fn end_recount(&self, order: &RecountOrder, stored: Vec<(StorageKey, TreeEntry)>) {
        let placed = stored.into_iter();
        let placed = placed.filter(|(key, _)| self.tree_of(key) == Some(order.tree));
        let placed: Vec<(StorageKey, TreeEntry)> = placed.collect();
        let mut state = self.state.lock();
        let Some(recording) = state.recording.take().filter(|it| !it.is_overfull) else {
            return;
        };
        if state.progress != Progress::Built {
            return;
        }
        let unchanged = placed.into_iter();
        let unchanged = unchanged.filter(|(key, _)| !recording.present.contains_key(key));
        let unchanged = unchanged.map(|(_, entry)| entry);
        let changed = recording.present.values().flatten();
        let changed = changed.filter(|(name, _)| *name == order.tree);
        let changed = changed.map(|(_, entry)| *entry);
        let entries: Vec<TreeEntry> = unchanged.chain(changed).collect();
        let corrected = correct(state.tree(order.tree), order, &entries);
        state.leaves_corrected += corrected;
    }

    /// Shows one tree, and true if it lacks entries; an empty one if there is none.
    pub(crate) fn look<T>(&self, name: TreeName, show: impl FnOnce(&Tree, bool) -> T) -> T {
        let state = self.state.lock();
        let is_building = state.progress != Progress::Built;
        match state.trees.get(&name) {
            Some(tree) => show(tree, is_building),
            None => show(&Tree::new(TreeSize::XxSmall), is_building),
        }
    }

    /// True when a tree has more keys than it was made for.
    pub(crate) fn are_outgrown(&self) -> bool {
        let state = self.state.lock();
        state.progress == Progress::Built && state.trees.values().any(Tree::is_outgrown)
    }

    pub(crate) fn status(&self) -> TreesStatus {
        let state = self.state.lock();
        let memory: usize = state.trees.values().map(Tree::memory_bytes).sum();
        TreesStatus {
            is_built: state.progress == Progress::Built,
            builds: state.builds,
            trees: state.trees.len(),
            keys: state.trees.values().map(Tree::keys).sum(),
            memory_bytes: memory as u64,
            leaves_corrected: state.leaves_corrected,
        }
    }
}

impl Trees {
    fn has_taken_in(&self, key: &StorageKey) -> bool {
        match &self.progress {
            Progress::Unbuilt => false,
            Progress::Before(next) => key < next,
            Progress::Built => true,
        }
    }

    fn tree(&mut self, name: TreeName) -> &mut Tree {
        let keys = self.keys_before.get(&name).map(|keys| keys + keys / 2);
        let keys = keys.unwrap_or(self.keys_expected);
        let tree = self.trees.entry(name);
        tree.or_insert_with(|| Tree::new(TreeSize::for_keys(keys)))
    }
}

impl Recording {
    fn note(&mut self, key: &StorageKey, present: Option<(TreeName, TreeEntry)>) {
        if self.present.len() >= RECORDED_MAX && !self.present.contains_key(key) {
            self.is_overfull = true;
            return;
        }
        self.present.insert(key.clone(), present);
    }
}

/// Corrects the leaves of a tree that fold onto those of an order; how many were wrong.
fn correct(tree: &mut Tree, order: &RecountOrder, entries: &[TreeEntry]) -> u64 {
    let size = order.size.min(tree.size());
    let own = tree.size();
    let mut right: BTreeMap<u32, u32> = BTreeMap::new();
    for leaf in order.leaves.iter().filter(|it| **it < size.leaves()) {
        let onto = (*leaf..own.leaves()).step_by(size.leaves() as usize);
        right.extend(onto.map(|it| (it, 0)));
    }
    for entry in entries {
        if let Some(leaf) = right.get_mut(&own.leaf_of(entry.segment)) {
            *leaf ^= entry.hash.get();
        }
    }
    let wrong = right
        .iter()
        .filter(|(number, leaf)| tree.correct(**number, **leaf));
    wrong.count() as u64
}
