//! Writers' records of each key, and the check of a server's answer.
//!
//! A key has one writer, which makes one attempt at a time. After a crash the key must have the
//! last acknowledged value, or the value of a later attempt whose answer is missing or too late to
//! count. From then on only the value read counts: an attempt that did not survive one restart must
//! not appear after a later one.

use std::collections::BTreeMap;

/// The contents of a key: the number of the attempt that wrote it, or nothing.
pub(crate) type Content = Option<u64>;

/// The history of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KeyHistory {
    /// The contents that were last acknowledged or read.
    settled: Content,
    /// The later attempts, which may or may not have taken effect.
    open: Vec<Content>,
}

/// The history of all keys of one writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    keys: BTreeMap<u32, KeyHistory>,
    attempts: u64,
    acknowledged: u64,
}

impl History {
    /// Notes that a write is about to be sent, and numbers it.
    pub(crate) fn attempt_write(&mut self, key: u32) -> u64 {
        self.attempts += 1;
        self.keys
            .entry(key)
            .or_default()
            .open
            .push(Some(self.attempts));
        self.attempts
    }

    /// Notes that a delete is about to be sent.
    pub(crate) fn attempt_delete(&mut self, key: u32) {
        self.attempts += 1;
        self.keys.entry(key).or_default().open.push(None);
    }

    /// Notes that the last attempt on a key was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: u32) {
        if let Some(history) = self.keys.get_mut(&key)
            && let Some(content) = history.open.pop()
        {
            history.settled = content;
            history.open.clear();
            self.acknowledged += 1;
        }
    }

    /// Compares a key's contents on a server with the possible ones.
    ///
    /// # Errors
    /// The lost value, or the value that must not be there.
    pub(crate) fn compare(&mut self, key: u32, observed: Content) -> Result<(), String> {
        let history = self.keys.entry(key).or_default();
        let is_possible = observed == history.settled || history.open.contains(&observed);
        match is_possible {
            true => Ok(()),
            false => Err(format!(
                "key {key} holds {}, and {} was acknowledged, with {} attempts under way",
                shown(observed),
                shown(history.settled),
                history.open.len(),
            )),
        }
    }

    /// Like [`History::compare`]; from here on only these contents count.
    ///
    /// # Errors
    /// The errors of [`History::compare`].
    pub(crate) fn judge(&mut self, key: u32, observed: Content) -> Result<(), String> {
        let verdict = self.compare(key, observed);
        let history = self.keys.entry(key).or_default();
        *history = KeyHistory {
            settled: observed,
            open: Vec::new(),
        };
        verdict
    }

    /// The keys that were ever written.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.keys.keys().copied().collect()
    }

    /// The number of acknowledged attempts.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

fn shown(content: Content) -> String {
    match content {
        Some(attempt) => format!("write {attempt}"),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_write_must_be_there() {
        let mut history = History::default();
        let attempt = history.attempt_write(1);
        history.acknowledge(1);
        assert!(history.judge(1, Some(attempt)).is_ok());
        assert!(history.judge(1, None).is_err());
    }

    #[test]
    fn an_older_write_is_a_loss() {
        let mut history = History::default();
        let first = history.attempt_write(1);
        history.acknowledge(1);
        history.attempt_write(1);
        history.acknowledge(1);
        assert!(history.judge(1, Some(first)).is_err());
    }

    #[test]
    fn an_acknowledged_delete_must_hold() {
        let mut history = History::default();
        let attempt = history.attempt_write(1);
        history.acknowledge(1);
        history.attempt_delete(1);
        history.acknowledge(1);
        assert!(history.judge(1, Some(attempt)).is_err());
        assert!(
            history.judge(1, None).is_err(),
            "it was taken for the truth"
        );
    }

    #[test]
    fn what_was_under_way_may_be_there_or_not() {
        for survives in [true, false] {
            let mut history = History::default();
            let first = history.attempt_write(1);
            history.acknowledge(1);
            let second = history.attempt_write(1);
            let observed = if survives { second } else { first };
            assert!(history.judge(1, Some(observed)).is_ok());
        }
    }

    #[test]
    fn what_was_answered_too_late_to_count_may_be_there_or_not() {
        let mut history = History::default();
        let settled = history.attempt_write(1);
        history.acknowledge(1);
        let late = history.attempt_write(1);
        history.attempt_delete(1);
        for observed in [Some(settled), Some(late), None] {
            let mut history = history.clone();
            assert!(history.judge(1, observed).is_ok(), "{observed:?}");
        }
        assert!(history.judge(1, Some(99)).is_err());
    }

    #[test]
    fn what_did_not_survive_must_not_come_back() {
        let mut history = History::default();
        let first = history.attempt_write(1);
        history.acknowledge(1);
        let second = history.attempt_write(1);
        assert!(history.judge(1, Some(first)).is_ok());
        assert!(history.judge(1, Some(second)).is_err());
    }

    #[test]
    fn acknowledgements_are_counted() {
        let mut history = History::default();
        history.attempt_write(1);
        history.acknowledge(1);
        history.acknowledge(1);
        history.attempt_delete(2);
        assert_eq!(history.acknowledged(), 1);
        assert_eq!(history.keys(), [1, 2]);
    }
}
