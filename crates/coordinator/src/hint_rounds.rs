//! The part of a store of hints in rounds, by which tombstones go (decision 37).
//!
//! A hint may be a copy of an object that a tombstone has deleted. So a round asks each member twice if it
//! has hints of a preference list, and the answer is noted durably. A store that lacks the note of a
//! watermark's round was put back to an older copy: the hints of the list that it was opened with are
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_backend::{
    Durability, FoldClock, FoldDetail, FoldRange, Lease, Sequence, Timestamp, Visited,
};
use kvorum_encoding::StorageKey;
use kvorum_object::DecodeError;
use kvorum_reaping::{
    BatchName, Extent, HintsNote, KeptBecause, ListName, Mark, Note, ReplicaAnswer, RoundName,
    VnodeNotes, Watermark,
};
use kvorum_vnode::{
    NoteFiles, PageFailure, ReplicaFailure, ScanLimits, ScanPage, ScanRequest, Scanned,
    TreePlacing, Vnode,
};
use parking_lot::Mutex;

use crate::hint_notes::{HintRounds, ListState};
use crate::hints::{VnodeHints, split};

/// Hints that are looked at in one page.
const PAGE_HINTS: usize = 1_000;

/// The key of a hint as it stands in the store, and the batch that wrote it.
struct HintAt(StorageKey, Sequence);

impl Scanned for HintAt {
    const DETAIL: FoldDetail = FoldDetail::Keys;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        Ok(Self(visited.key.clone(), visited.sequence))
    }
}

impl VnodeHints {
    /// Takes part in rounds from here on. Nothing was written to the store since it was opened. Blocks.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn with_rounds(
        mut self,
        files: NoteFiles,
        placing: Arc<dyn TreePlacing>,
    ) -> Result<Self, ReplicaFailure> {
        let vnode = self.vnode();
        let opened_with = vnode.store_for_upkeep().durable();
        let last = BatchName {
            store: vnode.store_id().0,
            sequence: opened_with.0,
        };
        let notes = files.read(vnode.partition(), last);
        let notes = notes.map_err(|error| ReplicaFailure::Storage(error.to_string()))?;
        let notes = notes.map(|it| it.lists);
        let opened = |(list, note): (ListName, Note)| {
            let state = ListState {
                note: HintsNote::opened(note.mark.map(|it| it.round)),
                added: 0,
            };
            (list, state)
        };
        self.rounds = Some(HintRounds {
            files,
            placing,
            opened_with,
            lists: Mutex::new(notes.into_iter().flatten().map(opened).collect()),
        });
        Ok(self)
    }

    /// Learns the watermark of a list. If the store was put back, drops hints from before it. Blocks.
    ///
    /// # Errors
    /// Those of the store and of the notes' file.
    pub fn learn(&self, list: ListName, watermark: &Watermark) -> Result<(), ReplicaFailure> {
        let Some(rounds) = &self.rounds else {
            return Ok(());
        };
        if !rounds.state_of(list).note.is_outdated(Some(watermark)) {
            return Ok(());
        }
        let dropped = self.drop_old(rounds, list)?;
        if dropped > 0 {
            tracing::warn!(
                event = "hints_of_an_older_store_dropped",
                partition = list.partition,
                n_val = list.n_val,
                hints = dropped,
                "the store of hints was put back to an older copy, or has lost its notes of rounds",
            );
        }
        let note = HintsNote::opened(Some(watermark.round));
        let mut lists = rounds.lists.lock();
        lists.entry(list).or_default().note = note;
        self.store_notes(rounds, &lists)
    }

    /// Number of hints of a list; if there is none, that is noted durably for a round. Blocks.
    ///
    /// # Errors
    /// If it cannot be said or noted.
    pub fn note_if_none(&self, list: ListName, round: RoundName) -> Result<u64, ReplicaFailure> {
        let rounds = self.rounds.as_ref().ok_or_else(no_rounds)?;
        rounds.lists.lock().entry(list).or_default();
        // Hints that are being stored are seen by the scan, or counted as added.
        let added = self.while_idle(|| rounds.state_of(list).added);
        let mut hints = 0;
        self.visit(|key, _| {
            hints += u64::from(rounds.list_of(&key).is_none_or(|it| it == list));
            Ok(())
        })?;
        if hints > 0 {
            return Ok(hints);
        }
        let mut lists = rounds.lists.lock();
        let state = lists.entry(list).or_default();
        if state.added != added {
            return Ok(state.added - added);
        }
        state.note.has_none(round);
        let stored = self.store_notes(rounds, &lists);
        if stored.is_err() {
            lists.remove(&list);
        }
        stored.map(|()| 0)
    }

    /// True if no hint of a list has come since [`VnodeHints::note_if_none`] noted that for a round.
    ///
    /// # Errors
    /// The reason if that cannot be said.
    pub fn has_still_none(&self, list: ListName, round: RoundName) -> ReplicaAnswer<()> {
        let rounds = self.rounds.as_ref().ok_or(KeptBecause::HintsUnknown)?;
        // Of a hint that is being stored it is known by then.
        self.while_idle(|| rounds.state_of(list).note.still_none(round))
    }

    /// Confirms that the watermark of a round was learned, by a store that was open since its note.
    ///
    /// # Errors
    /// The reason if that is not so.
    pub fn confirm_round(
        &self,
        list: ListName,
        learned: Option<&Watermark>,
        round: RoundName,
    ) -> ReplicaAnswer<()> {
        let rounds = self.rounds.as_ref().ok_or(KeptBecause::HintsUnknown)?;
        rounds.state_of(list).note.confirm(learned, round)
    }

    fn drop_old(&self, rounds: &HintRounds, list: ListName) -> Result<u64, ReplicaFailure> {
        let (vnode, now) = (self.vnode(), Timestamp(0));
        let mut dropped = 0;
        self.visit_stored(|stored, key, sequence| {
            let is_of_list = rounds.list_of(&key).is_none_or(|it| it == list);
            if !is_of_list || sequence > rounds.opened_with {
                return Ok(());
            }
            let object = vnode.stored_object(stored, now)?;
            let object = object.and_then(|it| it.decode().ok());
            if let Some(object) = object {
                let durability = Durability::Buffered;
                let is_gone = vnode.forget(stored, object.clock(), durability, now)?;
                dropped += u64::from(is_gone);
            }
            Ok(())
        })?;
        Ok(dropped)
    }

    /// Visits all hints by their keys.
    fn visit(
        &self,
        mut visit: impl FnMut(StorageKey, Sequence) -> Result<(), ReplicaFailure>,
    ) -> Result<(), ReplicaFailure> {
        self.visit_stored(|_, key, sequence| visit(key, sequence))
    }

    /// Visits all hints: by the keys that they have in the store, and by their own.
    fn visit_stored(
        &self,
        mut visit: impl FnMut(&StorageKey, StorageKey, Sequence) -> Result<(), ReplicaFailure>,
    ) -> Result<(), ReplicaFailure> {
        let mut range = FoldRange::all();
        loop {
            let page = self.page_of_keys(range)?;
            for HintAt(stored, sequence) in &page.entries {
                if let Some((_, key)) = split(stored) {
                    visit(stored, key, *sequence)?;
                }
            }
            match page.next {
                Some(next) => range = FoldRange::all().resumed_at(&next),
                None => return Ok(()),
            }
        }
    }

    fn page_of_keys(&self, range: FoldRange) -> Result<ScanPage<HintAt>, ReplicaFailure> {
        let request = ScanRequest {
            range,
            // Nothing has expired at that time.
            clock: FoldClock::stopped_at(Timestamp(0)),
            lease: Lease::Unlimited,
            limits: ScanLimits {
                entries_max: PAGE_HINTS,
                ..ScanLimits::NONE
            },
        };
        let page = self.vnode().scan::<HintAt>(&request, &mut |_| true);
        page.map_err(|failure| match failure {
            PageFailure::Failed(failure) => failure,
            PageFailure::OutOfTime => {
                ReplicaFailure::Internal("a scan without a deadline ran out of time".to_owned())
            }
        })
    }

    fn store_notes(
        &self,
        rounds: &HintRounds,
        lists: &BTreeMap<ListName, ListState>,
    ) -> Result<(), ReplicaFailure> {
        let vnode = self.vnode();
        let noted = lists.iter().filter_map(|(list, state)| {
            let mark = Mark {
                round: state.note.round()?,
                extent: Extent::default(),
                is_confirmed: false,
            };
            let note = Note {
                mark: Some(mark),
                ..Note::default()
            };
            Some((*list, note))
        });
        let notes = VnodeNotes {
            written_at: last_batch(vnode)?,
            lists: noted.collect(),
        };
        let written = rounds.files.write(vnode.partition(), &notes);
        written.map_err(|error| ReplicaFailure::Storage(format!("keep notes of hints: {error}")))
    }
}

/// The last batch of a store, durable.
fn last_batch(vnode: &Vnode) -> Result<BatchName, ReplicaFailure> {
    let sequence = vnode.store_for_upkeep().sync()?;
    Ok(BatchName {
        store: vnode.store_id().0,
        sequence: sequence.0,
    })
}

fn no_rounds() -> ReplicaFailure {
    ReplicaFailure::Internal("this store of hints takes no part in rounds".to_owned())
}
