//! Why a member cannot be opened, or cannot join, by what its operator can do.

use std::net::SocketAddr;
use std::path::PathBuf;

use kvorum_cluster::ProposeError;
use kvorum_disk::DiskError;
use kvorum_peer::PeerError;

use crate::stores::StoreError;

/// Why a member cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The card cannot be read. Restore it from a backup.
    #[error(
        "neither {} nor its copy can be read; restore one of them from a backup, a new node is not \
         started over existing data", file.display()
    )]
    CardUnreadable {
        /// The card.
        file: PathBuf,
    },
    /// There is a log, and no card that says whose it is. Restore the card from a backup.
    #[error(
        "{} holds a log of the cluster, but no membership card; restore the card from a backup, a new \
         node is not started over existing data", directory.display()
    )]
    CardMissing {
        /// Where both should be.
        directory: PathBuf,
    },
    /// The state of an earlier version cannot be taken over.
    #[error(transparent)]
    Earlier(#[from] kvorum_cluster::OpenError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] kvorum_agreement::OpenError),
    /// The log does not say what it should.
    #[error("the log in {} holds no cluster state; restore it from a backup", directory.display())]
    LogWithoutState {
        /// Where the log is.
        directory: PathBuf,
    },
    /// The node could not agree with itself.
    #[error(transparent)]
    NotAgreed(#[from] ProposeError),
    /// The stores cannot be opened.
    #[error("{0}")]
    Stores(StoreError),
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why a node does not join a cluster. The first words are those that Riak's operators know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It has others around it already.
    #[error("not_single_node: this node is already a member of a cluster")]
    NotSingleNode,
    /// It was asked to join itself.
    #[error("self_join: this node cannot join itself")]
    SelfJoin,
    /// It holds objects, which joining would lose.
    #[error(
        "not_empty: this node holds objects in {partitions} partitions, which joining would lose; \
         only an empty node joins, move them with a client or start over in an empty data directory"
    )]
    NotEmpty {
        /// How many of its stores are not empty.
        partitions: usize,
    },
    /// It holds hints for others.
    #[error("not_empty: this node keeps hints for other nodes")]
    HoldsHints,
    /// Nobody answers there.
    #[error("not_reachable: {address} does not answer as a member would: {error}")]
    NotReachable {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: PeerError,
    },
    /// Another node answers there.
    #[error("the node at {address} is called {got}, not {expected}")]
    OtherName {
        /// Where.
        address: SocketAddr,
        /// Who was expected.
        expected: String,
        /// Who answered.
        got: String,
    },
    /// The cluster does not want it.
    #[error("{reason}")]
    Refused {
        /// In the words of the member that was asked.
        reason: String,
    },
    /// It is a member now, and has not heard from the cluster yet. It goes on trying.
    #[error(
        "the cluster has taken this node in, but has not sent its state yet; see that its members can \
         reach {address}"
    )]
    NoWordYet {
        /// Where they look for this node.
        address: SocketAddr,
    },
    /// The log of the cluster could not be begun here. Start the node again.
    #[error("{detail}; start this node again")]
    Log {
        /// What failed.
        detail: String,
    },
    /// A store could not be looked into.
    #[error("{detail}")]
    Storage {
        /// What failed.
        detail: String,
    },
}
