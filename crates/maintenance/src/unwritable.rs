//! Stores that take no more writes since a final failure of a sync or a write: the value log, or
//! single ones.
//!
//! Reads continue, and other replicas take the writes, but every write lacks a replica until an
//! operator repairs the device and restarts the node. So the failure is logged once, as an error,
//! and shown until then.

use std::collections::BTreeMap;

use kvorum_runtime::WallTime;

/// The reason why a store takes no more writes, and the time when that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritable {
    /// The reason, as text for operators.
    pub why: String,
    /// The time when it was found, up to a second after the failure.
    pub since: WallTime,
}

/// The value log and the stores, if they take no more writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The value log, and with it every store.
    pub log: Option<Unwritable>,
    /// Stores, by partition.
    pub stores: BTreeMap<u16, Unwritable>,
}

impl Failures {
    /// Updates the failures. A failed store stays failed until the restart.
    pub(crate) fn saw(
        &mut self,
        log: Option<String>,
        stores: impl Iterator<Item = (u16, String)>,
        now: WallTime,
    ) {
        let seen = |why| Unwritable { why, since: now };
        if let (None, Some(why)) = (&self.log, log) {
            tracing::error!(
                event = "node_log_failed",
                reason = %why,
                "this node takes no more writes: a write to its value log failed for good; other \
                 nodes take them. Look for errors of the device (dmesg), and restart the node \
                 when it is well; if it is not, let another node take its place (kvorum admin \
                 cluster force-replace)",
            );
            self.log = Some(seen(why));
        }
        for (partition, why) in stores {
            if self.stores.contains_key(&partition) {
                continue;
            }
            // The one line about the log covers all stores.
            if self.log.is_none() {
                tracing::error!(
                    event = "store_failed",
                    partition,
                    reason = %why,
                    "this store takes no more writes; other replicas take them. Look for errors of the \
                     device (dmesg), and restart the node when it is well",
                );
            }
            self.stores.insert(partition, seen(why));
        }
    }

    /// The failure after which a partition takes no more writes.
    pub fn of(&self, partition: u16) -> Option<&Unwritable> {
        self.stores.get(&partition).or(self.log.as_ref())
    }

    /// The first that was seen.
    pub fn first(&self) -> Option<&Unwritable> {
        let all = self.log.iter().chain(self.stores.values());
        all.min_by_key(|it| it.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> WallTime {
        WallTime::from_micros(micros)
    }

    #[test]
    fn the_first_reason_and_time_stay() {
        let mut failures = Failures::default();
        assert_eq!(failures.first(), None);
        failures.saw(None, [(3, "one".to_owned())].into_iter(), at(5));
        failures.saw(None, [(3, "other".to_owned())].into_iter(), at(9));
        assert_eq!(failures.stores.len(), 1);
        let first = failures.first().unwrap();
        assert_eq!((first.why.as_str(), first.since), ("one", at(5)));
        assert_eq!((failures.of(3), failures.of(4)), (Some(first), None));
    }

    #[test]
    fn a_failed_log_concerns_every_store() {
        let mut failures = Failures::default();
        failures.saw(
            Some("log".to_owned()),
            [(3, "one".to_owned())].into_iter(),
            at(5),
        );
        failures.saw(None, std::iter::empty(), at(9));
        assert_eq!(failures.of(60).unwrap().why, "log");
    }
}
