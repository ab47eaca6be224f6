//! Names of the files that mark a directory's state, and the word in them.

/// In a directory that is not a whole backup yet.
pub const UNFINISHED_NAME: &str = "backup.unfinished";
/// In a backup, and in a data directory made from one until its first start.
pub const MARK_NAME: &str = "backup";

/// The word in the mark before the number of members of the cluster.
pub(crate) const MEMBERS_WORD: &str = "members";
/// The operator's confirmation that one node is to be restored although the cluster has others.
pub(crate) const IN_CLUSTER_NAME: &str = "restore.in-cluster";
