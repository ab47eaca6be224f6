//! The stores of a run and their upkeep: a thread works off their backlog, as a server does.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvorum_backend::{Backend, StepBudget, Timestamp};

/// Time between two looks at stores without backlog.
const PAUSE: Duration = Duration::from_millis(50);

/// The budget of one step of upkeep.
const STEP: StepBudget = StepBudget { bytes: 8 << 20 };

/// The stores of a run; closed when the last reference is dropped.
pub(super) struct StoreSet {
    stores: Vec<Arc<dyn Backend>>,
}

impl StoreSet {
    /// Stores whose upkeep runs as long as the set is referenced.
    pub(super) fn with_upkeep(stores: Vec<Arc<dyn Backend>>) -> std::io::Result<Arc<Self>> {
        let set = Arc::new(Self { stores });
        let held = Arc::downgrade(&set);
        std::thread::Builder::new()
            .name("bench-upkeep".to_owned())
            .spawn(move || keep_up(&held))?;
        Ok(set)
    }

    /// The store of the worker with this id (from 1): instance ((id - 1) mod count) + 1.
    pub(super) fn of_worker(&self, id: u32) -> Arc<dyn Backend> {
        let index = usize::try_from(id.saturating_sub(1)).unwrap_or(0) % self.stores.len();
        Arc::clone(&self.stores[index])
    }

    /// Works off the present backlog of a store.
    pub(super) fn work_off(&self, store: &dyn Backend) -> kvorum_backend::Result<()> {
        while step(store)? {}
        Ok(())
    }
}

impl Drop for StoreSet {
    fn drop(&mut self) {
        for store in &self.stores {
            // The run is over and its results are written. A store that cannot be closed reports
            // that at its next opening.
            let _ = store.close();
        }
    }
}

fn keep_up(held: &Weak<StoreSet>) {
    while let Some(set) = held.upgrade() {
        let mut has_worked = false;
        for store in &set.stores {
            // A store whose upkeep fails also fails operations, where errors are counted.
            has_worked |= step(&**store).unwrap_or(false);
        }
        drop(set);
        if !has_worked {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Does a part of the store's most urgent work; false if there is none.
fn step(store: &dyn Backend) -> kvorum_backend::Result<bool> {
    let now = Timestamp(microseconds_now());
    let Some(task) = store.maintenance_due(now).into_iter().next() else {
        return Ok(false);
    };
    let outcome = store.maintenance_step(&task, STEP, now)?;
    Ok(outcome.cost_bytes > 0 || !outcome.is_done)
}

/// The wall clock, in microseconds since 1970.
pub(crate) fn microseconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
