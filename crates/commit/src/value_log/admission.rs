//! Admission: a store that was just opened gets from the log what its own files do not cover, by
//! place: nothing is written.
//!
//! Segments in which no admitted store has anything above what it covers are not read. The others are
//! read from end to end; bodies are checked on the way, which costs what reading them costs.
//!
//! Stores may be admitted one after the other while others write: what a store lacks was logged before
//! this run, and segments stay for a store that was not admitted yet. Each admission reads the segments
//! anew, so that the fewer there are, the better. To give stores what they lack takes several times what
//! reading it takes: several threads, each with a share of the stores, are faster than one.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, ErrorKind, LoggedRecord, Result, Sequence, SharedLog, SharedSegment,
    StoreId,
};
use kvorum_runtime::{PlantedDefect, is_planted};
use kvorum_segment::Scanned;

use crate::error::from_segment;
use crate::value_log::ValueLog;
use crate::value_log::log_segment::{LogSegment, logged};

/// What admitting stores found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Segments that were read, by the thread that read most of them.
    pub segments_read: u64,
    /// Batches that stores were given.
    pub batches_replayed: u64,
    /// Places in those segments that are damaged, in words. What they held may be lost.
    pub damage: Vec<String>,
    /// Stores that could not take what they lack, and why. They are not admitted.
    pub failed: Vec<(StoreId, BackendError)>,
}

impl Admission {
    /// Adds what an admission of other stores found that read the log at the same time.
    pub fn add(&mut self, other: Self) {
        self.segments_read = self.segments_read.max(other.segments_read);
        self.batches_replayed += other.batches_replayed;
        for damage in other.damage {
            if !self.damage.contains(&damage) {
                self.damage.push(damage);
            }
        }
        self.failed.extend(other.failed);
    }
}

/// A store that is being admitted.
struct Newcomer {
    engine: Arc<dyn Backend>,
    /// It has everything up to here that the log can give it.
    reached: Sequence,
}

impl ValueLog {
    pub(super) fn admit_stores(&self, stores: &[Arc<dyn Backend>]) -> Result<Admission> {
        let mut newcomers = BTreeMap::new();
        for engine in stores {
            let adopting = engine.adopting().ok_or_else(not_adopting)?;
            let reached = adopting.covered();
            let newcomer = Newcomer {
                engine: engine.clone(),
                reached,
            };
            newcomers.insert(engine.identity(), newcomer);
        }
        self.take_back_erasures(&newcomers)?;
        // A store may have been closed and opened again while the log went on.
        if self.files().appended() > 0 {
            self.sync()?;
        }
        let mut admission = Admission::default();
        let is_skipped = is_planted(PlantedDefect::ReplaySkipped);
        for segment in self.files().segments() {
            let lacks = |(store, newcomer): (&StoreId, &Newcomer)| {
                let holding = segment.holding(*store)?;
                (holding.last > newcomer.reached).then_some(*store)
            };
            let lacked_by: Vec<StoreId> = newcomers.iter().filter_map(lacks).collect();
            if !lacked_by.is_empty() && !is_skipped {
                replay_segment(&segment, &lacked_by, &mut newcomers, &mut admission)?;
            }
        }
        let mut registered = self.keeper.stores.lock();
        for (store, newcomer) in &newcomers {
            registered.insert(*store, Arc::downgrade(&newcomer.engine));
        }
        drop(registered);
        self.measure_room();
        self.usage_changed();
        Ok(admission)
    }

    /// A store that was about to be erased and is there all the same is not erased.
    fn take_back_erasures(&self, newcomers: &BTreeMap<StoreId, Newcomer>) -> Result<()> {
        let mut identity = self.keeper.identity.lock();
        let before = identity.known.erased.len();
        identity
            .known
            .erased
            .retain(|store| !newcomers.contains_key(store));
        identity
            .undecided
            .retain(|store| !newcomers.contains_key(store));
        if identity.known.erased.len() < before {
            self.write_identity(&mut identity)?;
        }
        Ok(())
    }
}

fn replay_segment(
    segment: &Arc<LogSegment>,
    lacked_by: &[StoreId],
    newcomers: &mut BTreeMap<StoreId, Newcomer>,
    admission: &mut Admission,
) -> Result<()> {
    let Some(reader) = segment.reader() else {
        return Ok(());
    };
    admission.segments_read += 1;
    let shared: Arc<dyn SharedSegment> = segment.clone();
    let mut batch: Vec<LoggedRecord> = Vec::new();
    let scan = reader.scan(segment.scan_options());
    for scanned in scan.map_err(|error| from_segment(&error))? {
        let record = match scanned.map_err(|error| from_segment(&error))? {
            Scanned::Record(record) => logged(segment.number, &record),
            Scanned::Damage(damage) => {
                segment.set_damaged();
                let path = segment.path.display();
                admission.damage.push(format!("{path}: {damage}"));
                continue;
            }
        };
        let Some(record) = record else {
            continue;
        };
        let is_same_batch = batch.first().is_none_or(|first| {
            let (first, next) = (&first.head, &record.head);
            (first.store, first.sequence) == (next.store, next.sequence)
        });
        if !is_same_batch {
            replay_batch(&shared, &batch, newcomers, admission)?;
            batch.clear();
        }
        batch.push(record);
    }
    replay_batch(&shared, &batch, newcomers, admission)?;
    for store in lacked_by {
        tell_of_damage(segment, *store, newcomers, admission)?;
    }
    Ok(())
}

/// A store that was given a damaged segment is told up to where that had something of it: it may have lost
/// a part of a batch, and must not give out the sequences of what cannot be read now and may be later.
fn tell_of_damage(
    segment: &Arc<LogSegment>,
    store: StoreId,
    newcomers: &mut BTreeMap<StoreId, Newcomer>,
    admission: &mut Admission,
) -> Result<()> {
    let reached = newcomers.get(&store).map(|it| it.reached);
    let last = segment.holding(store).map(|it| it.last);
    let (Some(reached), Some(last)) = (reached, last) else {
        return Ok(());
    };
    if segment.is_damaged() || last > reached {
        let shared: Arc<dyn SharedSegment> = segment.clone();
        give(&shared, (store, last), &[], newcomers, admission)?;
    }
    Ok(())
}

fn replay_batch(
    segment: &Arc<dyn SharedSegment>,
    batch: &[LoggedRecord],
    newcomers: &mut BTreeMap<StoreId, Newcomer>,
    admission: &mut Admission,
) -> Result<()> {
    let Some(first) = batch.first() else {
        return Ok(());
    };
    let (store, sequence) = (first.head.store, first.head.sequence);
    let newcomer = newcomers.get(&store);
    if newcomer.is_some_and(|it| it.reached < sequence)
        && give(segment, (store, sequence), batch, newcomers, admission)?
    {
        admission.batches_replayed += 1;
    }
    Ok(())
}

/// Gives a store a batch, or word of what cannot be read. False where it cannot take it: then it is not
/// admitted.
fn give(
    segment: &Arc<dyn SharedSegment>,
    (store, sequence): (StoreId, Sequence),
    records: &[LoggedRecord],
    newcomers: &mut BTreeMap<StoreId, Newcomer>,
    admission: &mut Admission,
) -> Result<bool> {
    let Some(newcomer) = newcomers.get_mut(&store) else {
        return Ok(false);
    };
    let adopting = newcomer.engine.adopting().ok_or_else(not_adopting)?;
    match adopting.replay(segment, sequence, records) {
        Ok(()) => {
            newcomer.reached = newcomer.reached.max(sequence);
            Ok(true)
        }
        Err(error) => {
            newcomers.remove(&store);
            admission.failed.push((store, error));
            Ok(false)
        }
    }
}

fn not_adopting() -> BackendError {
    let detail = "a store that keeps nothing in the value log was to be admitted to it";
    BackendError::new(ErrorKind::Misuse, detail)
}
