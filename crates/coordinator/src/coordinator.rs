//! The coordinator: what protocols call, and the frame around every request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Reading, Timestamp};
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_encoding::{Address, Key};
use kvorum_object::{Clock, Object};
use kvorum_ring::{NodeId, Replica, Role};
use kvorum_runtime::{LogQuota, Moment, Runtime};
use parking_lot::Mutex;

use crate::attempts::{Attempts, Progress};
use crate::deleting::Deletes;
use crate::error::RequestError;
use crate::failure_log::FailureLog;
use crate::gate::{Gate, Pass};
use crate::hinting::{self, HandedOff};
use crate::parts::{Parts, Remote};
use crate::plan::{Plan, Purpose};
use crate::reach::{OutOfReach, out_of_reach};
use crate::reading::{Reads, StartedGet};
use crate::reaper::{Reaper, TombstoneKeeping};
use crate::replicas::Replicas;
use crate::request::{DeleteOptions, Deleted, GetOptions, PutOptions, PutRequest, ReplicaPlace};
use crate::trace::{Finished, MaintenanceWitness, RequestKind, Trace};
use crate::writing::Writes;

/// Listings in progress at which further ones are refused with `overload`: each holds a thread of the
/// blocking pool, of which reads must find some free.
const LISTINGS_MAX: usize = 16;

/// Index queries in progress at which further ones are refused with `overload`. A query holds a thread
/// for one part of its results at a time, which is short.
const INDEX_QUERIES_MAX: usize = 1_000;

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

/// Coordinates requests at this node.
pub struct Coordinator {
    /// Shared with what outlives a request.
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) attempts: Arc<Attempts>,
    reads: Arc<Reads>,
    writes: Arc<Writes>,
    deletes: Deletes,
    pub(crate) settings: CoordinatorSettings,
    requests: Gate,
    /// Gets among the requests that wait.
    gets_waiting: Gate,
    pub(crate) listings: Gate,
    pub(crate) index_queries: Gate,
    /// Nodes that coverage does without, and since when.
    pub(crate) left_out: Mutex<BTreeMap<NodeId, Moment>>,
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

impl Coordinator {
    /// The coordinator of a node that is alone.
    pub fn new(parts: Parts, settings: CoordinatorSettings) -> Self {
        Self::of_replicas(Replicas::new(parts, None), settings)
    }

    /// The coordinator of a node among others.
    pub fn among_peers(parts: Parts, remote: Remote, settings: CoordinatorSettings) -> Self {
        Self::of_replicas(Replicas::new(parts, Some(remote)), settings)
    }

    fn of_replicas(replicas: Replicas, settings: CoordinatorSettings) -> Self {
        let replicas = Arc::new(replicas);
        let attempts = Attempts::new(replicas.clone(), settings.colocated_replicas);
        let attempts = Arc::new(attempts);
        let reads = Arc::new(Reads::new(replicas.clone(), attempts.clone()));
        let writes = Arc::new(Writes {
            replicas: replicas.clone(),
            attempts: attempts.clone(),
            reads: reads.clone(),
        });
        let deletes = Deletes {
            replicas: replicas.clone(),
            reads: reads.clone(),
            writes: writes.clone(),
            tombstones: settings.tombstones,
            reaper: Reaper::default(),
        };
        Self {
            replicas,
            attempts,
            reads,
            writes,
            deletes,
            settings,
            requests: Gate::new(settings.requests_max),
            gets_waiting: Gate::new(usize::MAX),
            listings: Gate::new(LISTINGS_MAX),
            index_queries: Gate::new(INDEX_QUERIES_MAX),
            left_out: Mutex::default(),
            without_effect_log: LogQuota::new(),
            request_log: FailureLog::default(),
        }
    }

    /// The agreed cluster state at this moment.
    pub fn state(&self) -> Arc<ClusterState> {
        self.replicas.parts.cluster.current()
    }

    /// Where cluster state is changed.
    pub fn cluster(&self) -> &Arc<dyn AgreedState> {
        &self.replicas.parts.cluster
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.replicas.parts.node
    }

    /// Clock, tasks and randomness, for the protocols above.
    pub fn runtime(&self) -> &Runtime {
        &self.replicas.parts.runtime
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
            Ok(()) => self.reads.start(address, options),
            Err(error) => StartedGet::Ended(Err(error)),
        };
        let outcome = match started {
            StartedGet::Ended(Err(RequestError::VnodeOpening)) => match self.requests.enter() {
                // Few get here: the future of those that never wait stays small.
                Some(_admitted) => Box::pin(self.reads.get(address, options, &mut progress)).await,
                None => Err(RequestError::Overload),
            },
            StartedGet::Ended(reply) => reply,
            StartedGet::Waits(get) => match self.requests.enter() {
                Some(_admitted) => {
                    let _counted = self.gets_waiting.enter();
                    let get = self.reads.wait_for(get, address, options, &mut progress);
                    match get.await {
                        Err(RequestError::VnodeOpening) => {
                            Box::pin(self.reads.get(address, options, &mut progress)).await
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
                let run = self.writes.put(address, request, options, &mut progress);
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
                let run = self
                    .deletes
                    .delete(address, context, options, &mut progress);
                run.await
            }
            Err(error) => Err(error),
        };
        let error = outcome.as_ref().err();
        self.finish(RequestKind::Delete, address, error, None, &progress);
        outcome
    }

    /// Removes the tombstones whose time has come; called now and then, from a thread that may block
    /// unless `reading` says otherwise. Those that it cannot remove stay, and cost nothing but space.
    pub fn reap_due(&self, reading: Reading) {
        self.deletes.reap_due(reading);
    }

    /// Hands over the hints of nodes that are up, all that there are when it begins, until `deadline`.
    pub async fn hand_off_hints(&self, deadline: Moment) -> HandedOff {
        hinting::hand_off(&self.replicas, deadline).await
    }

    /// The partitions out of reach through this node at this moment, for requests without quorums of their
    /// own to buckets without a type.
    pub fn out_of_reach(&self) -> OutOfReach {
        let colocated = self.settings.colocated_replicas;
        out_of_reach(&self.state(), colocated, |node| self.is_up(node))
    }

    /// Ends the waits of requests for stores that are being opened: they are refused at once from here on.
    /// Called by a node that stops.
    pub fn stop_waiting(&self) {
        self.attempts.stop_waiting();
    }

    /// Waits until all stores of this node that can be opened are open, at most for the time-out of a
    /// request. Listings and queries call it, as they need every store; nothing waits if other nodes have
    /// replicas.
    pub async fn until_opened(&self, timeout: Option<Duration>) {
        let timeout = timeout.unwrap_or(self.settings.request_timeout);
        self.attempts.until_opened(timeout).await;
    }

    /// The replicas of a key at this moment.
    pub fn preference_list(&self, address: &Address) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        let plan = self
            .attempts
            .plan_with(&state, address, None, true, Purpose::Read)?;
        Ok(places(&state, &plan))
    }

    /// The n_val partitions that the ring gives a key, for clients that ask for its preference list. Some of
    /// them keep no replica if there are too few nodes; requests may go to their nodes all the same.
    pub fn preference_list_by_ring(
        &self,
        address: &Address,
    ) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        let plan = self
            .attempts
            .plan_with(&state, address, None, true, Purpose::Read)?;
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
        self.replicas.parts.runtime.randomness().fill(&mut random);
        kvorum_object::generated_key(random)
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.replicas.is_up(node)
    }

    /// Who knows what maintenance does at this node.
    pub fn maintenance(&self) -> &Arc<dyn MaintenanceWitness> {
        &self.replicas.parts.maintenance
    }

    /// Holds a write back while background work is behind: every writer a little, and nobody stands
    /// still. Timers go by the millisecond, so that of a shorter delay every so many a write has one.
    async fn slow_down(&self, progress: &mut Progress) {
        let delay = self.replicas.parts.maintenance.put_delay();
        if delay.is_zero() {
            return;
        }
        let runtime = &self.replicas.parts.runtime;
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
    fn admit(&self, progress: &Progress) -> Result<Pass<'_>, RequestError> {
        self.check_admission(progress)?;
        self.requests.enter().ok_or(RequestError::Overload)
    }

    /// Refuses a put also where this node has no room for it.
    fn admit_put(&self, progress: &Progress) -> Result<Pass<'_>, RequestError> {
        if self.replicas.parts.maintenance.refuses_puts() {
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
        let queue = self.replicas.parts.runtime.now().since(arrived);
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
        let now = self.replicas.parts.runtime.now();
        let took = now.since(progress.arrived);
        self.replicas
            .parts
            .meter
            .finished(kind, error, took, object, now);
        let is_put = matches!(
            kind,
            RequestKind::Put | RequestKind::WriteOncePut | RequestKind::Delete
        );
        if is_put && error != Some(&RequestError::Overload) {
            let undelayed = took.saturating_sub(progress.trace.slowed);
            self.replicas.parts.maintenance.put_finished(undelayed, now);
        }
        let is_slow = took >= self.settings.slow_request_threshold;
        if !is_slow && !error.is_some_and(RequestError::is_logged) {
            return;
        }
        if let Some(left_out) = self.request_log.take(error, now.elapsed()) {
            let maintenance_step = self
                .replicas
                .parts
                .maintenance
                .step_between(progress.arrived, now);
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
        self.replicas.parts.wall_time()
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
