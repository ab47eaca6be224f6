//! Accepts the loss of a store, for a partition that the node refuses to serve: an operator's last resort.

use std::path::PathBuf;

use kvorum_cluster::{AgreedState as _, ClusterState};
use kvorum_disk::DiskError;
use kvorum_ring::Partition;

use crate::follower::Ground;
use crate::held::{Held, Known};
use crate::member::Member;
use crate::recognising::KnownStores;
use crate::stores::StoreError;
use crate::vnode_table::Unopened;

/// Reason for which a loss is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The store is open or being opened.
    #[error("the store of partition {0} is not refused: nothing of it is lost")]
    NotRefused(u16),
    /// The files could not be moved away, or the empty store could not be opened.
    #[error("{0}")]
    Store(StoreError),
    /// The record of stores could not be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Ground {
    /// Moves the files of the partition's store away and opens an empty one. Blocks.
    fn give_up(
        &self,
        held: &mut Held,
        state: &ClusterState,
        partition: Partition,
    ) -> Result<Vec<PathBuf>, AcceptError> {
        let moved = self.stores.set_aside(held.size, partition);
        let moved = moved.map_err(AcceptError::Store)?;
        held.stores.insert(partition, Known::NEW);
        self.held.store(held)?;
        if let Some(read) = self.read(&KnownStores::of(held), state, partition) {
            self.admit(held, state, vec![read]);
        }
        Ok(moved)
    }
}

impl Member {
    /// Gives up the contents of a partition's store that could not be opened, and serves the partition from
    /// an empty store; other nodes' replicas, where there are any, repair it. The files of the old store are
    /// kept. Returns their new place.
    ///
    /// # Errors
    /// [`AcceptError::NotRefused`] unless the partition's store could not be opened.
    pub async fn accept_loss(&self, partition: u16) -> Result<Vec<PathBuf>, AcceptError> {
        let mut held = self.follower.written.lock().await;
        let unopened = self.vnodes.unopened();
        let refused = unopened.iter().find(|(it, _)| it.number() == partition);
        let Some((refused, Unopened::Failed { .. })) = refused else {
            return Err(AcceptError::NotRefused(partition));
        };
        let refused = *refused;
        let (ground, mut next) = (self.follower.ground.clone(), held.clone());
        let state = self.state.current();
        let accept = move || {
            let accepted = ground.give_up(&mut next, &state, refused);
            (next, accepted)
        };
        let (next, accepted) = self.runtime.blocking(accept).await;
        *held = next;
        let moved = accepted?;
        tracing::warn!(event = "store_given_up", partition, kept_as = ?moved);
        Ok(moved)
    }
}
