//! The log: appends gather into groups, one sync serves a group, and old segments go.
//!
//! Appending queues a record and returns a ticket. Whoever commits (the node's dedicated thread, or a
//! waiter where there is none) takes everything that is queued, appends it in one write, syncs, and
//! wakes the waiters. While it syncs, the next group gathers: the group grows with the load, and no
//! timer is needed to form it.
//!
//! A failed append (a full disk) fails its group and nothing else. A failed sync fails the log for
//! good: the system may have dropped what it covered and would report a second try as good.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, Waker};

use kvorum_backend::{
    Backend, BackendError, Batch, ErrorKind, Result, Sequence, StepOutcome, StoreId, SyncPoint,
    SyncTicket,
};
use kvorum_disk::Disk;
use kvorum_segment::{
    BatchPlace, EncodedBack, Record, SegmentId, SegmentWriter, WriterOptions, file_name,
};
use parking_lot::{Condvar, Mutex};

use crate::error::{from_disk, from_segment};
use crate::log_record::LogRecord;

/// The kind that the headers of the log's segments carry.
const SEGMENT_KIND: u8 = b'C';
/// Failed groups are remembered for their waiters; a waiter that comes later than this many failures
/// is told that the log failed.
const FAILED_GROUPS_MAX: usize = 1024;
/// A group is cut here, so that one write stays bounded.
const GROUP_BYTES_MAX: u64 = 8 << 20;

/// How the log is laid out.
#[derive(Clone, Copy, Debug)]
pub struct CommitLogSettings {
    /// A segment is closed at this length. Smaller: stores are synced more often. Larger: more is
    /// replayed after a crash. Bytes.
    pub segment_bytes: u64,
    /// Above this length of the whole log, trimming it comes before everything else. Bytes.
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
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    log_id: u64,
    settings: CommitLogSettings,
    queue: Mutex<Queue>,
    /// Signalled when a record is queued or the log is stopped.
    queued: Condvar,
    /// Signalled when a group is done.
    committed: Condvar,
    segments: Mutex<Segments>,
    stores: Mutex<BTreeMap<StoreId, Arc<dyn Backend>>>,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<LogRecord>,
    /// Records ever queued.
    appended: u64,
    /// Records that are done: durable, unless a failed group names them.
    done: u64,
    failed_groups: VecDeque<FailedGroup>,
    failure: Option<BackendError>,
    waiters: Vec<(u64, Waker)>,
    has_committer: bool,
    is_driven: bool,
    is_stopping: bool,
    groups: u64,
}

struct FailedGroup {
    from: u64,
    to: u64,
    error: BackendError,
}

struct Segments {
    active: SegmentWriter,
    /// The highest sequence of each store in the active segment.
    active_stores: BTreeMap<StoreId, Sequence>,
    /// A segment made ahead of need, so that no group waits for its creation.
    spare: Option<SegmentWriter>,
    /// Closed segments, oldest first.
    closed: VecDeque<ClosedSegment>,
    /// Stores are being synced so that closed segments can go; once begun, until none is left.
    is_trimming: bool,
    next_number: u64,
}

struct ClosedSegment {
    path: PathBuf,
    bytes: u64,
    stores: BTreeMap<StoreId, Sequence>,
}

impl CommitLog {
    /// Starts an empty log in `directory`, in a generation of its own: nothing of an earlier run is
    /// ever appended to. `log_id` is drawn at random by the caller.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        settings: CommitLogSettings,
    ) -> Result<Self> {
        let generation = directory.join(format!("{log_id:016x}"));
        kvorum_disk::create_directory_durably(&*disk, &generation)
            .map_err(|error| from_disk(&error))?;
        let active = create_segment(&*disk, &generation, log_id, 1, settings)?;
        let segments = Segments {
            active,
            active_stores: BTreeMap::new(),
            spare: None,
            closed: VecDeque::new(),
            is_trimming: false,
            next_number: 2,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                disk,
                directory: generation,
                log_id,
                settings,
                queue: Mutex::new(Queue::default()),
                queued: Condvar::new(),
                committed: Condvar::new(),
                segments: Mutex::new(segments),
                stores: Mutex::new(BTreeMap::new()),
            }),
        })
    }

    /// Makes a store known, so that segments can be dropped once it is durable beyond them.
    pub fn register(&self, store: StoreId, engine: Arc<dyn Backend>) {
        self.shared.stores.lock().insert(store, engine);
    }

    /// Forgets a store whose contents are gone.
    pub fn forget(&self, store: StoreId) {
        self.shared.stores.lock().remove(&store);
    }

    /// Queues a batch; the ticket resolves when it is durable.
    pub fn append(&self, store: StoreId, sequence: Sequence, batch: &Batch) -> SyncTicket {
        let record = LogRecord::encode(store, sequence, batch);
        let mut queue = self.shared.queue.lock();
        queue.records.push_back(record);
        queue.appended += 1;
        let position = queue.appended;
        let wakes_driver = queue.is_driven && !queue.has_committer;
        drop(queue);
        if wakes_driver {
            self.shared.queued.notify_one();
        }
        SyncTicket::new(self.shared.clone(), position)
    }

    /// Commits groups until [`CommitLog::stop`]; for a thread of its own. From the moment it runs,
    /// awaiting a ticket is enough.
    pub fn drive(&self) {
        self.shared.queue.lock().is_driven = true;
        loop {
            let mut queue = self.shared.queue.lock();
            while queue.records.is_empty() && !queue.is_stopping {
                self.shared.queued.wait(&mut queue);
            }
            if queue.records.is_empty() {
                queue.is_driven = false;
                return;
            }
            if queue.has_committer {
                self.shared.committed.wait(&mut queue);
                continue;
            }
            queue.has_committer = true;
            drop(queue);
            self.shared.commit_group();
        }
    }

    /// Ends [`CommitLog::drive`] once everything queued is committed.
    pub fn stop(&self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.queued.notify_all();
    }

    /// Sizes and counts.
    pub fn status(&self) -> CommitLogStatus {
        let (groups, batches) = {
            let queue = self.shared.queue.lock();
            (queue.groups, queue.done)
        };
        let segments = self.shared.segments.lock();
        let closed: u64 = segments.closed.iter().map(|segment| segment.bytes).sum();
        CommitLogStatus {
            bytes: closed + segments.active.end(),
            segments: segments.closed.len() as u64 + 1,
            groups,
            batches,
        }
    }

    /// True when [`CommitLog::upkeep_step`] has something to do.
    pub fn is_upkeep_due(&self) -> bool {
        let segments = self.shared.segments.lock();
        segments.spare.is_none() || segments.wants_trimming(self.shared.settings)
    }

    /// True when the log is longer than it should be and upkeep comes before everything else.
    pub fn is_upkeep_pressing(&self) -> bool {
        self.status().bytes > self.shared.settings.bytes_max
    }

    /// One step of upkeep: makes a spare segment, syncs one store that keeps the oldest segment
    /// alive, or drops that segment.
    pub fn upkeep_step(&self) -> Result<StepOutcome> {
        if self.shared.make_spare()? {
            return Ok(StepOutcome {
                cost_bytes: self.shared.settings.segment_bytes,
                is_done: false,
            });
        }
        match self.shared.lagging_store() {
            Lagging::Store(engine) => {
                let before = engine.status().written_bytes;
                engine.sync()?;
                Ok(StepOutcome {
                    cost_bytes: before.min(1 << 20),
                    is_done: false,
                })
            }
            Lagging::Nobody => {
                self.shared.drop_oldest()?;
                Ok(StepOutcome {
                    cost_bytes: 0,
                    is_done: !self.is_upkeep_due(),
                })
            }
            Lagging::NothingClosed => Ok(StepOutcome::nothing_left()),
        }
    }

    /// Removes the log's files after every store was synced: nothing is left to replay.
    pub fn remove(&self) -> Result<()> {
        let shared = &self.shared;
        shared
            .disk
            .remove_directory(&shared.directory)
            .map_err(|error| from_disk(&error))
    }
}

enum Lagging {
    Store(Arc<dyn Backend>),
    Nobody,
    NothingClosed,
}

impl Shared {
    /// Commits what is queued. The caller has made itself the committer.
    fn commit_group(&self) {
        let group = self.take_group();
        let outcome = self.write_group(&group);
        let mut queue = self.queue.lock();
        let from = queue.done;
        queue.done += group.len() as u64;
        queue.groups += 1;
        if let Err(error) = outcome {
            queue.note_failure(from, error);
        }
        queue.has_committer = false;
        if queue.is_driven && !queue.records.is_empty() {
            // A waiter may have led this group while the driver slept.
            self.queued.notify_one();
        }
        let done = queue.done;
        let is_failed = queue.failure.is_some();
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.waiters)
            .into_iter()
            .partition(|(position, _)| *position <= done || is_failed);
        queue.waiters = waiting;
        drop(queue);
        self.committed.notify_all();
        for (_, waker) in ready {
            waker.wake();
        }
    }

    fn take_group(&self) -> Vec<LogRecord> {
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let mut count = 0;
        for record in &queue.records {
            if count > 0 && bytes + record.len() > GROUP_BYTES_MAX {
                break;
            }
            bytes += record.len();
            count += 1;
        }
        queue.records.drain(..count).collect()
    }

    fn write_group(&self, group: &[LogRecord]) -> std::result::Result<(), GroupFailure> {
        let failed = self.queue.lock().failure.clone();
        if let Some(error) = failed {
            return Err(GroupFailure::ForGood(error));
        }
        let records: Vec<Record<'_>> = group
            .iter()
            .map(|record| Record {
                sequence: record.sequence.0,
                kind: 0,
                removal: false,
                batch: BatchPlace::Alone,
                front: &record.front,
                back: EncodedBack::plain(&record.back),
            })
            .collect();
        let mut segments = self.segments.lock();
        self.roll_if_full(&mut segments)
            .map_err(GroupFailure::ThisGroup)?;
        segments
            .active
            .append(&records, &mut Vec::with_capacity(records.len()))
            .map_err(|error| GroupFailure::ThisGroup(from_segment(&error)))?;
        for record in group {
            let newest = segments.active_stores.entry(record.store).or_default();
            *newest = record.sequence.max(*newest);
        }
        let sync = segments.active.sync_handle();
        drop(segments);
        match sync.sync() {
            Ok(_) => Ok(()),
            Err(error) => Err(GroupFailure::ForGood(from_segment(&error))),
        }
    }

    fn roll_if_full(&self, segments: &mut Segments) -> Result<()> {
        if segments.active.end() < self.settings.segment_bytes {
            return Ok(());
        }
        let next = match segments.spare.take() {
            Some(spare) => spare,
            None => {
                let number = segments.next_number;
                segments.next_number += 1;
                create_segment(
                    &*self.disk,
                    &self.directory,
                    self.log_id,
                    number,
                    self.settings,
                )?
            }
        };
        let full = std::mem::replace(&mut segments.active, next);
        let stores = std::mem::take(&mut segments.active_stores);
        let path = self.directory.join(file_name(full.id().number));
        segments.closed.push_back(ClosedSegment {
            path,
            bytes: full.end(),
            stores,
        });
        Ok(())
    }

    /// Makes the spare segment if there is none; false if there was.
    fn make_spare(&self) -> Result<bool> {
        let number = {
            let mut segments = self.segments.lock();
            if segments.spare.is_some() {
                return Ok(false);
            }
            segments.next_number += 1;
            segments.next_number - 1
        };
        let spare = create_segment(
            &*self.disk,
            &self.directory,
            self.log_id,
            number,
            self.settings,
        )?;
        let mut segments = self.segments.lock();
        if number > segments.active.id().number {
            segments.spare = Some(spare);
        }
        Ok(true)
    }

    fn lagging_store(&self) -> Lagging {
        let mut segments = self.segments.lock();
        segments.is_trimming = segments.wants_trimming(self.settings);
        if !segments.is_trimming {
            return Lagging::NothingClosed;
        }
        let Some(oldest) = segments.closed.front() else {
            return Lagging::NothingClosed;
        };
        let stores = self.stores.lock();
        let lagging = oldest.stores.iter().find_map(|(store, newest)| {
            stores
                .get(store)
                .filter(|engine| engine.durable() < *newest)
                .cloned()
        });
        lagging.map_or(Lagging::Nobody, Lagging::Store)
    }

    fn drop_oldest(&self) -> Result<()> {
        let Some(oldest) = self.segments.lock().closed.pop_front() else {
            return Ok(());
        };
        self.disk
            .remove_file(&oldest.path)
            .map_err(|error| from_disk(&error))
    }
}

impl Segments {
    /// True when the log is long enough for its stores to be synced. Trimming late is cheap: by then
    /// the system has written most of what the stores have to sync, in its own time.
    fn wants_trimming(&self, settings: CommitLogSettings) -> bool {
        let closed: u64 = self.closed.iter().map(|segment| segment.bytes).sum();
        let is_long = closed > settings.bytes_max / 2;
        !self.closed.is_empty() && (self.is_trimming || is_long)
    }
}

enum GroupFailure {
    ThisGroup(BackendError),
    ForGood(BackendError),
}

impl Queue {
    fn note_failure(&mut self, from: u64, failure: GroupFailure) {
        let to = self.done;
        let error = match failure {
            GroupFailure::ThisGroup(error) => error,
            GroupFailure::ForGood(error) => self.failure.get_or_insert(error).clone(),
        };
        self.failed_groups
            .push_back(FailedGroup { from, to, error });
        if self.failed_groups.len() > FAILED_GROUPS_MAX {
            self.failed_groups.pop_front();
        }
    }

    fn outcome(&self, position: u64) -> Option<Result<()>> {
        if position > self.done {
            return self.failure.clone().map(Err);
        }
        let mut failed = self.failed_groups.iter();
        match failed.find(|group| group.from < position && position <= group.to) {
            Some(group) => Some(Err(group.error.clone())),
            None => Some(Ok(())),
        }
    }
}

impl SyncPoint for Shared {
    fn poll_synced(&self, position: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut queue = self.queue.lock();
        if let Some(outcome) = queue.outcome(position) {
            return Poll::Ready(outcome);
        }
        if !queue.is_driven {
            return Poll::Ready(Err(BackendError::new(
                ErrorKind::Misuse,
                "a ticket of a commit log without a driver was awaited; wait for it on a thread",
            )));
        }
        queue.waiters.push((position, waker.clone()));
        Poll::Pending
    }

    fn wait_synced(&self, position: u64) -> Result<()> {
        loop {
            let mut queue = self.queue.lock();
            if let Some(outcome) = queue.outcome(position) {
                return outcome;
            }
            if queue.has_committer || queue.is_driven {
                self.committed.wait(&mut queue);
                continue;
            }
            queue.has_committer = true;
            drop(queue);
            self.commit_group();
        }
    }

    fn is_driven(&self) -> bool {
        self.queue.lock().is_driven
    }
}

fn create_segment(
    disk: &dyn Disk,
    directory: &Path,
    log_id: u64,
    number: u64,
    settings: CommitLogSettings,
) -> Result<SegmentWriter> {
    let path = directory.join(file_name(number));
    let id = SegmentId {
        log_id,
        number,
        kind: SEGMENT_KIND,
    };
    let options = WriterOptions {
        preallocate_bytes: settings.segment_bytes,
    };
    SegmentWriter::create(disk, &path, id, options).map_err(|error| from_segment(&error))
}
