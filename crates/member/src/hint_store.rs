//! The store of hints: a vnode beside the ring's, with leases of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Backend;
use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_coordinator::VnodeHints;
use kvorum_disk::{Disk, create_directory_durably};
use kvorum_exchanges::KeyPlaces;
use kvorum_ring::{Epoch, Partition};
use kvorum_runtime::Runtime;
use kvorum_vnode::{LeaseTable, NoteFiles, Vnode, VnodeSettings};

use crate::catching_up::{self, CatchingUp};
use crate::error::OpenError;

/// Pause before the next attempt to learn the watermarks that the node waits for.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Reads a table of leases, and logs a failure to read it.
pub(crate) fn open_leases(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    runtime: &Runtime,
) -> Result<Arc<LeaseTable>, OpenError> {
    create_directory_durably(&**disk, directory)?;
    let opened = LeaseTable::open(disk.clone(), directory, runtime.randomness())?;
    let (leases, unreadable) = opened;
    if let Some(unreadable) = unreadable {
        tracing::warn!(
            event = "dot_leases_unreadable",
            kept_as = %unreadable.kept_as.display(),
            reason = %unreadable.reason,
            "every vnode gets a fresh actor",
        );
    }
    Ok(Arc::new(leases))
}

/// The hints on their store. They refuse requests planned by an older ring than that of `cluster`.
/// The partition of their vnode has no meaning: no other vnode uses their table of leases.
pub(crate) fn open_hints(
    store: Arc<dyn Backend>,
    leases: &Arc<LeaseTable>,
    settings: VnodeSettings,
    cluster: Arc<dyn AgreedState>,
    notes: NoteFiles,
) -> Result<Arc<VnodeHints>, OpenError> {
    let partition = Partition::FIRST;
    let vnode = Vnode::new(partition, Epoch::FIRST, store, leases.clone(), settings);
    leases.renew()?;
    let places = Arc::new(KeyPlaces::new(cluster.clone()));
    let hints = VnodeHints::new(vnode).with_rounds(notes, places);
    let hints = hints.map_err(|failure| OpenError::Stores(failure.to_string().into()))?;
    learn_watermarks(&hints, &cluster.current())?;
    Ok(Arc::new(hints.following(cluster)))
}

/// Lets the store of hints learn all watermarks. Blocks.
///
/// # Errors
/// When the store or the file of its notes fails.
fn learn_watermarks(hints: &VnodeHints, state: &ClusterState) -> Result<(), OpenError> {
    for (list, agreed) in state.rounds() {
        if let Some(watermark) = &agreed.watermark {
            let learned = hints.learn(list, watermark);
            learned.map_err(|failure| OpenError::Stores(failure.to_string().into()))?;
        }
    }
    Ok(())
}

/// Lets the store of hints learn each watermark, for as long as it is polled. Watermarks that were
/// agreed before the start come first; the node serves after them.
pub(crate) async fn keep_learning(
    runtime: Runtime,
    hints: Arc<VnodeHints>,
    state: ReplicatedState,
    catching_up: Arc<CatchingUp>,
) {
    if !catching_up.is_done() {
        catching_up::learn_all(&runtime, &state).await;
        while !learn_present(&runtime, &hints, &state).await {
            runtime.sleep(RETRY_PAUSE).await;
        }
        hints.close(false);
        catching_up.done();
    }
    let mut versions = state.versions();
    loop {
        versions.see();
        // A store that lacks a watermark confirms no round, and tombstones stay.
        learn_present(&runtime, &hints, &state).await;
        if versions.changed().await.is_err() {
            return;
        }
    }
}

/// Lets the store of hints learn the present watermarks; false when that failed.
async fn learn_present(
    runtime: &Runtime,
    hints: &Arc<VnodeHints>,
    state: &ReplicatedState,
) -> bool {
    let (hints, current) = (hints.clone(), state.current());
    let learned = runtime.blocking(move || learn_watermarks(&hints, &current));
    let learned = learned.await;
    if let Err(error) = &learned {
        tracing::warn!(event = "watermarks_not_learned", error = %error);
    }
    learned.is_ok()
}
