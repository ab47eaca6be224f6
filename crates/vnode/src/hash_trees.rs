//! The trees of one vnode: changed in the same step as the store, and built from folds beside writes.
//!
//! A fold shows the store page by page, each page on a snapshot of its own, during writes. Each
//! entry has to be in its tree exactly once:
//!
//! - In pages that were read, each change is applied at once, from the old entry to the new one. In later
//!   pages it is left to the fold.
//! - While a page is read, the present entry of each key that is changed is *recorded*. The page is
//!   complete after every write that it may contain has been recorded. Then each recorded key
//!   counts with its recorded entry, every other key with its entry in the page. So a write may
//!   fall on either side of the snapshot.
//!
//! Leaves are corrected in the same way: by a fold of the leaves and the changes recorded meanwhile.
//!
//! Trees that were kept in a file are *caught up* in the same way: the leaves of all entries
//! written since are cleared, and a fold of these leaves alone fills them again. Until the trees
//! are taken, each segment that is changed is noted.
//!
//! A change that the vnode cannot show (an entry that expired, a write that failed and took effect
//! all the same) makes a leaf wrong; exchanges find such leaves and have them corrected.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Sequence;
use kvorum_encoding::{SegmentFilter, StorageKey};
use kvorum_planted_defects::is_planted;
use kvorum_tictac::{LeafHash, Stamp, Tree, TreeSize};
use parking_lot::Mutex;

use crate::catching_up::{Scope, SinceOpening};
use crate::kept_trees::OpenedStore;
use crate::tree_name::{TreeName, TreePlacing};

/// The most keys that are recorded during one page. If more change, the page is read again.
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
    /// They were taken from the file in which an earlier run kept them.
    pub were_kept: bool,
    /// Number of trees.
    pub trees: usize,
    /// Entries in them; an estimate.
    pub keys: u64,
    /// The memory that they take, in bytes.
    pub memory_bytes: u64,
    /// Wrong leaves that were corrected.
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
    /// Only the entries of these leaves are taken in; all others are in the trees already.
    scope: Option<Scope>,
    recording: Option<Recording>,
    /// `None` once trees are taken from a file, built, or dropped.
    opening: Option<SinceOpening>,
    origin: TreesOrigin,
    /// Rises whenever the trees are dropped or become whole.
    generation: u64,
    /// Number of changes.
    changes: u64,
    kept: Option<Kept>,
    were_kept: bool,
    /// Numbers of keys at the last building, by tree; `keys_expected` is for other trees.
    keys_before: BTreeMap<TreeName, u64>,
    keys_expected: u64,
    builds: u64,
    leaves_corrected: u64,
    /// A write failed since they were dropped last, and may have taken effect.
    is_in_doubt: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Progress {
    /// No entries have been added, and none are being added.
    #[default]
    Unbuilt,
    /// Everything before this key has been taken in.
    Before(StorageKey),
    Built,
}

/// The circumstances in which trees were built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreesOrigin {
    /// Identifies the properties of buckets by which keys are placed in trees.
    pub(crate) placements: u32,
    /// The time at which their building began, in microseconds since the Unix epoch.
    pub(crate) begun_at: u64,
    /// The store's losses and failed reads at the moment when the trees became whole.
    pub(crate) losses: u64,
}

/// Whole trees at one moment. Two values are equal if only shown changes lie between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeTrees {
    pub(crate) origin: TreesOrigin,
    generation: u64,
}

/// Trees as they are in their file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kept {
    changes: u64,
    complete: Sequence,
}

/// Trees to take from a file.
pub(crate) struct Taking {
    pub(crate) trees: BTreeMap<TreeName, Tree>,
    /// Segments whose entries were changed between the file and the opening of the vnode.
    pub(crate) lacking: Vec<u32>,
    /// The last batch in the file.
    pub(crate) complete: Sequence,
    pub(crate) origin: TreesOrigin,
}

/// Present entries of keys that were changed during a fold.
#[derive(Default)]
struct Recording {
    present: BTreeMap<StorageKey, Option<(TreeName, TreeEntry)>>,
    is_overfull: bool,
}

/// A fold of leaves in progress.
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

    /// Allows trees from a file of this store, which was opened and not written to since.
    pub(crate) fn opened_on(self, opened: OpenedStore) -> Self {
        self.state.lock().opening = Some(SinceOpening::new(opened));
        self
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
        let name = self.placing.tree_of(key);
        let mut state = self.state.lock();
        if let Some(opening) = &mut state.opening {
            opening.note(segment);
        }
        let Some(name) = name else {
            return;
        };
        state.changes += 1;
        if let Some(recording) = &mut state.recording {
            let present = new.map(|hash| (name, TreeEntry { segment, hash }));
            recording.note(key, present);
        }
        if state.has_taken_in(key, segment) {
            state.tree(name).change(segment, old, new);
        }
    }

    /// Drops the trees; they have to be built again.
    pub(crate) fn drop_all(&self) {
        self.state.lock().drop_all();
    }

    /// A write has failed, and may have taken effect: a leaf may be wrong.
    pub(crate) fn note_doubt(&self) {
        self.state.lock().is_in_doubt = true;
    }

    /// True if a leaf may be wrong because of a failed write.
    pub(crate) fn are_in_doubt(&self) -> bool {
        self.state.lock().is_in_doubt
    }

    /// True unless nothing has been taken in since the trees were dropped last.
    pub(crate) fn are_begun(&self) -> bool {
        self.state.lock().progress != Progress::Unbuilt
    }

    /// Begins the next page of the fold and returns its first key; `None` when no page is needed.
    /// Changes are recorded from now on. `keys_expected`, used at the first page, is the size of a
    /// tree without a record.
    pub(crate) fn begin_page(&self, keys_expected: u64) -> Option<StorageKey> {
        let mut state = self.state.lock();
        let from = match &state.progress {
            Progress::Built => return None,
            Progress::Before(from) => from.clone(),
            Progress::Unbuilt => {
                let from = first_key();
                state.progress = Progress::Before(from.clone());
                state.keys_expected = keys_expected;
                state.opening = None;
                from
            }
        };
        state.recording = Some(Recording::default());
        Some(from)
    }

    /// Takes in a page that reaches up to `next`, or to the last key. The caller has waited for the
    /// writes that the page may have seen. False when the page has to be read again.
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
                state.take_in(name, &entry);
            }
        }
        for (key, present) in recording.present {
            let is_of_page = key >= from && next.as_ref().is_none_or(|next| key < *next);
            if let Some((name, entry)) = present.filter(|_| is_of_page) {
                state.take_in(name, &entry);
            }
        }
        match next {
            Some(next) => state.progress = Progress::Before(next),
            None => state.become_whole(),
        }
        true
    }

    /// The entries that a building fold has to show; `None` for all.
    pub(crate) fn scope(&self) -> Option<SegmentFilter> {
        let state = self.state.lock();
        state.scope.as_ref().map(Scope::filter)
    }

    /// Notes the circumstances of trees that are built from now on. Returns the store whose trees
    /// may be taken from a file; `None` when it is too late for that.
    pub(crate) fn begin_taking(&self, placements: u32, now: u64) -> Option<OpenedStore> {
        let mut state = self.state.lock();
        if state.progress != Progress::Unbuilt {
            return None;
        }
        state.origin = TreesOrigin {
            placements,
            begun_at: now,
            losses: 0,
        };
        state.opening.as_ref().map(|it| it.opened.clone())
    }

    /// Takes trees from a file, unless new trees cost no more; true when taken. They are whole at
    /// once, or after a fold has filled the leaves that they lack.
    pub(crate) fn take(&self, taking: Taking) -> bool {
        let mut state = self.state.lock();
        let Some(since) = state.opening.take() else {
            return false;
        };
        if state.progress != Progress::Unbuilt {
            return false;
        }
        let segments = since
            .changed()
            .map(|it| it.into_iter().chain(taking.lacking));
        let scope = segments.and_then(|it| Scope::of(&taking.trees, it));
        let Some(scope) = scope else {
            return false;
        };
        state.origin = taking.origin;
        state.trees = taking.trees;
        state.were_kept = true;
        if scope.is_empty() {
            state.kept = Some(Kept {
                changes: state.changes,
                complete: taking.complete,
            });
            state.progress = Progress::Built;
            state.generation += 1;
            return true;
        }
        for tree in state.trees.values_mut() {
            scope.forget_in(tree);
        }
        state.scope = Some(scope);
        state.keys_expected = 0;
        state.progress = Progress::Before(first_key());
        true
    }

    /// From now on, takes no trees from a file.
    pub(crate) fn give_up_taking(&self) {
        self.state.lock().opening = None;
    }

    /// True while trees from a file lack entries.
    pub(crate) fn are_catching_up(&self) -> bool {
        self.state.lock().scope.is_some()
    }

    /// Notes the store's losses as those at which the whole trees were built.
    pub(crate) fn note_losses(&self, losses: u64) {
        self.state.lock().origin.losses = losses;
    }

    /// Notes that other properties place all keys in the same trees.
    pub(crate) fn note_placements(&self, placements: u32) {
        self.state.lock().origin.placements = placements;
    }

    /// The trees, if they are whole, and the number of their changes.
    pub(crate) fn whole(&self) -> Option<(WholeTrees, u64)> {
        let state = self.state.lock();
        let whole = WholeTrees {
            origin: state.origin,
            generation: state.generation,
        };
        (state.progress == Progress::Built).then_some((whole, state.changes))
    }

    /// All trees as bytes. Writers wait while one tree is encoded, not for all.
    pub(crate) fn encoded(&self, stamp: Stamp) -> Vec<(TreeName, Vec<u8>)> {
        let names: Vec<TreeName> = self.state.lock().trees.keys().copied().collect();
        let encoded = names.into_iter().filter_map(|name| {
            let state = self.state.lock();
            let tree = state.trees.get(&name)?;
            Some((name, tree.encode(stamp)))
        });
        encoded.collect()
    }

    /// Notes that a file has the trees after so many changes, up to this batch.
    pub(crate) fn note_kept(&self, changes: u64, complete: Sequence) {
        self.state.lock().kept = Some(Kept { changes, complete });
    }

    /// True when a file has the trees as they are.
    pub(crate) fn are_kept(&self) -> bool {
        let state = self.state.lock();
        state.kept.is_some_and(|it| it.changes == state.changes)
    }

    /// True when a file has the trees as they are, up to this batch.
    pub(crate) fn are_kept_at(&self, sequence: Sequence) -> bool {
        let state = self.state.lock();
        let (changes, complete) = (state.changes, sequence);
        state.kept == Some(Kept { changes, complete })
    }

    /// The memory that the trees take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.state.lock().memory_bytes()
    }

    /// Stops recording: the page could not be read. Trees that are being caught up are dropped: the
    /// next entry of their leaves may be far away, whereas a page of all entries always ends.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        state.recording = None;
        if state.scope.is_some() {
            state.drop_all();
        }
    }

    /// Begins to record for a fold of leaves; false when the trees are not built, or during another fold.
    pub(crate) fn begin_recount(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.progress == Progress::Built && state.recording.is_none();
        if is_free {
            state.recording = Some(Recording::default());
        }
        is_free
    }

    /// Corrects the leaves from the stored entries.
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
        state.changes += corrected;
    }

    /// Shows one tree, or an empty one if there is none, with true if it lacks entries.
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
        TreesStatus {
            is_built: state.progress == Progress::Built,
            builds: state.builds,
            were_kept: state.were_kept,
            trees: state.trees.len(),
            keys: state.trees.values().map(Tree::keys).sum(),
            memory_bytes: state.memory_bytes(),
            leaves_corrected: state.leaves_corrected,
        }
    }
}

impl Trees {
    fn drop_all(&mut self) {
        let trees = std::mem::take(&mut self.trees);
        let of_tree = |(name, tree): (TreeName, Tree)| (name, tree.keys());
        self.keys_before = trees.into_iter().map(of_tree).collect();
        self.progress = Progress::Unbuilt;
        self.scope = None;
        self.recording = None;
        self.opening = None;
        self.generation += 1;
        self.kept = None;
        self.were_kept = false;
        self.is_in_doubt = false;
    }

    fn has_taken_in(&self, key: &StorageKey, segment: u32) -> bool {
        if self.scope.as_ref().is_some_and(|it| !it.has(segment)) {
            return true;
        }
        match &self.progress {
            Progress::Unbuilt => false,
            Progress::Before(next) => key < next,
            Progress::Built => true,
        }
    }

    /// Takes in an entry that the fold has shown.
    fn take_in(&mut self, name: TreeName, entry: &TreeEntry) {
        let is_refilled = self.scope.as_ref().map(|it| it.has(entry.segment));
        let tree = self.tree(name);
        match is_refilled {
            None => tree.change(entry.segment, None, Some(entry.hash)),
            // The tree's number of keys has it already.
            Some(true) => tree.refill(entry.segment, entry.hash),
            Some(false) => {}
        }
    }

    fn become_whole(&mut self) {
        self.progress = Progress::Built;
        self.generation += 1;
        // Trees that were caught up were not built.
        self.builds += u64::from(self.scope.is_none());
        self.scope = None;
    }

    fn memory_bytes(&self) -> u64 {
        let memory: usize = self.trees.values().map(Tree::memory_bytes).sum();
        memory as u64
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

/// A key before all others.
fn first_key() -> StorageKey {
    StorageKey::from_encoded(Bytes::new())
}

/// Corrects the leaves of a tree that fold onto those of an order. Returns how many were wrong.
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
