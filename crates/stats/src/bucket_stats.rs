//! The figures of one bucket, for buckets that have some of their own. They are those that Riak keeps for a bucket with
//! `stat_tracked`.

use crate::counter::Counter;
use crate::histogram::Histogram;

/// All that a node records of the requests for one bucket's objects. It is recorded at
/// [`Recording::shared`](crate::Recording::shared), so that a figure has one copy instead of one for each
/// thread: there may be many buckets.
#[derive(Debug, Default)]
pub struct BucketStats {
    /// Reads coordinated by this node.
    pub gets: Counter,
    /// Time from a read's arrival to its answer.
    pub get_time: Histogram,
    /// Size of the objects read.
    pub get_objsize: Histogram,
    /// Siblings of the objects read.
    pub get_siblings: Histogram,
    /// Writes and deletes coordinated by this node.
    pub puts: Counter,
    /// Time from a write's arrival to its answer.
    pub put_time: Histogram,
}
