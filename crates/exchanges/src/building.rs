//! Builds the trees of a node's vnodes, a step at a time.
//!
//! After its start a vnode takes its trees from the file of the run before. Trees are built if
//! there is no trusted file. They are built again if keys belong to other trees now, if there are
//! more keys than they were made for, or if the store has lost entries that they may still have.
//! They are also built again after a long time, against undetected losses. The trees of one vnode
//! are built at a time, and a pause of the same length follows each step.
//!
//! Complete trees that have changed are written to their files at intervals, for the start after a
//! crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kvorum_backend::{Lease, StoreId, Timestamp};
use kvorum_coordinator::LocalVnodes;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::{BuildStep, TreeFiles, Vnode, fold_clock};
use parking_lot::Mutex;

use crate::report::BuildingReport;
use crate::settings::{ExchangeSettings, StepBudget};

/// A step may hold a snapshot for this long.
const STEP_LEASE: Duration = Duration::from_secs(10);
/// The shortest and the longest pause after a step.
const STEP_REST_MIN: Duration = Duration::from_millis(1);
const STEP_REST_MAX: Duration = Duration::from_secs(1);
/// The pause before the next look while no tree has to be built.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The pause after a failed step.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The least time between two builds because of losses of the store.
const LOSS_REBUILD_PAUSE: Duration = Duration::from_secs(60);
/// The least time between two writes of a vnode's trees to their file. With 64 partitions of a
/// million keys that all change, this writes 0.7 MB a second. A start after a crash can use trees
/// from before the oldest batch that their store has only in memory.
const KEEP_PERIOD: Duration = Duration::from_secs(300);
/// The assumed bytes of an entry's key and head.
const ENTRY_BYTES: u64 = 150;

/// Builds trees.
pub(crate) struct Builder {
    pub(crate) runtime: Runtime,
    pub(crate) vnodes: Arc<dyn LocalVnodes>,
    pub(crate) budget: Arc<dyn StepBudget>,
    pub(crate) settings: ExchangeSettings,
    /// Files of trees; `None` if trees are only in memory.
    files: Option<Arc<TreeFiles>>,
    /// A number for the properties of buckets that place keys in trees.
    placements: AtomicU32,
    built: Mutex<BTreeMap<(Partition, StoreId), Built>>,
    /// The vnode whose last step failed: other vnodes come first.
    failed: Mutex<Option<Partition>>,
    /// The time of the last write of trees to their file, successful or not.
    kept: Mutex<BTreeMap<(Partition, StoreId), Moment>>,
}

/// The last build of a vnode's trees.
#[derive(Clone, Copy)]
struct Built {
    at: Moment,
    /// The time of the next build.
    until: Moment,
}

impl Builder {
    pub(crate) fn new(
        runtime: Runtime,
        vnodes: Arc<dyn LocalVnodes>,
        budget: Arc<dyn StepBudget>,
        settings: ExchangeSettings,
        files: Option<Arc<TreeFiles>>,
    ) -> Self {
        Self {
            runtime,
            vnodes,
            budget,
            settings,
            files,
            placements: AtomicU32::new(0),
            built: Mutex::default(),
            failed: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Notes the properties of buckets that place keys in trees. The caller has dropped the trees
    /// that these change.
    pub(crate) fn set_placements(&self, size: RingSize, placements: u32) {
        self.placements.store(placements, Ordering::Relaxed);
        for vnode in self.vnodes(size) {
            vnode.note_placements(placements);
        }
    }

    /// This node's vnodes that keep trees.
    fn vnodes(&self, size: RingSize) -> Vec<Arc<Vnode>> {
        let all = size.partitions().filter_map(|it| self.vnodes.vnode(it));
        all.filter(|it| it.trees_status().is_some()).collect()
    }

    /// Drops all trees: keys belong to other trees now.
    pub(crate) fn drop_all(&self, size: RingSize) {
        for vnode in self.vnodes(size) {
            vnode.drop_trees();
        }
    }

    /// Builds the next due tree; waits a while if there is none.
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
                self.drop_what_is_due(vnodes.clone()).await;
                self.keep_next(&vnodes).await;
                self.runtime.sleep(LOOK_PERIOD).await;
            }
        }
    }

    fn forget_gone(&self, vnodes: &[Arc<Vnode>]) {
        let here: Vec<(Partition, StoreId)> = vnodes.iter().map(|it| name_of(it)).collect();
        self.built.lock().retain(|name, _| here.contains(name));
        self.kept.lock().retain(|name, _| here.contains(name));
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
        let now = Timestamp(self.runtime.wall_time().micros());
        let (files, placements) = (self.files.clone(), self.placements.load(Ordering::Relaxed));
        let step = self.runtime.blocking(move || {
            let take = |files: Arc<TreeFiles>| building.take_kept_trees(&files, placements, now);
            if files.map(take) == Some(BuildStep::Built) {
                return Ok(BuildStep::Built);
            }
            let (clock, lease) = (fold_clock(clock), Lease::Until(Timestamp(until)));
            building.build_trees(&clock, lease, entries_max)
        });
        let pause = match step.await {
            Ok(step) => {
                if step == BuildStep::Built {
                    *self.failed.lock() = None;
                    self.note_built(vnode);
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

    fn note_built(&self, vnode: &Vnode) {
        let Some(trees) = vnode.trees_status() else {
            return;
        };
        let now = self.runtime.now();
        let age = match trees.were_kept {
            true => self.age_of_trees(vnode),
            false => Duration::ZERO,
        };
        let wait = self.settings.rebuild_wait.saturating_sub(age);
        let delay_max = self.settings.rebuild_delay_max.as_millis();
        let delay_max = u64::try_from(delay_max).unwrap_or(u64::MAX).max(1);
        let delay = Duration::from_millis(self.runtime.random_u64() % delay_max);
        let built = Built {
            at: now,
            until: now.plus(wait).plus(delay),
        };
        self.built.lock().insert(name_of(vnode), built);
        tracing::info!(
            event = "trees_built",
            partition = vnode.partition().number(),
            were_kept = trees.were_kept,
            keys = trees.keys,
            memory_bytes = trees.memory_bytes,
        );
    }

    fn age_of_trees(&self, vnode: &Vnode) -> Duration {
        let now = self.runtime.wall_time().micros();
        Duration::from_micros(now.saturating_sub(vnode.trees_begun_at()))
    }

    /// Writes the trees of one vnode to their file, if some have changed for long enough.
    async fn keep_next(&self, vnodes: &[Arc<Vnode>]) {
        let Some(files) = self.files.clone() else {
            return;
        };
        let now = self.runtime.now();
        let Some(vnode) = vnodes.iter().find(|it| self.is_keeping_due(it, now)) else {
            return;
        };
        let wait = self.budget.ask(vnode.trees_memory_bytes());
        if !wait.is_zero() {
            return;
        }
        self.kept.lock().insert(name_of(vnode), now);
        let keeping = vnode.clone();
        let kept = self.runtime.blocking(move || keeping.keep_trees(&files));
        if let Err(error) = kept.await {
            let partition = vnode.partition().number();
            tracing::warn!(event = "trees_not_kept", partition, error = %error);
        }
    }

    fn is_keeping_due(&self, vnode: &Vnode, now: Moment) -> bool {
        let last = self.kept.lock().get(&name_of(vnode)).copied();
        let has_rested = last.is_none_or(|at| now.since(at) >= KEEP_PERIOD);
        has_rested && vnode.has_trees_to_keep()
    }

    /// Drops the trees of one vnode whose next build is due.
    async fn drop_what_is_due(&self, vnodes: Vec<Arc<Vnode>>) {
        let (now, built) = (self.runtime.now(), self.built.lock().clone());
        let files = self.files.clone();
        let dropped = self.runtime.blocking(move || {
            let due = vnodes.into_iter().find_map(|vnode| {
                let reason = reason_to_rebuild(&vnode, built.get(&name_of(&vnode))?, now)?;
                Some((vnode, reason))
            });
            let (vnode, reason) = due?;
            vnode.drop_trees();
            // The next run must not use trees that this run has dropped.
            let removed = files.map_or(Ok(()), |it| it.remove(vnode.partition()));
            Some((vnode.partition().number(), reason, removed))
        });
        if let Some((partition, reason, removed)) = dropped.await {
            tracing::info!(event = "trees_dropped", partition, reason);
            if let Err(error) = removed {
                tracing::warn!(event = "kept_trees_not_removed", partition, error = %error);
            }
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

fn reason_to_rebuild(vnode: &Vnode, built: &Built, now: Moment) -> Option<&'static str> {
    if built.until <= now {
        return Some("old");
    }
    if vnode.are_trees_outgrown() {
        return Some("outgrown");
    }
    let has_rested = now.since(built.at) >= LOSS_REBUILD_PAUSE;
    (has_rested && vnode.has_lost_since_trees()).then_some("the store has lost something")
}
