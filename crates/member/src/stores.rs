//! The seam to a node's stores: the builder of a member chooses engines and the value log, a member
//! does not.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use kvorum_backend::{Backend, Sequence, StoreId};
use kvorum_cluster::AgreedState;
use kvorum_ring::{Partition, RingSize};

/// An error of a store, from its opener.
pub type StoreError = Box<dyn Error + Send + Sync>;

/// The files found of a partition's store before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The engine keeps nothing after a stop: each store is a new one.
    NotKept,
    /// No files.
    Nothing {
        /// The place of the store.
        directory: PathBuf,
    },
    /// A store.
    Store {
        /// The directory of the store.
        directory: PathBuf,
        /// Its identity.
        identity: StoreId,
        /// Its identity before it was erased; 0 if it never was.
        erased: StoreId,
    },
    /// Files that cannot be opened as this partition's store.
    Unusable {
        /// The directory of the files.
        directory: PathBuf,
        /// The files and the reason, in words.
        why: String,
    },
}

/// Opens and removes the stores of a node. All methods block, except those that only report.
///
/// The stores of a node that starts are opened in two steps, while others serve already. First each is
/// read by itself, several at a time ([`Stores::read`]). Then the log is read, and gives its writes of
/// earlier runs to several stores at once ([`Stores::admit`]).
pub trait Stores: Send + Sync {
    /// Opens the store of the node's hints, and begins this run's log. Called once, before everything
    /// else but [`Stores::agreed`] and [`Stores::remove`].
    fn begin(&self) -> Result<Arc<dyn Backend>, StoreError>;

    /// The state that the members agree on, for an implementation whose stores differ by bucket. Called
    /// once, before everything else.
    fn agreed(&self, _state: Arc<dyn AgreedState>) {}

    /// Inspects a partition's store without opening it. `known` is the recorded identity: it decides
    /// between copies of several stores.
    fn find(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Found, StoreError>;

    /// Moves the files of a partition's store out of the way and keeps them: they are another store's, and
    /// its entries in a log stay. Returns their new place.
    fn set_aside(&self, size: RingSize, partition: Partition) -> Result<Vec<PathBuf>, StoreError>;

    /// Reads a store that the node has when it starts. It does not serve before [`Stores::admit`].
    /// `known` is as in [`Stores::find`].
    fn read(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError>;

    /// Gives the logged writes of earlier runs to stores that were read. Returns the stores that serve
    /// from here on, in the same order; a store that failed is to be read again. Called for one set at
    /// a time.
    fn admit(&self, stores: &[Arc<dyn Backend>]) -> Vec<Result<Arc<dyn Backend>, StoreError>>;

    /// Stores whose batches the log has lost, up to this one: their entries may be older than the
    /// acknowledged ones. Only losses found since the last call, and noted by no earlier run.
    fn take_losses(&self) -> Vec<(StoreId, Sequence)> {
        Vec::new()
    }

    /// Notes such a loss for good, after the store was noted as incomplete.
    fn note_loss(&self, _store: StoreId, _lost_to: Sequence) -> Result<(), StoreError> {
        Ok(())
    }

    /// All stores that the node has were admitted. May be called again.
    fn all_admitted(&self) {}

    /// Number of stores that are read at the same time at most.
    fn openings_at_once(&self) -> usize {
        1
    }

    /// True if the node has no stores of the former run: their engine kept nothing after a stop, or was
    /// another engine.
    fn begins_anew(&self) -> bool {
        self.engine_before().is_some()
    }

    /// Lets the shared log drop the entries of stores that are not among `known`, are not open and have
    /// no directory: they were replaced or given up.
    fn forget_others(&self, _known: &BTreeSet<StoreId>) -> Result<(), StoreError> {
        Ok(())
    }

    /// The engine of the former run, if the present engine is another. Its stores stay where they are and
    /// are ignored.
    fn engine_before(&self) -> Option<String> {
        None
    }

    /// The failure of the log that all stores share, if there is one and it failed for good.
    fn log_failure(&self) -> Option<String> {
        None
    }

    /// True if the batches of a store have one order. The batches of a store made of several stores have
    /// not, and its tombstones stay.
    fn orders_batches(&self) -> bool;

    /// True when all stores write to one log.
    fn is_log_shared(&self) -> bool {
        false
    }

    /// Bytes that puts can still take, if known: without those held back for merges and collections.
    /// Measured again at each call.
    fn room_for_puts(&self) -> Option<u64> {
        None
    }

    /// Opens the store of a partition that the node takes over, creating it. `known` is as in
    /// [`Stores::find`].
    fn open(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError>;

    /// Removes the files of a partition's store: `open`, or only files of an earlier run. Files of other
    /// stores are set aside instead: those without the identity `known` or, if it is `None`, those that
    /// do not belong to the partition.
    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
        open: Option<Arc<dyn Backend>>,
    ) -> Result<(), StoreError>;
}
