//! The account of the load: all acknowledged writes, and the results of reads. Pure.
//!
//! A read that begins while the cluster is whole has to show every acknowledged write. Even then a
//! node may count as down for a moment, and a read may miss the writes at its stand-in. So a missed
//! write is looked up again, and counts as lost if it is still missing. The last reading decides.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_witness::{Ledger, Siblings, Wrong};

/// A key: its writer and its number for that writer.
pub(crate) type KeyId = (u32, u32);

/// Time after which a missed write has to be found. Hints are handed over within it.
pub(crate) const SECOND_LOOK: Duration = Duration::from_secs(2);

/// The account of one writer's keys.
#[derive(Debug, Default)]
pub(crate) struct Account {
    keys: BTreeMap<KeyId, Ledger>,
    /// Acknowledged writes that a read missed, each with the time of the first miss.
    missed: BTreeMap<(KeyId, u64), Missed>,
    /// Violations that no failure explains, one sentence each.
    findings: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Missed {
    at: Duration,
    is_lost: bool,
}

impl Account {
    /// Notes a write that replaces the siblings read, before it is sent; returns its number.
    pub(crate) fn attempt(&mut self, key: KeyId, replaces: Siblings) -> u64 {
        self.keys.entry(key).or_default().attempt(false, replaces)
    }

    /// Notes that the last write of a key was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: KeyId) {
        self.keys.entry(key).or_default().acknowledge();
    }

    /// The number of writes of a key, with any outcome.
    pub(crate) fn attempts(&self, key: KeyId) -> u64 {
        self.keys.get(&key).map_or(0, Ledger::attempts)
    }

    /// Notes bytes that the load never wrote.
    pub(crate) fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// Checks a read that began at `now`, while the cluster was whole, against the acknowledged
    /// writes.
    pub(crate) fn judge(&mut self, key: KeyId, siblings: &Siblings, now: Duration) {
        let verdict = self.verdict(key, siblings);
        let is_lost = |wrong: &Wrong| matches!(wrong, Wrong::Lost(_));
        let (lost, others): (Vec<Wrong>, Vec<Wrong>) = verdict.into_iter().partition(is_lost);
        // A read that misses newer values shows older ones, which disappear with the next read.
        if lost.is_empty() {
            self.findings
                .extend(others.iter().map(|it| finding(key, *it)));
        }
        let missing = |write: u64| lost.contains(&Wrong::Lost(write));
        self.missed
            .retain(|(of, write), _| *of != key || missing(*write));
        for wrong in lost {
            let Wrong::Lost(write) = wrong else { continue };
            let missed = self.missed.entry((key, write)).or_insert(Missed {
                at: now,
                is_lost: false,
            });
            missed.is_lost |= now.saturating_sub(missed.at) >= SECOND_LOOK;
        }
    }

    /// The violations of a key with `siblings`.
    pub(crate) fn verdict(&self, key: KeyId, siblings: &Siblings) -> Vec<Wrong> {
        let ledger = self.keys.get(&key);
        ledger.map_or_else(Vec::new, |ledger| ledger.judge(siblings))
    }

    /// A key with a missed write whose second look is due.
    pub(crate) fn second_look(&self, now: Duration) -> Option<KeyId> {
        let missed = self.missed.iter();
        let mut due = missed
            .filter(|(_, missed)| !missed.is_lost && now.saturating_sub(missed.at) >= SECOND_LOOK);
        due.next().map(|((key, _), _)| *key)
    }

    /// Writes that two looks missed.
    pub(crate) fn lost(&self) -> u64 {
        self.missed.values().filter(|it| it.is_lost).count() as u64
    }

    /// Violations that no failure explains.
    pub(crate) fn findings(&self) -> &[String] {
        &self.findings
    }

    /// All keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.keys.keys().copied()
    }
}

/// A sentence about a key.
pub(crate) fn finding((writer, key): KeyId, wrong: Wrong) -> String {
    format!("key {key} of writer {writer}: {wrong}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyId = (1, 2);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn with_one_write() -> Account {
        let mut account = Account::default();
        assert_eq!(account.attempt(KEY, Siblings::new()), 1);
        account.acknowledge(KEY);
        account
    }

    #[test]
    fn what_is_missed_twice_is_lost_and_what_turns_up_is_not() {
        let mut account = with_one_write();
        account.judge(KEY, &Siblings::new(), at(0));
        assert_eq!((account.lost(), account.second_look(at(1000))), (0, None));
        assert_eq!(account.second_look(at(2000)), Some(KEY));
        account.judge(KEY, &Siblings::new(), at(2000));
        assert_eq!((account.lost(), account.second_look(at(9000))), (1, None));
        account.judge(KEY, &Siblings::from([1]), at(3000));
        assert_eq!(account.lost(), 0);
        assert!(account.findings().is_empty());
    }

    #[test]
    fn what_was_not_acknowledged_may_be_missed() {
        let mut account = Account::default();
        account.attempt(KEY, Siblings::new());
        account.judge(KEY, &Siblings::new(), at(0));
        assert_eq!(account.second_look(at(9000)), None);
        account.judge(KEY, &Siblings::from([1]), at(1));
        assert!(account.findings().is_empty());
    }

    #[test]
    fn what_comes_back_is_found_unless_the_newer_one_is_missed_as_well() {
        let mut account = with_one_write();
        account.attempt(KEY, Siblings::from([1]));
        account.acknowledge(KEY);
        account.judge(KEY, &Siblings::from([1]), at(0));
        assert!(account.findings().is_empty(), "it missed write 2");
        account.judge(KEY, &Siblings::from([1, 2]), at(1));
        assert_eq!(account.findings().len(), 1);
        assert!(account.findings()[0].contains("write 1 is back"));
    }
}
