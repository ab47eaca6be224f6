//! A vnode's part in rounds, by which tombstones go (decision 37): its marks, and its hidden entries.
//!
//! One keeper for each preference list decides; this executes the keepers' effects, on the store and on
//! the file of the vnode's notes. The file names the last durable batch of the store at which it
//! was written. A store that lacks the batch was put back to an older copy, and has no notes then.
//!
//! A hidden entry is hidden for all lists: its key must not appear because other properties of the bucket
//! assign it to another list.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{FoldClock, FoldRange, Lease, Sequence, Timestamp};
use kvorum_encoding::StorageKey;
use kvorum_reaping::{
    BatchName, DeleteMode, Extent, Incarnation, Keeper, KeeperAnswer, KeeperEffect, KeeperEvent,
    KeeperStart, KeptBecause, ListName, Note, ReplicaAnswer, RoundName, VnodeNotes, Watermark,
};
use kvorum_ring::Epoch;
use parking_lot::Mutex;

use crate::note_files::NoteFiles;
use crate::page::PageFailure;
use crate::reaping::ReapRequest;
use crate::replica_request::ReplicaFailure;
use crate::round_state::{RoundState, Rounds};
use crate::scanning::{ScanLimits, ScanRequest};
use crate::vnode::Vnode;

/// Extents of the past that are kept for a `delete_mode` with a time.
const PAST_EXTENTS_MAX: usize = 64;
/// Entries that are looked at in one page.
const PAGE_ENTRIES: usize = 1_000;

/// A list that a vnode belongs to, as the agreed state has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreedList {
    /// The list.
    pub list: ListName,
    /// Its watermark.
    pub watermark: Option<Watermark>,
    /// The epoch in which the vnode came to it; zero if it was always there.
    pub joined: u64,
}

impl Vnode {
    /// Takes part in rounds from here on. To be called before the vnode serves, with the lists that it
    /// belongs to. If it has entries from before a watermark, they are hidden and the vnode is
    /// incomplete. Blocks.
    ///
    /// # Errors
    /// Those of the disk: the vnode must not serve.
    pub fn with_rounds(
        mut self,
        files: Arc<NoteFiles>,
        mode: DeleteMode,
        lists: Vec<AgreedList>,
        now: Duration,
    ) -> Result<Self, ReplicaFailure> {
        let sequence = self.backend.durable();
        let last = self.batch(sequence);
        let notes = files
            .read(self.partition, last)
            .map_err(|error| not_kept(&error))?;
        let stored = notes.map(|it| it.lists).unwrap_or_default();
        self.rounds = Some(Rounds {
            files,
            mode,
            opened_with: Extent::up_to([last]),
            state: Mutex::new(RoundState {
                keepers: BTreeMap::new(),
                stored,
                past: VecDeque::from([(now, sequence)]),
                last_pass: None,
            }),
        });
        for list in lists {
            self.follow_list(list)?;
        }
        Ok(self)
    }

    /// Learns the agreed state of a list that the vnode belongs to. Blocks.
    ///
    /// # Errors
    /// If a note cannot be stored. The vnode shows less rather than more then.
    pub fn follow_list(&self, agreed: AgreedList) -> Result<(), ReplicaFailure> {
        let Some(rounds) = &self.rounds else {
            return Ok(());
        };
        let mut state = rounds.state.lock();
        let known = state.keepers.get(&agreed.list);
        if known.is_none_or(|it| it.note().joined < agreed.joined) {
            return self.open_keeper(rounds, &mut state, agreed);
        }
        let Some(watermark) = agreed.watermark else {
            return Ok(());
        };
        let learned = KeeperEvent::Learned(watermark);
        self.step_keeper(rounds, &mut state, agreed.list, learned)
            .map(|_| ())
    }

    /// Opens a round of a list: fixes the extent, and waits for the holders of key locks. Blocks.
    ///
    /// # Errors
    /// The reason why tombstones stay.
    pub fn open_round(
        &self,
        list: ListName,
        round: RoundName,
        now: Duration,
    ) -> ReplicaAnswer<Incarnation> {
        let rounds = self.rounds.as_ref().ok_or(KeptBecause::NotNoted)?;
        let age = rounds.mode.extent_age_micros();
        let age = age.ok_or(KeptBecause::DeleteMode)?;
        self.check_may_open()?;
        let extent = self.extent_of(rounds, now, Duration::from_micros(age))?;
        let mut state = rounds.state.lock();
        let opened = KeeperEvent::Open { round, extent };
        let answer = self.step_keeper(rounds, &mut state, list, opened);
        drop(state);
        // The trees show each batch of the extent then.
        self.await_earlier_writes();
        match answer {
            Ok(Some(KeeperAnswer::Opened(answer))) => answer,
            _ => Err(KeptBecause::NotNoted),
        }
    }

    /// Makes the round's extent durable, and notes the mark. Blocks.
    ///
    /// # Errors
    /// The reason why tombstones stay.
    pub fn note_round(&self, list: ListName, round: RoundName) -> ReplicaAnswer<()> {
        match self.ask_keeper(list, KeeperEvent::MakeNote { round }) {
            Some(KeeperAnswer::Noted(answer)) => answer,
            _ => Err(KeptBecause::NotNoted),
        }
    }

    /// Confirms the watermark of a round. Blocks.
    ///
    /// # Errors
    /// The reason why tombstones stay.
    pub fn confirm_round(&self, list: ListName, round: RoundName) -> ReplicaAnswer<()> {
        match self.ask_keeper(list, KeeperEvent::Confirm { round }) {
            Some(KeeperAnswer::Confirmed(answer)) => answer,
            _ => Err(KeptBecause::NotNoted),
        }
    }

    /// Notes that all have confirmed: [`Vnode::may_reap`] admits the tombstones of the round. Blocks.
    ///
    /// # Errors
    /// The reason why tombstones stay.
    pub fn allow_reaping(&self, list: ListName, round: RoundName) -> ReplicaAnswer<()> {
        match self.ask_keeper(list, KeeperEvent::Reap { round }) {
            Some(KeeperAnswer::MayReap(answer)) => answer,
            _ => Err(KeptBecause::NotNoted),
        }
    }

    /// True if a tombstone of a list may go, by the batch that wrote it.
    pub fn may_reap(&self, list: ListName, written_by: Sequence) -> bool {
        let Some(rounds) = &self.rounds else {
            return false;
        };
        let state = rounds.state.lock();
        let keeper = state.keepers.get(&list);
        keeper.is_some_and(|it| it.may_reap(self.batch(written_by)))
    }

    /// Removes the tombstones that may go from the whole store; returns how many went. `list_of` says to
    /// which list a key belongs whose tombstone may go by the agreed state. Blocks.
    ///
    /// # Errors
    /// When the store fails, or the epoch has passed. Earlier removals stay in effect.
    pub fn reap_all(
        &self,
        epoch: Epoch,
        clock: &FoldClock,
        list_of: &dyn Fn(&StorageKey) -> Option<ListName>,
    ) -> Result<u64, ReplicaFailure> {
        let stored_before = self.tombstones_stored();
        let mut request = ReapRequest {
            epoch,
            range: FoldRange::all(),
            clock: clock.clone(),
            lease: Lease::Unlimited,
            entries_max: PAGE_ENTRIES,
        };
        let may_go = &mut |key: &StorageKey, written_by| {
            list_of(key).is_some_and(|list| self.may_reap(list, written_by))
        };
        let (mut reaped, mut left) = (0, 0);
        loop {
            let page = self.reap_page(&request, may_go).map_err(failure_of)?;
            reaped += page.reaped;
            left += page.tombstones - page.reaped;
            match page.next {
                Some(next) => request.range = FoldRange::all().resumed_at(&next),
                None => break,
            }
        }
        if let Some(rounds) = &self.rounds {
            rounds.state.lock().last_pass = Some((stored_before, left));
        }
        Ok(reaped)
    }

    /// About how many tombstones wait, by the last pass through the store and the writes since; `None`
    /// before the first.
    pub fn tombstones_waiting(&self) -> Option<u64> {
        let last_pass = self.rounds.as_ref()?.state.lock().last_pass;
        let (stored_before, left) = last_pass?;
        Some(left + self.tombstones_stored().saturating_sub(stored_before))
    }

    /// False if no round could take a tombstone from here.
    pub fn may_have_tombstones(&self) -> bool {
        self.rounds.is_some() && self.tombstones_waiting() != Some(0)
    }

    /// Removes hidden entries, after a repair from all other replicas that began when
    /// [`Vnode::hidden_generation`] was the given one. To be called before the vnode counts as complete.
    /// Blocks.
    ///
    /// # Errors
    /// When the store or the notes' file fails, or more was hidden meanwhile: the vnode stays incomplete.
    pub fn remove_all_hidden(&self, hidden_then: u64) -> Result<(), ReplicaFailure> {
        if self.hidden.is_any() {
            self.remove_hidden_pages()?;
        }
        let Some(rounds) = &self.rounds else {
            return Ok(());
        };
        let mut state = rounds.state.lock();
        if self.hidden.generation() != hidden_then {
            // It would count as repaired although nothing was fetched since.
            return Err(ReplicaFailure::Incomplete);
        }
        self.note_all(rounds, &mut state, &KeeperEvent::Repaired)?;
        if self.hidden.is_any() {
            self.hidden.clear();
        }
        Ok(())
    }

    /// A number that rises whenever more is hidden.
    pub fn hidden_generation(&self) -> u64 {
        self.hidden.generation()
    }

    /// True while entries count as absent.
    pub fn hides_anything(&self) -> bool {
        self.hidden.is_any()
    }

    /// Shows hidden entries again: no other replica has anything, and the operator accepts these.
    /// Blocks.
    ///
    /// # Errors
    /// When the notes' file fails.
    pub fn accept_hidden(&self) -> Result<(), ReplicaFailure> {
        let Some(rounds) = &self.rounds else {
            return Ok(());
        };
        let mut state = rounds.state.lock();
        self.note_all(rounds, &mut state, &KeeperEvent::LossAccepted)?;
        if self.hidden.is_any() {
            self.show_hidden();
        }
        Ok(())
    }

    /// The keeper does not know these.
    fn check_may_open(&self) -> ReplicaAnswer<()> {
        if !self.is_complete() {
            return Err(KeptBecause::ReplicaIncomplete);
        }
        if self.keeps_tombstones() {
            return Err(KeptBecause::RequestsUnderWay);
        }
        let trees = self.trees.as_ref();
        let is_exact = trees.is_some_and(|it| it.status().is_built && !it.are_in_doubt());
        match is_exact {
            true => Ok(()),
            false => Err(KeptBecause::TreesInDoubt),
        }
    }

    /// The extent of so long ago, or of the start of this run.
    fn extent_of(&self, rounds: &Rounds, now: Duration, age: Duration) -> ReplicaAnswer<Extent> {
        let present = self.backend.sync().map_err(|_| KeptBecause::NotNoted)?;
        let mut state = rounds.state.lock();
        state.past.push_back((now, present));
        let is_old_enough = |it: &&(Duration, Sequence)| it.0.saturating_add(age) <= now;
        let sequence = match state.past.iter().rev().find(is_old_enough) {
            Some((_, sequence)) => *sequence,
            None => return Ok(rounds.opened_with.clone()),
        };
        // Those before it are of no use any more.
        state.past.retain(|it| it.1 >= sequence);
        while state.past.len() > PAST_EXTENTS_MAX {
            state.past.remove(1);
        }
        Ok(Extent::up_to([self.batch(sequence)]))
    }

    fn ask_keeper(&self, list: ListName, event: KeeperEvent) -> Option<KeeperAnswer> {
        let rounds = self.rounds.as_ref()?;
        let mut state = rounds.state.lock();
        self.step_keeper(rounds, &mut state, list, event)
            .ok()
            .flatten()
    }

    fn note_all(
        &self,
        rounds: &Rounds,
        state: &mut RoundState,
        event: &KeeperEvent,
    ) -> Result<(), ReplicaFailure> {
        let lists: Vec<ListName> = state.keepers.keys().copied().collect();
        for list in lists {
            self.step_keeper(rounds, state, list, event.clone())?;
        }
        Ok(())
    }

    fn open_keeper(
        &self,
        rounds: &Rounds,
        state: &mut RoundState,
        agreed: AgreedList,
    ) -> Result<(), ReplicaFailure> {
        let note = state.stored.get(&agreed.list).cloned().unwrap_or_default();
        let note = match note.joined < agreed.joined {
            true => Note::joined(agreed.joined, agreed.watermark.as_ref()),
            false => note,
        };
        let is_new = state.stored.get(&agreed.list) != Some(&note);
        let mut effects = Vec::new();
        if is_new && note != Note::default() {
            effects.push(KeeperEffect::Store(note.clone()));
        }
        let start = KeeperStart {
            incarnation: Incarnation(self.backend.identity().0),
            extent: rounds.opened_with.clone(),
            joined: note.joined,
            note,
            watermark: agreed.watermark,
        };
        let keeper = Keeper::open(start, &mut effects);
        if let Some(receiving) = &keeper.note().receiving
            && let Some(hidden) = &receiving.hidden
        {
            self.hide_for_rounds(hidden);
        }
        state.keepers.insert(agreed.list, keeper);
        self.execute(rounds, state, agreed.list, effects)
            .map(|_| ())
    }

    /// Passes an event to a keeper, and executes its effects.
    fn step_keeper(
        &self,
        rounds: &Rounds,
        state: &mut RoundState,
        list: ListName,
        event: KeeperEvent,
    ) -> Result<Option<KeeperAnswer>, ReplicaFailure> {
        let Some(keeper) = state.keepers.get_mut(&list) else {
            return Ok(None);
        };
        let mut effects = Vec::new();
        keeper.step(event, &mut effects);
        let executed = self.execute(rounds, state, list, effects);
        if executed.is_err() {
            // The keeper may be ahead of the stored note. It is opened again when the list is followed next.
            state.keepers.remove(&list);
        }
        executed
    }

    /// Each effect before the next; the answer if there is one.
    fn execute(
        &self,
        rounds: &Rounds,
        state: &mut RoundState,
        list: ListName,
        effects: Vec<KeeperEffect>,
    ) -> Result<Option<KeeperAnswer>, ReplicaFailure> {
        let mut answer = None;
        for effect in effects {
            match effect {
                KeeperEffect::MarkIncomplete => self.mark_incomplete(),
                // Entries are hidden, and the actor is changed, before that is stored.
                KeeperEffect::TakeFreshActor => self.hide_for_rounds(&rounds.opened_with),
                // Hidden entries were removed before the keeper's step. Notes are stored when all that
                // the store has is durable.
                KeeperEffect::RemoveHidden(_) | KeeperEffect::Sync(_) => {}
                KeeperEffect::Store(note) => {
                    state.stored.insert(list, note);
                    self.store_notes(rounds, state)?;
                }
                KeeperEffect::Answer(given) => answer = Some(given),
            }
        }
        Ok(answer)
    }

    /// Hides an extent in addition to those hidden already.
    fn hide_for_rounds(&self, extent: &Extent) {
        if !self.hidden.covers(extent) {
            let partition = self.partition.number();
            tracing::warn!(
                event = "entries_hidden",
                partition,
                "tombstones have gone since this store was current: it answers no reads until it is \
                 repaired from the other replicas",
            );
            self.hide(extent.clone());
        }
        self.mark_incomplete();
    }

    fn store_notes(&self, rounds: &Rounds, state: &RoundState) -> Result<(), ReplicaFailure> {
        let notes = VnodeNotes {
            written_at: self.batch(self.backend.sync()?),
            lists: state.stored.clone(),
        };
        rounds
            .files
            .write(self.partition, &notes)
            .map_err(|error| not_kept(&error))
    }

    /// Removes what is hidden, and says how much that was: writes that this replica alone had acknowledged
    /// are lost.
    fn remove_hidden_pages(&self) -> Result<(), ReplicaFailure> {
        let mut request = ScanRequest {
            range: FoldRange::all(),
            // Nothing has expired at that time: expired entries are removed too.
            clock: FoldClock::stopped_at(Timestamp(0)),
            lease: Lease::Unlimited,
            limits: ScanLimits {
                entries_max: PAGE_ENTRIES,
                ..ScanLimits::NONE
            },
        };
        let mut entries = 0;
        loop {
            let page = self.remove_hidden_page(&request).map_err(failure_of)?;
            entries += page.entries;
            match page.next {
                Some(next) => request.range = FoldRange::all().resumed_at(&next),
                None => break,
            }
        }
        let partition = self.partition.number();
        tracing::info!(event = "hidden_entries_removed", partition, entries);
        Ok(())
    }

    fn batch(&self, sequence: Sequence) -> BatchName {
        BatchName {
            store: self.backend.identity().0,
            sequence: sequence.0,
        }
    }
}

/// The failure of a page without a deadline.
fn failure_of(failure: PageFailure) -> ReplicaFailure {
    match failure {
        PageFailure::Failed(failure) => failure,
        PageFailure::OutOfTime => {
            ReplicaFailure::Internal("a scan without a deadline ran out of time".to_owned())
        }
    }
}

fn not_kept(error: &kvorum_disk::DiskError) -> ReplicaFailure {
    ReplicaFailure::Storage(format!("keep the notes of rounds: {error}"))
}
