//! The figures of one data type. Riak counts fetches and operations of a type in place of gets and puts,
//! and merges of its objects in place of other merges.

use crate::counter::Counter;
use crate::histogram::Histogram;

/// All that a node records of the values of one data type.
#[derive(Debug, Default)]
pub struct TypeStats {
    /// Fetches coordinated by this node.
    pub gets: Counter,
    /// Time from a fetch's arrival to its answer.
    pub get_time: Histogram,
    /// Size of the objects fetched.
    pub get_objsize: Histogram,
    /// Siblings of the objects fetched.
    pub get_siblings: Histogram,
    /// Operations coordinated by this node.
    pub puts: Counter,
    /// Time from an operation's arrival to its answer.
    pub put_time: Histogram,
    /// Replicas found behind and repaired by a read.
    pub read_repairs: Counter,
    /// Operations carried out by vnodes.
    pub updates: Counter,
    /// Time in which a vnode changed a value.
    pub update_time: Histogram,
    /// Merges of objects that had not seen each other.
    pub merges: Counter,
    /// Time of such a merge.
    pub merge_time: Histogram,
}
