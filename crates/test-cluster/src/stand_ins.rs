//! A coordinator's parts besides vnodes: settings, a meter, a state of the cluster.

use std::sync::Arc;
use std::time::Duration;

use kvorum_cluster::{AgreedState, ClusterState, Command, ProposeError};
use kvorum_coordinator::{
    BackendNames, CoordinatorSettings, MaintenanceWitness, Meter, RequestError, RequestKind,
    TombstoneKeeping,
};
use kvorum_object::Object;
use kvorum_runtime::Moment;
use parking_lot::Mutex;

/// Settings under which nothing is refused, logged or reaped.
pub fn coordinator_settings() -> CoordinatorSettings {
    CoordinatorSettings {
        colocated_replicas: false,
        request_timeout: Duration::from_secs(60),
        slow_request_threshold: Duration::MAX,
        requests_max: 1_000,
        compares_all_on_get: true,
        tombstones: TombstoneKeeping::Keep,
        backend_names: BackendNames::One("memory"),
    }
}

/// A meter that counts nothing, and has no record of maintenance.
pub struct Unmeasured;

impl Meter for Unmeasured {
    fn finished(
        &self,
        _: RequestKind,
        _: Option<&RequestError>,
        _: Duration,
        _: Option<&Object>,
        _: Moment,
    ) {
    }

    fn read_repaired(&self, _: Moment) {}
}

impl MaintenanceWitness for Unmeasured {
    fn step_between(&self, _: Moment, _: Moment) -> Option<String> {
        None
    }
}

/// A node's state of the cluster, which the test sets. It refuses all proposals.
pub struct GivenState(Mutex<Arc<ClusterState>>);

impl GivenState {
    /// A node that begins with this state.
    pub fn new(state: Arc<ClusterState>) -> Self {
        Self(Mutex::new(state))
    }

    /// Replaces the state.
    pub fn set(&self, state: &Arc<ClusterState>) {
        *self.0.lock() = state.clone();
    }
}

impl AgreedState for GivenState {
    fn current(&self) -> Arc<ClusterState> {
        self.0.lock().clone()
    }

    fn propose(&self, _: Command) -> Result<Arc<ClusterState>, ProposeError> {
        Err(ProposeError::Unwritable)
    }
}
