//! Repair without reads: exchanges have to find and mend all differences once the faults are over.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_anti_entropy::Target;
use kvorum_runtime::Moment;

use crate::cluster::Cluster;

/// Once all is calm, every preference list is compared completely within this.
const EXCHANGES_WAIT_MAX: Duration = Duration::from_secs(240);

impl Cluster {
    /// Waits until an exchange that began without faults has found all replicas equal, for each
    /// preference list.
    pub(crate) async fn repair_by_exchanges(&self) {
        let begun = self.runtime.now();
        loop {
            self.runtime.sleep(Duration::from_secs(1)).await;
            let waits_for = self.incomplete_since(begun);
            if waits_for.is_empty() {
                self.note("every preference list is compared");
                return;
            }
            if self.runtime.now().since(begun) > EXCHANGES_WAIT_MAX {
                let (waited, count) = (EXCHANGES_WAIT_MAX.as_secs(), waits_for.len());
                let first: Vec<String> = waits_for.into_iter().take(3).collect();
                let first = first.join("; ");
                self.accuse(&format!(
                    "{waited} s after all was calm, {count} exchanges are not complete: {first}"
                ));
                return;
            }
        }
    }

    /// The targets that are not known to be complete since a moment, in words.
    fn incomplete_since(&self, begun: Moment) -> Vec<String> {
        let state = self.agreed();
        let ring = state.ring();
        let several = |n_val: &u32| ring.effective_n(*n_val, false) > 1;
        let n_vals: Vec<u32> = state.n_vals().into_iter().filter(several).collect();
        let since = self.runtime.now().since(begun);
        let known = self.ages_of_completion();
        let mut missing = Vec::new();
        for partition in ring.size().partitions() {
            for n_val in &n_vals {
                let target = Target {
                    partition: partition.number(),
                    n: u8::try_from(*n_val).unwrap_or(u8::MAX),
                };
                match known.get(&target) {
                    Some(Some(age)) if *age <= since => {}
                    Some(age) => missing.push(format!("{target:?}: complete {age:?} ago")),
                    None => missing.push(format!("{target:?}: compared by no node")),
                }
            }
        }
        missing
    }

    /// The time since the last complete exchange of each target began, by the nodes that compare it.
    fn ages_of_completion(&self) -> BTreeMap<Target, Option<Duration>> {
        let mut ages: BTreeMap<Target, Option<Duration>> = BTreeMap::new();
        for machine in self.machines() {
            let running = machine.running();
            let Some(exchanges) = running.as_ref().and_then(|it| it.exchanges.as_ref()) else {
                continue;
            };
            let report = exchanges.report();
            for target in report.targets {
                let age = target.complete_at.filter(|_| target.is_complete_in_epoch);
                let age = age.map(|at| Duration::from_micros(report.now_micros.saturating_sub(at)));
                let known = ages.entry(target.target).or_default();
                *known = match (*known, age) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
        }
        ages
    }
}
