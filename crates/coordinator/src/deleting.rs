//! Driving a delete, and the removal of tombstones that every replica holds.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Reading;
use kvorum_encoding::Address;
use kvorum_object::{Clock, Content};
use kvorum_vnode::{Condition, Detail, Handled, Operation, ReplicaReply, ReplicaRequest};

use crate::accounts::Progress;
use crate::error::RequestError;
use crate::reading::Reads;
use crate::reaper::{Reaper, Tombstone, TombstoneKeeping};
use crate::replicas::Replicas;
use crate::request::{DeleteOptions, Deleted, GetOptions, PutKind, PutOptions, PutRequest};
use crate::writing::{Writes, Written};

/// Deletes objects.
pub(crate) struct Deletes {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) writes: Arc<Writes>,
    pub(crate) tombstones: TombstoneKeeping,
    pub(crate) reaper: Reaper,
}

impl Deletes {
    /// Writes a tombstone over the given version, or over the version that a read finds.
    pub(crate) async fn delete(
        &self,
        address: &Address,
        context: Option<Clock>,
        options: &DeleteOptions,
        progress: &mut Progress,
    ) -> Result<Deleted, RequestError> {
        let rw = self.joint_quorum(address, options)?;
        let context = match context {
            Some(context) => context,
            None => {
                let read = GetOptions {
                    r: options.r.or(rw),
                    pr: options.pr,
                    n_val: options.n_val,
                    sloppy_quorum: options.sloppy_quorum,
                    detail: Detail::Head,
                    ..GetOptions::default()
                };
                match self.reads.get(address, &read, progress).await? {
                    Some(object) if !object.is_tombstone() => object.clock().clone(),
                    _ => return Ok(Deleted::NothingThere),
                }
            }
        };
        let request = PutRequest {
            context,
            condition: Condition::Always,
            content: Content::tombstone(),
            kind: PutKind::Versioned,
        };
        let write = PutOptions {
            w: options.w.or(rw),
            dw: options.dw,
            pw: options.pw,
            n_val: options.n_val,
            sloppy_quorum: options.sloppy_quorum,
            ..PutOptions::default()
        };
        let written = self.writes.put(address, request, &write, progress).await?;
        self.reap_later(written);
        Ok(Deleted::Written)
    }

    /// The quorum for r and w where the request gives none: its own rw, or the bucket's.
    fn joint_quorum(
        &self,
        address: &Address,
        options: &DeleteOptions,
    ) -> Result<Option<kvorum_properties::Quorum>, RequestError> {
        if options.rw.is_some() {
            return Ok(options.rw);
        }
        let state = self.replicas.parts.cluster.current();
        let properties = state.properties(&address.bucket_type, &address.bucket);
        let properties = properties.map_err(|_| RequestError::UnknownBucketType)?;
        // A smaller n_val of the request is not violated by the bucket's quorums.
        let n_val = options.n_val.unwrap_or(properties.n_val);
        let is_violation = properties.rw.resolve(n_val) > n_val;
        let fits = !is_violation || options.n_val.is_none();
        Ok(fits.then_some(properties.rw))
    }

    /// Notes a tombstone for removal, if every replica of the key has applied it.
    fn reap_later(&self, written: Written) {
        let delay = match self.tombstones {
            TombstoneKeeping::Keep => return,
            TombstoneKeeping::Immediate => Duration::ZERO,
            TombstoneKeeping::For(delay) => delay,
        };
        // Replicas on other nodes may lose confirmed writes that are not synced, and any other member
        // may have a hint of the object: tombstones of a cluster wait for a round (decision 37).
        let is_here = |replica: &kvorum_ring::Replica| replica.node == self.replicas.parts.node;
        let is_everywhere = written.has_reached_all
            && written.plan.is_complete()
            && is_alone(&self.replicas)
            && written.plan.replicas.iter().all(is_here);
        if !is_everywhere || !written.object.is_tombstone() {
            return;
        }
        self.reaper.add(Tombstone {
            due: self.replicas.parts.runtime.now().plus(delay),
            key: written.plan.key,
            clock: written.object.clock().clone(),
            replicas: written.plan.replicas,
            unsynced: written.unsynced,
        });
        if delay.is_zero() {
            self.reap_due(Reading::CachedOnly);
        }
    }

    /// Removes the tombstones whose time has come; called at intervals, from a thread that may block unless
    /// `reading` forbids it. Tombstones that it cannot remove stay, at no cost but space.
    pub(crate) fn reap_due(&self, reading: Reading) {
        let now = self.replicas.parts.runtime.now();
        while let Some(tombstone) = self.reaper.take_due(now) {
            let is_done = match reading {
                Reading::CachedOnly => {
                    tombstone.unsynced.is_empty() && reap(&self.replicas, &tombstone, reading)
                }
                Reading::MayBlock => {
                    // A tombstone that a replica could not store stays.
                    let is_stored = tombstone.unsynced.iter().all(|it| it.wait().is_ok());
                    !is_stored || reap(&self.replicas, &tombstone, reading)
                }
            };
            if !is_done {
                self.reaper.put_back(tombstone);
                return;
            }
        }
    }
}

/// True if no other member can have a hint of the deleted object.
pub(crate) fn is_alone(replicas: &Replicas) -> bool {
    replicas.parts.cluster.current().members().len() <= 1
}

/// Removes a tombstone from the replicas of this node. True when no work is left for a thread that
/// may block.
pub(crate) fn reap(replicas: &Replicas, tombstone: &Tombstone, reading: Reading) -> bool {
    let parts = &replicas.parts;
    let mut is_done = true;
    for replica in &tombstone.replicas {
        let Some(vnode) = parts.vnodes.vnode(replica.partition) else {
            continue;
        };
        let (key, clock) = (tombstone.key.clone(), tombstone.clock.clone());
        let request = ReplicaRequest {
            partition: replica.partition,
            epoch: replica.epoch,
            operation: Operation::Reap { key, clock },
        };
        match vnode.handle(&request, parts.wall_time(), reading) {
            Handled::Done(ReplicaReply::Failed(failure)) => {
                tracing::debug!(event = "reap_failed", error = %failure);
            }
            Handled::Done(_) => {}
            Handled::WouldBlock => is_done &= reading == Reading::MayBlock,
        }
    }
    is_done
}
