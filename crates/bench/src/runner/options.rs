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
    /// For how long operations run before measuring begins.
    pub warm_up: Duration,
    /// Operations per second of all workers of this process together, in an open loop; `None` for the
    /// configured pace.
    pub open_rate: Option<f64>,
    /// Id of the first worker.
    pub first_worker: u32,
    /// The beginning of the workers, for several processes that shall begin together.
    pub start_at: Option<SystemTime>,
}
