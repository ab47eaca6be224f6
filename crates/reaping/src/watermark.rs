//! The watermark of a preference list: the last complete exchange after which no older version can
//! arrive.
//!
//! Watermarks are agreed state. Replicas apply them in the order of the agreed log, so a replica
//! with one watermark has applied all earlier ones.

use serde::{Deserialize, Serialize};

/// One lifetime of a replica's data: a new one begins when its store is created or erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The name of one attempt to raise a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoundName {
    /// One above the number of the watermark that the round replaces; the first is one.
    pub number: u64,
    /// A random number: two attempts with one number differ in it.
    pub nonce: u64,
}

impl RoundName {
    /// True if this round is the watermark's round, or a round that can only have been opened after
    /// it.
    pub fn is_at_or_behind(self, watermark: Self) -> bool {
        self == watermark || self.number > watermark.number
    }
}

/// The last successful round of a preference list; agreed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The round.
    pub round: RoundName,
    /// A number that changes with the placement of the ring, the number of replicas and the
    /// members.
    pub epoch: u64,
    /// All replicas of the preference list, in its order.
    pub replicas: Vec<Incarnation>,
}

impl Watermark {
    /// The number of the round that may follow a watermark.
    pub fn next_number(present: Option<&Self>) -> u64 {
        present.map_or(0, |it| it.round.number) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: u64, nonce: u64) -> RoundName {
        RoundName { number, nonce }
    }

    #[test]
    fn two_attempts_with_one_number_are_two() {
        assert!(round(4, 1).is_at_or_behind(round(4, 1)));
        assert!(!round(4, 1).is_at_or_behind(round(4, 2)));
        assert!(!round(3, 1).is_at_or_behind(round(4, 1)));
        assert!(round(5, 9).is_at_or_behind(round(4, 1)), "not agreed yet");
    }
}
