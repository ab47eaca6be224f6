//! The driver: runs the machines, executing their effects on this node's vnodes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kvorum_backend::{Durability, Durable, Reading, SyncTicket, Timestamp};
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_encoding::{Address, Key};
use kvorum_object::{Clock, Content, Object};
use kvorum_properties::SyncOnWrite;
use kvorum_ring::{NodeId, Replica, Role};
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::{
    ClientUpdate, Condition, Detail, Handled, Operation, ReplicaFailure, ReplicaReply,
    ReplicaRequest, Vnode,
};

use crate::error::RequestError;
use crate::get::{GetAnswer, GetEffect, GetEvent, GetMachine};
use crate::plan::Plan;
use crate::put::{PutEffect, PutEvent, PutMachine};
use crate::reaper::{Reaper, Tombstone, TombstoneKeeping};
use crate::request::{
    DeleteOptions, Deleted, GetOptions, PutKind, PutOptions, PutRequest, ReplicaPlace,
};
use crate::trace::{Finished, MaintenanceWitness, Meter, RequestKind, Trace};

/// The vnodes of this node.
pub trait LocalVnodes: Send + Sync {
    /// The vnode of a partition, once its store is open.
    fn vnode(&self, partition: kvorum_ring::Partition) -> Option<Arc<Vnode>>;
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
    /// Requests in progress at which further ones are refused with `overload`.
    pub requests_max: usize,
    /// What becomes of tombstones that every replica holds.
    pub tombstones: TombstoneKeeping,
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
    pub(crate) parts: Parts,
    pub(crate) settings: CoordinatorSettings,
    requests: AtomicUsize,
    reaper: Reaper,
}

/// Counts a request as in progress while it lives.
pub(crate) struct Admitted<'a>(&'a AtomicUsize);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is known of a request while it runs.
struct Progress {
    arrived: Moment,
    deadline: Moment,
    trace: Trace,
}

impl Coordinator {
    /// A coordinator.
    pub fn new(parts: Parts, settings: CoordinatorSettings) -> Self {
        Self {
            parts,
            settings,
            requests: AtomicUsize::new(0),
            reaper: Reaper::default(),
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

    /// Requests in progress.
    pub fn requests_in_progress(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
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
        let _admitted = self.admit()?;
        let mut progress = self.begin(arrived, options.timeout);
        let outcome = self.drive_get(address, options, &mut progress).await;
        let object = outcome.as_ref().ok().and_then(Option::as_deref);
        self.finish(
            RequestKind::Get,
            Some(address),
            outcome.as_ref().err(),
            object,
            &progress,
        );
        outcome
    }

    /// Writes an object and returns what its coordinating replica holds then.
    pub async fn put(
        &self,
        address: &Address,
        request: PutRequest,
        options: &PutOptions,
        arrived: Moment,
    ) -> Result<Arc<Object>, RequestError> {
        let _admitted = self.admit()?;
        let mut progress = self.begin(arrived, options.timeout);
        let written = self
            .drive_put(address, request, options, &mut progress)
            .await;
        let outcome = written.map(|written| written.object);
        let object = outcome.as_deref().ok();
        self.finish(
            RequestKind::Put,
            Some(address),
            outcome.as_ref().err(),
            object,
            &progress,
        );
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
        let _admitted = self.admit()?;
        let mut progress = self.begin(arrived, options.timeout);
        let outcome = self
            .drive_delete(address, context, options, &mut progress)
            .await;
        let error = outcome.as_ref().err();
        self.finish(RequestKind::Delete, Some(address), error, None, &progress);
        outcome
    }

    /// The replicas of a key at this moment, for clients that route by themselves.
    pub fn preference_list(&self, address: &Address) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        let colocated = self.settings.colocated_replicas;
        let plan = Plan::new(&state, address, None, colocated, true, |node| {
            self.is_up(node)
        })?;
        let place = |replica: &Replica| ReplicaPlace {
            partition: replica.partition,
            node: replica.node,
            node_name: state
                .member(replica.node)
                .map_or_else(String::new, |m| m.name.clone()),
            is_primary: replica.role == Role::Primary,
        };
        Ok(plan.replicas.iter().map(place).collect())
    }

    /// A key for an object whose client leaves the choice to us.
    pub fn generate_key(&self) -> Key {
        let mut random = [0; 20];
        self.parts.runtime.randomness().fill(&mut random);
        kvorum_object::generated_key(random)
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        // The peers of later floors are asked here; a lone node knows of itself.
        node == self.parts.node
    }

    pub(crate) fn admit(&self) -> Result<Admitted<'_>, RequestError> {
        let admitted = Admitted(&self.requests);
        if self.requests.fetch_add(1, Ordering::Relaxed) >= self.settings.requests_max {
            return Err(RequestError::Overload);
        }
        Ok(admitted)
    }

    fn begin(&self, arrived: Moment, timeout: Option<Duration>) -> Progress {
        let queue = self.parts.runtime.now().since(arrived);
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

    fn finish(
        &self,
        kind: RequestKind,
        address: Option<&Address>,
        error: Option<&RequestError>,
        object: Option<&Object>,
        progress: &Progress,
    ) {
        let now = self.parts.runtime.now();
        let took = now.since(progress.arrived);
        self.parts.meter.finished(kind, error, took, object, now);
        let is_slow = took >= self.settings.slow_request_threshold;
        if is_slow || error.is_some_and(RequestError::is_logged) {
            let maintenance_step = self.parts.maintenance.step_between(progress.arrived, now);
            Finished {
                kind,
                address,
                error,
                took,
                trace: progress.trace,
                maintenance_step,
            }
            .log();
        }
    }

    fn plan(
        &self,
        address: &Address,
        n_val: Option<u32>,
        sloppy_quorum: bool,
    ) -> Result<Plan, RequestError> {
        let colocated = self.settings.colocated_replicas;
        let state = self.state();
        Plan::new(&state, address, n_val, colocated, sloppy_quorum, |node| {
            self.is_up(node)
        })
    }

    async fn drive_get(
        &self,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let plan = self.plan(address, options.n_val, options.sloppy_quorum)?;
        let quorum = plan.read_quorum(options)?;
        let resolution = plan.resolution();
        let (mut machine, effects) = GetMachine::start(&plan.replicas, quorum, resolution);
        let mut effects = VecDeque::from_iter(effects);
        let mut reply = None;
        while let Some(effect) = effects.pop_front() {
            match effect {
                GetEffect::Ask { slot } => {
                    let answer = self.ask(&plan, slot, options.detail, progress).await;
                    let event = match answer {
                        Err(RequestError::Timeout) => GetEvent::Deadline,
                        answer => GetEvent::Answer {
                            slot,
                            answer: get_answer(answer),
                        },
                    };
                    effects.extend(machine.step(event));
                }
                GetEffect::Repair { slot, object } if options.detail == Detail::Whole => {
                    self.repair(&plan, slot, object);
                }
                GetEffect::Reply(outcome) => reply = Some(outcome),
                GetEffect::Repair { .. } | GetEffect::Done => {}
            }
        }
        let found = reply.unwrap_or_else(|| Err(no_reply()))?;
        Ok(found.map(|object| match object.siblings().len() {
            1 => object,
            _ => Arc::new(kvorum_object::resolve(Object::clone(&object), resolution)),
        }))
    }

    async fn ask(
        &self,
        plan: &Plan,
        slot: usize,
        detail: Detail,
        progress: &mut Progress,
    ) -> Result<ReplicaReply, RequestError> {
        let key = plan.key.clone();
        let started = self.parts.runtime.now();
        let reply = self
            .execute(plan, slot, Operation::Get { key, detail }, progress)
            .await;
        progress.trace.read += self.parts.runtime.now().since(started);
        reply
    }

    async fn drive_put(
        &self,
        address: &Address,
        request: PutRequest,
        options: &PutOptions,
        progress: &mut Progress,
    ) -> Result<Written, RequestError> {
        let plan = self.plan(address, options.n_val, options.sloppy_quorum)?;
        let quorum = plan.write_quorum(options)?;
        if plan.replicas.len() > 1 && request.condition != Condition::Always {
            // The coordinating replica checks exactly; the others may have seen more than it.
            self.check_by_quorum(address, &request.condition, progress)
                .await?;
        }
        let sync = options
            .sync_on_write
            .unwrap_or(plan.properties.sync_on_write);
        let resolution = plan.resolution();
        let (machine, effects, update) = match request.kind {
            PutKind::Versioned => {
                let coordinator = self.choose_coordinator(&plan)?;
                let (machine, effects) = PutMachine::start(&plan.replicas, coordinator, quorum);
                let PutRequest {
                    context,
                    condition,
                    content,
                    ..
                } = request;
                let update = Arc::new(ClientUpdate {
                    context,
                    condition,
                    content,
                    resolution,
                });
                (machine, effects, Some(update))
            }
            PutKind::AsIs => {
                let now = kvorum_object::Timestamp::from_micros(self.wall_time().0);
                let object = Arc::new(Object::as_is(request.context, request.content, now));
                let (machine, effects) = PutMachine::start_as_is(&plan.replicas, &object, quorum);
                (machine, effects, None)
            }
        };
        let run = PutRun {
            plan: &plan,
            update,
            has_coordinated: false,
            sync,
            effects: effects.into_iter().collect(),
        };
        let (object, unsynced) = self.run_put(machine, run, progress).await?;
        Ok(Written {
            plan,
            object,
            unsynced,
        })
    }

    async fn run_put(
        &self,
        mut machine: PutMachine,
        mut run: PutRun<'_>,
        progress: &mut Progress,
    ) -> Result<(Arc<Object>, Vec<SyncTicket>), RequestError> {
        let mut tickets = VecDeque::new();
        let mut reply = None;
        loop {
            while let Some(effect) = run.effects.pop_front() {
                let (slot, operation) = match effect {
                    PutEffect::Coordinate { slot } => (slot, run.coordinate()),
                    PutEffect::Store { slot, object } => (slot, Ok(run.store(object))),
                    PutEffect::Reply(outcome) => {
                        reply = Some(outcome);
                        continue;
                    }
                    PutEffect::Done => continue,
                };
                let replied = match operation {
                    Ok(operation) => self.execute(run.plan, slot, operation, progress).await,
                    Err(error) => Err(error),
                };
                let is_coordinator = run.update.is_some() && !run.has_coordinated;
                run.has_coordinated |= is_coordinator;
                let durable = match replied.and_then(stored) {
                    Ok((object, durable)) => {
                        let event = if is_coordinator {
                            PutEvent::Coordinated { object }
                        } else {
                            PutEvent::Received { slot }
                        };
                        run.effects.extend(machine.step(event));
                        durable
                    }
                    Err(RequestError::Timeout) => {
                        run.effects.extend(machine.step(PutEvent::Deadline));
                        continue;
                    }
                    Err(error) => {
                        run.effects
                            .extend(machine.step(PutEvent::Failed { slot, error }));
                        continue;
                    }
                };
                match durable {
                    Durable::Already => {
                        run.effects.extend(machine.step(PutEvent::Durable { slot }));
                    }
                    Durable::After(ticket) => tickets.push_back((slot, ticket)),
                }
            }
            if let Some(outcome) = reply {
                let unsynced = tickets.into_iter().map(|(_, ticket)| ticket).collect();
                return outcome.map(|object| (object, unsynced));
            }
            let Some((slot, ticket)) = tickets.pop_front() else {
                return Err(no_reply());
            };
            let event = match self.await_sync(ticket, progress).await {
                Ok(()) => PutEvent::Durable { slot },
                Err(RequestError::Timeout) => PutEvent::Deadline,
                Err(error) => PutEvent::Failed { slot, error },
            };
            run.effects.extend(machine.step(event));
        }
    }

    async fn drive_delete(
        &self,
        address: &Address,
        context: Option<Clock>,
        options: &DeleteOptions,
        progress: &mut Progress,
    ) -> Result<Deleted, RequestError> {
        let context = match context {
            Some(context) => context,
            None => {
                let read = GetOptions {
                    r: options.r.or(options.rw),
                    pr: options.pr,
                    n_val: options.n_val,
                    detail: Detail::Head,
                    ..GetOptions::default()
                };
                match self.drive_get(address, &read, progress).await? {
                    Some(object) if !object.is_tombstone() => object.clock().clone(),
                    _ => return Ok(Deleted::NothingThere),
                }
            }
        };
        let request = PutRequest {
            context,
            condition: Condition::Always,
            content: Content::tombstone(),
            kind: PutKind::Versioned,
        };
        let write = PutOptions {
            w: options.w.or(options.rw),
            dw: options.dw,
            pw: options.pw,
            n_val: options.n_val,
            ..PutOptions::default()
        };
        let written = self.drive_put(address, request, &write, progress).await?;
        self.reap_later(written);
        Ok(Deleted::Written)
    }

    /// Notes a tombstone for removal, if every replica that the key has took it in.
    fn reap_later(&self, written: Written) {
        let Written {
            plan,
            object,
            unsynced,
        } = written;
        let delay = match self.settings.tombstones {
            TombstoneKeeping::Keep => return,
            TombstoneKeeping::Immediate => Duration::ZERO,
            TombstoneKeeping::For(delay) => delay,
        };
        let everywhere = plan.replicas.len() == plan.effective_n as usize
            && plan
                .replicas
                .iter()
                .all(|replica| replica.role == Role::Primary);
        if !everywhere || !object.is_tombstone() {
            return;
        }
        let due = self.parts.runtime.now().plus(delay);
        let (key, clock) = (plan.key, object.clock().clone());
        self.reaper.add(Tombstone {
            due,
            key,
            clock,
            replicas: plan.replicas,
            unsynced,
        });
        if delay.is_zero() {
            self.reap_due(Reading::CachedOnly);
        }
    }

    /// Removes the tombstones whose time has come; called now and then, from a thread that may block
    /// unless `reading` says otherwise. Those that it cannot remove stay, and cost nothing but space.
    pub fn reap_due(&self, reading: Reading) {
        let now = self.parts.runtime.now();
        while let Some(tombstone) = self.reaper.take_due(now) {
            if reading == Reading::MayBlock && tombstone.unsynced.iter().any(|t| t.wait().is_err())
            {
                continue;
            }
            if reading == Reading::CachedOnly && !tombstone.unsynced.is_empty() {
                self.reaper.put_back(tombstone);
                return;
            }
            self.reap(&tombstone, reading);
        }
    }

    fn reap(&self, tombstone: &Tombstone, reading: Reading) {
        for replica in &tombstone.replicas {
            let Some(vnode) = self.parts.vnodes.vnode(replica.partition) else {
                continue;
            };
            let (key, clock) = (tombstone.key.clone(), tombstone.clock.clone());
            let operation = Operation::Reap { key, clock };
            let request = ReplicaRequest {
                partition: replica.partition,
                epoch: replica.epoch,
                operation,
            };
            let handled = vnode.handle(&request, self.wall_time(), reading);
            if let Handled::Done(ReplicaReply::Failed(failure)) = handled {
                tracing::debug!(event = "reap_failed", error = %failure);
            }
        }
    }

    async fn check_by_quorum(
        &self,
        address: &Address,
        condition: &Condition,
        progress: &mut Progress,
    ) -> Result<(), RequestError> {
        let head = GetOptions {
            detail: Detail::Head,
            ..GetOptions::default()
        };
        let found = self.drive_get(address, &head, progress).await?;
        let live = found.filter(|object| !object.is_tombstone());
        match (condition, live) {
            (Condition::Absent, Some(_)) => Err(RequestError::MatchFound),
            (Condition::Version(_), None) => Err(RequestError::ConditionNotFound),
            (Condition::Version(expected), Some(object)) if object.clock() != expected => {
                Err(RequestError::Modified)
            }
            _ => Ok(()),
        }
    }

    /// A replica of this node, preferably a primary.
    fn choose_coordinator(&self, plan: &Plan) -> Result<usize, RequestError> {
        let local = |replica: &Replica| replica.node == self.parts.node;
        plan.replicas
            .iter()
            .position(local)
            .ok_or(RequestError::AllNodesDown)
    }

    /// Has a replica carry out an operation: inline if memory suffices, else on the blocking pool.
    async fn execute(
        &self,
        plan: &Plan,
        slot: usize,
        operation: Operation,
        progress: &mut Progress,
    ) -> Result<ReplicaReply, RequestError> {
        let replica = plan.replicas.get(slot).ok_or_else(no_reply)?;
        let vnode = self
            .parts
            .vnodes
            .vnode(replica.partition)
            .ok_or(RequestError::VnodeNotReady)?;
        let request = ReplicaRequest {
            partition: replica.partition,
            epoch: replica.epoch,
            operation,
        };
        let now = self.wall_time();
        match vnode.handle(&request, now, Reading::CachedOnly) {
            Handled::Done(reply) => reply_or_failure(reply),
            Handled::WouldBlock => self.execute_blocking(vnode, request, progress).await,
        }
    }

    async fn execute_blocking(
        &self,
        vnode: Arc<Vnode>,
        request: ReplicaRequest,
        progress: &mut Progress,
    ) -> Result<ReplicaReply, RequestError> {
        let queued = self.parts.runtime.now();
        let remaining = progress.deadline.since(queued);
        let (runtime, now) = (self.parts.runtime.clone(), self.wall_time());
        let work = self.parts.runtime.blocking(move || {
            let started = runtime.now();
            (vnode.handle(&request, now, Reading::MayBlock), started)
        });
        let timed = self.parts.runtime.timeout(remaining, work).await;
        let (handled, started) = timed.map_err(|_| RequestError::Timeout)?;
        progress.trace.queue += started.since(queued);
        match handled {
            Handled::Done(reply) => reply_or_failure(reply),
            Handled::WouldBlock => Err(RequestError::Internal(
                "a read that may block said it would".into(),
            )),
        }
    }

    async fn await_sync(
        &self,
        ticket: SyncTicket,
        progress: &mut Progress,
    ) -> Result<(), RequestError> {
        let started = self.parts.runtime.now();
        let remaining = progress.deadline.since(started);
        let runtime = &self.parts.runtime;
        let synced = if ticket.is_driven() {
            runtime.timeout(remaining, ticket).await
        } else {
            runtime
                .timeout(remaining, runtime.blocking(move || ticket.wait()))
                .await
        };
        progress.trace.sync_wait += runtime.now().since(started);
        match synced {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == kvorum_backend::ErrorKind::Full => {
                Err(RequestError::DiskFull(error.to_string()))
            }
            Ok(Err(error)) => Err(RequestError::Storage(error.to_string())),
            Err(_) => Err(RequestError::Timeout),
        }
    }

    /// Sends a replica what it lacks, behind the client's back.
    fn repair(&self, plan: &Plan, slot: usize, object: Arc<Object>) {
        let Some(replica) = plan.replicas.get(slot).copied() else {
            return;
        };
        let Some(vnode) = self.parts.vnodes.vnode(replica.partition) else {
            return;
        };
        let operation = Operation::Store {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
            durability: Durability::BackendDefault,
        };
        let request = ReplicaRequest {
            partition: replica.partition,
            epoch: replica.epoch,
            operation,
        };
        let (runtime, now) = (self.parts.runtime.clone(), self.wall_time());
        self.parts.meter.read_repaired(self.parts.runtime.now());
        self.parts.runtime.spawn("read repair", async move {
            let handled = runtime.blocking(move || vnode.handle(&request, now, Reading::MayBlock));
            if let Handled::Done(ReplicaReply::Failed(failure)) = handled.await {
                tracing::warn!(event = "read_repair_failed", error = %failure);
            }
        });
    }

    pub(crate) fn wall_time(&self) -> Timestamp {
        Timestamp(self.parts.runtime.wall_time().micros())
    }
}

/// A put that was carried out.
struct Written {
    plan: Plan,
    object: Arc<Object>,
    /// What the replicas that the client did not wait for have still to sync.
    unsynced: Vec<SyncTicket>,
}

/// A put under way: what its effects need.
struct PutRun<'a> {
    plan: &'a Plan,
    update: Option<Arc<ClientUpdate>>,
    has_coordinated: bool,
    sync: SyncOnWrite,
    effects: VecDeque<PutEffect>,
}

impl PutRun<'_> {
    fn coordinate(&self) -> Result<Operation, RequestError> {
        let update = self.update.clone().ok_or_else(no_reply)?;
        let durability = match self.sync {
            SyncOnWrite::Backend => Durability::BackendDefault,
            SyncOnWrite::One | SyncOnWrite::All => Durability::Grouped,
        };
        Ok(Operation::Coordinate {
            key: self.plan.key.clone(),
            update,
            durability,
        })
    }

    fn store(&self, object: Arc<Object>) -> Operation {
        let durability = match self.sync {
            SyncOnWrite::Backend | SyncOnWrite::One => Durability::BackendDefault,
            SyncOnWrite::All => Durability::Grouped,
        };
        let (key, resolution) = (self.plan.key.clone(), self.plan.resolution());
        Operation::Store {
            key,
            object,
            resolution,
            durability,
        }
    }
}

fn get_answer(answer: Result<ReplicaReply, RequestError>) -> GetAnswer {
    match answer {
        Ok(ReplicaReply::Found(object)) => GetAnswer::Found(object),
        Ok(ReplicaReply::NotFound) => GetAnswer::NotFound,
        Ok(_) => GetAnswer::Failed(no_reply()),
        Err(error) => GetAnswer::Failed(error),
    }
}

fn stored(reply: ReplicaReply) -> Result<(Arc<Object>, Durable), RequestError> {
    match reply {
        ReplicaReply::Stored { object, durable } => Ok((object, durable)),
        _ => Err(no_reply()),
    }
}

fn reply_or_failure(reply: ReplicaReply) -> Result<ReplicaReply, RequestError> {
    match reply {
        ReplicaReply::Failed(failure) => Err(request_error(failure)),
        reply => Ok(reply),
    }
}

pub(crate) fn request_error(failure: ReplicaFailure) -> RequestError {
    match failure {
        ReplicaFailure::ConditionFound => RequestError::MatchFound,
        ReplicaFailure::ConditionModified => RequestError::Modified,
        ReplicaFailure::ConditionAbsent => RequestError::ConditionNotFound,
        ReplicaFailure::ObjectTooLarge { bytes, bytes_max } => {
            RequestError::ObjectTooLarge { bytes, bytes_max }
        }
        ReplicaFailure::TooManySiblings {
            siblings,
            siblings_max,
        } => RequestError::TooManySiblings {
            siblings,
            siblings_max,
        },
        ReplicaFailure::Full(detail) => RequestError::DiskFull(detail),
        ReplicaFailure::Damaged(detail) | ReplicaFailure::Storage(detail) => {
            RequestError::Storage(detail)
        }
        ReplicaFailure::Internal(detail) => RequestError::Internal(detail),
        stale @ ReplicaFailure::StaleEpoch { .. } => RequestError::Internal(stale.to_string()),
    }
}

fn no_reply() -> RequestError {
    RequestError::Internal("a machine ended without a reply".into())
}
