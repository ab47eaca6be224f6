//! The agreed part of rounds as a value, and the reasons for which rounds are refused.
//!
//! `rounds` has the changes of the value and its meaning.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_encoding::{Bucket, BucketType};
use kvorum_reaping::{AgreedRounds, ListName, Refused};
use kvorum_ring::Partition;

/// A bucket, or with `None` all buckets of a type that have no properties of their own.
pub(crate) type Keys = (BucketType, Option<Bucket>);

/// The agreed part of rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// The version at which ring, members or the places of keys changed last.
    pub(crate) epoch: u64,
    /// Lists of which a round was announced.
    pub(crate) lists: BTreeMap<ListName, AgreedRounds>,
    /// Vnodes that came to the lists of an owner partition later, each with the epoch.
    pub(crate) joined: BTreeMap<(Partition, Partition), u64>,
    /// Owner partitions whose lists a vnode has left.
    pub(crate) left_lists: BTreeSet<Partition>,
    /// Types and buckets whose keys have left vnodes.
    pub(crate) left_keys: BTreeSet<Keys>,
}

/// The reason why a round is not announced, or raises no watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoundRefusal {
    /// The cluster was founded before the state noted old copies.
    #[error("the cluster was founded by an earlier version, which did not note old copies")]
    NotFollowed,
    /// No bucket has this list.
    #[error("no bucket with n_val {} has a list of partition {}", .0.n_val, .0.partition)]
    NoSuchList(ListName),
    /// The list has one replica, whose node removes its tombstones by itself.
    #[error("the lists have one replica")]
    NoReplicas,
    /// A partition of the list moves, or lists change.
    #[error("a partition of the list moves, or the number of replicas changes")]
    InMotion,
    /// A vnode has left the list, and may have old copies.
    #[error("partition {0} has left vnodes that may have old copies of its keys")]
    OldCopies(Partition),
    /// The round is not the one that is expected.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Rounds {
    /// Nothing is left behind when a cluster is founded.
    pub(crate) fn at_founding() -> Self {
        Self {
            epoch: 1,
            ..Self::default()
        }
    }
}
