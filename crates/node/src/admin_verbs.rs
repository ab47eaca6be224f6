//! The command line's verbs about the cluster, by the names that Riak's runbooks use.

use clap::Subcommand;

use crate::admin_request::AdminRequest;
use crate::command_line::AdminArguments;

#[derive(Subcommand)]
pub(crate) enum ClusterVerb {
    /// Join this node, which must be empty, to the cluster of another; it owns nothing before a commit
    Join {
        /// A member of the cluster, as name@host or name@host:port [default port: 8099]
        node: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Stage that a node hands over its partitions and leaves; without a name, this one
    Leave {
        /// The node's name
        node: Option<String>,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Stage the removal of a node that is gone for good; what only it had is lost
    ForceRemove {
        /// The node's name
        node: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Stage that a node that has just joined takes over all partitions of another, which leaves
    Replace {
        /// The node that leaves
        node: String,
        /// The node that takes its place
        by: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// As replace, for a node that is gone for good; what only it had is lost
    ForceReplace {
        /// The node that is gone
        node: String,
        /// The node that takes its place
        by: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Stage where a node stands: rack, room or zone; an empty name takes that back
    Location {
        /// The location
        location: String,
        /// The node's name
        #[arg(long)]
        node: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Show what the staged changes will do together
    Plan(AdminArguments),
    /// Carry out the plan that was shown last
    Commit(AdminArguments),
    /// Forget all staged changes
    Clear(AdminArguments),
    /// Members with their state and share of the ring
    Status(AdminArguments),
    /// The partitions of this node
    Partitions(AdminArguments),
}

#[derive(Subcommand)]
pub(crate) enum RingVerb {
    /// Members with their state and share of the ring
    MemberStatus(AdminArguments),
    /// Who leads, what moves, and who cannot be reached
    RingStatus(AdminArguments),
    /// Whether all nodes are there and agree on the ring
    Ringready(AdminArguments),
    /// Mark a node that cannot be reached as down, so that others take its vote
    Down {
        /// The node's name
        node: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Partitions that this node fetches or waits for
    Transfers(AdminArguments),
}

fn request<const N: usize>(
    words: [String; N],
    arguments: AdminArguments,
) -> (AdminRequest, AdminArguments) {
    let words = words.into();
    (AdminRequest::Cluster { words }, arguments)
}

impl ClusterVerb {
    pub(crate) fn into_request(self) -> (AdminRequest, AdminArguments) {
        let word = str::to_owned;
        match self {
            Self::Join { node, arguments } => request([word("join"), node], arguments),
            Self::Leave {
                node: Some(node),
                arguments,
            } => request([word("leave"), node], arguments),
            Self::Leave {
                node: None,
                arguments,
            } => request([word("leave")], arguments),
            Self::ForceRemove { node, arguments } => {
                request([word("force-remove"), node], arguments)
            }
            Self::Replace {
                node,
                by,
                arguments,
            } => request([word("replace"), node, by], arguments),
            Self::ForceReplace {
                node,
                by,
                arguments,
            } => request([word("force-replace"), node, by], arguments),
            Self::Location {
                location,
                node,
                arguments,
            } => request([word("location"), node, location], arguments),
            Self::Plan(arguments) => request([word("plan")], arguments),
            Self::Commit(arguments) => request([word("commit")], arguments),
            Self::Clear(arguments) => request([word("clear")], arguments),
            Self::Status(arguments) => request([word("status")], arguments),
            Self::Partitions(arguments) => request([word("partitions")], arguments),
        }
    }
}

impl RingVerb {
    pub(crate) fn into_request(self) -> (AdminRequest, AdminArguments) {
        let word = str::to_owned;
        match self {
            Self::MemberStatus(arguments) => request([word("member-status")], arguments),
            Self::RingStatus(arguments) => request([word("ring-status")], arguments),
            Self::Ringready(arguments) => request([word("ringready")], arguments),
            Self::Down { node, arguments } => request([word("down"), node], arguments),
            Self::Transfers(arguments) => request([word("transfers")], arguments),
        }
    }
}
