//! Outcomes of an exchange.

use kvorum_encoding::StorageKey;

use crate::range_hint::RangeHint;

/// The reason why an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The replicas are equal.
    Equal,
    /// All differences were writes under way at the first comparison.
    InFlight,
    /// The differences were passed to repair.
    Repaired,
    /// Trees differed, but no keys or versions: the trees are corrected.
    Recounted,
    /// Nothing differed among the listed keys, but these are not all keys of their leaves.
    NothingInRange,
    /// Fewer than two replicas could answer.
    TooFewReplicas,
    /// The size of a tree changed meanwhile.
    TreeChanged,
    /// The exchange was stopped.
    Stopped,
}

/// The furthest comparison that an exchange reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// No comparison was completed: replicas or trees were missing, or the exchange was stopped.
    Nothing,
    /// The roots of trees.
    Roots,
    /// Branches of trees.
    Branches,
    /// Keys and their versions.
    Keys,
}

/// Outcome and cost of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The reason why it ended.
    pub ended_by: EndedBy,
    /// Every entry that any replica had when the exchange began is on all replicas now.
    pub is_complete: bool,
    /// True for each place of the preference list that was compared to the end.
    pub took_part: Vec<bool>,
    /// Questions to replicas.
    pub questions: u32,
    /// Branches that differed twice.
    pub branches: u32,
    /// Leaves that differed twice and whose keys were listed.
    pub leaves: u32,
    /// Leaves that differed without a differing key, and were corrected.
    pub leaves_recounted: u32,
    /// Entries listed, over all replicas.
    pub keys_read: u64,
    /// Keys that differed and whose versions were changing.
    pub keys_in_flight: u32,
    /// Keys passed to repair.
    pub keys_repaired: u32,
    /// Repairs that did not reach every replica.
    pub repairs_failed: u32,
    /// Bounds left differences to the next exchange.
    pub is_cut: bool,
    /// The last listed key, if the leaves have more keys than may be listed: the next exchange may
    /// continue after it.
    pub resume_after: Option<StorageKey>,
    /// The range that the next exchange may compare first.
    pub hint: Option<RangeHint>,
}

impl Outcome {
    pub(crate) fn new(replicas: usize) -> Self {
        Self {
            ended_by: EndedBy::Equal,
            is_complete: false,
            took_part: vec![true; replicas],
            questions: 0,
            branches: 0,
            leaves: 0,
            leaves_recounted: 0,
            keys_read: 0,
            keys_in_flight: 0,
            keys_repaired: 0,
            repairs_failed: 0,
            is_cut: false,
            resume_after: None,
            hint: None,
        }
    }

    /// The furthest comparison that the exchange reached.
    pub fn compared(&self) -> Compared {
        match self.ended_by {
            EndedBy::TooFewReplicas | EndedBy::TreeChanged | EndedBy::Stopped => Compared::Nothing,
            EndedBy::Equal
            | EndedBy::InFlight
            | EndedBy::Repaired
            | EndedBy::Recounted
            | EndedBy::NothingInRange => match (self.branches, self.leaves) {
                (0, _) => Compared::Roots,
                (_, 0) => Compared::Branches,
                _ => Compared::Keys,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_comparison_is_the_one_that_found_something_to_look_into() {
        let outcome = |ended_by, branches, leaves| Outcome {
            ended_by,
            branches,
            leaves,
            ..Outcome::new(3)
        };
        for (outcome, expected) in [
            (outcome(EndedBy::Equal, 0, 0), Compared::Roots),
            (outcome(EndedBy::InFlight, 0, 0), Compared::Roots),
            (outcome(EndedBy::InFlight, 2, 0), Compared::Branches),
            (outcome(EndedBy::InFlight, 2, 5), Compared::Keys),
            (outcome(EndedBy::Repaired, 1, 1), Compared::Keys),
            (outcome(EndedBy::TooFewReplicas, 1, 0), Compared::Nothing),
            (outcome(EndedBy::Stopped, 1, 1), Compared::Nothing),
        ] {
            assert_eq!(outcome.compared(), expected, "{outcome:?}");
        }
    }
}
