//! Coverage: key and bucket listings, asked of the fewest vnodes that together hold everything.
//!
//! A plan names vnodes and, for each, the owner partitions that it answers for, so that a key with
//! several replicas is reported once. Vnodes are read one after the other, each in parts of bounded
//! length in the order of keys, each part on a snapshot of its own: a key that exists from the
//! beginning of the listing to its end is in it, and none is in it twice.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_backend::{FoldRange, Lease};
use kvorum_cluster::ClusterState;
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey, bucket_prefix, type_prefix};
use kvorum_planted_defects::is_planted;
use kvorum_ring::{CoverageVnode, KeyHash, NodeId, Partition, RingSize};
use kvorum_runtime::{Moment, TaskGuard};
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{
    Page, PageFailure, PageKind, PageRequest, ReplicaFailure, ReplicaReply, fold_clock,
};

use crate::attempts::{Progress, REPLAN_PAUSE_MIN};
use crate::coordinator::Coordinator;
use crate::error::RequestError;
use crate::peers::PeerFailure;
use crate::plan::key_hash;
use crate::replicas::{Replicas, is_misplanned, no_reply, request_error};
use crate::service::later;
use crate::trace::RequestKind;

/// Names that one call of `next` gives at most.
const NAMES_PER_CHUNK: usize = 1_000;
/// Names that a vnode reads for one part: what a listing holds in memory.
const NAMES_PER_PART: u32 = 10_000;

/// How long a node is asked for nothing after one of its vnodes was found to lack something. Whether it
/// still does is found out by asking it again.
const LEFT_OUT: Duration = Duration::from_secs(10);
/// The same where what it has is to be had nowhere else.
const LEFT_OUT_MIN: Duration = Duration::from_secs(1);

/// A listing of one bucket's keys, in chunks.
pub struct KeyListing {
    run: Listing,
}

/// A listing of the buckets of one type.
pub struct BucketListing {
    run: Listing,
    seen: BTreeSet<Bucket>,
}

struct Listing {
    counted: Counted,
    kind: RequestKind,
    place: Place,
    progress: Progress,
    hash: KeyHash,
    size: RingSize,
    parts: VecDeque<Part>,
    ready: VecDeque<Address>,
    /// Vnodes that are not asked.
    damaged: DamagedVnodes,
    /// How long to wait before the ring is looked at again.
    replan_pause: Duration,
    /// How it ended; the meter is told when the listing is dropped.
    error: Option<RequestError>,
}

/// A listing counted as in progress, until its deadline at most: a client that takes nothing more of it
/// keeps nobody else from listing for longer than that.
struct Counted {
    coordinator: Arc<Coordinator>,
    is_counted: Arc<AtomicBool>,
    _deadline: TaskGuard<()>,
}

/// What is listed, for the log.
struct Place {
    bucket_type: BucketType,
    bucket: Option<Bucket>,
}

/// What is left to be read of one vnode.
#[derive(Clone)]
struct Part {
    vnode: CoverageVnode,
    range: FoldRange,
}

impl Coordinator {
    /// Starts a listing of a bucket's keys.
    pub fn list_keys(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        bucket: &Bucket,
        timeout: Duration,
    ) -> Result<KeyListing, RequestError> {
        let place = Place {
            bucket_type: bucket_type.clone(),
            bucket: Some(bucket.clone()),
        };
        let run = Listing::begin(self, RequestKind::ListKeys, place, timeout)?;
        Ok(KeyListing { run })
    }

    /// Starts a listing of a type's buckets.
    pub fn list_buckets(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        timeout: Duration,
    ) -> Result<BucketListing, RequestError> {
        let place = Place {
            bucket_type: bucket_type.clone(),
            bucket: None,
        };
        let run = Listing::begin(self, RequestKind::ListBuckets, place, timeout)?;
        Ok(BucketListing {
            run,
            seen: BTreeSet::new(),
        })
    }
}

impl KeyListing {
    /// The next keys, never an empty chunk; `None` when all have been listed.
    pub async fn next(&mut self) -> Option<Result<Vec<Key>, RequestError>> {
        if let Err(error) = self.run.fill().await {
            return Some(Err(error));
        }
        let keys: Vec<Key> = self.run.chunk().map(|address| address.key).collect();
        (!keys.is_empty()).then_some(Ok(keys))
    }
}

impl BucketListing {
    /// The next buckets, each once, never an empty chunk; `None` when all have been listed.
    pub async fn next(&mut self) -> Option<Result<Vec<Bucket>, RequestError>> {
        loop {
            if let Err(error) = self.run.fill().await {
                return Some(Err(error));
            }
            if self.run.ready.is_empty() {
                return None;
            }
            let found = self.run.chunk().map(|address| address.bucket);
            let new: Vec<Bucket> = found
                .filter(|bucket| self.seen.insert(bucket.clone()))
                .collect();
            if !new.is_empty() {
                return Some(Ok(new));
            }
        }
    }
}

impl Listing {
    fn begin(
        coordinator: &Arc<Coordinator>,
        kind: RequestKind,
        place: Place,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        let arrived = coordinator.runtime().now();
        let progress = coordinator.begin(arrived, Some(timeout));
        let counted = Counted::new(coordinator, progress.deadline);
        let damaged = DamagedVnodes::default();
        let planned = counted.and_then(|it| Ok((it, coordinator.cover(&place, &damaged)?)));
        match planned {
            Ok((counted, cover)) => Ok(Self {
                counted,
                kind,
                place,
                progress,
                hash: cover.hash,
                size: cover.size,
                parts: cover.parts,
                ready: VecDeque::new(),
                damaged,
                replan_pause: REPLAN_PAUSE_MIN,
                error: None,
            }),
            Err(error) => {
                coordinator.finish(kind, &place, Some(&error), None, &progress);
                Err(error)
            }
        }
    }

    /// Reads until something is ready or nothing is left.
    async fn fill(&mut self) -> Result<(), RequestError> {
        while self.ready.is_empty()
            && let Some(part) = self.parts.pop_front()
        {
            if let Err(error) = self.read_part(part).await {
                self.parts.clear();
                self.error = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Some of what is ready.
    fn chunk(&mut self) -> impl Iterator<Item = Address> {
        let count = self.ready.len().min(NAMES_PER_CHUNK);
        self.ready.drain(..count)
    }

    async fn read_part(&mut self, part: Part) -> Result<(), RequestError> {
        let coordinator = &self.counted.coordinator;
        let runtime = coordinator.runtime();
        let remaining = self.progress.deadline.since(runtime.now());
        if remaining.is_zero() {
            return Err(RequestError::Timeout);
        }
        if !coordinator.is_of_now(&part.vnode) {
            // It would be refused, and after each refusal a while is waited.
            let cover = coordinator.cover(&self.place, &self.damaged)?;
            self.take_over(&part, cover);
            return Ok(());
        }
        let request = PageRequest {
            partition: part.vnode.partition,
            epoch: part.vnode.epoch,
            kind: match self.kind {
                RequestKind::ListBuckets => PageKind::Buckets,
                _ => PageKind::Keys,
            },
            hash: self.hash,
            size: self.size,
            owners: (!part.vnode.whole).then(|| part.vnode.owners.clone()),
            range: part.range.clone(),
            names_max: NAMES_PER_PART,
        };
        let page = if part.vnode.node == coordinator.node() {
            let (page, queued) = coordinator.page_here(request, remaining).await;
            self.progress.trace.queue += queued;
            page
        } else {
            coordinator
                .page_there(part.vnode.node, request, self.progress.deadline)
                .await
        };
        let page = match page {
            Ok(page) => page,
            Err(PageError::OtherRing) if is_planted!(StaleRingUsedForCoverage) => {
                return Ok(());
            }
            Err(PageError::OtherRing) => return self.cover_anew(part).await,
            Err(PageError::Incomplete) => {
                coordinator.leave_out(part.vnode.node);
                return self.cover_anew(part).await;
            }
            Err(PageError::NotOpen(error)) => return self.cover_without(part, error).await,
            Err(PageError::Damaged(error)) => {
                self.damaged.note(&part.vnode, error);
                let cover = coordinator.cover(&self.place, &self.damaged)?;
                self.take_over(&part, cover);
                return Ok(());
            }
            Err(PageError::Failed(error)) => return Err(error),
        };
        self.replan_pause = REPLAN_PAUSE_MIN;
        if let Some(next) = page.next {
            self.parts.push_front(Part {
                range: part.range.resumed_at(&next),
                vnode: part.vnode,
            });
        }
        let names = page.keys.iter().map(StorageKey::decode);
        let names = names.collect::<Result<VecDeque<_>, _>>();
        self.ready = names.map_err(|error| RequestError::Storage(error.to_string()))?;
        Ok(())
    }

    /// What is left of a part whose vnode is elsewhere by now: the same owner partitions in the same
    /// range, as the ring of this moment has them.
    async fn cover_anew(&mut self, part: Part) -> Result<(), RequestError> {
        let coordinator = self.counted.coordinator.clone();
        let is_in_time = coordinator
            .attempts
            .pause_before_replanning(&mut self.replan_pause, &self.progress)
            .await;
        if !is_in_time {
            return Err(RequestError::VnodeNotReady);
        }
        let cover = coordinator.cover(&self.place, &self.damaged)?;
        self.take_over(&part, cover);
        Ok(())
    }

    /// What is left of a part whose vnode is not open, by other replicas.
    async fn cover_without(&mut self, part: Part, error: RequestError) -> Result<(), RequestError> {
        let coordinator = self.counted.coordinator.clone();
        if !coordinator
            .replicas
            .unopened
            .pass_over(part.vnode.node, part.vnode.partition)
        {
            return self.cover_anew(part).await;
        }
        let cover = coordinator.cover(&self.place, &self.damaged);
        self.take_over(&part, cover.map_err(|other| instead_of(other, error))?);
        Ok(())
    }

    fn take_over(&mut self, part: &Part, cover: Cover) {
        for mut anew in cover.parts.into_iter().rev() {
            let before = anew.vnode.owners.len();
            anew.vnode
                .owners
                .retain(|owner| part.vnode.owners.contains(owner));
            anew.vnode.whole &= anew.vnode.owners.len() == before;
            if !anew.vnode.owners.is_empty() {
                anew.range = part.range.clone();
                self.parts.push_front(anew);
            }
        }
    }
}

/// Why a vnode gives no page.
pub(crate) enum PageError {
    /// It knows another ring.
    OtherRing,
    /// It lacks what it has promised to hold; other vnodes have that.
    Incomplete,
    /// Its store is not open; other vnodes have the same.
    NotOpen(RequestError),
    /// Damage may have taken some of what it is asked for; other vnodes have the same.
    Damaged(RequestError),
    Failed(RequestError),
}

impl From<RequestError> for PageError {
    fn from(error: RequestError) -> Self {
        Self::Failed(error)
    }
}

impl From<ReplicaFailure> for PageError {
    fn from(failure: ReplicaFailure) -> Self {
        if is_misplanned(&failure) {
            Self::OtherRing
        } else if failure == ReplicaFailure::Incomplete {
            Self::Incomplete
        } else if matches!(failure, ReplicaFailure::NotOpen { .. }) {
            Self::NotOpen(request_error(failure))
        } else if matches!(failure, ReplicaFailure::Damaged(_)) {
            Self::Damaged(request_error(failure))
        } else {
            Self::Failed(request_error(failure))
        }
    }
}

impl From<PeerFailure> for PageError {
    fn from(failure: PeerFailure) -> Self {
        match failure {
            // Another vnode may have what this node has.
            PeerFailure::NotReached(_) | PeerFailure::Unknown(_) => Self::OtherRing,
            failure => Self::Failed(failure.into_request_error()),
        }
    }
}

impl Replicas {
    /// What it means that a vnode of this node is not open: that its store is being opened, or that the
    /// ring has just changed, where it can.
    pub(crate) fn not_open(&self, partition: Partition) -> PageError {
        match (self.unopened.absent(partition), &self.remote) {
            (RequestError::VnodeNotReady, Some(_)) => PageError::OtherRing,
            (absent, Some(_)) => PageError::NotOpen(absent),
            (absent, None) => PageError::Failed(absent),
        }
    }
}

impl Coordinator {
    /// A page of a vnode of this node, and how long it waited for a thread.
    async fn page_here(
        &self,
        request: PageRequest,
        remaining: Duration,
    ) -> (Result<Page, PageError>, Duration) {
        let runtime = self.runtime();
        let Some(vnode) = self.replicas.vnodes.vnode(request.partition) else {
            return (
                Err(self.replicas.not_open(request.partition)),
                Duration::ZERO,
            );
        };
        let (asked, now) = (runtime.now(), self.wall_time());
        let lease = Lease::Until(later(now, remaining));
        let clock = runtime.clock();
        let fold_clock = fold_clock(clock.clone());
        let work = runtime.blocking(move || {
            let queued = clock.now().since(asked);
            (vnode.page(&request, &fold_clock, lease), queued)
        });
        match runtime.timeout(remaining, work).await {
            Ok((Ok(page), queued)) => (Ok(page), queued),
            Ok((Err(PageFailure::Failed(failure)), queued)) => (Err(failure.into()), queued),
            // It ran to the deadline.
            Ok((Err(PageFailure::OutOfTime), _)) | Err(_) => {
                (Err(RequestError::Timeout.into()), Duration::ZERO)
            }
        }
    }

    async fn page_there(
        &self,
        node: NodeId,
        request: PageRequest,
        deadline: Moment,
    ) -> Result<Page, PageError> {
        let asked = self
            .replicas
            .ask_peer(node, PeerRequest::Page(request), deadline);
        match asked.await {
            Ok(ReplicaReply::Listed(page)) => Ok(page),
            Ok(ReplicaReply::Failed(failure)) => Err(failure.into()),
            Ok(_) => Err(no_reply().into()),
            Err(failure) => Err(failure.into()),
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let (coordinator, error) = (&self.counted.coordinator, self.error.as_ref());
        coordinator.finish(self.kind, &self.place, error, None, &self.progress);
    }
}

impl Counted {
    fn new(coordinator: &Arc<Coordinator>, deadline: Moment) -> Result<Self, RequestError> {
        if !coordinator.listings.count_in() {
            return Err(RequestError::Overload);
        }
        let is_counted = Arc::new(AtomicBool::new(true));
        let (runtime, late) = (coordinator.runtime().clone(), coordinator.clone());
        let is_late_counted = is_counted.clone();
        let watch = coordinator
            .runtime()
            .spawn("deadline of a listing", async move {
                runtime.sleep_until(deadline).await;
                count_out(&late, &is_late_counted);
            });
        Ok(Self {
            coordinator: coordinator.clone(),
            is_counted,
            _deadline: watch.abort_on_drop(),
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        count_out(&self.coordinator, &self.is_counted);
    }
}

/// Once.
fn count_out(coordinator: &Coordinator, is_counted: &AtomicBool) {
    if is_counted.swap(false, Ordering::Relaxed) {
        coordinator.listings.count_out();
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bucket {
            Some(bucket) => write!(f, "{}/{bucket}", self.bucket_type),
            None => self.bucket_type.fmt(f),
        }
    }
}

/// The vnodes that together have all of something, by the ring of this moment.
pub(crate) struct CoveringVnodes {
    pub(crate) vnodes: Vec<CoverageVnode>,
    pub(crate) hash: KeyHash,
    pub(crate) size: RingSize,
}

/// Vnodes that do not have all that one listing or query asks for. It asks them no more.
#[derive(Default)]
pub(crate) struct DamagedVnodes {
    vnodes: BTreeSet<(NodeId, Partition)>,
    error: Option<RequestError>,
}

impl DamagedVnodes {
    pub(crate) fn note(&mut self, vnode: &CoverageVnode, error: RequestError) {
        self.vnodes.insert((vnode.node, vnode.partition));
        self.error = Some(error);
    }

    fn has(&self, node: NodeId, partition: Partition) -> bool {
        self.vnodes.contains(&(node, partition))
    }

    /// With nobody left who has the same, what damage did is why.
    fn instead_of(&self, other: RequestError) -> RequestError {
        match (&self.error, other) {
            (Some(error), RequestError::InsufficientVnodes { .. }) => error.clone(),
            (Some(error), other) => instead_of(other, error.clone()),
            (None, other) => other,
        }
    }
}

/// Who could stand in for a vnode that is not open is not open either: its own error says why.
pub(crate) fn instead_of(other: RequestError, error: RequestError) -> RequestError {
    match other {
        RequestError::VnodeOpening | RequestError::VnodeFailed => error,
        other => other,
    }
}

/// Where a listing's names are, by the ring of this moment.
struct Cover {
    parts: VecDeque<Part>,
    hash: KeyHash,
    size: RingSize,
}

impl Coordinator {
    fn cover(&self, place: &Place, damaged: &DamagedVnodes) -> Result<Cover, RequestError> {
        let state = self.state();
        let unknown_type = |_| RequestError::UnknownBucketType;
        let (n_val, keys, range) = match &place.bucket {
            Some(bucket) => {
                let properties = state.properties(&place.bucket_type, bucket);
                let properties = properties.map_err(unknown_type)?;
                let prefix = bucket_prefix(&place.bucket_type, bucket);
                (properties.n_val, &properties.chash_keyfun, prefix)
            }
            None => {
                let properties = state.type_properties(&place.bucket_type);
                let properties = properties.map_err(unknown_type)?;
                // Buckets of a type may have fewer replicas than the type says: one is what all have.
                (1, &properties.chash_keyfun, type_prefix(&place.bucket_type))
            }
        };
        let cover = self.cover_vnodes(&state, n_val, key_hash(keys), damaged)?;
        let range = FoldRange::prefix(&range);
        let part = |vnode| Part {
            vnode,
            range: range.clone(),
        };
        Ok(Cover {
            parts: cover.vnodes.into_iter().map(part).collect(),
            hash: cover.hash,
            size: cover.size,
        })
    }

    /// The vnodes that together have a bucket's keys.
    pub(crate) fn cover_bucket(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
        damaged: &DamagedVnodes,
    ) -> Result<CoveringVnodes, RequestError> {
        let state = self.state();
        let properties = state.properties(bucket_type, bucket);
        let properties = properties.map_err(|_| RequestError::UnknownBucketType)?;
        let hash = key_hash(&properties.chash_keyfun);
        self.cover_vnodes(&state, properties.n_val, hash, damaged)
    }

    /// True when a vnode has the epoch that it had when the plan was made.
    fn is_of_now(&self, vnode: &CoverageVnode) -> bool {
        let state = self.state();
        let ring = state.ring();
        let is_there = ring.size().partition(vnode.partition.number()).is_some();
        let is_of_now = is_there && ring.epoch(vnode.partition) == vnode.epoch;
        is_of_now || is_planted!(StaleRingUsedForCoverage)
    }

    /// A vnode of this node lacks what it has promised to hold: others are asked for a while.
    pub(crate) fn leave_out(&self, node: NodeId) {
        let now = self.runtime().now();
        self.left_out.lock().insert(node, now);
    }

    /// True for a node of which something was missing less than `wait` ago.
    fn is_left_out(&self, node: NodeId, wait: Duration) -> bool {
        let left_out = self.left_out.lock();
        let noted = left_out.get(&node);
        noted.is_some_and(|noted| self.runtime().now().since(*noted) < wait)
    }

    fn cover_vnodes(
        &self,
        state: &ClusterState,
        n_val: u32,
        hash: KeyHash,
        damaged: &DamagedVnodes,
    ) -> Result<CoveringVnodes, RequestError> {
        let random = self.runtime().random_u64().to_le_bytes();
        let offset = u16::from_le_bytes([random[0], random[1]]);
        let colocated = self.settings.colocated_replicas;
        let is_asked = |node, wait| self.is_up(node) && !self.is_left_out(node, wait);
        let ring = state.ring();
        let cover = |wait| {
            ring.coverage_plan_of(n_val, colocated, offset, |node, partition| {
                is_asked(node, wait)
                    && !self.replicas.unopened.has(node, partition)
                    && !damaged.has(node, partition)
            })
        };
        // Who lacked something a while ago is asked rather than nobody: nodes that are changed one after
        // the other may all be left out at a time, and have everything again.
        let plan = cover(LEFT_OUT).or_else(|_| cover(LEFT_OUT_MIN));
        let plan = plan.map_err(|_| {
            let why = match ring.coverage_plan(n_val, colocated, offset, |node| {
                is_asked(node, LEFT_OUT_MIN)
            }) {
                // All would be well if what is there were open.
                Ok(_) => self.replicas.unopened.error(ring),
                Err(error) => RequestError::InsufficientVnodes {
                    wanted: error.missing.len(),
                    got: 0,
                },
            };
            damaged.instead_of(why)
        })?;
        Ok(CoveringVnodes {
            vnodes: plan.vnodes,
            hash,
            size: state.ring().size(),
        })
    }
}
