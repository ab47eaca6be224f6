//! The log: appends gather into groups, one sync serves a group, and old segments go.
//!
//! Appending queues a record and returns a ticket. Whoever commits (the node's dedicated thread, or a
//! waiter where there is none) takes the group that has gathered, appends it in one write, syncs, and
//! wakes the waiters. While it syncs, the next group gathers: the group grows with the load, and no
//! timer is needed to form it.
//!
//! A failed append (a full disk) fails its group and what is queued behind it. Stores show what that
//! group had all the same, and the log will never have it: whoever finds it there and asks for no more
//! than that it is durable must not be told so by a batch of his own. So from then on a store is synced
//! once before it acknowledges anything ([`Committed`](crate::Committed)).
//!
//! A failed sync fails the log for good: the system may have dropped what it covered and would report a
//! second try as good.
//!
//! # Bounds
//!
//! What is queued takes memory until it is written, so it is bounded, in three steps. A group is cut
//! at 8 MiB. With more than 16 MiB queued, puts that asked for no durability get a ticket as well:
//! their callers wait like all others, and how many callers there are is bounded above. With more
//! than 64 MiB queued, [`Committed::put`](crate::Committed) waits for the running sync before it
//! touches its engine. Refusing instead was rejected: the work is done by then but for the last step,
//! and requests are refused where they come in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, Batch, LogPromise, Result, Sequence, StepOutcome, StoreId, SyncTicket,
};
use kvorum_disk::Disk;
use kvorum_runtime::{PlantedDefect, Runtime, is_planted};
use parking_lot::Mutex;

use crate::group::Group;
use crate::log_record::LogRecord;
use crate::queue::{GroupFailure, GroupWriter, Pushed, Shared};
use crate::segments::{Segments, Stores};
use crate::task_driver::TaskDriver;

/// How the log is laid out.
#[derive(Clone, Copy, Debug)]
pub struct CommitLogSettings {
    /// A segment is closed before it grows beyond this; a group larger than that gets one of its own.
    /// Bytes.
    pub segment_bytes: u64,
    /// With a quarter of this in closed segments, trimming begins; above it, writers are slowed until
    /// stores have caught up. Larger: stores are synced more rarely, and more is replayed after a
    /// crash. Bytes.
    pub bytes_max: u64,
}

/// What operators see of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitLogStatus {
    /// Bytes in all segments.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Groups committed since the start.
    pub groups: u64,
    /// Batches committed since the start.
    pub batches: u64,
}

/// The commit log of a node. Cheap to clone.
#[derive(Clone)]
pub struct CommitLog {
    shared: Arc<Shared<BatchWriter>>,
}

/// The log's files and the stores that they are kept for.
pub(crate) struct BatchWriter {
    segments: Segments,
    stores: Stores,
}

impl GroupWriter for BatchWriter {
    type Record = LogRecord;

    fn queued_bytes(record: &LogRecord) -> u64 {
        record.len()
    }

    /// All are promised to be durable.
    fn write(
        &self,
        group: Vec<LogRecord>,
        _promise: LogPromise,
    ) -> std::result::Result<(), GroupFailure> {
        match self.segments.write(&group, &self.stores) {
            Err(GroupFailure::ForGood(_)) if is_planted(PlantedDefect::FailedSyncForgotten) => {
                Ok(())
            }
            Err(GroupFailure::ThisGroup(error)) => Err(GroupFailure::Gap(error)),
            written => written,
        }
    }
}

impl CommitLog {
    /// Starts an empty log in `directory`, in a generation of its own: nothing of an earlier run is
    /// ever appended to. `log_id` is drawn at random by the caller.
    ///
    /// On a full disk it starts all the same and creates its files with the first append that finds
    /// room.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        settings: CommitLogSettings,
    ) -> Result<Self> {
        let generation = directory.join(format!("{log_id:016x}"));
        let segments = Segments::create(disk, generation, log_id, settings)?;
        Ok(Self {
            shared: Arc::new(Shared::new(BatchWriter {
                segments,
                stores: Mutex::new(BTreeMap::new()),
            })),
        })
    }

    /// Makes a store known, so that segments are kept until it is durable beyond them. The log does
    /// not keep it open; of a store that was dropped without [`CommitLog::forget`], everything is
    /// kept for the next recovery.
    pub fn register(&self, store: StoreId, engine: &Arc<dyn Backend>) {
        let engine = Arc::downgrade(engine);
        self.shared.writer.stores.lock().insert(store, engine);
    }

    /// Forgets a store whose contents are gone, or durable to the last.
    pub fn forget(&self, store: StoreId) {
        self.shared.writer.stores.lock().remove(&store);
    }

    /// Queues a batch; the ticket resolves when it is durable. Batches of one store have to come in
    /// the order of their sequences.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::TooLarge`] when no segment can hold the batch.
    pub fn append(&self, store: StoreId, sequence: Sequence, batch: &Batch) -> Result<SyncTicket> {
        let record = LogRecord::encode(batch)?;
        Ok(self.push(record.placed(store, sequence)).ticket)
    }

    /// Why the log takes nothing any more, once a sync or a write has failed for good.
    pub fn failure(&self) -> Option<BackendError> {
        self.shared.queue.lock().failure().cloned()
    }

    /// What is queued to be written, in bytes of memory. It is bounded: puts wait before it grows much
    /// beyond 64 MiB.
    pub fn queued_bytes(&self) -> u64 {
        self.shared.queue.lock().bytes()
    }

    /// How often it failed to take what stores show.
    pub(crate) fn gaps(&self) -> u64 {
        self.shared.queue.lock().gaps()
    }

    /// Waits until the queue has room for more; see the bounds above.
    ///
    /// # Errors
    /// The log has failed.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        self.shared.wait_for_room()
    }

    /// Queues a record.
    pub(crate) fn push(&self, record: LogRecord) -> Pushed {
        let queued = self.shared.push(LogPromise::Durable, || Ok(record));
        queued.unwrap_or_else(|failure| {
            let log = Arc::downgrade(&self.shared);
            let group = Group::<BatchWriter>::ended(log, Err(failure));
            Pushed {
                ticket: SyncTicket::new(Arc::new(group), 0),
                is_crowded: true,
                gaps: 0,
            }
        })
    }

    /// Waits until everything queued so far is committed, or is not going to be.
    pub(crate) fn flush(&self) -> Result<()> {
        self.shared.flush()
    }

    /// Commits groups until [`CommitLog::stop`]; for one thread of its own. While it runs, awaiting a
    /// ticket is enough.
    pub fn drive(&self) {
        self.shared.drive();
    }

    /// Wakes whoever drives once the tasks that are ready have queued what they have, until
    /// [`CommitLog::stop`]; for a task among those that write.
    pub async fn call_driver(&self, runtime: &Runtime) {
        self.shared.call_driver(runtime).await;
    }

    /// The driver for where there are no threads, as in a simulation: a task that waits until something
    /// is queued, lets as much time pass as a device would take, and commits.
    pub fn task_driver(&self) -> TaskDriver {
        TaskDriver::of(self.shared.clone())
    }

    /// Ends [`CommitLog::drive`] once everything queued is committed. What is appended later is
    /// committed by those who wait for it on a thread.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Sizes and counts.
    pub fn status(&self) -> CommitLogStatus {
        let (groups, batches) = self.shared.queue.lock().counts();
        let (bytes, segments) = self.shared.writer.segments.size();
        CommitLogStatus {
            bytes,
            segments,
            groups,
            batches,
        }
    }

    /// True when [`CommitLog::upkeep_step`] has something to do. To be asked now and then: what it
    /// finds idle twice is due for a mark of what is durable.
    pub fn is_upkeep_due(&self) -> bool {
        self.shared
            .writer
            .segments
            .is_upkeep_due(&self.shared.writer.stores)
    }

    /// True when the log nears what it may be, and upkeep comes before everything else.
    pub fn is_upkeep_pressing(&self) -> bool {
        self.shared.writer.segments.is_pressing()
    }

    /// One step of upkeep: makes a spare segment, marks an idle one, syncs one store that keeps the
    /// oldest segment, or drops that segment.
    pub fn upkeep_step(&self) -> Result<StepOutcome> {
        self.shared
            .writer
            .segments
            .upkeep_step(&self.shared.writer.stores)
    }

    /// Removes the log's files when every store was closed: nothing is left to replay.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Misuse`] when a store needs them; they stay for the next recovery.
    pub fn remove(&self) -> Result<()> {
        self.shared
            .writer
            .segments
            .remove_all(&self.shared.writer.stores)
    }
}
