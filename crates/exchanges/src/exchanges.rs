//! The exchanges of a node: begun as they fall due, stopped when they are no more, and reported.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use kvorum_anti_entropy::{Order, Outcome, Pace, Schedule, Target};
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_coordinator::{Coordinator, LocalVnodes};
use kvorum_reaping::{KeptBecause, RoundName};
use kvorum_ring::NodeId;
use kvorum_runtime::{Runtime, Watched, Watcher};
use kvorum_vnode::{TreeFiles, TreeName};
use parking_lot::Mutex;

use crate::body_checks::{BodyChecks, CheckedStores};
use crate::building::Builder;
use crate::conversation::{Means, converse, micros};
use crate::places::Placements;
use crate::report::{ComparedCounts, ExchangesReport};
use crate::round_question::RoundMeans;
use crate::rounding::{Comparison, RoundEnd, Rounding};
use crate::rounds_look::{RoundSums, RoundsLook};
use crate::settings::{ExchangeSettings, StepBudget};
use crate::targets::{epoch_of, list_of, replicas_of, targets_of, tree_of};

/// The schedule is looked at this often at least: the ring or the nodes that are up may have changed.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Repairs that may go at once after a rest.
const REPAIRS_AT_ONCE: u32 = 16;

/// The parts that exchanges use.
pub struct Parts {
    /// This node.
    pub node: NodeId,
    /// Clock, tasks and the blocking pool.
    pub runtime: Runtime,
    /// The agreed cluster state.
    pub cluster: Arc<dyn AgreedState>,
    /// This node's vnodes, which keep trees ([`kvorum_vnode::Vnode::with_trees`]).
    pub vnodes: Arc<dyn LocalVnodes>,
    /// Asks replicas, and mends them.
    pub coordinator: Arc<Coordinator>,
    /// Says which nodes are up.
    pub is_up: Arc<dyn Fn(NodeId) -> bool + Send + Sync>,
    /// Says how fast trees may be built.
    pub budget: Arc<dyn StepBudget>,
    /// Files in which trees outlast the run; `None` where trees are in memory alone.
    pub tree_files: Option<Arc<TreeFiles>>,
    /// The way of rounds, by which tombstones go; `None` where they stay.
    pub rounds: Option<Arc<dyn RoundMeans>>,
    /// The settings of exchanges.
    pub settings: ExchangeSettings,
}

/// See the crate's description. Clones are one.
#[derive(Clone)]
pub struct Exchanges(Arc<Shared>);

struct Shared {
    node: NodeId,
    cluster: Arc<dyn AgreedState>,
    is_up: Arc<dyn Fn(NodeId) -> bool + Send + Sync>,
    means: Means,
    builder: Builder,
    body_checks: BodyChecks,
    vnodes: Arc<dyn LocalVnodes>,
    rounds: Option<Arc<dyn RoundMeans>>,
    /// A round is under way: this node leads one at a time.
    is_rounding: AtomicBool,
    state: Mutex<State>,
}

struct State {
    schedule: Schedule,
    is_enabled: bool,
    /// Ends the exchange of a target when it is dropped.
    stops: BTreeMap<Target, Watched<bool>>,
    sums: Sums,
}

#[derive(Clone, Default)]
struct Sums {
    keys_repaired: u64,
    repairs_failed: u64,
    exchanges_complete: u64,
    compared: ComparedCounts,
    rounds: RoundSums,
}

impl Exchanges {
    /// Nothing is begun before [`Exchanges::run`].
    pub fn new(parts: Parts) -> Self {
        let settings = parts.settings;
        let pace = Pace::new(settings.repairs_per_second, REPAIRS_AT_ONCE);
        let means = Means {
            runtime: parts.runtime.clone(),
            coordinator: parts.coordinator,
            settings,
            pace: Arc::new(Mutex::new(pace)),
        };
        Self(Arc::new(Shared {
            node: parts.node,
            cluster: parts.cluster,
            is_up: parts.is_up,
            body_checks: BodyChecks {
                means: means.clone(),
                vnodes: parts.vnodes.clone(),
                budget: parts.budget.clone(),
            },
            vnodes: parts.vnodes.clone(),
            rounds: parts.rounds,
            is_rounding: AtomicBool::new(false),
            builder: Builder::new(
                parts.runtime,
                parts.vnodes,
                parts.budget,
                settings,
                parts.tree_files,
            ),
            means,
            state: Mutex::new(State {
                schedule: Schedule::new(settings.schedule),
                is_enabled: true,
                stops: BTreeMap::new(),
                sums: Sums::default(),
            }),
        }))
    }

    /// Builds trees and compares replicas for as long as it is polled.
    pub async fn run(self) {
        let _ends_with_this = EndsAll(self.0.clone());
        let building = self.0.clone();
        let building = async move { building.keep_built().await };
        let checking = self.0.clone();
        let checking = async move { checking.keep_checking().await };
        futures_util::future::join3(building, checking, self.0.keep_comparing()).await;
    }

    /// Begins no exchange any more, and ends those under way; or begins them again. Trees are kept all the
    /// same.
    pub fn set_enabled(&self, is_enabled: bool) {
        let mut state = self.0.state.lock();
        state.is_enabled = is_enabled;
        match is_enabled {
            true => state.schedule.enable(),
            false => {
                for target in state.schedule.disable() {
                    state.stops.remove(&target);
                }
            }
        }
    }

    /// The exchanges that have ended. It takes no longer than a copy.
    pub fn compared(&self) -> ComparedCounts {
        self.0.state.lock().sums.compared
    }

    /// The state of exchanges and trees at this moment.
    pub fn report(&self) -> ExchangesReport {
        let shared = &self.0;
        let cluster = shared.cluster.current();
        let trees = shared.builder.report(cluster.ring().size());
        let state = shared.state.lock();
        let (is_enabled, targets) = (state.is_enabled, state.schedule.report());
        let (sums, now_micros) = (state.sums.clone(), shared.now());
        drop(state);
        let look = RoundsLook {
            node: shared.node,
            state: &cluster,
            vnodes: &*shared.vnodes,
            is_up: &*shared.is_up,
            are_rounds_led: shared.rounds.is_some(),
            are_colocated: shared.means.settings.colocated_replicas,
        };
        ExchangesReport {
            now_micros,
            is_enabled,
            rounds: look.report(&targets, &sums.rounds),
            targets,
            trees,
            keys_repaired: sums.keys_repaired,
            repairs_failed: sums.repairs_failed,
            exchanges: sums.compared.all(),
            exchanges_complete: sums.exchanges_complete,
        }
    }
}

/// Ends the exchanges under way when it is dropped.
struct EndsAll(Arc<Shared>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        let stops = std::mem::take(&mut self.0.state.lock().stops);
        drop(stops);
    }
}

impl Shared {
    fn now(&self) -> u64 {
        micros(self.means.runtime.now().elapsed())
    }

    async fn keep_built(&self) {
        let mut known: Option<(u64, Placements)> = None;
        loop {
            let state = self.cluster.current();
            self.follow_places(&state, &mut known);
            self.builder.build_next(state.ring().size()).await;
        }
    }

    /// Drops trees whose keys have come to other ones.
    fn follow_places(&self, state: &ClusterState, known: &mut Option<(u64, Placements)>) {
        if known.as_ref().is_some_and(|it| it.0 == state.version()) {
            return;
        }
        let (size, placements) = (state.ring().size(), Placements::of(state));
        let before = known.as_ref().map(|it| &it.1);
        if before.is_some_and(|before| before.differ_from(&placements)) {
            tracing::info!(
                event = "trees_dropped",
                reason = "properties of buckets have changed"
            );
            self.builder.drop_all(size);
        }
        let fingerprint = placements.fingerprint(size);
        self.builder.set_placements(size, fingerprint);
        *known = Some((state.version(), placements));
    }

    /// Reads the entries of stores with damage, unless comparisons are disabled.
    async fn keep_checking(&self) {
        let mut checked = CheckedStores::new();
        loop {
            let is_enabled = self.state.lock().is_enabled;
            if is_enabled {
                let size = self.cluster.current().ring().size();
                self.body_checks.check_next(size, &mut checked).await;
            } else {
                self.means.runtime.sleep(LOOK_PERIOD).await;
            }
        }
    }

    async fn keep_comparing(self: &Arc<Self>) {
        loop {
            self.follow_ring();
            while let Some(order) = self.next_order() {
                self.begin(order);
            }
            self.means.runtime.sleep(LOOK_PERIOD).await;
        }
    }

    fn follow_ring(&self) {
        let state = self.cluster.current();
        let colocated = self.means.settings.colocated_replicas;
        let targets = targets_of(&state, self.node, colocated, |node| (self.is_up)(node));
        let epoch = epoch_of(state.ring());
        let mut own = self.state.lock();
        for gone in own.schedule.set_targets(epoch, targets) {
            own.stops.remove(&gone);
        }
    }

    fn next_order(&self) -> Option<Order> {
        let now = self.now();
        self.state.lock().schedule.next(now)
    }

    fn begin(self: &Arc<Self>, order: Order) {
        let stop = Watched::new(false);
        let stopped = stop.watch();
        self.state.lock().stops.insert(order.target, stop);
        let shared = self.clone();
        let exchange = async move {
            let state = shared.cluster.current();
            let colocated = shared.means.settings.colocated_replicas;
            let replicas = replicas_of(&state, order.target, colocated);
            let Some(tree) = tree_of(state.ring().size(), order.target) else {
                return;
            };
            drop(state);
            let means = shared.means.clone();
            let stop = stopped.clone();
            let outcome = converse(means, &order, replicas, tree, stop).await;
            if outcome.is_complete {
                shared.lead_round(&order, tree, stopped).await;
            }
            shared.ended(&order, &outcome);
        };
        self.means.runtime.spawn("exchange", exchange);
    }

    /// Leads a round of a list that has just been compared, if there are tombstones that it could take. The
    /// list has no other exchange meanwhile.
    async fn lead_round(&self, order: &Order, tree: TreeName, stopped: Watcher<bool>) {
        let target = order.target;
        let Some(rounding) = self.round_of(target) else {
            return;
        };
        if self.is_rounding.swap(true, Ordering::AcqRel) {
            // The next exchange of the list comes back to it.
            return;
        }
        let (means, stop) = (self.means.clone(), stopped.clone());
        let replicas = rounding.replicas.clone();
        let whole = Order {
            hint: None,
            after: None,
            ..order.clone()
        };
        let compare = move || -> Comparison {
            let (means, whole, stop) = (means.clone(), whole.clone(), stop.clone());
            let replicas = replicas.clone();
            Box::pin(async move {
                let outcome = converse(means, &whole, replicas, tree, stop).await;
                outcome.is_complete
            })
        };
        let outcome = unless_stopped(rounding.run(compare), stopped).await;
        self.is_rounding.store(false, Ordering::Release);
        self.round_ended(target, outcome.as_ref());
    }

    /// The next round of a list, if it may have one and there may be tombstones. Its replicas, its members
    /// and its epoch are of one state.
    fn round_of(&self, target: Target) -> Option<Rounding> {
        let means = self.rounds.clone()?;
        let list = list_of(target);
        let state = self.cluster.current();
        let is_colocated = self.means.settings.colocated_replicas;
        if is_colocated || state.may_announce(list).is_err() {
            return None;
        }
        let replicas = replicas_of(&state, target, is_colocated);
        let here = replicas.iter().find(|it| it.node == self.node)?;
        if !self.vnodes.vnode(here.partition)?.may_have_tombstones() {
            return None;
        }
        let runtime = self.means.runtime.clone();
        let watermark = state.watermark(list);
        Some(Rounding {
            list,
            name: RoundName {
                number: watermark.map_or(0, |it| it.round.number) + 1,
                nonce: runtime.random_u64(),
            },
            epoch: state.rounds_epoch()?,
            runtime,
            means,
            replicas,
            members: state.members().keys().copied().collect(),
        })
    }

    fn round_ended(&self, target: Target, end: Option<&RoundEnd>) {
        self.state.lock().sums.rounds.count(target, end);
        let outcome = end.map(|it| &it.outcome);
        let kept = outcome.map_or(Some(KeptBecause::Stopped), |it| it.kept);
        tracing::debug!(
            event = "round_ended",
            partition = target.partition,
            n_val = target.n,
            reaped = outcome.map_or(0, |it| it.reaped),
            is_raised = outcome.is_some_and(|it| it.raised.is_some()),
            kept = kept.map(tracing::field::display),
            kept_by = end.and_then(|it| it.kept_by).map(tracing::field::display),
        );
    }

    fn ended(&self, order: &Order, outcome: &Outcome) {
        let now = self.now();
        let mut state = self.state.lock();
        state.schedule.ended(order, outcome, now);
        let sums = &mut state.sums;
        sums.compared.count(outcome.compared());
        sums.exchanges_complete += u64::from(outcome.is_complete);
        sums.keys_repaired += u64::from(outcome.keys_repaired);
        sums.repairs_failed += u64::from(outcome.repairs_failed);
        drop(state);
        if outcome.keys_repaired > 0 {
            tracing::info!(
                event = "exchange_repaired",
                partition = order.target.partition,
                n_val = order.target.n,
                keys = outcome.keys_repaired,
                failed = outcome.repairs_failed,
            );
        }
    }
}

/// The outcome of a round; `None` if it was stopped, or the sender of stops is gone.
async fn unless_stopped<T>(round: impl Future<Output = T>, mut stop: Watcher<bool>) -> Option<T> {
    let mut round = pin!(round);
    let mut stopped = pin!(stop.until(|is_stopped| *is_stopped));
    poll_fn(|context| {
        if stopped.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        round.as_mut().poll(context).map(Some)
    })
    .await
}
