//! The notes of a store of hints for rounds, while it is open: which lists it has no hints of.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_backend::Sequence;
use kvorum_encoding::StorageKey;
use kvorum_reaping::{HintsNote, ListName};
use kvorum_vnode::{NoteFiles, TreePlacing};
use parking_lot::Mutex;

/// The state of a store of hints in rounds.
pub(crate) struct HintRounds {
    pub(crate) files: NoteFiles,
    pub(crate) placing: Arc<dyn TreePlacing>,
    /// The last batch that the store had when it was opened.
    pub(crate) opened_with: Sequence,
    pub(crate) lists: Mutex<BTreeMap<ListName, ListState>>,
}

/// The state for one list.
#[derive(Clone, Copy, Default)]
pub(crate) struct ListState {
    pub(crate) note: HintsNote,
    /// Hints that have come since the store was opened.
    pub(crate) added: u64,
}

impl HintRounds {
    /// A hint of a key is about to be stored. One that belongs to no list that is known counts for all.
    pub(crate) fn adds(&self, key: &StorageKey) {
        let list = self.list_of(key);
        let mut lists = self.lists.lock();
        let is_meant = |it: &ListName| list.is_none_or(|list| list == *it);
        for (_, state) in lists.iter_mut().filter(|(it, _)| is_meant(it)) {
            state.note.adds();
            state.added += 1;
        }
    }

    pub(crate) fn list_of(&self, key: &StorageKey) -> Option<ListName> {
        let tree = self.placing.tree_of(key)?;
        Some(ListName {
            partition: tree.owner.number(),
            n_val: tree.n_val,
        })
    }

    pub(crate) fn state_of(&self, list: ListName) -> ListState {
        self.lists.lock().get(&list).copied().unwrap_or_default()
    }
}
