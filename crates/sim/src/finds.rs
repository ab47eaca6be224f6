//! Successive finds: exchanges after a find compare all changes since the oldest one that it found.
//!
//! If only the number of listed keys cuts an exchange, these exchanges continue to the end of that
//! range. So they always mend the key that changed last, in the bucket of the find or in all
//! buckets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvorum_anti_entropy::{Target, TargetReport};
use kvorum_encoding::StorageKey;
use kvorum_exchanges::KeyPlaces;
use kvorum_object::{Object, Timestamp};
use kvorum_test_cluster::GivenState;
use kvorum_vnode::TreePlacing as _;

use crate::client::{BUCKET, STEADY_BUCKET, STEADY_KEYS, address, key_name};
use crate::cluster::Cluster;
use crate::replica_objects::ReplicaObject;

/// Time within which stopped exchanges end.
const STOP_PAUSE: Duration = Duration::from_secs(4);

/// The differences of one target before a find.
#[derive(Default)]
struct Differences {
    /// The differing key of each bucket that changed last.
    newest: BTreeMap<&'static [u8], (Timestamp, String)>,
    /// Keys passed to repair before, by the machine that compares.
    repaired: BTreeMap<u8, u64>,
}

/// Targets with differences whose finds are not followed to their end yet.
pub(crate) struct Finds(BTreeMap<Target, Differences>);

impl Cluster {
    /// Notes the differences, while no exchange is under way.
    pub(crate) async fn look_for_differences(&self) -> Finds {
        self.enable_exchanges(false);
        self.runtime.sleep(STOP_PAUSE).await;
        let places = KeyPlaces::new(Arc::new(GivenState::new(self.agreed())));
        let busy = (0..usize::from(self.plan.keys)).map(|key| (BUCKET, key_name(key)));
        let steady = (0..STEADY_KEYS).map(|key| (STEADY_BUCKET, key_name(key)));
        let mut found: BTreeMap<Target, Differences> = BTreeMap::new();
        for (bucket, key) in busy.chain(steady) {
            let tree = places.tree_of(&StorageKey::from_address(&address(bucket, &key)));
            let modified = self
                .replica_objects(bucket, &key)
                .ok()
                .and_then(|held| difference(&held));
            let (Some(tree), Some(modified)) = (tree, modified) else {
                continue;
            };
            let target = Target {
                partition: tree.owner.number(),
                n: tree.n_val,
            };
            let newest = &mut found.entry(target).or_default().newest;
            let is_newer = |last: &(Timestamp, String)| last.0 < modified;
            if newest.get(bucket).is_none_or(is_newer) {
                newest.insert(bucket, (modified, key));
            }
        }
        for (machine, report) in self.target_reports() {
            if let Some(differences) = found.get_mut(&report.target) {
                differences.repaired.insert(machine, report.repaired);
            }
        }
        self.enable_exchanges(true);
        Finds(found)
    }

    /// Checks the targets whose find has been followed to its end.
    pub(crate) fn follow(&self, finds: &mut Finds) {
        for (machine, report) in self.target_reports() {
            let Some(differences) = finds.0.get(&report.target) else {
                continue;
            };
            let before = differences.repaired.get(&machine).copied().unwrap_or(0);
            let is_at_its_end = report.repaired_last == 0 && !report.is_under_way;
            if report.repaired == before || !is_at_its_end {
                continue;
            }
            let newest = differences.newest.iter();
            let mut keys = newest.map(|(bucket, (_, key))| (*bucket, key));
            let differs = |(bucket, key): (&[u8], &String)| {
                let held = self.replica_objects(bucket, key).unwrap_or_default();
                difference(&held).is_some()
            };
            if keys.all(differs) {
                let (target, newest) = (report.target, &differences.newest);
                self.accuse(&format!(
                    "exchanges of {target:?} have followed a find to its end, and what changed last \
                     still differs: {newest:?}"
                ));
            }
            finds.0.remove(&report.target);
        }
    }

    fn enable_exchanges(&self, is_enabled: bool) {
        for machine in self.machines() {
            let running = machine.running();
            if let Some(exchanges) = running.as_ref().and_then(|it| it.exchanges.as_ref()) {
                exchanges.set_enabled(is_enabled);
            }
        }
    }

    /// The state of each target, with the machine that compares it.
    fn target_reports(&self) -> Vec<(u8, TargetReport)> {
        let machines = self.machines().into_iter();
        let reports = machines.filter_map(|machine| {
            let running = machine.running()?;
            let targets = running.exchanges.as_ref()?.report().targets;
            Some(targets.into_iter().map(move |it| (machine.number, it)))
        });
        reports.flatten().collect()
    }
}

/// The time of the last change of a key in which replicas differ.
fn difference(held: &[ReplicaObject]) -> Option<Timestamp> {
    let is_same = |one: &Option<Arc<Object>>, other: &Option<Arc<Object>>| match (one, other) {
        (Some(one), Some(other)) => one.is_same_as(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    let differs = held.windows(2).any(|it| !is_same(&it[0].1, &it[1].1));
    let objects = held.iter().filter_map(|it| it.1.as_ref());
    let modified = objects.map(|it| it.last_modified()).max();
    modified.filter(|_| differs)
}
