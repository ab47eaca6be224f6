//! Names of the files that mark a directory's state, and the word in them.

/// Marks a directory that is not a whole backup yet.
pub const UNFINISHED_NAME: &str = "backup.unfinished";
/// Marks a backup, and a data directory made from one until its first start.
pub const MARK_NAME: &str = "backup";

/// The word in the mark before the number of members of the cluster.
pub(crate) const MEMBERS_WORD: &str = "members";
/// The operator's confirmation of restoring one node of a larger cluster.
pub(crate) const IN_CLUSTER_NAME: &str = "restore.in-cluster";
