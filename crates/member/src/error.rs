//! The reasons why a member cannot be opened, or cannot join, grouped by what its operator can do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kvorum_cluster::{ClusterId, ProposeError};
use kvorum_disk::{DiskError, ErrorKind};
use kvorum_peer::PeerError;
use kvorum_ring::NodeId;

use crate::stores::StoreError;

/// The reason why a member cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Neither the card nor its copy holds the bytes that were written. Restore one of them from a
    /// backup.
    #[error(
        "neither {} nor its copy is intact; restore one of them from a backup, a new node is not \
         started over existing data", file.display()
    )]
    CardDamaged {
        /// The card.
        file: PathBuf,
    },
    /// The card or its copy could not be read, and may be intact. Grant the right to read it, or
    /// repair the device, and start again.
    #[error("{error}; {}", until_read(file, error))]
    CardUnread {
        /// The card.
        file: PathBuf,
        /// The reason.
        error: DiskError,
    },
    /// The first state of a recovered cluster is missing or damaged. Restore it from a backup.
    #[error(
        "this node was asked to recover its cluster, and neither {} nor its copy holds the state to begin \
         with; restore one of them from a backup, a new cluster is not started over existing data",
        file.display()
    )]
    RecoveredDamaged {
        /// The file of the state.
        file: PathBuf,
    },
    /// The card and its copy are intact and belong to two nodes, and no log shows which one is
    /// right. Restore the right one.
    #[error(
        "{} is the card of node {first} and its copy that of node {second}: remove the one that is not of \
         this node, or restore both from a backup", file.display()
    )]
    CardsOfTwoNodes {
        /// The card.
        file: PathBuf,
        /// The node of the card.
        first: NodeId,
        /// The node of its copy.
        second: NodeId,
    },
    /// A remnant shows that a node was here, but its card and log are gone. Restore them from a backup.
    #[error(
        "this node's card and its log of the cluster are missing in {}, and {} shows that they \
         were there; restore {} from a backup: a new cluster is not founded over existing data. \
         If it was a member of a cluster of several nodes, let another node take its place \
         (`kvorum admin cluster force-replace` at one of them), or start it with an empty data \
         directory and let it join; to begin anew without its data, empty platform_data_dir",
        directory.display(), remnant.display(), directory.display()
    )]
    RingGone {
        /// The directory that lacks card and log.
        directory: PathBuf,
        /// The remnant.
        remnant: PathBuf,
    },
    /// The log belongs to another cluster than the card. Restore whichever is wrong.
    #[error(
        "the log in {} is of cluster {got}, and by its card this node belongs to cluster {expected}; restore \
         both from the same backup", directory.display()
    )]
    OtherCluster {
        /// The directory of the log.
        directory: PathBuf,
        /// The cluster that the log names.
        got: ClusterId,
        /// The cluster that the card names.
        expected: ClusterId,
    },
    /// There is a log, and no card that names its node. Restore the card from a backup.
    #[error(
        "{} holds a log of the cluster, but no membership card; restore the card from a backup, a new \
         node is not started over existing data", directory.display()
    )]
    CardMissing {
        /// The directory of both.
        directory: PathBuf,
    },
    /// The state of an earlier version cannot be imported.
    #[error(transparent)]
    Earlier(#[from] kvorum_cluster::OpenError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] kvorum_agreement::OpenError),
    /// The log lacks the state.
    #[error("the log in {} holds no cluster state; restore it from a backup", directory.display())]
    LogWithoutState {
        /// The directory of the log.
        directory: PathBuf,
    },
    /// The node could not commit a command to its own log.
    #[error("{}", .0.in_full())]
    NotAgreed(#[from] ProposeError),
    /// The stores of another engine contain data that no other node has. Use that engine, or
    /// another directory.
    #[error(
        "the partitions here are stored by {before}, no other node has them, and with another \
         storage_backend nothing of it would be found; set storage_backend = {before}, or use another \
         platform_data_dir"
    )]
    OtherEngine {
        /// The engine, as `storage_backend` names it.
        before: String,
    },
    /// None of this node's stores exists. Put their directory back, or accept the loss.
    #[error(
        "none of the {stores} stores that this node had is in {}: put that directory back (is its disk \
         mounted?). Nothing was changed. If they are lost for good, make an empty file {} and start again: \
         the partitions are repaired from the other replicas then, and answer no reads before; see that \
         the other nodes have theirs",
        directory.display(), accepting.display()
    )]
    StoresGone {
        /// The directory of the stores.
        directory: PathBuf,
        /// Their number.
        stores: usize,
        /// The file whose presence accepts their loss.
        accepting: PathBuf,
    },
    /// The stores cannot be opened.
    #[error("{0}")]
    Stores(StoreError),
    /// A disk operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Advice about a file that could not be read, and may be intact.
fn until_read(file: &Path, error: &DiskError) -> String {
    let file = file.display();
    match error.kind() {
        ErrorKind::Denied => format!(
            "the user of this node must be able to read and write {file} and its copy: change \
             their permissions and start again"
        ),
        _ => format!(
            "{file} and its copy may be intact: look into the system's log for errors of the \
             device and start again; if the device cannot read them again, restore one of them \
             from a backup, a new node is not started over existing data"
        ),
    }
}

/// The reason why a node does not join a cluster. The first words are Riak's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The node is already in a cluster with other nodes.
    #[error("not_single_node: this node is already a member of a cluster")]
    NotSingleNode,
    /// The node was asked to join itself.
    #[error("self_join: this node cannot join itself")]
    SelfJoin,
    /// Some of its stores are not open, and may not be empty.
    #[error(
        "not_ready: {opening} vnodes of this node are still being opened and {failed} could not be \
         opened; only a node that is known to be empty joins"
    )]
    NotOpen {
        /// Number of stores that are being opened.
        opening: usize,
        /// Number of stores that could not be opened.
        failed: usize,
    },
    /// The node holds objects, which joining would lose.
    #[error(
        "not_empty: this node holds objects, which joining would lose (stores with some: {partitions}); \
         only an empty node joins, move them with a client or start over in an empty data directory"
    )]
    NotEmpty {
        /// Number of its stores that are not empty.
        partitions: usize,
    },
    /// The node holds hints for other nodes.
    #[error("not_empty: this node keeps hints for other nodes")]
    HoldsHints,
    /// No node answers at the address.
    #[error("not_reachable: {address} does not answer as a member would: {}", .error.without_node())]
    NotReachable {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: PeerError,
    },
    /// Another node answers at the address.
    #[error("the node at {address} is called {got}, not {expected}")]
    OtherName {
        /// The address.
        address: SocketAddr,
        /// The name that was expected.
        expected: String,
        /// The name of the node that answered.
        got: String,
    },
    /// The cluster refuses the node.
    #[error("{reason}")]
    Refused {
        /// The reason, as the asked member states it.
        reason: String,
    },
    /// The node is a member now, and has no state from the cluster yet. It keeps trying.
    #[error(
        "the cluster has taken this node in, but has not sent its state yet; see that its members can \
         reach {address}"
    )]
    NoWordYet {
        /// The address at which the members call this node.
        address: SocketAddr,
    },
    /// The log of the cluster could not be created here. Start the node again.
    #[error("{detail}; start this node again")]
    Log {
        /// The failure.
        detail: String,
    },
    /// A store could not be inspected.
    #[error("{detail}")]
    Storage {
        /// The failure.
        detail: String,
    },
}

impl JoinError {
    pub(crate) fn log(error: impl std::fmt::Display) -> Self {
        let detail = error.to_string();
        Self::Log { detail }
    }
}
