//! The note of a store of hints: the last round to which it has answered "no hints".
//!
//! The note is durable and part of the store: a copy or a rollback of the store includes the note.
//! Hints in a store that lacks the note of a watermark's round are from before the watermark.

use kvorum_planted_defects::is_planted;

use crate::kept_because::KeptBecause;
use crate::round_event::ReplicaAnswer;
use crate::watermark::{RoundName, Watermark};

/// The note of a store of hints for one preference list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintsNote {
    round: Option<RoundName>,
    /// The note was made since the store was opened.
    is_of_this_run: bool,
    /// No hint was stored since the note.
    is_untouched: bool,
}

impl HintsNote {
    /// The note of a store that was opened with this stored note. A new store notes the watermark
    /// at its creation.
    pub fn opened(noted: Option<RoundName>) -> Self {
        Self {
            round: noted,
            is_of_this_run: false,
            is_untouched: false,
        }
    }

    /// The round that is stored.
    pub fn round(&self) -> Option<RoundName> {
        self.round
    }

    /// Records that the store has no hint for the list. The caller stores the note durably before
    /// it answers the round.
    pub fn has_none(&mut self, round: RoundName) {
        *self = Self {
            round: Some(round),
            is_of_this_run: true,
            is_untouched: true,
        };
    }

    /// Records that a hint for the list is about to be stored.
    pub fn adds(&mut self) {
        self.is_untouched = false;
    }

    /// True if the store was restored or rolled back: the hints for the list that it had when it
    /// was opened are from before the watermark, and have to be dropped.
    pub fn is_outdated(&self, watermark: Option<&Watermark>) -> bool {
        watermark.is_some_and(|watermark| {
            self.round
                .is_none_or(|it| !it.is_at_or_behind(watermark.round))
        })
    }

    /// Confirms that no hint was stored since the note for a round. A later hint may belong to an
    /// earlier request.
    ///
    /// # Errors
    /// The reason if this is not certain.
    pub fn still_none(&self, round: RoundName) -> ReplicaAnswer<()> {
        self.check(self.is_untouched, round)
    }

    /// Confirms that the member has a round's watermark, and that its store was not opened since
    /// its note: a reopened store may have been rolled back, and have handed over old hints.
    ///
    /// # Errors
    /// The reason if this is not so.
    pub fn confirm(&self, learned: Option<&Watermark>, round: RoundName) -> ReplicaAnswer<()> {
        if learned.is_none_or(|it| it.round != round) {
            return Err(KeptBecause::OtherWatermark);
        }
        self.check(true, round)
    }

    fn check(&self, is_untouched: bool, round: RoundName) -> ReplicaAnswer<()> {
        let has_none = self.round == Some(round) && self.is_of_this_run && is_untouched;
        match has_none || is_planted!(TombstoneReapedBesideHint) {
            true => Ok(()),
            false => Err(KeptBecause::HintsOutstanding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::Incarnation;

    fn round(number: u64) -> RoundName {
        RoundName { number, nonce: 70 }
    }

    fn watermark(number: u64) -> Watermark {
        Watermark {
            round: round(number),
            epoch: 1,
            replicas: vec![Incarnation(1)],
        }
    }

    #[test]
    fn hints_without_the_note_of_the_watermark_are_outdated() {
        let present = watermark(4);
        let is_outdated = |noted| HintsNote::opened(noted).is_outdated(Some(&present));
        assert!(is_outdated(None));
        assert!(is_outdated(Some(round(3))));
        let other = RoundName {
            number: 4,
            nonce: 71,
        };
        assert!(is_outdated(Some(other)));
        assert!(!is_outdated(Some(round(4))));
        assert!(!is_outdated(Some(round(5))));
        assert!(!HintsNote::opened(None).is_outdated(None));
    }

    #[test]
    fn a_note_holds_until_a_hint_comes() {
        let mut note = HintsNote::default();
        let outstanding = Err(KeptBecause::HintsOutstanding);
        assert_eq!(note.still_none(round(4)), outstanding);
        note.has_none(round(4));
        assert_eq!(note.round(), Some(round(4)));
        assert_eq!(note.still_none(round(4)), Ok(()));
        assert_eq!(note.still_none(round(5)), outstanding);
        note.adds();
        assert_eq!(note.still_none(round(4)), outstanding);
        let opened = HintsNote::opened(Some(round(4)));
        assert_eq!(opened.still_none(round(4)), outstanding);
    }

    #[test]
    fn a_member_confirms_a_watermark_that_it_has_learned_and_noted_in_this_run() {
        let mut note = HintsNote::default();
        note.has_none(round(4));
        let present = watermark(4);
        let not_learned = Err(KeptBecause::OtherWatermark);
        assert_eq!(note.confirm(None, round(4)), not_learned);
        assert_eq!(note.confirm(Some(&watermark(3)), round(4)), not_learned);
        assert_eq!(note.confirm(Some(&present), round(4)), Ok(()));
        note.adds();
        assert_eq!(note.confirm(Some(&present), round(4)), Ok(()));
        let outstanding = Err(KeptBecause::HintsOutstanding);
        let opened = HintsNote::opened(Some(round(4)));
        assert_eq!(opened.confirm(Some(&present), round(4)), outstanding);
        note.has_none(round(3));
        assert_eq!(note.confirm(Some(&present), round(4)), outstanding);
    }
}
