//! Options of a run, beyond its configuration.

use std::time::{Duration, SystemTime};

use crate::server_probe::ProbeTargets;

/// Options of a run beyond its configuration.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Threads that share the workers.
    pub threads: usize,
    /// Sources of the server's figures.
    pub probe: ProbeTargets,
    /// The time for which operations run before measuring begins.
    pub warm_up: Duration,
    /// Operations per second of all workers of this process together, in an open loop; `None` for the
    /// configured pace.
    pub open_rate: Option<f64>,
    /// Id of the first worker.
    pub first_worker: u32,
    /// The time at which the workers begin, for several processes that begin together.
    pub start_at: Option<SystemTime>,
}
