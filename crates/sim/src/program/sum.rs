//! The results of many runs.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_sim::{FaultKind, Operations, Outcome, Upkeep};

use crate::console::{conclude, line};

/// The results of all runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) runs: u64,
    /// Runs whose traces were compared with those of a second run.
    pub(crate) compared: u64,
    pub(crate) operations: Operations,
    pub(crate) faults: BTreeMap<FaultKind, u64>,
    pub(crate) upkeep: Upkeep,
    pub(crate) virtual_time: Duration,
    pub(crate) failed_seeds: Vec<u64>,
}

impl Sum {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.virtual_time += outcome.took;
        self.upkeep += outcome.upkeep;
        let (sum, one) = (&mut self.operations, &outcome.operations);
        sum.reads += one.reads;
        sum.checked_reads += one.checked_reads;
        sum.writes += one.writes;
        sum.deletes += one.deletes;
        sum.listings += one.listings;
        sum.failed += one.failed;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
    }

    /// Faults of all kinds.
    pub(crate) fn fault_count(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Each kind of fault, with its number.
    pub(crate) fn faults_by_kind(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        let count = |kind| self.faults.get(&kind).copied().unwrap_or(0);
        let kinds = FaultKind::ALL.iter().copied();
        kinds.map(move |kind| (kind, count(kind)))
    }

    /// Prints all results; true if no violation was found. `took` is real time.
    pub(crate) fn print(&self, first: u64, took: Duration) -> bool {
        for (kind, count) in self.faults_by_kind() {
            line(&format!("{count:>8}  {}", kind.name()));
        }
        let operations = &self.operations;
        line(&format!(
            "{} seeds from {first} in {} s ({:.1} hours of virtual time), {} run twice: {} acknowledged \
             ({} reads, of which {} were checked against all strict writes, {} writes, {} deletes, {} \
             listings), {} failed, {} faults of {} kinds, {} merges, {} collections, {} tombstones gone; {} seeds found something: {:?}",
            self.runs,
            took.as_secs(),
            self.virtual_time.as_secs_f64() / 3_600.0,
            self.compared,
            operations.acknowledged(),
            operations.reads,
            operations.checked_reads,
            operations.writes,
            operations.deletes,
            operations.listings,
            operations.failed,
            self.fault_count(),
            self.faults.len(),
            self.upkeep.merges,
            self.upkeep.collections,
            self.upkeep.tombstones_reaped,
            self.failed_seeds.len(),
            self.failed_seeds,
        ));
        let failed = self.failed_seeds.len();
        conclude(self.runs.saturating_sub(failed as u64), failed)
    }
}
