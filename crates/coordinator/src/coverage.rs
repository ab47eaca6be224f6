//! Coverage: the fewest vnodes that together hold everything.
//!
//! A plan names vnodes, each with the owner partitions that it answers for: so a key with several
//! replicas is found once. Listings and index queries use it. Partitions that a vnode cannot answer
//! for are covered again with the present ring.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{FoldClock, Lease};
use kvorum_cluster::ClusterState;
use kvorum_planted_defects::is_planted;
use kvorum_ring::{CoverageVnode, KeyHash, NodeId, Partition, RingSize};
use kvorum_runtime::Moment;
use kvorum_vnode::{PageFailure, ReplicaFailure, Vnode};
use parking_lot::Mutex;

use crate::accounts::{Accounts, Progress};
use crate::attempts::{Attempts, Pauses};
use crate::error::RequestError;
use crate::gate::{Gate, OwnPass};
use crate::local_vnodes::read_blocking;
use crate::parts::Parts;
use crate::peers::PeerFailure;
use crate::plan::key_hash;
use crate::replicas::{Replicas, is_misplanned};
use crate::request::BucketOrType;
use crate::trace::RequestKind;

/// Time for which a node is left out after one of its vnodes was found to lack data.
const LEFT_OUT: Duration = Duration::from_secs(10);
/// The same, for a node whose partitions no other node has.
const LEFT_OUT_MIN: Duration = Duration::from_secs(1);

/// See the module's description.
pub(crate) struct Coverage {
    pub(crate) replicas: Arc<Replicas>,
    attempts: Arc<Attempts>,
    accounts: Arc<Accounts>,
    colocated: bool,
    /// Nodes that are left out at present, and the time when each was left out.
    left_out: Mutex<BTreeMap<NodeId, Moment>>,
}

/// A listing or an index query on its way through the vnodes.
pub(crate) struct CoverageRun {
    pub(crate) coverage: Arc<Coverage>,
    pub(crate) kind: RequestKind,
    pub(crate) place: BucketOrType,
    pub(crate) progress: Progress,
    pub(crate) hash: KeyHash,
    pub(crate) size: RingSize,
    /// Vnodes that are left out.
    damaged: DamagedVnodes,
    pauses: Pauses,
    /// Results of an index query so far.
    pub(crate) results: u64,
    /// The error of the run; the meter receives it when the run is dropped.
    pub(crate) error: Option<RequestError>,
}

/// The vnodes that together have all requested data, by the ring of one moment.
struct Cover {
    vnodes: Vec<CoverageVnode>,
    hash: KeyHash,
    size: RingSize,
}

/// Vnodes that lack some of the data of one listing or query, and are not asked again.
#[derive(Default)]
struct DamagedVnodes {
    vnodes: BTreeSet<(NodeId, Partition)>,
    error: Option<RequestError>,
}

impl DamagedVnodes {
    fn note(&mut self, vnode: &CoverageVnode, error: RequestError) {
        self.vnodes.insert((vnode.node, vnode.partition));
        self.error = Some(error);
    }

    fn has(&self, node: NodeId, partition: Partition) -> bool {
        self.vnodes.contains(&(node, partition))
    }

    /// The error of the damage, where no other vnode has the same partitions.
    fn instead_of(&self, other: RequestError) -> RequestError {
        match (&self.error, other) {
            (Some(error), RequestError::InsufficientVnodes { .. }) => error.clone(),
            (Some(error), other) => instead_of(other, error.clone()),
            (None, other) => other,
        }
    }
}

impl CoverageRun {
    /// Begins a run, counted by the gate. Also returns the vnodes to ask.
    pub(crate) fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        kind: RequestKind,
        place: BucketOrType,
        timeout: Duration,
    ) -> Result<(Self, OwnPass, Vec<CoverageVnode>), RequestError> {
        let arrived = coverage.replicas.parts.runtime.now();
        let progress = coverage.accounts.begin(arrived, Some(timeout));
        let damaged = DamagedVnodes::default();
        let counted = gate.enter_owned().ok_or(RequestError::Overload);
        let begun = counted.and_then(|counted| Ok((counted, coverage.cover(&place, &damaged)?)));
        let (counted, cover) = begun.inspect_err(|error| {
            let accounts = &coverage.accounts;
            accounts.finish(kind, &place, Some(error), None, &progress);
        })?;
        let run = Self {
            coverage: coverage.clone(),
            kind,
            place,
            progress,
            hash: cover.hash,
            size: cover.size,
            damaged,
            pauses: Pauses::default(),
            results: 0,
            error: None,
        };
        Ok((run, counted, cover.vnodes))
    }

    /// The time that is left.
    pub(crate) fn remaining(&self) -> Result<Duration, RequestError> {
        let now = self.coverage.replicas.parts.runtime.now();
        let remaining = self.progress.deadline.since(now);
        let has_time = !remaining.is_zero();
        has_time.then_some(remaining).ok_or(RequestError::Timeout)
    }

    /// The vnodes that have everything by the ring of this moment.
    pub(crate) fn cover(&self) -> Result<Vec<CoverageVnode>, RequestError> {
        let cover = self.coverage.cover(&self.place, &self.damaged)?;
        Ok(cover.vnodes)
    }

    /// Like [`CoverageRun::cover`], after a pause in which a newer ring may arrive.
    pub(crate) async fn cover_after_pause(&mut self) -> Result<Vec<CoverageVnode>, RequestError> {
        let (attempts, pauses) = (&self.coverage.attempts, &mut self.pauses);
        let paused = attempts.pause_before_replanning(pauses, &self.progress);
        match paused.await {
            true => self.cover(),
            false => Err(RequestError::VnodeNotReady),
        }
    }

    /// The vnodes to ask in place of one that gave no page. The error decides which vnodes are left
    /// out, and whether to pause first for a newer ring.
    pub(crate) async fn cover_without(
        &mut self,
        vnode: &CoverageVnode,
        error: PageError,
    ) -> Result<Vec<CoverageVnode>, RequestError> {
        match error {
            PageError::OtherRing if is_planted!(StaleRingUsedForCoverage) => Ok(Vec::new()),
            PageError::OtherRing => self.cover_after_pause().await,
            PageError::Incomplete => {
                self.coverage.leave_out(vnode.node);
                self.cover_after_pause().await
            }
            PageError::NotOpen(error) => {
                let unopened = &self.coverage.replicas.unopened;
                match unopened.pass_over(vnode.node, vnode.partition) {
                    true => self.cover().map_err(|other| instead_of(other, error)),
                    false => self.cover_after_pause().await,
                }
            }
            PageError::Damaged(error) => {
                self.note_damaged(vnode, error);
                self.cover()
            }
            PageError::Failed(error) => Err(error),
        }
    }

    /// Notes that the vnodes have answered: the next pause is a short one.
    pub(crate) fn note_answered(&mut self) {
        self.pauses = Pauses::default();
    }

    /// Leaves out a vnode that lacks some of the requested data.
    pub(crate) fn note_damaged(&mut self, vnode: &CoverageVnode, error: RequestError) {
        self.damaged.note(vnode, error);
    }
}

impl Drop for CoverageRun {
    fn drop(&mut self) {
        let (accounts, error) = (&self.coverage.accounts, self.error.as_ref());
        accounts.finish(self.kind, &self.place, error, None, &self.progress);
        if self.kind == RequestKind::IndexQuery && error.is_none() {
            let parts = &self.coverage.replicas.parts;
            let meter = &parts.meter;
            meter.index_query_complete(self.results, parts.runtime.now());
        }
    }
}

/// The parts of a cover that replace one vnode of another.
pub(crate) fn in_place_of(
    gone: &CoverageVnode,
    cover: Vec<CoverageVnode>,
) -> impl DoubleEndedIterator<Item = CoverageVnode> {
    cover.into_iter().filter_map(|mut vnode| {
        let before = vnode.owners.len();
        vnode.owners.retain(|owner| gone.owners.contains(owner));
        vnode.whole &= vnode.owners.len() == before;
        (!vnode.owners.is_empty()).then_some(vnode)
    })
}

/// The owner partitions that a request to a vnode names; `None` if the vnode answers for all that it has.
pub(crate) fn owners_of(vnode: &CoverageVnode) -> Option<Vec<Partition>> {
    (!vnode.whole).then(|| vnode.owners.clone())
}

/// The reason why a vnode gives no page.
pub(crate) enum PageError {
    /// It has another ring.
    OtherRing,
    /// It lacks data that it has promised to hold; other vnodes have the data.
    Incomplete,
    /// Its store is not open; other vnodes have the same.
    NotOpen(RequestError),
    /// Damage may have taken some of the requested data; other vnodes have the same.
    Damaged(RequestError),
    Failed(RequestError),
}

impl From<RequestError> for PageError {
    fn from(error: RequestError) -> Self {
        Self::Failed(error)
    }
}

impl From<PageFailure> for PageError {
    fn from(failure: PageFailure) -> Self {
        match failure {
            PageFailure::Failed(failure) => failure.into(),
            // It ran to the deadline.
            PageFailure::OutOfTime => Self::Failed(RequestError::Timeout),
        }
    }
}

impl From<ReplicaFailure> for PageError {
    fn from(failure: ReplicaFailure) -> Self {
        match failure {
            ReplicaFailure::Incomplete => Self::Incomplete,
            ReplicaFailure::NotOpen { .. } => Self::NotOpen(RequestError::of_replica(failure)),
            ReplicaFailure::Damaged(_) => Self::Damaged(RequestError::of_replica(failure)),
            _ if is_misplanned(&failure) => Self::OtherRing,
            _ => Self::Failed(RequestError::of_replica(failure)),
        }
    }
}

impl From<PeerFailure> for PageError {
    fn from(failure: PeerFailure) -> Self {
        match failure {
            // Another vnode may have this node's data.
            PeerFailure::NotReached(_) | PeerFailure::Unknown(_) => Self::OtherRing,
            failure => Self::Failed(failure.into_request_error()),
        }
    }
}

/// No open vnode could stand in for one that is not open: the error of the latter is the reason.
pub(crate) fn instead_of(other: RequestError, error: RequestError) -> RequestError {
    match other {
        RequestError::VnodeOpening | RequestError::VnodeFailed => error,
        other => other,
    }
}

impl Coverage {
    pub(crate) fn new(
        replicas: Arc<Replicas>,
        attempts: Arc<Attempts>,
        accounts: Arc<Accounts>,
        colocated: bool,
    ) -> Self {
        Self {
            replicas,
            attempts,
            accounts,
            colocated,
            left_out: Mutex::default(),
        }
    }

    /// True for vnodes of this node.
    pub(crate) fn is_here(&self, vnode: &CoverageVnode) -> bool {
        vnode.node == self.replicas.parts.node
    }

    /// A vnode of this node. A missing vnode is being opened or, in a cluster of several nodes,
    /// belongs to a ring that has just changed.
    pub(crate) fn vnode(&self, partition: Partition) -> Result<Arc<Vnode>, PageError> {
        let Replicas {
            parts,
            remote,
            unopened,
            ..
        } = &*self.replicas;
        let vnode = parts.vnodes.vnode(partition);
        vnode.ok_or_else(|| match (unopened.absent(partition), remote) {
            (RequestError::VnodeNotReady, Some(_)) => PageError::OtherRing,
            (absent, Some(_)) => PageError::NotOpen(absent),
            (absent, None) => PageError::Failed(absent),
        })
    }

    /// Reads vnodes of this node on one thread. Returns the result and the time that it waited for the
    /// thread.
    pub(crate) async fn read_here<T: Send + 'static>(
        &self,
        remaining: Duration,
        read: impl FnOnce(&FoldClock, Lease) -> T + Send + 'static,
    ) -> Result<(T, Duration), RequestError> {
        let Parts { runtime, meter, .. } = &self.replicas.parts;
        let reading = read_blocking(runtime, meter, remaining, read);
        let read = runtime.timeout(remaining, reading).await;
        read.map_err(|_| RequestError::Timeout)
    }

    /// True when a vnode has the epoch that it had when the plan was made.
    pub(crate) fn is_of_now(&self, vnode: &CoverageVnode) -> bool {
        let state = self.replicas.parts.cluster.current();
        let ring = state.ring();
        let is_there = ring.size().partition(vnode.partition.number()).is_some();
        let is_of_now = is_there && ring.epoch(vnode.partition) == vnode.epoch;
        is_of_now || is_planted!(StaleRingUsedForCoverage)
    }

    /// Notes that a vnode of a node lacks data that it has promised to hold: other nodes are asked
    /// for a while.
    pub(crate) fn leave_out(&self, node: NodeId) {
        let now = self.replicas.parts.runtime.now();
        self.left_out.lock().insert(node, now);
    }

    /// True for a node that was left out less than `wait` ago.
    fn is_left_out(&self, node: NodeId, wait: Duration) -> bool {
        let left_out = self.left_out.lock();
        let noted = left_out.get(&node);
        noted.is_some_and(|noted| self.replicas.parts.runtime.now().since(*noted) < wait)
    }

    fn cover(&self, place: &BucketOrType, damaged: &DamagedVnodes) -> Result<Cover, RequestError> {
        let state = self.replicas.parts.cluster.current();
        let properties = match &place.bucket {
            Some(bucket) => state.properties(&place.bucket_type, bucket),
            None => state.type_properties(&place.bucket_type),
        };
        let properties = properties.map_err(|_| RequestError::UnknownBucketType)?;
        // Buckets of a type may have fewer replicas than the type: one is the number that all have.
        let n_val = place.bucket.as_ref().map_or(1, |_| properties.n_val);
        let hash = key_hash(&properties.chash_keyfun);
        self.cover_vnodes(&state, n_val, hash, damaged)
    }

    fn cover_vnodes(
        &self,
        state: &ClusterState,
        n_val: u32,
        hash: KeyHash,
        damaged: &DamagedVnodes,
    ) -> Result<Cover, RequestError> {
        let random = self.replicas.parts.runtime.random_u64().to_le_bytes();
        let offset = u16::from_le_bytes([random[0], random[1]]);
        let colocated = self.colocated;
        let is_asked = |node, wait| self.replicas.is_up(node) && !self.is_left_out(node, wait);
        let ring = state.ring();
        let cover = |wait| {
            ring.coverage_plan_of(n_val, colocated, offset, |node, partition| {
                is_asked(node, wait)
                    && !self.replicas.unopened.has(node, partition)
                    && !damaged.has(node, partition)
            })
        };
        // A node that lacked data a while ago is better than none. If nodes are changed one
        // after the other, all may be left out at a time, although they have their data again.
        let plan = cover(LEFT_OUT).or_else(|_| cover(LEFT_OUT_MIN));
        let plan = plan.map_err(|_| {
            let why = match ring.coverage_plan(n_val, colocated, offset, |node| {
                is_asked(node, LEFT_OUT_MIN)
            }) {
                // The plan would succeed if all present vnodes were open.
                Ok(_) => self.replicas.unopened.error(ring),
                Err(error) => RequestError::InsufficientVnodes {
                    wanted: error.missing.len(),
                    got: 0,
                },
            };
            damaged.instead_of(why)
        })?;
        Ok(Cover {
            vnodes: plan.vnodes,
            hash,
            size: state.ring().size(),
        })
    }
}
