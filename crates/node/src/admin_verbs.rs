//! The command line's verbs about the cluster, by the names that Riak's runbooks use.

use clap::{Args, Subcommand};

use crate::arguments::AdminArguments;
use kvorum_admin::AdminRequest;

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
    /// Go on when the majority of the voters is lost for good: shows what that means, or does it
    Recover {
        /// Do it: this node goes on with what it knows, and the lost ones are refused for ever
        #[arg(long, conflicts_with = "follow")]
        force: bool,
        /// Follow a node that has recovered the cluster, as name@host or name@host:port
        #[arg(long, value_name = "NODE")]
        follow: Option<String>,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Go on without the store of a partition of this node that is missing or not its own; what only it
    /// had is lost
    AcceptLoss {
        /// Its number or its index; `all` for all partitions whose stores could not be opened
        partition: String,
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
    /// The number of the ring's partitions
    #[command(alias = "partition_count")]
    PartitionCount(AdminArguments),
    /// The node that owns a partition
    Partition {
        /// The partition, as id=NUMBER or index=INDEX
        which: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
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
    /// Transfers of partitions on all nodes: under way with sizes and times, and waiting
    Transfers(AdminArguments),
    /// Show or set how many partitions a node transfers at once in each direction
    #[command(name = "transfer-limit", alias = "transfer_limit")]
    TransferLimit {
        /// The new limit of all nodes, or the node whose limit is set
        node_or_limit: Option<String>,
        /// The node's new limit
        limit: Option<String>,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Look at transfers, and let them go on or not
    Handoff {
        #[command(subcommand)]
        verb: HandoffVerb,
    },
    /// Make a partition whole from its other replicas, on the node that owns it
    RepairPartition {
        /// Its number or its index
        partition: String,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// Make all partitions of a node whole from their other replicas; without a name, of this one
    RepairNode {
        /// The node's name
        node: Option<String>,
        #[command(flatten)]
        arguments: AdminArguments,
    },
    /// What a node serves; without a name, this one
    Services {
        /// The node's name
        node: Option<String>,
        #[command(flatten)]
        arguments: AdminArguments,
    },
}

#[derive(Subcommand)]
pub(crate) enum HandoffVerb {
    /// Active and known transfers of each node
    Summary(AdminArguments),
    /// Every transfer with sizes, rates and times
    Details(AdminArguments),
    /// What each node allows
    Config(AdminArguments),
    /// Let transfers go on
    Enable(SwitchArguments),
    /// Hold transfers where they are
    Disable(SwitchArguments),
}

#[derive(Args)]
pub(crate) struct SwitchArguments {
    /// Which of them, as seen from the node
    #[arg(value_parser = ["inbound", "outbound", "both"])]
    direction: String,
    /// On this node instead of the one that is asked
    #[arg(short, long, conflicts_with = "all")]
    node: Option<String>,
    /// On all nodes
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    arguments: AdminArguments,
}

fn request<const N: usize>(
    words: [String; N],
    arguments: AdminArguments,
) -> (AdminRequest, AdminArguments) {
    let words = words.into();
    (AdminRequest::Cluster { words }, arguments)
}

fn some_of<const N: usize>(
    words: [Option<String>; N],
    arguments: AdminArguments,
) -> (AdminRequest, AdminArguments) {
    let words = words.into_iter().flatten().collect();
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
            Self::Recover {
                force,
                follow,
                arguments,
            } => {
                let how = if follow.is_some() { "follow" } else { "force" };
                let how = (force || follow.is_some()).then(|| word(how));
                some_of([Some(word("recover")), how, follow], arguments)
            }
            Self::AcceptLoss {
                partition,
                arguments,
            } => request([word("accept-loss"), partition], arguments),
            Self::Plan(arguments) => request([word("plan")], arguments),
            Self::Commit(arguments) => request([word("commit")], arguments),
            Self::Clear(arguments) => request([word("clear")], arguments),
            Self::Status(arguments) => request([word("status")], arguments),
            Self::Partitions(arguments) => request([word("partitions")], arguments),
            Self::PartitionCount(arguments) => request([word("partition-count")], arguments),
            Self::Partition { which, arguments } => request([word("partition"), which], arguments),
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
            Self::TransferLimit {
                node_or_limit,
                limit,
                arguments,
            } => {
                let words = [Some(word("transfer-limit")), node_or_limit, limit];
                some_of(words, arguments)
            }
            Self::Handoff { verb } => verb.into_request(),
            Self::RepairPartition {
                partition,
                arguments,
            } => request([word("repair-partition"), partition], arguments),
            Self::RepairNode { node, arguments } => {
                some_of([Some(word("repair-node")), node], arguments)
            }
            Self::Services { node, arguments } => {
                some_of([Some(word("services")), node], arguments)
            }
        }
    }
}

impl HandoffVerb {
    fn into_request(self) -> (AdminRequest, AdminArguments) {
        let (verb, arguments) = match self {
            Self::Summary(arguments) => ("summary", arguments),
            Self::Details(arguments) => ("details", arguments),
            Self::Config(arguments) => ("config", arguments),
            Self::Enable(switch) => return switch.into_request("enable"),
            Self::Disable(switch) => return switch.into_request("disable"),
        };
        request(["handoff", verb].map(str::to_owned), arguments)
    }
}

impl SwitchArguments {
    fn into_request(self, switch: &str) -> (AdminRequest, AdminArguments) {
        let word = str::to_owned;
        let node_word = self.node.is_some().then(|| word("node"));
        let words = [
            Some(word("handoff")),
            Some(word(switch)),
            Some(self.direction),
            self.all.then(|| word("all")),
            node_word,
            self.node,
        ];
        some_of(words, self.arguments)
    }
}
