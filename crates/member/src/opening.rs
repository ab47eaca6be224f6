//! Opens the vnodes of a node at its start, while vnodes that are open already serve.
//!
//! Stores are read several at a time. One pass over the log gives the logged writes of an earlier
//! run to all stores that have been read by then. A pass for each store would read the log once for
//! each store, and one pass for all would make every store wait for the slowest. After a pass, the
//! next one waits for a multiple of the pass's duration, so a long log is read few times. If the
//! node has to catch up with the agreed log, the first pass waits for that.
//!
//! A store that cannot be read or brought up to date does not keep other stores from serving: its
//! vnode counts as failed, and the follower tries to open it again at intervals.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Backend, Sequence, StoreId};
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_disk::DiskError;
use kvorum_ring::{Epoch, Partition};
use kvorum_runtime::Moment;
use kvorum_vnode::Vnode;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::follower::{Follower, Ground, have_others_it};
use crate::recognising::{KnownStores, Refused, Verdict};
use crate::store_list::StoreList;
use crate::stores::StoreError;
use crate::unknown_state::is_unknown;
use crate::vnode_table::Unopened;

/// The pause after a pass over the log, as a multiple of the pass's duration.
const PASS_REST: u32 = 3;
/// The pause before a store that could not be opened is tried again. It doubles up to
/// [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(5);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A store that was read and does not serve yet.
pub(crate) type Read = (Partition, Arc<dyn Backend>);

/// See the module's description.
pub(crate) struct Opener {
    follower: Arc<Follower>,
    ground: Ground,
    known: KnownStores,
    work: Mutex<Work>,
    /// A store was read, or could not be read.
    progress: Notify,
}

#[derive(Default)]
struct Work {
    next: VecDeque<Partition>,
    /// Stores that are being read.
    reading: usize,
    read: Vec<Read>,
}

/// The next step for stores that were read.
enum Pass {
    /// Bring these stores up to date.
    Of(Vec<Read>),
    /// No store was read yet, or the next pass is early by this much.
    Wait(Option<Duration>),
    /// No more stores will be read.
    Done,
}

impl Opener {
    /// An opener of these partitions; the table expects them from now on.
    pub(crate) fn new(
        follower: Arc<Follower>,
        known: KnownStores,
        partitions: Vec<Partition>,
    ) -> Self {
        let ground = follower.ground.clone();
        let now = ground.runtime.now();
        ground.table.expect(partitions.iter().copied(), now);
        let work = Work {
            next: partitions.into(),
            ..Work::default()
        };
        Self {
            follower,
            ground,
            known,
            work: Mutex::new(work),
            progress: Notify::new(),
        }
    }

    /// Opens all partitions, or stops when the table is closed.
    pub(crate) async fn run(self: Arc<Self>) {
        let runtime = &self.ground.runtime;
        let (begun, vnodes) = (runtime.now(), self.work.lock().next.len());
        let stores = &self.ground.stores;
        if vnodes == 0 {
            return stores.all_admitted();
        }
        tracing::info!(event = "vnodes_opening", vnodes);
        for _ in 0..stores.openings_at_once().clamp(1, vnodes) {
            runtime.spawn("vnode opener", self.clone().read_some());
        }
        let mut caught_up = self.ground.catching_up.watch();
        if caught_up.until(|is_done| *is_done).await.is_err() {
            // The node stops.
            return;
        }
        self.admit_all().await;
        if self.ground.table.is_closed() {
            return;
        }
        let readiness = self.ground.table.readiness();
        let (open, failed) = (readiness.open, readiness.failed);
        let elapsed_ms = runtime.now().since(begun).as_millis();
        if failed == 0 {
            tracing::info!(event = "vnodes_ready", open, elapsed_ms);
        } else {
            tracing::error!(event = "vnodes_failed", open, failed, elapsed_ms);
        }
    }

    /// Reads one store after the other until none is left.
    async fn read_some(self: Arc<Self>) {
        while let Some(partition) = self.begin_next() {
            let opener = self.clone();
            let read = move || {
                let state = opener.follower.state.current();
                opener.ground.read(&opener.known, &state, partition)
            };
            let read = self.ground.runtime.blocking(read).await;
            {
                let mut work = self.work.lock();
                work.reading -= 1;
                work.read.extend(read);
            }
            self.progress.notify_one();
        }
    }

    fn begin_next(&self) -> Option<Partition> {
        if self.ground.table.is_closed() {
            return None;
        }
        let mut work = self.work.lock();
        let next = work.next.pop_front()?;
        work.reading += 1;
        Some(next)
    }

    /// Brings stores up to date as they are read, until all are.
    async fn admit_all(self: &Arc<Self>) {
        let runtime = &self.ground.runtime;
        let mut from = runtime.now();
        loop {
            match self.next_pass(from) {
                Pass::Done => return,
                Pass::Wait(None) => self.progress.notified().await,
                Pass::Wait(Some(rest)) => {
                    let _progress_or_time = runtime.timeout(rest, self.progress.notified()).await;
                }
                Pass::Of(batch) => {
                    let begun = runtime.now();
                    self.admit(batch).await;
                    let now = runtime.now();
                    from = now.plus(PASS_REST * now.since(begun));
                }
            }
        }
    }

    /// The next pass over the log, which begins at `from` unless it is the last one.
    fn next_pass(&self, from: Moment) -> Pass {
        let now = self.ground.runtime.now();
        let mut work = self.work.lock();
        let is_last = work.next.is_empty() && work.reading == 0;
        if self.ground.table.is_closed() || is_last && work.read.is_empty() {
            return Pass::Done;
        }
        if work.read.is_empty() {
            return Pass::Wait(None);
        }
        if !is_last && now < from {
            return Pass::Wait(Some(from.since(now)));
        }
        Pass::Of(std::mem::take(&mut work.read))
    }

    async fn admit(self: &Arc<Self>, batch: Vec<Read>) {
        let mut held = self.follower.written.lock().await;
        let (opener, mut next) = (self.clone(), held.clone());
        let admit = move || {
            let partitions: Vec<Partition> = batch.iter().map(|it| it.0).collect();
            let state = opener.follower.state.current();
            opener.ground.admit(&mut next, &state, batch);
            // The ring may have changed before the vnode was in the table.
            let state = opener.follower.state.current();
            for partition in partitions {
                if let Some(vnode) = opener.ground.table.numbered(partition.number()) {
                    vnode.advance_epoch(epoch_of(&next, &state, partition));
                    opener.ground.follow_rounds(&vnode);
                }
            }
            next
        };
        *held = self.ground.runtime.blocking(admit).await;
    }
}

impl Ground {
    /// Reads a store, if it can be read and is the recorded one. Blocks.
    pub(crate) fn read(
        &self,
        known: &KnownStores,
        state: &ClusterState,
        partition: Partition,
    ) -> Option<Read> {
        let read = || {
            let identity = self.judged(known, state, partition)?;
            self.stores.read(known.size, partition, identity)
        };
        let read = guarded(read).and_then(|read| read);
        match read {
            Ok(store) => Some((partition, store)),
            Err(error) => {
                self.note_failure(partition, &error);
                None
            }
        }
    }

    /// Inspects the files of a partition's store. If they are not the recorded store and the other
    /// replicas have its data, makes room for an empty one. Returns the identity with which to open
    /// it. Blocks.
    ///
    /// # Errors
    /// It is another store, and no other replica has the partition's data.
    pub(crate) fn judged(
        &self,
        known: &KnownStores,
        state: &ClusterState,
        partition: Partition,
    ) -> Result<Option<StoreId>, StoreError> {
        let identity = known.identity(partition);
        let found = self.stores.find(known.size, partition, identity)?;
        match known.judge(partition, &found, have_others_it(state)) {
            Verdict::Open(identity) => Ok(identity),
            Verdict::Refuse(why) => Err(Refused(why).into()),
            Verdict::Replace(why) => {
                let moved = self.stores.set_aside(known.size, partition)?;
                tracing::warn!(
                    event = "store_replaced",
                    partition = partition.number(),
                    reason = %why,
                    kept_as = ?moved,
                    "it answers no reads until it is repaired from the other replicas",
                );
                Ok(None)
            }
        }
    }

    /// Brings stores up to date and lets their vnodes serve. Blocks.
    pub(crate) fn admit(&self, held: &mut StoreList, state: &ClusterState, batch: Vec<Read>) {
        let (partitions, stores): (Vec<Partition>, Vec<_>) = batch.into_iter().unzip();
        let admitted = match guarded(|| self.stores.admit(&stores)) {
            Ok(admitted) => admitted,
            Err(error) => {
                for partition in &partitions {
                    self.note_failure(*partition, &error);
                }
                return;
            }
        };
        drop(stores);
        let losses = self.stores.take_losses();
        let before = held.clone();
        let others_have_it = have_others_it(state);
        let mut vnodes = Vec::with_capacity(admitted.len());
        for (partition, store) in partitions.into_iter().zip(admitted) {
            let recognised = |store| self.recognised(held, others_have_it, partition, store);
            match store.and_then(recognised) {
                Ok(store) => {
                    self.note_if_lossy(held, &losses, others_have_it, partition, &store);
                    let epoch = epoch_of(held, state, partition);
                    match self.known_vnode(held, epoch, partition, store) {
                        Ok(vnode) => vnodes.push(vnode),
                        Err(error) => self.note_failure(partition, &error),
                    }
                }
                Err(error) => self.note_failure(partition, &error),
            }
        }
        if let Err(error) = self.write_down(&before, held) {
            let error = StoreError::from(error);
            for vnode in vnodes {
                self.note_failure(vnode.partition(), &error);
            }
            *held = before;
            return;
        }
        for (store, lost_to) in losses {
            if let Err(error) = self.stores.note_loss(store, lost_to) {
                // The loss is reported again at the next start.
                tracing::warn!(event = "loss_not_noted", error = %error);
            }
        }
        for vnode in vnodes {
            // A vnode that is opened while the node stops is left to the next run.
            let _served_or_dropped: Result<(), Arc<Vnode>> = self.table.opened(vnode);
        }
        if self.table.unopened().is_empty() {
            self.stores.all_admitted();
        }
    }

    /// Notes a store as incomplete if the log has lost batches of it.
    fn note_if_lossy(
        &self,
        held: &mut StoreList,
        losses: &[(StoreId, Sequence)],
        others_have_it: bool,
        partition: Partition,
        store: &Arc<dyn Backend>,
    ) {
        let identity = store.identity();
        let Some((_, lost_to)) = losses.iter().find(|(lossy, _)| *lossy == identity) else {
            return;
        };
        let number = partition.number();
        let remedy = match others_have_it {
            true => "it answers no reads until it is repaired from the other replicas".to_owned(),
            false => format!(
                "it answers no reads, since values may be older than acknowledged ones; `kvorum \
                 admin cluster accept-loss {number}` serves the remaining data"
            ),
        };
        tracing::error!(
            event = "store_degraded",
            partition = number,
            lost_to = lost_to.0,
            "writes of this store were in a part of the value log that is damaged or missing: {remedy}",
        );
        held.note(partition, store, false);
    }

    /// Writes down the state that a vnode depends on, before it serves.
    fn write_down(&self, before: &StoreList, held: &StoreList) -> Result<(), DiskError> {
        if before != held {
            self.held.store(held)?;
        }
        self.leases.renew()
    }

    fn note_failure(&self, partition: Partition, error: &StoreError) {
        let (reason, is_refused) = (error.to_string(), error.is::<Refused>());
        let now = self.runtime.now();
        let is_news = self.table.fail(partition, reason, is_refused, now);
        if is_news {
            let number = partition.number();
            tracing::error!(event = "vnode_not_opened", partition = number, error = %error);
        }
    }

    /// Tries again to open failed stores whose pause is over; false while stores are not open.
    /// Blocks.
    pub(crate) fn retry(
        &self,
        held: &mut StoreList,
        state: &ClusterState,
        unopened: &BTreeMap<Partition, Unopened>,
    ) -> bool {
        let now = self.runtime.now();
        let mut is_any_left = false;
        for (partition, unopened) in unopened {
            let Unopened::Failed { at, attempts, .. } = unopened else {
                is_any_left = true;
                continue;
            };
            let doubled = RETRY_PAUSE_MIN.saturating_mul(1 << (attempts - 1).min(16));
            if now < at.plus(doubled.min(RETRY_PAUSE_MAX)) {
                is_any_left = true;
                continue;
            }
            if let Some(read) = self.read(&KnownStores::of(held), state, *partition) {
                self.admit(held, state, vec![read]);
            }
            let is_open = self.table.numbered(partition.number()).is_some();
            is_any_left |= !is_open;
            if is_open {
                tracing::info!(event = "vnode_opened_late", partition = partition.number());
            }
        }
        !is_any_left
    }
}

/// The epoch of a partition in the present ring, or in the record while the ring is not known.
fn epoch_of(held: &StoreList, state: &ClusterState, partition: Partition) -> Epoch {
    let ring = state.ring();
    let recorded = held.since.get(&partition);
    match recorded.filter(|_| is_unknown(state) || ring.size() != held.size) {
        Some(recorded) => *recorded,
        None => ring.epoch(partition),
    }
}

/// A panic of an engine is a failure of one store.
fn guarded<T>(open: impl FnOnce() -> T) -> Result<T, StoreError> {
    let opened = catch_unwind(AssertUnwindSafe(open));
    opened.map_err(|_| StoreError::from("a thread that opens stores panicked; report this bug"))
}
