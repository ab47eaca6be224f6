//! Budgets of background work: plain values, set once.

use std::time::Duration;

/// The limits of background work, and the size of its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// The target duration of one step. Longer steps do the same work with less overhead, but a
    /// request behind one waits longer.
    pub step_time: Duration,
    /// Bytes read and written per second, of all work but syncs; `None` means no ceiling of its own.
    /// It limits pressing work too.
    pub io_bytes_per_second_max: Option<u64>,
    /// Processor time, as a share of all cores, in percent. Pressing work may take more.
    pub cpu_share_max_percent: u8,
    /// The cores that the process may use.
    pub cores: u32,
    /// Memory of the stores and of requests: memtables, caches, key directories, queued batches.
    /// Near the limit, upkeep that frees memory comes first, caches shrink and puts slow down; at
    /// the limit, puts are refused.
    pub memory_bytes_max: Option<u64>,
    /// Open files of the process. Near the limit, upkeep that reduces their number comes first; at
    /// the limit, puts are refused.
    pub open_files_max: Option<u64>,
    /// The backlog at which puts are delayed the most; `None` delays them only for pressing work.
    pub backlog_bytes_max: Option<u64>,
    /// The longest delay of a put.
    pub put_delay_max: Duration,
    /// The query period of a store with puts.
    pub ask_period: Duration,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            step_time: Duration::from_millis(2),
            io_bytes_per_second_max: None,
            cpu_share_max_percent: 50,
            cores: 1,
            memory_bytes_max: None,
            open_files_max: None,
            backlog_bytes_max: None,
            put_delay_max: Duration::from_millis(20),
            ask_period: Duration::from_secs(1),
        }
    }
}

impl Budgets {
    /// Processor seconds per second.
    pub(crate) fn cpu_per_second(&self) -> f64 {
        f64::from(self.cpu_share_max_percent) / 100.0 * f64::from(self.cores.max(1))
    }
}
