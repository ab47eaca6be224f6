//! The state of a vnode's part in rounds: a keeper for each list, and their stored notes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Sequence;
use kvorum_reaping::{DeleteMode, Extent, Keeper, ListName, Note};
use parking_lot::Mutex;

use crate::note_files::NoteFiles;

/// The vnode's rounds.
pub(crate) struct Rounds {
    pub(crate) files: Arc<NoteFiles>,
    pub(crate) mode: DeleteMode,
    /// All that the store had when it was opened.
    pub(crate) opened_with: Extent,
    pub(crate) state: Mutex<RoundState>,
}

/// The changing part.
pub(crate) struct RoundState {
    pub(crate) keepers: BTreeMap<ListName, Keeper>,
    /// The notes in the file, also of lists that the vnode has left.
    pub(crate) stored: BTreeMap<ListName, Note>,
    /// Extents of this run with their times, the oldest first.
    pub(crate) past: VecDeque<(Duration, Sequence)>,
    /// The last pass through the store for tombstones: how many had been stored before, and how many it
    /// left.
    pub(crate) last_pass: Option<(u64, u64)>,
}
