//! The command line's verbs about the cluster, by the names that Riak's runbooks use.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kvorum_admin::{AdminRequest, MoveScope};

#[derive(Subcommand)]
pub(crate) enum ClusterVerb {
    /// Join this node, which must be empty, to the cluster of another; it owns nothing before a commit
    Join {
        /// A member of the cluster, as name@host or name@host:port [default port: 8099]
        node: String,
    },
    /// Stage that a node hands over its partitions and leaves; without a name, this one
    Leave {
        /// The node's name
        node: Option<String>,
    },
    /// Stage the removal of a node that is gone for good; data that only it had is lost
    ForceRemove {
        /// The node's name
        node: String,
    },
    /// Stage that a node that has just joined takes over all partitions of another, which leaves
    Replace {
        /// The node that leaves
        node: String,
        /// The node that takes its place
        by: String,
    },
    /// Like replace, for a node that is gone for good; data that only it had is lost
    ForceReplace {
        /// The node that is gone
        node: String,
        /// The node that takes its place
        by: String,
    },
    /// Stage the location of a node: rack, room or zone; an empty name removes it
    Location {
        /// The location
        location: String,
        /// The node's name
        #[arg(long)]
        node: String,
    },
    /// Continue after the majority of the voters is lost for good: shows the consequences, or does
    /// it
    Recover {
        /// Do it: this node continues with its state, and the lost ones are refused for ever
        #[arg(long, conflicts_with = "follow")]
        force: bool,
        /// Follow a node that has recovered the cluster, as name@host or name@host:port
        #[arg(long, value_name = "NODE")]
        follow: Option<String>,
    },
    /// Continue without a partition's store that is missing or not this node's own; data that only
    /// it had is lost
    AcceptLoss {
        /// Its number or its index; `all` for all partitions whose stores could not be opened
        partition: String,
    },
    /// Show the effect of all staged changes together
    Plan,
    /// Carry out the plan that was shown last
    Commit,
    /// Forget all staged changes
    Clear,
    /// Members with their state and share of the ring
    Status,
    /// The partitions of this node
    Partitions,
    /// The number of the ring's partitions
    #[command(alias = "partition_count")]
    PartitionCount,
    /// The node that owns a partition
    Partition {
        /// The partition, as id=NUMBER or index=INDEX
        which: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum RingVerb {
    /// Members with their state and share of the ring
    MemberStatus,
    /// The leader, moves of partitions, and nodes that cannot be reached
    RingStatus,
    /// Check that all nodes are there and agree on the ring
    Ringready,
    /// Mark a node that cannot be reached as down, so that others take its vote
    Down {
        /// The node's name
        node: String,
    },
    /// Transfers of partitions on all nodes: under way with sizes and times, and waiting
    Transfers,
    /// Show or set how many partitions a node transfers at once in each direction
    #[command(name = "transfer-limit", alias = "transfer_limit")]
    TransferLimit {
        /// The new limit of all nodes, or the node whose limit is set
        node_or_limit: Option<String>,
        /// The node's new limit
        limit: Option<String>,
    },
    /// Show transfers, and pause or resume them
    #[command(subcommand)]
    Handoff(HandoffVerb),
    /// Repair a partition from its other replicas, on the node that owns it
    RepairPartition {
        /// Its number or its index
        partition: String,
    },
    /// Repair all partitions of a node from their other replicas; without a name, of this one
    RepairNode {
        /// The node's name
        node: Option<String>,
    },
    /// The services of a node; without a name, of this one
    Services {
        /// The node's name
        node: Option<String>,
    },
}

#[derive(Subcommand)]
pub(crate) enum HandoffVerb {
    /// Active and known transfers of each node
    Summary,
    /// Every transfer with sizes, rates and times
    Details,
    /// Directions that each node allows
    Config,
    /// Resume transfers
    Enable(SwitchArguments),
    /// Pause transfers
    Disable(SwitchArguments),
}

#[derive(Args)]
pub(crate) struct SwitchArguments {
    /// The direction, as seen from the node
    #[arg(value_parser = ["inbound", "outbound", "both"])]
    direction: String,
    /// On this node instead of the one that is asked
    #[arg(short, long, conflicts_with = "all")]
    node: Option<String>,
    /// On all nodes
    #[arg(short, long)]
    all: bool,
}

#[derive(Subcommand)]
pub(crate) enum BucketVerb {
    /// The number of its keys
    Count {
        /// The bucket; `default/BUCKET` for one without a type
        #[arg(value_name = "TYPE/BUCKET")]
        name: String,
    },
    /// Delete all of its keys, a few at a time; after an interruption, repeat it to delete the rest
    Drop {
        /// The bucket; `default/BUCKET` for one without a type
        #[arg(value_name = "TYPE/BUCKET")]
        name: String,
        /// Only report how many there are
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum BackendVerb {
    /// Move data to another backend while the nodes serve; all nodes of the cluster, except for --partition
    Migrate(MigrateArguments),
    /// Moves between backends on all nodes: their progress and remaining time
    Status,
    /// Cancel the moves under way: all data goes back to its former backend
    Cancel {
        /// Cancel the move of one partition of this node, ended or not
        #[arg(long, value_name = "PARTITION")]
        partition: Option<String>,
    },
}

#[derive(Args)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    scope: MigrateScope,
    /// The target, by its name in multi_backend
    #[arg(long, value_name = "NAME")]
    to: String,
    /// Only report the data that would move, and the room for it
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct MigrateScope {
    /// All buckets of a type without a backend of their own; `default` for buckets without a type
    #[arg(long = "type", value_name = "TYPE")]
    of_type: Option<String>,
    /// One bucket; `default/BUCKET` for one without a type
    #[arg(long, value_name = "TYPE/BUCKET")]
    bucket: Option<String>,
    /// The data of one partition on this node, by its number or its index
    #[arg(long, value_name = "PARTITION")]
    partition: Option<String>,
    /// Everything
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
pub(crate) struct FoldArguments {
    #[command(subcommand)]
    pub(crate) verb: FoldVerb,
    /// Write the results to this file, as JSON
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) outfile: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum FoldVerb {
    /// The buckets of all types
    ListBuckets {
        /// Ignored; scripts for Riak may give it
        n_val: Option<String>,
    },
    /// Keys with more siblings or more bytes than a limit
    FindKeys(FinderArguments),
    /// The number of keys with more siblings or more bytes than a limit
    CountKeys(FinderArguments),
    /// Deleted keys, with their clocks
    FindTombstones(SegmentArguments),
    /// The number of deleted keys
    CountTombstones(SegmentArguments),
    /// Remove tombstones, on a node that is the only one; in a cluster they go by themselves
    ReapTombstones(ChangeArguments),
    /// Delete objects
    EraseKeys(ChangeArguments),
    /// Counts, sizes and siblings
    ObjectStats(RangeArguments),
    /// Compare all replicas of each key, and update those that are behind
    RepairKeys(RangeArguments),
}

#[derive(Args)]
pub(crate) struct FinderArguments {
    #[command(flatten)]
    range: RangeArguments,
    /// sibling_count=COUNT or object_size=BYTES
    limit: String,
}

#[derive(Args)]
pub(crate) struct RangeArguments {
    /// The bucket, or TYPE/BUCKET
    bucket: String,
    /// all, or FROM,TO
    keys: String,
    /// all, or FROM,TO: times such as 2026-11-28T07:00:00Z, or seconds since 1970
    modified: String,
}

#[derive(Args)]
pub(crate) struct SegmentArguments {
    /// The bucket, or TYPE/BUCKET
    bucket: String,
    /// all, or FROM,TO
    keys: String,
    /// all, or S1,S2,...;SIZE: leaves of a tree of a size from xxsmall to xlarge
    segments: String,
    /// all, or FROM,TO: times such as 2026-11-28T07:00:00Z, or seconds since 1970
    modified: String,
}

#[derive(Args)]
pub(crate) struct ChangeArguments {
    #[command(flatten)]
    scope: SegmentArguments,
    /// count, which changes nothing, or local
    method: String,
}

/// A verb and its arguments, as the node takes them.
fn request(verb: &str, rest: impl IntoIterator<Item = String>) -> AdminRequest {
    let words = std::iter::once(verb.to_owned()).chain(rest).collect();
    AdminRequest::Cluster { words }
}

impl ClusterVerb {
    pub(crate) fn into_request(self) -> AdminRequest {
        match self {
            Self::Join { node } => request("join", [node]),
            Self::Leave { node } => request("leave", node),
            Self::ForceRemove { node } => request("force-remove", [node]),
            Self::Replace { node, by } => request("replace", [node, by]),
            Self::ForceReplace { node, by } => request("force-replace", [node, by]),
            Self::Location { location, node } => request("location", [node, location]),
            Self::Recover { force, follow } => {
                let how = if follow.is_some() { "follow" } else { "force" };
                let how = (force || follow.is_some()).then(|| how.to_owned());
                request("recover", how.into_iter().chain(follow))
            }
            Self::AcceptLoss { partition } => request("accept-loss", [partition]),
            Self::Plan => request("plan", []),
            Self::Commit => request("commit", []),
            Self::Clear => request("clear", []),
            Self::Status => request("status", []),
            Self::Partitions => request("partitions", []),
            Self::PartitionCount => request("partition-count", []),
            Self::Partition { which } => request("partition", [which]),
        }
    }
}

impl BucketVerb {
    pub(crate) fn into_request(self) -> AdminRequest {
        match self {
            Self::Count { name } => AdminRequest::BucketCount { name },
            Self::Drop { name, dry_run } => AdminRequest::BucketDrop {
                name,
                is_dry_run: dry_run,
            },
        }
    }
}

impl FoldVerb {
    pub(crate) fn into_request(self) -> AdminRequest {
        let (verb, rest) = match self {
            Self::ListBuckets { n_val } => ("list-buckets", n_val.into_iter().collect()),
            Self::FindKeys(finder) => ("find-keys", finder.into_words()),
            Self::CountKeys(finder) => ("count-keys", finder.into_words()),
            Self::FindTombstones(scope) => ("find-tombstones", scope.into_words()),
            Self::CountTombstones(scope) => ("count-tombstones", scope.into_words()),
            Self::ReapTombstones(change) => ("reap-tombstones", change.into_words()),
            Self::EraseKeys(change) => ("erase-keys", change.into_words()),
            Self::ObjectStats(range) => ("object-stats", range.into_words()),
            Self::RepairKeys(range) => ("repair-keys", range.into_words()),
        };
        let words = std::iter::once(verb.to_owned()).chain(rest).collect();
        AdminRequest::Fold { words }
    }
}

impl FinderArguments {
    fn into_words(self) -> Vec<String> {
        let mut words = self.range.into_words();
        words.push(self.limit);
        words
    }
}

impl RangeArguments {
    fn into_words(self) -> Vec<String> {
        vec![self.bucket, self.keys, self.modified]
    }
}

impl SegmentArguments {
    fn into_words(self) -> Vec<String> {
        vec![self.bucket, self.keys, self.segments, self.modified]
    }
}

impl ChangeArguments {
    fn into_words(self) -> Vec<String> {
        let mut words = self.scope.into_words();
        words.push(self.method);
        words
    }
}

impl BackendVerb {
    pub(crate) fn into_request(self) -> AdminRequest {
        match self {
            Self::Migrate(arguments) => AdminRequest::BackendMigrate {
                scope: arguments.scope.into_scope(),
                target: arguments.to,
                is_dry_run: arguments.dry_run,
            },
            Self::Status => AdminRequest::BackendStatus,
            Self::Cancel { partition } => AdminRequest::BackendCancel { partition },
        }
    }
}

impl MigrateScope {
    fn into_scope(self) -> MoveScope {
        let of_type = self.of_type.map(MoveScope::Type);
        let bucket = self.bucket.map(MoveScope::Bucket);
        let partition = self.partition.map(MoveScope::Partition);
        of_type.or(bucket).or(partition).unwrap_or(MoveScope::All)
    }
}

impl RingVerb {
    pub(crate) fn into_request(self) -> AdminRequest {
        match self {
            Self::MemberStatus => request("member-status", []),
            Self::RingStatus => request("ring-status", []),
            Self::Ringready => request("ringready", []),
            Self::Down { node } => request("down", [node]),
            Self::Transfers => request("transfers", []),
            Self::TransferLimit {
                node_or_limit,
                limit,
            } => request("transfer-limit", node_or_limit.into_iter().chain(limit)),
            Self::Handoff(verb) => request("handoff", verb.into_words()),
            Self::RepairPartition { partition } => request("repair-partition", [partition]),
            Self::RepairNode { node } => request("repair-node", node),
            Self::Services { node } => request("services", node),
        }
    }
}

impl HandoffVerb {
    fn into_words(self) -> Vec<String> {
        let verb = match self {
            Self::Summary => "summary",
            Self::Details => "details",
            Self::Config => "config",
            Self::Enable(switch) => return switch.into_words("enable"),
            Self::Disable(switch) => return switch.into_words("disable"),
        };
        vec![verb.to_owned()]
    }
}

impl SwitchArguments {
    fn into_words(self, switch: &str) -> Vec<String> {
        let mut words = vec![switch.to_owned(), self.direction];
        if self.all {
            words.push("all".to_owned());
        }
        if let Some(node) = self.node {
            words.extend(["node".to_owned(), node]);
        }
        words
    }
}
