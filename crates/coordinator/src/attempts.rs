//! The common part of reading and writing: a request is planned with the present ring. After a
//! pause it is tried again if another plan may end better or a store is still being opened.
//!
//! A node answers as soon as it listens, and its stores open one after the other. A request for a store
//! that is not open yet waits within its own time-out. Otherwise a client that connects at once would have
//! its first requests refused for a few milliseconds. No request waits if other replicas suffice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_cluster::ClusterState;
use kvorum_encoding::Address;
use kvorum_ring::NodeId;
use kvorum_runtime::Moment;

use crate::accounts::Progress;
use crate::error::RequestError;
use crate::plan::{Plan, Purpose};
use crate::replicas::Replicas;

/// The first and the longest pause before a request is planned again, in which the newer ring
/// reaches this node or the others.
const REPLAN_PAUSE_MIN: Duration = Duration::from_millis(5);
const REPLAN_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The first pause before a request is tried again. It doubles up to the longest pause, and ends
/// early when a store of this node is opened. Stores of other nodes send no notice.
const OPENING_PAUSE_MIN: Duration = Duration::from_millis(5);
const OPENING_PAUSE_MAX: Duration = Duration::from_millis(250);

/// The pauses of one request before its next tries.
pub(crate) struct Pauses {
    /// Before the next plan.
    replan: Duration,
    /// Before another request to a store that was not open.
    opening: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            replan: REPLAN_PAUSE_MIN,
            opening: OPENING_PAUSE_MIN,
        }
    }
}

/// See the module's description.
pub(crate) struct Attempts {
    replicas: Arc<Replicas>,
    colocated_replicas: bool,
    /// The node is stopping: requests no longer wait for stores.
    is_stopping: AtomicBool,
}

impl Attempts {
    pub(crate) fn new(replicas: Arc<Replicas>, colocated_replicas: bool) -> Self {
        Self {
            replicas,
            colocated_replicas,
            is_stopping: AtomicBool::new(false),
        }
    }

    /// The plan of a read or a write, with the present state.
    pub(crate) fn plan(
        &self,
        address: &Address,
        n_val: Option<u32>,
        sloppy_quorum: Option<bool>,
        purpose: Purpose,
    ) -> Result<Plan, RequestError> {
        let state = self.replicas.parts.cluster.look();
        let sloppy_quorum = sloppy_quorum.unwrap_or(true);
        self.plan_with(&state, address, n_val, sloppy_quorum, purpose)
    }

    /// A plan with this state.
    pub(crate) fn plan_with(
        &self,
        state: &ClusterState,
        address: &Address,
        n_val: Option<u32>,
        sloppy_quorum: bool,
        purpose: Purpose,
    ) -> Result<Plan, RequestError> {
        let colocated = self.colocated_replicas;
        let planned = |is_up: &dyn Fn(NodeId) -> bool| {
            let (quorum, place) = (sloppy_quorum, address);
            Plan::new(state, place, n_val, colocated, quorum, purpose, is_up)
        };
        let is_up = |node| self.replicas.is_up(node);
        let plan = planned(&is_up)?;
        if !self.replicas.unopened.is_any() || colocated {
            return Ok(plan);
        }
        // A node that has not opened its vnode of the key yet counts as down for this key, while
        // another node can stand in.
        let unopened = self.replicas.unopened.nodes_among(&plan.replicas);
        if unopened.is_empty() {
            return Ok(plan);
        }
        let is_open = |node| self.replicas.is_up(node) && !unopened.contains(&node);
        let without = planned(&is_open)?;
        let is_as_long = without.replicas.len() >= plan.replicas.len();
        Ok(if is_as_long { without } else { plan })
    }

    /// Waits for the newer ring of other nodes; false when there is no time for that.
    pub(crate) async fn pause_before_replanning(
        &self,
        pauses: &mut Pauses,
        progress: &Progress,
    ) -> bool {
        let (runtime, pause) = (&self.replicas.parts.runtime, &mut pauses.replan);
        if runtime.now().plus(*pause) >= progress.deadline {
            return false;
        }
        runtime.sleep(*pause).await;
        *pause = pause.saturating_mul(2).min(REPLAN_PAUSE_MAX);
        true
    }

    /// Ends the waits of requests for stores that are being opened: from now on they are refused at
    /// once. Called by a node that stops.
    pub(crate) fn stop_waiting(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Waits until all stores of this node that can be opened are open, at most for the time-out of
    /// a request. Listings and queries call it, as they need every store. It returns at once if
    /// other nodes have replicas.
    pub(crate) async fn until_opened(&self, timeout: Duration) {
        if !self.replicas.parts.vnodes.is_any_opening() {
            return;
        }
        let deadline = self.replicas.parts.runtime.now().plus(timeout);
        let mut pauses = Pauses::default();
        let is_alone = || self.replicas.parts.cluster.current().ring().replicas_max() < 2;
        while self.replicas.parts.vnodes.is_any_opening() && is_alone() {
            if !self.wait_until(&mut pauses, deadline).await {
                return;
            }
        }
    }

    /// Waits before a request is tried again; false when there is no time for that.
    pub(crate) async fn wait_to_open(&self, pauses: &mut Pauses, progress: &mut Progress) -> bool {
        let runtime = &self.replicas.parts.runtime;
        let begun = runtime.now();
        let has_time = self.wait_until(pauses, progress.deadline).await;
        // No store was slow, so background work need not slow down.
        progress.trace.slowed += runtime.now().since(begun);
        has_time
    }

    async fn wait_until(&self, pauses: &mut Pauses, deadline: Moment) -> bool {
        let runtime = &self.replicas.parts.runtime;
        let now = runtime.now();
        if self.is_stopping.load(Ordering::Relaxed) || now >= deadline {
            return false;
        }
        let pause = pauses.opening.min(deadline.since(now));
        pauses.opening = pauses.opening.saturating_mul(2).min(OPENING_PAUSE_MAX);
        match self.replicas.parts.vnodes.next_opening() {
            Some(opening) => {
                let _opened_or_not = runtime.timeout(pause, opening).await;
            }
            None => runtime.sleep(pause).await,
        }
        !self.is_stopping.load(Ordering::Relaxed) && runtime.now() < deadline
    }
}
