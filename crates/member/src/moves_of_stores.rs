//! Moves between the backends of a node's stores, as one node reports them to another.

use bytes::Bytes;
use kvorum_backend::MoveStatus;
use serde::{Deserialize, Serialize};

use crate::vnode_table::VnodeTable;

/// The moves of one partition's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreMoves {
    /// The partition's number.
    pub partition: u16,
    /// Moves that are under way or waiting, and the last one that ended.
    pub moves: Vec<MoveView>,
    /// The store has not determined the data to move yet.
    pub is_looking: bool,
    /// The backend that has everything, against all properties.
    pub pinned: Option<String>,
    /// That backend is not declared on the node, and the properties count.
    #[serde(default)]
    pub lacks_pinned: bool,
}

/// A move; see [`MoveStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveView {
    source: String,
    target: String,
    scope: Vec<u8>,
    phase: String,
    is_taken_back: bool,
    bytes_estimate: u64,
    bytes_copied: u64,
    keys_copied: u64,
    keys_verified: u64,
    keys_removed: u64,
    done_permille: u16,
    seconds_left: Option<u64>,
}

impl MoveView {
    fn of(status: MoveStatus) -> Self {
        Self {
            source: status.source,
            target: status.target,
            scope: status.scope.to_vec(),
            phase: status.phase.to_owned(),
            is_taken_back: status.is_taken_back,
            bytes_estimate: status.bytes_estimate,
            bytes_copied: status.bytes_copied,
            keys_copied: status.keys_copied,
            keys_verified: status.keys_verified,
            keys_removed: status.keys_removed,
            done_permille: status.done_permille,
            seconds_left: status.seconds_left,
        }
    }

    /// The move as a store reports it. A phase of a later version counts as waiting.
    pub fn status(&self) -> MoveStatus {
        let mut phases = MoveStatus::PHASES.into_iter();
        MoveStatus {
            source: self.source.clone(),
            target: self.target.clone(),
            scope: Bytes::copy_from_slice(&self.scope),
            phase: phases
                .find(|it| *it == self.phase)
                .unwrap_or(MoveStatus::PHASES[0]),
            is_taken_back: self.is_taken_back,
            bytes_estimate: self.bytes_estimate,
            bytes_copied: self.bytes_copied,
            keys_copied: self.keys_copied,
            keys_verified: self.keys_verified,
            keys_removed: self.keys_removed,
            done_permille: self.done_permille,
            seconds_left: self.seconds_left,
        }
    }
}

/// The moves of the stores that have several backends. Blocks.
pub(crate) fn moves_of(vnodes: &VnodeTable) -> Vec<StoreMoves> {
    let mut stores = Vec::new();
    for vnode in vnodes.all() {
        let Some(moves) = vnode.store_for_upkeep().moves() else {
            continue;
        };
        let pinned = moves.pinned();
        stores.push(StoreMoves {
            partition: vnode.partition().number(),
            moves: moves.moves().into_iter().map(MoveView::of).collect(),
            is_looking: moves.is_looking(),
            lacks_pinned: pinned.as_ref().is_some_and(|it| !it.is_there),
            pinned: pinned.map(|it| it.name),
        });
    }
    stores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_the_same_on_the_other_side() {
        for phase in MoveStatus::PHASES {
            let status = MoveStatus {
                source: "bc".to_owned(),
                target: "ldb".to_owned(),
                scope: Bytes::from_static(b"\0\x01"),
                phase,
                is_taken_back: true,
                bytes_estimate: 1,
                bytes_copied: 2,
                keys_copied: 3,
                keys_verified: 4,
                keys_removed: 5,
                done_permille: 6,
                seconds_left: Some(7),
            };
            let line = serde_json::to_string(&MoveView::of(status.clone())).unwrap();
            let read: MoveView = serde_json::from_str(&line).unwrap();
            assert_eq!(read.status(), status);
        }
    }
}
