//! A node's answer to the question whether it holds a key of a bucket type that is being removed.
//!
//! The answer "nothing" stays true until the removal ends or is cancelled. A vnode is searched once
//! it has the epoch of the removal and requests of earlier epochs have ended, so no earlier request
//! can still write. Later requests do not find the type. Hints on other nodes are not handed over
//! meanwhile, and repairs by an operator are refused.
//!
//! Tombstones and expired objects do not count: clients cannot read them, and a type with old data
//! could otherwise never be removed.

use std::sync::Arc;

use kvorum_backend::{Flow, FoldRange, Lease};
use kvorum_cluster::{ClusterState, TypeStatus};
use kvorum_coordinator::VnodeHints;
use kvorum_encoding::{BucketType, StorageKey, type_prefix};
use kvorum_ring::NodeId;
use kvorum_runtime::Clock;
use kvorum_vnode::{FoldRequest, ReplicaFailure, Vnode, fold_clock};
use serde::{Deserialize, Serialize};

use crate::vnode_table::VnodeTable;

/// The part of a bucket type that a node holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holding {
    /// Nothing, until the removal ends or is cancelled.
    Nothing,
    /// Keys of this bucket, and perhaps of others.
    Keys {
        /// The bucket's name.
        bucket: String,
    },
    /// Objects that it keeps for other nodes.
    Hints,
    /// The node cannot answer yet; the caller asks again.
    NotYet {
        /// The reason.
        reason: String,
    },
}

/// The parts of a node that the answer depends on.
pub(crate) struct TypeQuestion {
    pub(crate) node: NodeId,
    pub(crate) state: Arc<ClusterState>,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) hints: Arc<VnodeHints>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl TypeQuestion {
    /// The part of a type that this node holds, in the removal that began with the state of version
    /// `since`. Blocks.
    ///
    /// # Errors
    /// The reason for which the node cannot answer, for the operator.
    pub(crate) fn answer(&self, bucket_type: &BucketType, since: u64) -> Result<Holding, String> {
        if let Some(hindrance) = self.hindrance(bucket_type, since)? {
            let reason = hindrance.to_owned();
            return Ok(Holding::NotYet { reason });
        }
        for vnode in self.vnodes.all() {
            vnode.advance_epoch(self.state.ring().epoch(vnode.partition()));
            vnode.await_earlier_writes();
            let found = self.first_bucket(&vnode, bucket_type);
            let found = found.map_err(|failure| {
                let number = vnode.partition().number();
                format!("partition {number} cannot be searched: {failure}")
            })?;
            if let Some(bucket) = found {
                return Ok(Holding::Keys { bucket });
            }
        }
        let (size, clock) = (self.state.ring().size(), fold_clock(self.clock.clone()));
        match self.hints.holds_any_of(bucket_type, size, &clock) {
            Ok(true) => Ok(Holding::Hints),
            Ok(false) => Ok(Holding::Nothing),
            Err(failure) => Err(format!("its hints cannot be searched: {failure}")),
        }
    }

    /// The reason to ask again in a moment.
    fn hindrance(
        &self,
        bucket_type: &BucketType,
        since: u64,
    ) -> Result<Option<&'static str>, String> {
        let entry = self.state.bucket_types().get(bucket_type);
        if entry.map(|entry| entry.status) != Some(TypeStatus::Leaving { since }) {
            if self.state.version() < since {
                return Ok(Some("it has not learned of the removal yet"));
            }
            return Err("the removal was cancelled".to_owned());
        }
        if let Some(partition) = self.vnodes.unopened().keys().next() {
            let number = partition.number();
            return Err(format!("its store of partition {number} is not open"));
        }
        let mut owned = self.state.ring().owned_by(self.node);
        if owned.any(|partition| self.vnodes.numbered(partition.number()).is_none()) {
            return Ok(Some("it has not opened all of its stores yet"));
        }
        let is_idle = self.hints.is_idle();
        Ok((!is_idle).then_some("it is taking an object for another node"))
    }

    /// The bucket of the first key of the type in a vnode.
    fn first_bucket(
        &self,
        vnode: &Vnode,
        bucket_type: &BucketType,
    ) -> Result<Option<String>, ReplicaFailure> {
        let request = FoldRequest {
            epoch: vnode.status().epoch,
            range: FoldRange::prefix(&type_prefix(bucket_type)),
            clock: fold_clock(self.clock.clone()),
            lease: Lease::Unlimited,
        };
        let mut first = None;
        let visitor = &mut |key: &StorageKey| {
            first = Some(key.clone());
            Flow::Stop
        };
        let _end = vnode.fold_keys(&request, visitor)?;
        let bucket_of = |key: &StorageKey| match key.decode() {
            Ok(address) => address.bucket.to_string(),
            Err(error) => error.to_string(),
        };
        Ok(first.as_ref().map(bucket_of))
    }
}
