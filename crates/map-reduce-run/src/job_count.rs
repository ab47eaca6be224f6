//! One job in the statistics of the node, from its beginning to its end.

use std::sync::Arc;

use kvorum_coordinator::{Coordinator, Meter};

/// Counts a job as under way until this is dropped.
pub(crate) struct JobCount(Arc<dyn Meter>);

impl JobCount {
    pub(crate) fn begin(coordinator: &Coordinator) -> Self {
        let meter = coordinator.meter().clone();
        meter.job_begun(coordinator.runtime().now());
        Self(meter)
    }
}

impl Drop for JobCount {
    fn drop(&mut self) {
        self.0.job_ended();
    }
}
