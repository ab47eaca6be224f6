//! The lists that a vnode belongs to, as the agreed state has their rounds.

use std::sync::Arc;
use std::time::Duration;

use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_coordinator::TombstoneKeeping;
use kvorum_reaping::DeleteMode;
use kvorum_ring::{Partition, Position};
use kvorum_vnode::{AgreedList, NoteFiles};

/// The parts by which vnodes take part in rounds.
#[derive(Clone)]
pub(crate) struct RoundParts {
    pub(crate) files: Arc<NoteFiles>,
    pub(crate) mode: DeleteMode,
    pub(crate) cluster: Arc<dyn AgreedState>,
}

impl RoundParts {
    /// The lists of a vnode by the state of this moment. A node that keeps all replicas hides nothing: no
    /// other has them.
    pub(crate) fn lists_of(&self, vnode: Partition) -> Vec<AgreedList> {
        let state = self.cluster.look();
        match state.ring().replicas_max() > 1 {
            true => lists_of(&state, vnode),
            false => Vec::new(),
        }
    }
}

/// The lists of a vnode of which a round was announced.
pub(crate) fn lists_of(state: &ClusterState, vnode: Partition) -> Vec<AgreedList> {
    let ring = state.ring();
    let of_vnode = state.rounds().filter_map(|(list, agreed)| {
        let owner = ring.size().partition(list.partition)?;
        let position = Position::before(ring.size(), owner);
        let replicas = ring.primaries(position, u32::from(list.n_val), false);
        let is_here = replicas.iter().any(|it| it.partition == vnode);
        is_here.then(|| AgreedList {
            list,
            watermark: agreed.watermark.clone(),
            joined: state.joined_lists(owner, vnode),
        })
    });
    of_vnode.collect()
}

/// The time for which tombstones stay in any case.
pub(crate) fn mode_of(keeping: TombstoneKeeping) -> DeleteMode {
    match keeping {
        TombstoneKeeping::Keep => DeleteMode::Keep,
        TombstoneKeeping::Immediate => DeleteMode::Immediate,
        TombstoneKeeping::For(time) => DeleteMode::After(micros(time)),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
