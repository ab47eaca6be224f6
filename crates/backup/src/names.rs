//! Names of the files that say what a directory is, and the word in them.

/// In a directory that is no whole backup yet.
pub const UNFINISHED_NAME: &str = "backup.unfinished";
/// In a backup, and in a data directory that was one until it is started.
pub const MARK_NAME: &str = "backup";

/// Stands in the mark before the number of the cluster's members.
pub(crate) const MEMBERS_WORD: &str = "members";
/// An operator's word that a node of a cluster is to be restored all the same.
pub(crate) const IN_CLUSTER_NAME: &str = "restore.in-cluster";
