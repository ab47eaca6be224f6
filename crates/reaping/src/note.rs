//! What a replica notes of rounds, durably, in the directory of its stores: a copy or a rollback of the stores
//! is one of the note.

use kvorum_planted_defects::is_planted;

use crate::extent::Extent;
use crate::kept_because::KeptBecause;
use crate::round_event::ReplicaAnswer;
use crate::watermark::{RoundName, Watermark};

/// The last round that a replica took part in up to its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The round.
    pub round: RoundName,
    /// What was on all replicas when the round had compared them.
    pub extent: Extent,
}

/// A replica without the mark of a watermark is a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiving {
    /// The watermark of which the replica has no mark.
    pub watermark: RoundName,
    /// What its stores had when it was opened, or when it joined the list. It counts as absent.
    pub hidden: Extent,
    /// The replica has been repaired since.
    pub is_repaired: bool,
}

/// The note of a replica for one preference list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The epoch in which the replica joined the list last; zero if its stores were created for it.
    pub joined: u64,
    /// Its mark.
    pub mark: Option<Mark>,
    /// It is a receiver.
    pub receiving: Option<Receiving>,
}

impl Note {
    /// True if the replica has taken part in the watermark's round, or has noted what is missing since.
    pub(crate) fn is_current(&self, watermark: &Watermark) -> bool {
        let mark = self.mark.as_ref().map(|it| it.round);
        let receiving = self.receiving.as_ref().map(|it| it.watermark);
        mark.is_some_and(|it| it.is_at_or_behind(watermark.round))
            || receiving == Some(watermark.round)
    }
}

/// True if the hints of a store for a preference list are from before its watermark: the store was restored
/// or rolled back, and they are to be dropped. `noted` is the last round to which the store answered that it
/// has none; a store that is created notes the watermark of that moment.
pub fn are_hints_outdated(noted: Option<RoundName>, watermark: Option<&Watermark>) -> bool {
    let Some(watermark) = watermark else {
        return false;
    };
    noted.is_none_or(|it| !it.is_at_or_behind(watermark.round))
}

/// The answer of a member to the question whether it has learned a round's watermark and has the note of its
/// store of hints. One that was rolled back before it learned the watermark might hand over what it had.
///
/// # Errors
/// The reason if it has not.
pub fn confirm_hints(
    noted: Option<RoundName>,
    learned: Option<&Watermark>,
    round: RoundName,
) -> ReplicaAnswer<()> {
    if learned.is_none_or(|it| it.round != round) {
        return Err(KeptBecause::OtherWatermark);
    }
    match are_hints_outdated(noted, learned) && !is_planted!(TombstoneReapedBesideHint) {
        true => Err(KeptBecause::HintsUnknown),
        false => Ok(()),
    }
}
