//! The state with which a recovery begins its log.

use kvorum_cluster::ClusterState;
use kvorum_ring::NodeId;

use crate::card::{Card, FIRST_LOG, recovered_file};
use crate::checked_file::Found;
use crate::error::OpenError;

/// The state with which a recovery by this node begins its log, if its card orders one. Blocks.
pub(crate) fn first_state(
    disk: &dyn kvorum_disk::Disk,
    directory: &std::path::Path,
    card: &Card,
) -> Result<Option<(NodeId, ClusterState)>, OpenError> {
    // A log that a recovery begins is never a node's first.
    if card.log == FIRST_LOG {
        return Ok(None);
    }
    let file = recovered_file(directory, card.node);
    let own = |body: &str| {
        let state = ClusterState::from_json(body).ok();
        state.filter(|state| state.id() == card.cluster)
    };
    let state = match file.load_own(disk, |body| own(body).is_some())? {
        Found::Content { body, .. } => own(&body),
        Found::Nothing | Found::Damaged => None,
    };
    let state = state.ok_or_else(|| OpenError::RecoveredDamaged {
        file: file.path().to_owned(),
    });
    state.map(|state| Some((card.node, state)))
}
