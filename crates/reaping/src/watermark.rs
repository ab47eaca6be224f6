//! The watermark of a preference list: the last complete exchange that nothing can come behind of.
//!
//! Watermarks are agreed state. Replicas learn them in the order of the agreed log, so a replica that has
//! learned one knows those before it.

/// One lifetime of a replica's data: another one when its store was created or erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Names one attempt to raise a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoundName {
    /// One above the number of the watermark that it is to replace; the first is one.
    pub number: u64,
    /// A random number: two attempts with one number differ in it.
    pub nonce: u64,
}

impl RoundName {
    /// True if a note of this round is of the watermark's round, or of one that can only have been opened
    /// behind it.
    pub fn is_at_or_behind(self, watermark: Self) -> bool {
        self == watermark || self.number > watermark.number
    }
}

/// The last round of a preference list that went through; agreed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The round.
    pub round: RoundName,
    /// Differs whenever the places of the ring, the number of replicas or the members do.
    pub epoch: u64,
    /// All replicas of the preference list, in its order.
    pub replicas: Vec<Incarnation>,
}

/// Why the agreed log does not take a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was decided in another epoch.
    OtherEpoch {
        /// The epoch in which it was decided.
        got: u64,
        /// The present one.
        expected: u64,
    },
    /// Another round went through first.
    OtherNumber {
        /// The number of the round.
        got: u64,
        /// The number of the next round.
        expected: u64,
    },
}

impl Watermark {
    /// The number of the round that may replace a watermark.
    pub fn next_number(present: Option<&Self>) -> u64 {
        present.map_or(0, |it| it.round.number) + 1
    }

    /// Says whether this may replace the present watermark, in the present epoch.
    ///
    /// # Errors
    /// The reason if it may not.
    pub fn check_follows(&self, present: Option<&Self>, epoch: u64) -> Result<(), Refused> {
        if self.epoch != epoch {
            return Err(Refused::OtherEpoch {
                got: self.epoch,
                expected: epoch,
            });
        }
        let expected = Self::next_number(present);
        if self.round.number != expected {
            return Err(Refused::OtherNumber {
                got: self.round.number,
                expected,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: u64, nonce: u64) -> RoundName {
        RoundName { number, nonce }
    }

    fn watermark(number: u64, epoch: u64) -> Watermark {
        Watermark {
            round: round(number, 5),
            epoch,
            replicas: vec![Incarnation(1), Incarnation(2)],
        }
    }

    #[test]
    fn a_watermark_follows_its_predecessor_in_one_epoch() {
        assert_eq!(watermark(1, 7).check_follows(None, 7), Ok(()));
        let present = watermark(4, 6);
        let follows = |it: Watermark| it.check_follows(Some(&present), 7);
        assert_eq!(follows(watermark(5, 7)), Ok(()));
        let number = |got| Refused::OtherNumber { got, expected: 5 };
        assert_eq!(follows(watermark(4, 7)), Err(number(4)));
        assert_eq!(follows(watermark(6, 7)), Err(number(6)));
        let epoch = Refused::OtherEpoch {
            got: 6,
            expected: 7,
        };
        assert_eq!(follows(watermark(5, 6)), Err(epoch));
    }

    #[test]
    fn two_attempts_with_one_number_are_two() {
        assert!(round(4, 1).is_at_or_behind(round(4, 1)));
        assert!(!round(4, 1).is_at_or_behind(round(4, 2)));
        assert!(!round(3, 1).is_at_or_behind(round(4, 1)));
        assert!(round(5, 9).is_at_or_behind(round(4, 1)), "not agreed yet");
    }
}
