//! The writer's record of a key, and the check of replicas' answers against it.
//!
//! A key has one writer, which reads before it writes and names the replaced values by the context.
//! Values are unique, so that a read value identifies the attempt that made it. That decides the
//! possible contents of a key, after any partition, kill or late answer: siblings are allowed, an
//! acknowledged write that was not replaced may not be missing, and no replaced one may come back.
//! Clocks play no part in this: a replica's own account of replacements is the thing to be
//! examined.

use std::collections::BTreeSet;
use std::fmt;

/// The siblings of a key, each by the number of the attempt that wrote it.
pub type Siblings = BTreeSet<u64>;

/// A write or a delete, with any outcome.
#[derive(Clone, Debug)]
struct Attempt {
    is_delete: bool,
    /// The siblings that its writer had read.
    replaces: Siblings,
    is_acknowledged: bool,
}

/// Impossible contents, by the number of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// It was acknowledged and not replaced, and it is missing.
    Lost(u64),
    /// Key present although it was replaced.
    Back(u64),
    /// Key present without ever being written.
    NeverMade(u64),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Lost(number) => write!(f, "write {number} was acknowledged and is lost"),
            Wrong::Back(number) => write!(f, "write {number} is back, and it was replaced"),
            Wrong::NeverMade(number) => write!(f, "write {number} was never made"),
        }
    }
}

/// The past of one key. Attempts are numbered from 1.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    attempts: Vec<Attempt>,
}

impl Ledger {
    /// Notes that a write is about to be sent that replaces the read values; returns its number.
    pub fn attempt(&mut self, is_delete: bool, replaces: Siblings) -> u64 {
        self.attempts.push(Attempt {
            is_delete,
            replaces,
            is_acknowledged: false,
        });
        self.attempts.len() as u64
    }

    /// The number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts.len() as u64
    }

    /// Notes that the last attempt was acknowledged.
    pub fn acknowledge(&mut self) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.is_acknowledged = true;
        }
    }

    /// The errors of a key with these siblings when everything has converged, or with this answer
    /// to a strict quorum.
    #[must_use]
    pub fn judge(&self, siblings: &Siblings) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let numbers = (1..=self.attempts.len() as u64).rev();
        let all = || numbers.clone().zip(self.attempts.iter().rev());
        // Only later attempts replace earlier ones: one pass from the last to the first.
        let (mut accounted_for, mut replaced) = (Siblings::new(), Siblings::new());
        for (number, attempt) in all() {
            let is_there = siblings.contains(&number);
            if is_there && replaced.contains(&number) {
                wrong.push(Wrong::Back(number));
            }
            let may_be_replaced = accounted_for.contains(&number);
            if attempt.is_acknowledged && !attempt.is_delete && !is_there && !may_be_replaced {
                wrong.push(Wrong::Lost(number));
            }
            // It may have taken effect: nothing shows that a delete did.
            if attempt.is_delete || is_there || may_be_replaced {
                accounted_for.extend(&attempt.replaces);
            }
            // It has taken effect: it was acknowledged, or read.
            if attempt.is_acknowledged || is_there || replaced.contains(&number) {
                replaced.extend(&attempt.replaces);
            }
        }
        let beyond = self.attempts.len() as u64 + 1;
        let foreign = siblings.range(beyond..).next().or(siblings.get(&0));
        wrong.extend(foreign.copied().map(Wrong::NeverMade));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(ledger: &mut Ledger, replaces: &[u64], is_acknowledged: bool) -> u64 {
        let number = ledger.attempt(false, replaces.iter().copied().collect());
        if is_acknowledged {
            ledger.acknowledge();
        }
        number
    }

    fn is_possible(ledger: &Ledger, siblings: &[u64]) -> bool {
        let siblings = siblings.iter().copied().collect();
        ledger.judge(&siblings).is_empty()
    }

    #[test]
    fn an_acknowledged_write_must_be_there() {
        let mut ledger = Ledger::default();
        write(&mut ledger, &[], true);
        assert!(is_possible(&ledger, &[1]));
        assert!(!is_possible(&ledger, &[]));
        assert!(!is_possible(&ledger, &[1, 2]));
        assert_eq!(ledger.judge(&Siblings::new()), [Wrong::Lost(1)]);
    }

    #[test]
    fn what_an_acknowledged_write_replaced_must_not_come_back() {
        let mut ledger = Ledger::default();
        write(&mut ledger, &[], true);
        write(&mut ledger, &[1], true);
        assert!(is_possible(&ledger, &[2]));
        assert!(!is_possible(&ledger, &[1, 2]));
        assert!(!is_possible(&ledger, &[1]));
    }

    #[test]
    fn an_unanswered_write_may_have_taken_effect_or_not() {
        let mut ledger = Ledger::default();
        write(&mut ledger, &[], true);
        write(&mut ledger, &[1], false);
        assert!(is_possible(&ledger, &[1]));
        assert!(is_possible(&ledger, &[2]));
        assert!(!is_possible(&ledger, &[1, 2]), "2 had replaced 1");
        assert!(!is_possible(&ledger, &[]));
    }

    #[test]
    fn writes_that_did_not_see_each_other_are_siblings() {
        let mut ledger = Ledger::default();
        write(&mut ledger, &[], true);
        write(&mut ledger, &[], true);
        assert!(is_possible(&ledger, &[1, 2]));
        assert!(!is_possible(&ledger, &[2]));
        write(&mut ledger, &[1, 2], true);
        assert!(is_possible(&ledger, &[3]));
        assert!(!is_possible(&ledger, &[2, 3]));
    }

    #[test]
    fn an_acknowledged_delete_holds_and_an_unanswered_one_may() {
        let mut ledger = Ledger::default();
        write(&mut ledger, &[], true);
        ledger.attempt(true, Siblings::from([1]));
        assert!(is_possible(&ledger, &[1]));
        assert!(is_possible(&ledger, &[]));
        ledger.acknowledge();
        assert!(!is_possible(&ledger, &[1]));
        assert!(is_possible(&ledger, &[]));
    }

    #[test]
    fn what_was_read_once_had_taken_effect_and_so_had_what_it_replaced() {
        let mut ledger = Ledger::default();
        write(&mut ledger, &[], true);
        write(&mut ledger, &[1], false);
        write(&mut ledger, &[2], true);
        assert!(is_possible(&ledger, &[3]));
        assert!(
            !is_possible(&ledger, &[1, 3]),
            "2 was read and had replaced 1"
        );
    }
}
