//! Builds the trees of a node's vnodes, a step at a time.
//!
//! A vnode's trees are built after its start, when keys have come to other trees, when it has more keys
//! than its trees were made for, and when its store has lost something that the trees may still have.
//! They are also built again after a long time, against losses without a sign. One vnode is built at a
//! time, and each step is followed by a pause as long as it took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Lease, StoreId, Timestamp};
use kvorum_coordinator::LocalVnodes;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::{BuildStep, PageFailure, Vnode, fold_clock};
use parking_lot::Mutex;

use crate::report::BuildingReport;
use crate::settings::{ExchangeSettings, StepBudget};

/// A step may hold a snapshot for this long.
const STEP_LEASE: Duration = Duration::from_secs(10);
/// The least pause after a step, and the most.
const STEP_REST_MIN: Duration = Duration::from_millis(1);
const STEP_REST_MAX: Duration = Duration::from_secs(1);
/// While nothing is to be built, it is looked again after this long.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// After a failure a step is tried again after this long.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Trees are not built again sooner than this because their store has lost something.
const LOSS_REBUILD_PAUSE: Duration = Duration::from_secs(60);
/// An entry is taken to have so many bytes of key and head.
const ENTRY_BYTES: u64 = 150;

/// Builds trees.
pub(crate) struct Builder {
    pub(crate) runtime: Runtime,
    pub(crate) vnodes: Arc<dyn LocalVnodes>,
    pub(crate) budget: Arc<dyn StepBudget>,
    pub(crate) settings: ExchangeSettings,
    built: Mutex<BTreeMap<(Partition, StoreId), Built>>,
    /// The vnode whose last step failed: others come first.
    failed: Mutex<Option<Partition>>,
}

/// Trees that were built.
#[derive(Clone, Copy)]
struct Built {
    at: Moment,
    /// The time of the next building.
    until: Moment,
    /// Losses of the store by then.
    losses: u64,
}

impl Builder {
    pub(crate) fn new(
        runtime: Runtime,
        vnodes: Arc<dyn LocalVnodes>,
        budget: Arc<dyn StepBudget>,
        settings: ExchangeSettings,
    ) -> Self {
        Self {
            runtime,
            vnodes,
            budget,
            settings,
            built: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// This node's vnodes that keep trees.
    fn vnodes(&self, size: RingSize) -> Vec<Arc<Vnode>> {
        let all = size.partitions().filter_map(|it| self.vnodes.vnode(it));
        all.filter(|it| it.trees_status().is_some()).collect()
    }

    /// Drops all trees: keys have come to other ones.
    pub(crate) fn drop_all(&self, size: RingSize) {
        for vnode in self.vnodes(size) {
            vnode.drop_trees();
        }
    }

    /// Builds the next due tree; waits a while when there is none.
    pub(crate) async fn build_next(&self, size: RingSize) {
        let vnodes = self.vnodes(size);
        self.forget_gone(&vnodes);
        let is_built = |it: &Arc<Vnode>| it.trees_status().is_some_and(|trees| trees.is_built);
        let failed = *self.failed.lock();
        let unbuilt = || vnodes.iter().filter(|it| !is_built(it));
        let next = unbuilt().find(|it| Some(it.partition()) > failed);
        match next.or_else(|| unbuilt().next()) {
            Some(vnode) => self.step(vnode).await,
            None => {
                self.drop_what_is_due(vnodes).await;
                self.runtime.sleep(LOOK_PERIOD).await;
            }
        }
    }

    fn forget_gone(&self, vnodes: &[Arc<Vnode>]) {
        let here: Vec<(Partition, StoreId)> = vnodes.iter().map(|it| name_of(it)).collect();
        self.built.lock().retain(|name, _| here.contains(name));
    }

    async fn step(&self, vnode: &Arc<Vnode>) {
        let entries_max = self.settings.step_entries_max.max(1);
        let wait = self.budget.ask(entries_max as u64 * ENTRY_BYTES);
        if !wait.is_zero() {
            return self.runtime.sleep(wait).await;
        }
        let began = self.runtime.now();
        let until = self.runtime.wall_time().plus(STEP_LEASE).micros();
        let (clock, building) = (self.runtime.clock(), vnode.clone());
        let step = self.runtime.blocking(move || {
            let (clock, lease) = (fold_clock(clock), Lease::Until(Timestamp(until)));
            let step = building.build_trees(&clock, lease, entries_max)?;
            let losses = match step {
                BuildStep::Built => losses_of(&building),
                BuildStep::Going | BuildStep::Idle => 0,
            };
            Ok::<_, PageFailure>((step, losses))
        });
        let pause = match step.await {
            Ok((step, losses)) => {
                if step == BuildStep::Built {
                    *self.failed.lock() = None;
                    self.note_built(vnode, losses);
                }
                let took = self.runtime.now().since(began);
                took.clamp(STEP_REST_MIN, STEP_REST_MAX)
            }
            Err(error) => {
                let partition = vnode.partition().number();
                tracing::warn!(event = "tree_step_failed", partition, error = ?error);
                *self.failed.lock() = Some(vnode.partition());
                RETRY_PAUSE
            }
        };
        self.runtime.sleep(pause).await;
    }

    fn note_built(&self, vnode: &Vnode, losses: u64) {
        let now = self.runtime.now();
        let wait = self.settings.rebuild_wait;
        let delay_max = self.settings.rebuild_delay_max.as_millis();
        let delay_max = u64::try_from(delay_max).unwrap_or(u64::MAX).max(1);
        let delay = Duration::from_millis(self.runtime.random_u64() % delay_max);
        let built = Built {
            at: now,
            until: now.plus(wait).plus(delay),
            losses,
        };
        self.built.lock().insert(name_of(vnode), built);
        if let Some(trees) = vnode.trees_status() {
            tracing::info!(
                event = "trees_built",
                partition = vnode.partition().number(),
                keys = trees.keys,
                memory_bytes = trees.memory_bytes,
            );
        }
    }

    /// Drops the trees of one vnode that are to be built again.
    async fn drop_what_is_due(&self, vnodes: Vec<Arc<Vnode>>) {
        let (now, built) = (self.runtime.now(), self.built.lock().clone());
        let due = self.runtime.blocking(move || {
            vnodes.into_iter().find_map(|vnode| {
                let reason = reason_to_rebuild(&vnode, built.get(&name_of(&vnode))?, now)?;
                Some((vnode, reason))
            })
        });
        if let Some((vnode, reason)) = due.await {
            let partition = vnode.partition().number();
            tracing::info!(event = "trees_dropped", partition, reason);
            vnode.drop_trees();
        }
    }

    pub(crate) fn report(&self, size: RingSize) -> Vec<BuildingReport> {
        let built = self.built.lock();
        let of_vnode = |vnode: Arc<Vnode>| {
            let at = built.get(&name_of(&vnode)).map(|it| it.at.elapsed());
            Some(BuildingReport {
                partition: vnode.partition(),
                trees: vnode.trees_status()?,
                built_at_micros: at.map(crate::conversation::micros),
            })
        };
        self.vnodes(size).into_iter().filter_map(of_vnode).collect()
    }
}

fn name_of(vnode: &Vnode) -> (Partition, StoreId) {
    (vnode.partition(), vnode.store_id())
}

/// Counts the reported losses and failed reads of a store.
fn losses_of(vnode: &Vnode) -> u64 {
    let status = vnode.store_status();
    status.corrupt_reads + status.lost.len() as u64
}

fn reason_to_rebuild(vnode: &Vnode, built: &Built, now: Moment) -> Option<&'static str> {
    if built.until <= now {
        return Some("old");
    }
    if vnode.are_trees_outgrown() {
        return Some("outgrown");
    }
    let has_rested = now.since(built.at) >= LOSS_REBUILD_PAUSE;
    (has_rested && losses_of(vnode) > built.losses).then_some("the store has lost something")
}
