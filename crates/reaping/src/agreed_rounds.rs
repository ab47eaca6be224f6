//! The agreed state of a preference list's rounds: the watermark, and the round that may raise it.
//!
//! A round is announced before replicas are asked anything. Each replica keeps one mark, and the
//! mark of an announced round replaces the mark of an earlier attempt. So the earlier attempt must
//! not be agreed on afterwards: no replica would have the mark of the watermark.

use crate::watermark::{RoundName, Watermark};

/// The agreed state of one preference list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgreedRounds {
    /// The last round that succeeded.
    pub watermark: Option<Watermark>,
    /// The round that was announced last.
    pub announced: Option<RoundName>,
}

/// The reason why the agreed log refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The watermark was decided in another epoch.
    #[error("the round was decided in epoch {got}, and the present one is {expected}")]
    OtherEpoch {
        /// The epoch in which it was decided.
        got: u64,
        /// The present epoch.
        expected: u64,
    },
    /// Another round succeeded first.
    #[error("the round has number {got}, and the next one has number {expected}")]
    OtherNumber {
        /// The number of the round.
        got: u64,
        /// The number of the next round.
        expected: u64,
    },
    /// Another round was announced later.
    #[error("round {} was not the last one to be announced", got.number)]
    OtherRound {
        /// The round.
        got: RoundName,
        /// The round that was announced last.
        expected: Option<RoundName>,
    },
}

impl AgreedRounds {
    /// The number of the next round.
    pub fn next_number(&self) -> u64 {
        Watermark::next_number(self.watermark.as_ref())
    }

    /// The state after a round was announced.
    ///
    /// # Errors
    /// The reason if it must not be announced.
    pub fn announce(&self, round: RoundName) -> Result<Self, Refused> {
        let expected = self.next_number();
        if round.number != expected {
            return Err(Refused::OtherNumber {
                got: round.number,
                expected,
            });
        }
        Ok(Self {
            announced: Some(round),
            ..self.clone()
        })
    }

    /// The state after a watermark was raised, in the present epoch.
    ///
    /// # Errors
    /// The reason if it must not be raised.
    pub fn raise(&self, watermark: Watermark, epoch: u64) -> Result<Self, Refused> {
        if watermark.epoch != epoch {
            return Err(Refused::OtherEpoch {
                got: watermark.epoch,
                expected: epoch,
            });
        }
        if self.announced != Some(watermark.round) {
            return Err(Refused::OtherRound {
                got: watermark.round,
                expected: self.announced,
            });
        }
        Ok(Self {
            watermark: Some(watermark),
            announced: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::Incarnation;

    fn round(number: u64, nonce: u64) -> RoundName {
        RoundName { number, nonce }
    }

    fn watermark(round: RoundName, epoch: u64) -> Watermark {
        Watermark {
            round,
            epoch,
            replicas: vec![Incarnation(1), Incarnation(2)],
        }
    }

    #[test]
    fn a_round_is_announced_and_raises_the_watermark_in_one_epoch() {
        let announced = AgreedRounds::default().announce(round(1, 5)).unwrap();
        assert_eq!(announced.watermark, None);
        let raised = announced.raise(watermark(round(1, 5), 7), 7).unwrap();
        assert_eq!(raised.watermark, Some(watermark(round(1, 5), 7)));
        assert_eq!(raised.next_number(), 2);
        let other_epoch = Refused::OtherEpoch {
            got: 7,
            expected: 8,
        };
        let raised = announced.raise(watermark(round(1, 5), 7), 8);
        assert_eq!(raised, Err(other_epoch));
    }

    #[test]
    fn only_the_next_number_is_announced() {
        let agreed = AgreedRounds {
            watermark: Some(watermark(round(4, 5), 7)),
            announced: None,
        };
        assert!(agreed.announce(round(5, 1)).is_ok());
        for got in [4, 6] {
            let refused = Refused::OtherNumber { got, expected: 5 };
            assert_eq!(agreed.announce(round(got, 1)), Err(refused));
        }
    }

    #[test]
    fn a_round_that_another_was_announced_behind_raises_nothing() {
        let first = AgreedRounds::default().announce(round(1, 5)).unwrap();
        let second = first.announce(round(1, 6)).unwrap();
        let refused = |expected| Refused::OtherRound {
            got: round(1, 5),
            expected,
        };
        let late = second.raise(watermark(round(1, 5), 7), 7);
        assert_eq!(late, Err(refused(Some(round(1, 6)))));
        let raised = second.raise(watermark(round(1, 6), 7), 7).unwrap();
        let late = raised.raise(watermark(round(1, 5), 7), 7);
        assert_eq!(late, Err(refused(None)));
    }
}
