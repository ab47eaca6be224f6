//! The coordinator: what protocols call, and the frame around every request.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_encoding::{Address, Key};
use kvorum_object::{Clock, Object};
use kvorum_ring::{NodeId, Replica, Role};
use kvorum_runtime::{LogQuota, Moment, Runtime};
use kvorum_vnode::Vnode;
use parking_lot::Mutex;

use crate::error::RequestError;
use crate::failure_log::FailureLog;
use crate::gate::Gate;
use crate::hands::{Hands, Remote};
use crate::plan::{Plan, Purpose};
use crate::reading::StartedGet;
use crate::reaper::{Reaper, TombstoneKeeping};
use crate::request::{DeleteOptions, Deleted, GetOptions, PutOptions, PutRequest, ReplicaPlace};
use crate::trace::{Finished, MaintenanceWitness, Meter, RequestKind, Trace};

/// Listings in progress at which further ones are refused with `overload`: each holds a thread of the
/// blocking pool, of which reads must find some free.
const LISTINGS_MAX: usize = 16;

/// Index queries in progress at which further ones are refused with `overload`. A query holds a thread
/// for one part of its results at a time, which is short.
const INDEX_QUERIES_MAX: usize = 1_000;

/// The vnodes of this node.
pub trait LocalVnodes: Send + Sync {
    /// The vnode of a partition, once its store is open.
    fn vnode(&self, partition: kvorum_ring::Partition) -> Option<Arc<Vnode>>;

    /// Why there is no vnode of a partition. Who has all stores open from the start has no other
    /// reason than this one.
    fn absence(&self, _partition: kvorum_ring::Partition) -> Absence {
        Absence::NotHere
    }

    /// False when [`LocalVnodes::absence`] has that reason only. Asked for every request.
    fn is_any_unopened(&self) -> bool {
        false
    }

    /// True while a store is being opened, or waits for that.
    fn is_any_opening(&self) -> bool {
        false
    }

    /// Ends when the next vnode is opened, fails or goes; `None` where stores do not open one by one.
    fn next_opening(&self) -> Option<NextOpening> {
        None
    }
}

/// See [`LocalVnodes::next_opening`].
pub type NextOpening = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a node has no vnode of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It does not have the partition, or has not learned yet that it does.
    NotHere,
    /// The store is being opened, or will be.
    Opening,
    /// The store could not be opened.
    Failed,
}

/// How requests are treated, whatever their bucket.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorSettings {
    /// Several replicas of a key may live on one node, as in Riak.
    pub colocated_replicas: bool,
    /// When a request that names no timeout is given up.
    pub request_timeout: Duration,
    /// Requests that take at least this long are logged.
    pub slow_request_threshold: Duration,
    /// Gets, puts and deletes in progress at which further ones are refused with `overload`.
    pub requests_max: usize,
    /// What becomes of tombstones that every replica holds.
    pub tombstones: TombstoneKeeping,
    /// The name of the storage backend, which a bucket may name as its own.
    pub backend_name: &'static str,
}

/// What a coordinator works with.
pub struct Parts {
    /// This node.
    pub node: NodeId,
    /// Clock, tasks and the blocking pool.
    pub runtime: Runtime,
    /// The agreed cluster state.
    pub cluster: Arc<dyn AgreedState>,
    /// This node's vnodes.
    pub vnodes: Arc<dyn LocalVnodes>,
    /// Where figures go.
    pub meter: Arc<dyn Meter>,
    /// Who knows what maintenance ran when.
    pub maintenance: Arc<dyn MaintenanceWitness>,
}

/// Coordinates requests at this node.
pub struct Coordinator {
    /// Shared with what outlives a request.
    pub(crate) parts: Arc<Hands>,
    pub(crate) settings: CoordinatorSettings,
    requests: Gate,
    /// Gets that could choose whom to ask.
    pub(crate) gets: AtomicU64,
    /// Those gets among the requests that wait.
    gets_waiting: Gate,
    pub(crate) listings: Gate,
    pub(crate) index_queries: Gate,
    pub(crate) reaper: Reaper,
    /// Nodes that coverage does without, and since when.
    pub(crate) left_out: Mutex<BTreeMap<NodeId, Moment>>,
    /// The node stops: requests do not wait for stores any more.
    pub(crate) is_stopping: AtomicBool,
    /// Bounds the lines about properties that were set without effect.
    pub(crate) without_effect_log: LogQuota,
    /// Bounds the lines about requests that failed or were slow.
    request_log: FailureLog,
}

/// Requests that a coordinator has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Gets that wait for a device or another node; those that memory answers are over at once.
    pub gets: usize,
    /// Puts and deletes.
    pub puts: usize,
    /// Listings of keys and buckets.
    pub listings: usize,
    /// Index queries.
    pub index_queries: usize,
}

/// What is known of a request while it runs.
pub(crate) struct Progress {
    arrived: Moment,
    pub(crate) deadline: Moment,
    pub(crate) trace: Trace,
}

impl Coordinator {
    /// The coordinator of a node that is alone.
    pub fn new(parts: Parts, settings: CoordinatorSettings) -> Self {
        Self::of_hands(Hands::new(parts, None), settings)
    }

    /// The coordinator of a node among others.
    pub fn among_peers(parts: Parts, remote: Remote, settings: CoordinatorSettings) -> Self {
        Self::of_hands(Hands::new(parts, Some(remote)), settings)
    }

    fn of_hands(hands: Hands, settings: CoordinatorSettings) -> Self {
        Self {
            parts: Arc::new(hands),
            settings,
            requests: Gate::new(settings.requests_max),
            gets: AtomicU64::new(0),
            gets_waiting: Gate::new(usize::MAX),
            listings: Gate::new(LISTINGS_MAX),
            index_queries: Gate::new(INDEX_QUERIES_MAX),
            reaper: Reaper::default(),
            left_out: Mutex::default(),
            without_effect_log: LogQuota::new(),
            request_log: FailureLog::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// The agreed cluster state at this moment.
    pub fn state(&self) -> Arc<ClusterState> {
        self.parts.cluster.current()
    }

    /// Where cluster state is changed.
    pub fn cluster(&self) -> &Arc<dyn AgreedState> {
        &self.parts.cluster
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.parts.node
    }

    /// Clock, tasks and randomness, for the protocols above.
    pub fn runtime(&self) -> &Runtime {
        &self.parts.runtime
    }

    /// Puts, deletes, and gets that wait, in progress.
    pub fn requests_in_progress(&self) -> usize {
        self.requests.in_progress()
    }

    /// The requests under way at this moment.
    pub fn in_progress(&self) -> InProgress {
        let gets = self.gets_waiting.in_progress();
        InProgress {
            gets,
            puts: self.requests.in_progress().saturating_sub(gets),
            listings: self.listings.in_progress(),
            index_queries: self.index_queries.in_progress(),
        }
    }

    /// Reads an object. A tombstone is returned as the object that it is; hiding it is the
    /// protocol's business, which may have been asked for its clock.
    ///
    /// `arrived` is when the request came in.
    pub async fn get(
        &self,
        address: &Address,
        options: &GetOptions,
        arrived: Moment,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        // A get is read in one piece and taken up at once: there is no queue to measure.
        let mut progress = self.progress(arrived, options.timeout, Duration::ZERO);
        // A get that memory answers holds nothing up and is over at once: to count it in and out
        // would cost more than the work, on a word that all cores share.
        let started = match self.check_admission(&progress) {
            Ok(()) => self.start_get(address, options),
            Err(error) => StartedGet::Ended(Err(error)),
        };
        let outcome = match started {
            StartedGet::Ended(Err(RequestError::VnodeOpening)) => match self.requests.enter() {
                // Few get here: the future of those that never wait stays small.
                Some(_admitted) => Box::pin(self.drive_get(address, options, &mut progress)).await,
                None => Err(RequestError::Overload),
            },
            StartedGet::Ended(reply) => reply,
            StartedGet::Waits(get) => match self.requests.enter() {
                Some(_admitted) => {
                    let _counted = self.gets_waiting.enter();
                    let get = self.wait_for_get(get, address, options, &mut progress);
                    match get.await {
                        Err(RequestError::VnodeOpening) => {
                            Box::pin(self.drive_get(address, options, &mut progress)).await
                        }
                        reply => reply,
                    }
                }
                None => Err(RequestError::Overload),
            },
        };
        let object = outcome.as_ref().ok().and_then(Option::as_deref);
        let error = outcome.as_ref().err();
        self.finish(RequestKind::Get, address, error, object, &progress);
        outcome
    }

    /// Writes an object and returns what its coordinating replica holds then; of an `asis` put, the
    /// object as it was given.
    pub async fn put(
        &self,
        address: &Address,
        request: PutRequest,
        options: &PutOptions,
        arrived: Moment,
    ) -> Result<Arc<Object>, RequestError> {
        let mut progress = self.begin(arrived, options.timeout);
        let mut kind = RequestKind::Put;
        let outcome = match self.admit_put(&progress) {
            Ok(_admitted) => {
                self.slow_down(&mut progress).await;
                let run = self.drive_put(address, request, options, &mut progress);
                let written = run.await;
                let properties = written.as_ref().map(|it| it.plan.properties);
                if properties.is_ok_and(|it| it.is_write_once) {
                    kind = RequestKind::WriteOncePut;
                }
                written.map(|written| written.object)
            }
            Err(error) => Err(error),
        };
        let (object, error) = (outcome.as_deref().ok(), outcome.as_ref().err());
        self.finish(kind, address, error, object, &progress);
        outcome
    }

    /// Deletes an object: writes a tombstone over the version that the client names, or over what a
    /// read finds.
    pub async fn delete(
        &self,
        address: &Address,
        context: Option<Clock>,
        options: &DeleteOptions,
        arrived: Moment,
    ) -> Result<Deleted, RequestError> {
        let mut progress = self.begin(arrived, options.timeout);
        let outcome = match self.admit(&progress) {
            Ok(_admitted) => {
                self.slow_down(&mut progress).await;
                let run = self.drive_delete(address, context, options, &mut progress);
                run.await
            }
            Err(error) => Err(error),
        };
        let error = outcome.as_ref().err();
        self.finish(RequestKind::Delete, address, error, None, &progress);
        outcome
    }

    /// The replicas of a key at this moment.
    pub fn preference_list(&self, address: &Address) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        let plan = self.plan_with(&state, address, None, true, Purpose::Read)?;
        Ok(places(&state, &plan))
    }

    /// The n_val partitions that the ring gives a key, for clients that ask for its preference list. Some of
    /// them keep no replica if there are too few nodes; requests may go to their nodes all the same.
    pub fn preference_list_by_ring(
        &self,
        address: &Address,
    ) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        let plan = self.plan_with(&state, address, None, true, Purpose::Read)?;
        if plan.replicas.len() >= plan.n_val as usize {
            return Ok(places(&state, &plan));
        }
        let is_up = |node| self.is_up(node);
        let by_ring = Plan::new(&state, address, None, true, true, Purpose::Read, is_up)?;
        Ok(places(&state, &by_ring))
    }

    /// A key for an object whose client leaves the choice to us.
    pub fn generate_key(&self) -> Key {
        let mut random = [0; 20];
        self.parts.runtime.randomness().fill(&mut random);
        kvorum_object::generated_key(random)
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.parts.is_up(node)
    }

    pub(crate) fn plan(
        &self,
        address: &Address,
        n_val: Option<u32>,
        sloppy_quorum: bool,
    ) -> Result<Plan, RequestError> {
        let state = self.parts.cluster.look();
        let plan = self.plan_with(&state, address, n_val, sloppy_quorum, Purpose::Read)?;
        plan.check_objects_are_plain()?;
        Ok(plan)
    }

    pub(crate) fn plan_write(
        &self,
        address: &Address,
        n_val: Option<u32>,
        sloppy_quorum: bool,
    ) -> Result<Plan, RequestError> {
        let state = self.parts.cluster.look();
        let plan = self.plan_with(&state, address, n_val, sloppy_quorum, Purpose::Write)?;
        plan.check_objects_are_plain()?;
        Ok(plan)
    }

    fn plan_with(
        &self,
        state: &ClusterState,
        address: &Address,
        n_val: Option<u32>,
        sloppy_quorum: bool,
        purpose: Purpose,
    ) -> Result<Plan, RequestError> {
        let colocated = self.settings.colocated_replicas;
        let planned = |is_up: &dyn Fn(NodeId) -> bool| {
            let (quorum, place) = (sloppy_quorum, address);
            Plan::new(state, place, n_val, colocated, quorum, purpose, is_up)
        };
        let is_up = |node| self.is_up(node);
        let plan = planned(&is_up)?;
        if !self.parts.is_any_unopened() || colocated {
            return Ok(plan);
        }
        // Who has not opened a vnode of the key yet is for this key as good as down, as long as somebody
        // else can stand in.
        let unopened = self.parts.unopened_of(&plan);
        if unopened.is_empty() {
            return Ok(plan);
        }
        let is_open = |node| self.is_up(node) && !unopened.contains(&node);
        let without = planned(&is_open)?;
        let is_as_long = without.replicas.len() >= plan.replicas.len();
        Ok(if is_as_long { without } else { plan })
    }

    /// Who knows what maintenance does at this node.
    pub fn maintenance(&self) -> &Arc<dyn MaintenanceWitness> {
        &self.parts.maintenance
    }

    /// Holds a write back while background work is behind: every writer a little, and nobody stands
    /// still. Timers go by the millisecond, so that of a shorter delay every so many a write has one.
    async fn slow_down(&self, progress: &mut Progress) {
        let delay = self.parts.maintenance.put_delay();
        if delay.is_zero() {
            return;
        }
        let runtime = &self.parts.runtime;
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let is_rounded_up = runtime.random_u64() % 1_000 < micros % 1_000;
        let delay = Duration::from_millis(micros / 1_000 + u64::from(is_rounded_up));
        let begun = runtime.now();
        let delay = delay.min(progress.deadline.since(begun));
        if !delay.is_zero() {
            runtime.sleep(delay).await;
            progress.trace.slowed += runtime.now().since(begun);
        }
    }

    /// Refuses what is too much, and what has waited longer than it was given; counts the rest in.
    fn admit(&self, progress: &Progress) -> Result<crate::gate::Pass<'_>, RequestError> {
        self.check_admission(progress)?;
        self.requests.enter().ok_or(RequestError::Overload)
    }

    /// Refuses a put also where this node has no room for it.
    fn admit_put(&self, progress: &Progress) -> Result<crate::gate::Pass<'_>, RequestError> {
        if self.parts.maintenance.refuses_puts() {
            return Err(RequestError::Overload);
        }
        self.admit(progress)
    }

    /// Refuses as [`Coordinator::admit`] does, and counts nothing in.
    fn check_admission(&self, progress: &Progress) -> Result<(), RequestError> {
        if self.requests.is_full() {
            return Err(RequestError::Overload);
        }
        if progress.arrived.plus(progress.trace.queue) >= progress.deadline {
            return Err(RequestError::Timeout);
        }
        Ok(())
    }

    pub(crate) fn begin(&self, arrived: Moment, timeout: Option<Duration>) -> Progress {
        let queue = self.parts.runtime.now().since(arrived);
        self.progress(arrived, timeout, queue)
    }

    fn progress(&self, arrived: Moment, timeout: Option<Duration>, queue: Duration) -> Progress {
        let timeout = timeout.unwrap_or(self.settings.request_timeout);
        Progress {
            arrived,
            deadline: arrived.plus(timeout),
            trace: Trace {
                queue,
                ..Trace::default()
            },
        }
    }

    /// Reports a request that has ended to the meter, and to the log if there is something to say.
    pub(crate) fn finish(
        &self,
        kind: RequestKind,
        place: &dyn std::fmt::Display,
        error: Option<&RequestError>,
        object: Option<&Object>,
        progress: &Progress,
    ) {
        let now = self.parts.runtime.now();
        let took = now.since(progress.arrived);
        self.parts.meter.finished(kind, error, took, object, now);
        let is_put = matches!(
            kind,
            RequestKind::Put | RequestKind::WriteOncePut | RequestKind::Delete
        );
        if is_put && error != Some(&RequestError::Overload) {
            let undelayed = took.saturating_sub(progress.trace.slowed);
            self.parts.maintenance.put_finished(undelayed, now);
        }
        let is_slow = took >= self.settings.slow_request_threshold;
        if !is_slow && !error.is_some_and(RequestError::is_logged) {
            return;
        }
        if let Some(left_out) = self.request_log.take(error, now.elapsed()) {
            let maintenance_step = self.parts.maintenance.step_between(progress.arrived, now);
            Finished {
                kind,
                place,
                error,
                took,
                trace: progress.trace,
                maintenance_step,
                left_out,
            }
            .log();
        }
    }

    pub(crate) fn wall_time(&self) -> Timestamp {
        self.parts.wall_time()
    }
}

/// The replicas of a plan, as clients see them.
fn places(state: &ClusterState, plan: &Plan) -> Vec<ReplicaPlace> {
    let place = |replica: &Replica| ReplicaPlace {
        partition: replica.partition,
        node: replica.node,
        node_name: state
            .member(replica.node)
            .map_or_else(String::new, |m| m.name.clone()),
        is_primary: replica.role == Role::Primary,
    };
    plan.replicas.iter().map(place).collect()
}
