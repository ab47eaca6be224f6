//! Names of the files that mark a directory's state, and the word in them.

/// In a directory that is no whole backup yet.
pub const UNFINISHED_NAME: &str = "backup.unfinished";
/// In a backup, and in a data directory that was one until it is started.
pub const MARK_NAME: &str = "backup";

/// The word before the number of the cluster's members in the mark.
pub(crate) const MEMBERS_WORD: &str = "members";
/// The operator's confirmation that a node of a cluster is to be restored nevertheless.
pub(crate) const IN_CLUSTER_NAME: &str = "restore.in-cluster";
