//! Repair without reads: exchanges have to find and mend all differences once the faults are over.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_anti_entropy::Target;
use kvorum_runtime::Moment;

use crate::cluster::Cluster;
use crate::finds::Finds;

/// The time for which trees are dropped, so often that few are complete meanwhile.
const TREES_DROPPED_FOR: Duration = Duration::from_secs(8);
const TREES_DROPPED_EVERY: Duration = Duration::from_millis(5);
const DROPS_BETWEEN_LOOKS: u32 = 20;
/// Once faults are over, every preference list has a complete exchange within this time.
const EXCHANGES_WAIT_MAX: Duration = Duration::from_secs(240);

impl Cluster {
    /// Waits until an exchange that began without faults has found all replicas equal, for each
    /// preference list.
    pub(crate) async fn repair_by_exchanges(&self) {
        let mut finds = None;
        if self.plan.has_rare_exchanges {
            finds = Some(self.look_for_differences().await);
        }
        let begun = self.runtime.now();
        if self.plan.drops_trees {
            self.drop_trees_for_a_while(begun).await;
        }
        let _compared_or_accused = self.await_exchanges(begun, &mut finds).await;
    }

    /// Drops all trees repeatedly, so that most are being built while they are compared. Ends early
    /// when every preference list counts as complete.
    async fn drop_trees_for_a_while(&self, begun: Moment) {
        let mut drops = 0_u32;
        while self.runtime.now().since(begun) < TREES_DROPPED_FOR {
            drops += 1;
            if drops.is_multiple_of(DROPS_BETWEEN_LOOKS) && self.incomplete_since(begun).is_empty()
            {
                return;
            }
            for machine in self.machines() {
                let Some(running) = machine.running() else {
                    continue;
                };
                let partitions = self.agreed().ring().size().partitions();
                let vnodes = partitions.filter_map(|it| running.vnodes.vnode(it));
                vnodes.for_each(|vnode| vnode.drop_trees());
            }
            self.runtime.sleep(TREES_DROPPED_EVERY).await;
        }
    }

    /// Checks that equal replicas stay equal: a final round of exchanges repairs nothing.
    ///
    /// A tree keeps an object that has expired and was collected. If the clock goes back later, the
    /// object is missing but not expired, and the next build of the tree shows that. So with
    /// expiring objects, the check comes later.
    pub(crate) async fn check_rest(&self) {
        let rounds_max = if self.plan.has_expiry { 8 } else { 2 };
        let (mut before, mut more) = (0, 0);
        for round in 1..=rounds_max {
            if !self.await_exchanges(self.runtime.now(), &mut None).await {
                return;
            }
            let repaired = self.keys_repaired();
            more = repaired - before;
            if round > 1 && more == 0 {
                return;
            }
            before = repaired;
        }
        self.accuse(&format!(
            "{more} keys are repaired after all replicas were found to be equal"
        ));
    }

    fn keys_repaired(&self) -> u64 {
        let running = self.machines().into_iter().filter_map(|it| it.running());
        let repaired = running.map(|it| {
            let exchanges = it.exchanges.as_ref();
            exchanges.map_or(0, |it| it.report().keys_repaired)
        });
        repaired.sum()
    }

    /// Waits until each preference list has a complete exchange that began after a moment; false if
    /// that takes too long.
    async fn await_exchanges(&self, begun: Moment, finds: &mut Option<Finds>) -> bool {
        loop {
            self.runtime.sleep(Duration::from_secs(1)).await;
            if let Some(finds) = finds {
                self.follow(finds);
            }
            let waits_for = self.incomplete_since(begun);
            if waits_for.is_empty() {
                self.note("every preference list is compared");
                return true;
            }
            if self.runtime.now().since(begun) > EXCHANGES_WAIT_MAX {
                let (waited, count) = (EXCHANGES_WAIT_MAX.as_secs(), waits_for.len());
                let first: Vec<String> = waits_for.into_iter().take(3).collect();
                let first = first.join("; ");
                self.accuse(&format!(
                    "{waited} s after all was calm, {count} exchanges are not complete: {first}"
                ));
                return false;
            }
        }
    }

    /// The targets without a complete exchange since a moment, in words.
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

    /// The time since the last complete exchange of each target began, according to the nodes that
    /// compare it.
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
