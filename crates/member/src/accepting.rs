//! Accepts the loss of a store, for a partition that the node refuses to serve: an operator's last resort.

use std::path::PathBuf;

use kvorum_cluster::{AgreedState as _, ClusterState};
use kvorum_disk::DiskError;
use kvorum_ring::Partition;

use crate::follower::{Ground, note_repaired};
use crate::member::Member;
use crate::recognising::KnownStores;
use crate::store_list::{Known, StoreList};
use crate::stores::StoreError;
use crate::vnode_table::Unopened;

/// Reason for which a loss is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The partition's store is open or being opened, or can now be opened.
    #[error("the store of partition {0} is not refused: it has lost nothing")]
    NotRefused(u16),
    /// The files could not be moved away, or the empty store could not be opened.
    #[error("{0}")]
    Store(StoreError),
    /// Hidden entries could not be shown.
    #[error("{0}")]
    Hidden(String),
    /// The record of stores could not be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Ground {
    /// Moves the files of the partition's store away and opens an empty one. Blocks.
    fn give_up(
        &self,
        held: &mut StoreList,
        state: &ClusterState,
        partition: Partition,
        is_refused: bool,
    ) -> Result<Vec<PathBuf>, AcceptError> {
        // The store's directory may be back since the last attempt.
        if is_refused && let Some(read) = self.read(&KnownStores::of(held), state, partition) {
            self.admit(held, state, vec![read]);
            return Err(AcceptError::NotRefused(partition.number()));
        }
        let moved = self.stores.set_aside(held.size, partition);
        let moved = moved.map_err(AcceptError::Store)?;
        held.stores.insert(partition, Known::NEW);
        self.held.store(held)?;
        if let Some(read) = self.read(&KnownStores::of(held), state, partition) {
            self.admit(held, state, vec![read]);
        }
        self.forget_others(held);
        Ok(moved)
    }

    /// Drops log records of stores that were replaced or given up. Records that stay too long only
    /// cost space. Blocks.
    pub(crate) fn forget_others(&self, held: &StoreList) {
        if let Err(error) = self.stores.forget_others(&held.identities()) {
            tracing::warn!(event = "stores_not_forgotten", error = %error);
        }
    }
}

impl Member {
    /// Gives up the store of a partition that could not be opened, and replaces it with an empty
    /// store. If other nodes have replicas, the empty store is repaired from them. An open store
    /// that waits for its repair serves its entries from now on. Returns the new places of the
    /// store's files, which are kept.
    ///
    /// # Errors
    /// [`AcceptError::NotRefused`] for a store that is open and lacks nothing, or is being opened.
    pub async fn accept_loss(&self, partition: u16) -> Result<Vec<PathBuf>, AcceptError> {
        let mut held = self.follower.written.lock().await;
        if let Some(vnode) = self.vnodes.numbered(partition)
            && !vnode.is_complete()
        {
            let hidden = vnode.clone();
            let shown = self.runtime.blocking(move || hidden.accept_hidden()).await;
            shown.map_err(|failure| AcceptError::Hidden(failure.to_string()))?;
            vnode.mark_complete();
            let noted = self.follower.with_record(&mut held, note_repaired);
            noted.await?;
            tracing::warn!(event = "loss_accepted", partition, "it serves what it has");
            return Ok(Vec::new());
        }
        let unopened = self.vnodes.unopened();
        let refused = unopened.iter().find(|(it, _)| it.number() == partition);
        let Some((refused, Unopened::Failed { is_refused, .. })) = refused else {
            return Err(AcceptError::NotRefused(partition));
        };
        let (refused, is_refused) = (*refused, *is_refused);
        let state = self.state.current();
        let accept = move |ground: &Ground, held: &mut StoreList| {
            ground.give_up(held, &state, refused, is_refused)
        };
        let moved = self.follower.with_record(&mut held, accept).await?;
        tracing::warn!(event = "store_given_up", partition, kept_as = ?moved);
        Ok(moved)
    }
}
