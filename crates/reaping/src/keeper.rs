//! A replica's side of rounds: its note, the tombstones that it may remove, and the entries that
//! are hidden.
//!
//! A replica whose data is from before the watermark may have deleted objects and lack every trace
//! of the deletion: it was restored from a backup, was rolled back, or has come to the list with
//! leftovers. The entries that its stores had then are *hidden*. They count as absent in each lookup of
//! the vnode: a hidden value that was merged into a new write would be back under a new dot.
//!
//! A replica may remove a tombstone within its mark when the round has said that all replicas and
//! members have confirmed its watermark.

use kvorum_planted_defects::is_planted;

use crate::extent::{BatchName, Extent};
use crate::keeper_event::{KeeperAnswer, KeeperEffect, KeeperEvent};
use crate::kept_because::KeptBecause;
use crate::note::{Mark, Note, Receiving};
use crate::round_event::ReplicaAnswer;
use crate::watermark::{Incarnation, RoundName, Watermark};

/// The facts about a replica when its stores have been opened.
#[derive(Clone, Debug)]
pub struct KeeperStart {
    /// The incarnation of its stores.
    pub incarnation: Incarnation,
    /// All that they have.
    pub extent: Extent,
    /// The note that lies with them; the default for new ones.
    pub note: Note,
    /// The watermark that its node has learned.
    pub watermark: Option<Watermark>,
    /// The epoch in which its partition came to the list last, by the ring; zero if it was always
    /// there.
    pub joined: u64,
}

/// The entries that a replica may remove and show, of one preference list.
#[derive(Debug)]
pub struct Keeper {
    incarnation: Incarnation,
    /// All that its stores had when they were opened.
    opened_with: Extent,
    note: Note,
    watermark: Option<Watermark>,
    /// The mark of the round that it has opened.
    opened: Option<Mark>,
}

impl Keeper {
    /// Judges the entries of the stores, before the vnode serves.
    pub fn open(start: KeeperStart, effects: &mut Vec<KeeperEffect>) -> Self {
        let mut keeper = Self {
            incarnation: start.incarnation,
            opened_with: start.extent,
            note: start.note,
            watermark: start.watermark,
            opened: None,
        };
        if start.joined > keeper.note.joined {
            let extent = keeper.opened_with.clone();
            keeper.join(start.joined, extent, effects);
            return keeper;
        }
        if keeper.hidden().is_some() {
            effects.push(KeeperEffect::MarkIncomplete);
        }
        keeper.judge(effects);
        keeper
    }

    /// Takes one event in and appends what follows from it.
    pub fn step(&mut self, event: KeeperEvent, effects: &mut Vec<KeeperEffect>) {
        match event {
            KeeperEvent::Learned(watermark) => self.learn(watermark, effects),
            KeeperEvent::Joined { epoch, extent } => self.join(epoch, extent, effects),
            KeeperEvent::Repaired => self.repaired(effects),
            KeeperEvent::LossAccepted => self.accept_loss(effects),
            KeeperEvent::Open { round, extent } => {
                let answer = self.open_round(round, extent);
                effects.push(KeeperEffect::Answer(KeeperAnswer::Opened(answer)));
            }
            KeeperEvent::MakeNote { round } => {
                let answer = self.make_note(round, effects);
                effects.push(KeeperEffect::Answer(KeeperAnswer::Noted(answer)));
            }
            KeeperEvent::Confirm { round } => {
                let answer = self.confirm(round);
                effects.push(KeeperEffect::Answer(KeeperAnswer::Confirmed(answer)));
            }
            KeeperEvent::Reap { round } => {
                let answer = self.allow_reaping(round, effects);
                effects.push(KeeperEffect::Answer(KeeperAnswer::MayReap(answer)));
            }
        }
    }

    /// False for an entry that counts as absent.
    pub fn shows(&self, written_by: BatchName) -> bool {
        self.hidden().is_none_or(|it| !it.has(written_by))
    }

    /// True if a tombstone may be removed.
    pub fn may_reap(&self, written_by: BatchName) -> bool {
        let mark = self.note.mark.as_ref();
        let is_marked = mark.is_some_and(|it| it.is_confirmed && it.extent.has(written_by));
        is_marked && self.note.receiving.is_none()
    }

    /// The note as it is stored, or about to be.
    pub fn note(&self) -> &Note {
        &self.note
    }

    fn hidden(&self) -> Option<&Extent> {
        let receiving = self.note.receiving.as_ref();
        receiving.and_then(|it| it.hidden.as_ref())
    }

    fn learn(&mut self, watermark: Watermark, effects: &mut Vec<KeeperEffect>) {
        let known = self.watermark.as_ref().map_or(0, |it| it.round.number);
        if watermark.round.number <= known {
            return;
        }
        self.watermark = Some(watermark);
        self.judge(effects);
    }

    /// A replica from before the watermark hides the entries that it was opened with.
    fn judge(&mut self, effects: &mut Vec<KeeperEffect>) {
        let Some(watermark) = &self.watermark else {
            return;
        };
        if self.note.is_current(watermark) || is_planted!(RestoredReplicaTakenForSource) {
            return;
        }
        self.note.receiving = Some(Receiving {
            watermark: watermark.round,
            hidden: Some(self.opened_with.clone()),
        });
        self.hide(effects);
    }

    /// Entries that a transfer or a repair brings from now on are shown.
    fn join(&mut self, epoch: u64, extent: Extent, effects: &mut Vec<KeeperEffect>) {
        if epoch <= self.note.joined {
            return;
        }
        let receiving = self.watermark.as_ref().map(|watermark| Receiving {
            watermark: watermark.round,
            hidden: Some(extent),
        });
        self.note = Note {
            joined: epoch,
            mark: None,
            receiving,
        };
        self.hide(effects);
    }

    /// The note has been changed so that something is hidden from now on.
    fn hide(&mut self, effects: &mut Vec<KeeperEffect>) {
        self.opened = None;
        effects.push(KeeperEffect::MarkIncomplete);
        effects.push(KeeperEffect::TakeFreshActor);
        effects.push(KeeperEffect::Store(self.note.clone()));
    }

    /// The other replicas have given their entries, so the hidden ones are no longer needed.
    fn repaired(&mut self, effects: &mut Vec<KeeperEffect>) {
        let receiving = self.note.receiving.as_mut();
        let Some(hidden) = receiving.and_then(|it| it.hidden.take()) else {
            return;
        };
        effects.push(KeeperEffect::RemoveHidden(hidden));
        effects.push(KeeperEffect::Store(self.note.clone()));
    }

    fn accept_loss(&mut self, effects: &mut Vec<KeeperEffect>) {
        let receiving = self.note.receiving.as_mut();
        if receiving.is_some_and(|it| it.hidden.take().is_some()) {
            effects.push(KeeperEffect::Store(self.note.clone()));
        }
    }

    fn open_round(&mut self, round: RoundName, extent: Extent) -> ReplicaAnswer<Incarnation> {
        self.opened = None;
        if round.number != Watermark::next_number(self.watermark.as_ref()) {
            return Err(KeptBecause::OtherWatermark);
        }
        if self.hidden().is_some() {
            return Err(KeptBecause::ReplicaIncomplete);
        }
        self.opened = Some(Mark {
            round,
            extent,
            is_confirmed: false,
        });
        Ok(self.incarnation)
    }

    /// Nothing is hidden in a replica that has opened a round.
    fn make_note(
        &mut self,
        round: RoundName,
        effects: &mut Vec<KeeperEffect>,
    ) -> ReplicaAnswer<()> {
        let opened = self.opened.take_if(|it| it.round == round);
        let mark = opened.ok_or(KeptBecause::NotNoted)?;
        effects.push(KeeperEffect::Sync(mark.extent.clone()));
        (self.note.mark, self.note.receiving) = (Some(mark), None);
        effects.push(KeeperEffect::Store(self.note.clone()));
        Ok(())
    }

    fn confirm(&self, round: RoundName) -> ReplicaAnswer<()> {
        let watermark = self.watermark.as_ref();
        let watermark = watermark.filter(|it| it.round == round);
        let watermark = watermark.ok_or(KeptBecause::OtherWatermark)?;
        if !watermark.replicas.contains(&self.incarnation) {
            return Err(KeptBecause::OtherReplica);
        }
        let mark = self.note.mark.as_ref();
        match mark.is_some_and(|it| it.round == round) && self.note.receiving.is_none() {
            true => Ok(()),
            false => Err(KeptBecause::NotNoted),
        }
    }

    /// Noted durably, so that a second start continues: the others continue too, and a tombstone that
    /// one replica keeps would come back to all.
    fn allow_reaping(
        &mut self,
        round: RoundName,
        effects: &mut Vec<KeeperEffect>,
    ) -> ReplicaAnswer<()> {
        let watermark = self.watermark.as_ref();
        let has_learned = watermark.is_some_and(|it| it.round == round);
        let mark = self.note.mark.as_mut();
        let mark = mark.filter(|it| has_learned && it.round == round);
        let mark = mark.ok_or(KeptBecause::OtherWatermark)?;
        if !mark.is_confirmed {
            mark.is_confirmed = true;
            effects.push(KeeperEffect::Store(self.note.clone()));
        }
        Ok(())
    }
}
