//! The present state of a node, in a place of its own.
//!
//! It outlives the log that produces it: when a node joins a cluster, its log changes, and readers
//! only see a new state.

use std::sync::Arc;

use arc_swap::ArcSwap;
use kvorum_cluster::{ClusterState, Look};
use kvorum_runtime::{Watched, Watcher};

/// The present state, which every request reads.
pub struct ShownState {
    state: ArcSwap<ClusterState>,
    /// The version of the state, for tasks that wait for a change.
    version: Watched<u64>,
}

impl ShownState {
    /// Publishes `state` until another state is published.
    pub fn new(state: ClusterState) -> Self {
        let version = Watched::new(state.version());
        Self {
            state: ArcSwap::from_pointee(state),
            version,
        }
    }

    /// The present state.
    pub fn current(&self) -> Arc<ClusterState> {
        self.state.load_full()
    }

    /// The present state, for a short look that does not count its holders.
    pub fn look(&self) -> Look {
        Look::from(self.state.load())
    }

    /// Watches the version of the state; versions may be skipped, and start again with another cluster.
    pub fn versions(&self) -> Watcher<u64> {
        self.version.watch()
    }

    /// Publishes another state from now on.
    pub fn show(&self, state: ClusterState) {
        let version = state.version();
        self.state.store(Arc::new(state));
        self.version.set(version);
    }
}
