//! Admission: a store that was just opened receives from the log the batches that its own files do
//! not cover. It receives their places; nothing is written.
//!
//! Segments without a batch above the covered one of an admitted store are not read. The others are
//! read from end to end, and the checksums of bodies are checked.
//!
//! Batches of a store are numbered without gaps. A missing number was in a part of the log that
//! cannot be read or is gone; such a store is incomplete ([`Admission::lost`]). If the back alone
//! of a record is damaged, the store receives the front, so that only this key is lost. A damaged
//! part behind the last known batch of a store may have held its next batches: as many as fit,
//! unless the sequence of the damaged record can be read and is not the next one.
//!
//! Stores may be admitted one after the other while others write: the missing batches were logged
//! before this run, and segments stay for stores that are not yet admitted. Each admission reads
//! the segments anew, so few admissions are better than many. Replaying takes several times as long
//! as reading. Several threads, each with a share of the stores, are therefore faster than one.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result, Sequence, StoreId};
use kvorum_planted_defects::is_planted;
use kvorum_segment::{Damage, RECORD_HEADER_BYTES, Remains, Scanned};

use crate::dropped::Numbers;
use crate::error::from_segment;
use crate::keeper::Keeper;
use crate::log_segment::LogSegment;
use crate::record::{LoggedRecord, PREFIX_BYTES};
use crate::tenant::{Tenant, UNKNOWN_SEQUENCES};

/// Findings and results of an admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Segments that were read, by the thread that read most of them.
    pub segments_read: u64,
    /// Batches that were replayed to stores.
    pub batches_replayed: u64,
    /// Damaged places in those segments, in words. Their contents may be lost.
    pub damage: Vec<String>,
    /// Stores that failed while batches were replayed to them, with the errors. They are not
    /// admitted.
    pub failed: Vec<(StoreId, BackendError)>,
    /// Stores with lost batches, and the last of these, if the loss was not noted before. Such a
    /// store is incomplete: its values may be older than those that were acknowledged.
    /// [`ValueLog::note_loss`](crate::ValueLog::note_loss) ends that.
    pub lost: Vec<(StoreId, Sequence)>,
}

impl Admission {
    /// Adds the result of an admission of other stores that read the log at the same time.
    pub fn add(&mut self, other: Self) {
        self.segments_read = self.segments_read.max(other.segments_read);
        self.batches_replayed += other.batches_replayed;
        for damage in other.damage {
            if !self.damage.contains(&damage) {
                self.damage.push(damage);
            }
        }
        self.failed.extend(other.failed);
        self.lost.extend(other.lost);
    }
}

/// The least that a record takes, in bytes: it limits the number of records in a damaged part.
const RECORD_BYTES_MIN: u64 = (RECORD_HEADER_BYTES + PREFIX_BYTES) as u64;

/// A place in the log: number of the segment and offset in it.
type Position = (u32, u64);

/// A store that is being admitted.
struct Newcomer {
    tenant: Arc<dyn Tenant>,
    /// The last batch that the store has received or does not need.
    reached: Sequence,
    /// The last batch that its own files name.
    known: Sequence,
    /// Its own files name a covered batch. They may have been lost.
    has_covered: bool,
    /// The place of the last batch of the store that was read.
    at: Option<Position>,
    /// The last batch that is lost.
    lost_to: Option<Sequence>,
}

/// A part of the log that cannot be read.
struct Gap {
    at: Position,
    held: Held,
}

/// Possible contents of a gap.
enum Held {
    /// The record of this sequence.
    One(Sequence),
    /// Batches of any store, at most so many.
    AtMost(u64),
}

/// The records of a batch that were read.
#[derive(Default)]
struct Met {
    records: Vec<LoggedRecord>,
    /// Damage lies behind the last record.
    is_cut: bool,
    /// Damage lies before one of the records.
    is_broken: bool,
}

/// Stores and the state of their replay.
struct Replay {
    newcomers: BTreeMap<StoreId, Newcomer>,
    gaps: Vec<Gap>,
    let_go: Numbers,
    admission: Admission,
}

/// Replays missing batches to stores, and registers the stores.
pub(crate) fn admit(keeper: &Keeper, stores: &[Arc<dyn Tenant>]) -> Result<Admission> {
    let mut replay = Replay {
        newcomers: BTreeMap::new(),
        gaps: missing_segments(keeper),
        let_go: keeper.files().let_go(),
        admission: Admission::default(),
    };
    for tenant in stores {
        let newcomer = Newcomer {
            tenant: tenant.clone(),
            reached: tenant.covered(),
            known: tenant.known(),
            has_covered: tenant.covered() > Sequence(0),
            at: None,
            lost_to: None,
        };
        replay.newcomers.insert(tenant.store_id(), newcomer);
    }
    take_back_erasures(keeper, &replay.newcomers)?;
    // A store may have been closed and opened again while the log went on.
    if keeper.files().appended() > 0 {
        keeper.sync()?;
    }
    if !is_planted!(ReplaySkipped) {
        for segment in keeper.files().segments() {
            replay.read(&segment)?;
        }
        replay.end();
    }
    note_lost(keeper, &mut replay)?;
    let mut registered = keeper.stores.lock();
    for (store, newcomer) in &replay.newcomers {
        registered.insert(*store, Arc::downgrade(&newcomer.tenant));
    }
    drop(registered);
    keeper.measure_room();
    keeper.usage_changed();
    Ok(replay.admission)
}

/// Missing segments that no earlier opening has reported.
fn missing_segments(keeper: &Keeper) -> Vec<Gap> {
    let bytes = keeper.files().settings.segment_bytes;
    let numbers = keeper.files().newly_missing();
    let gaps = numbers.into_iter().map(|number| Gap {
        at: (number, 0),
        held: Held::AtMost(bytes / RECORD_BYTES_MIN),
    });
    gaps.collect()
}

/// Reserves lost sequences in their stores, and leaves only new losses for the report.
fn note_lost(keeper: &Keeper, replay: &mut Replay) -> Result<()> {
    let newest = keeper.files().newest();
    let stores: Vec<StoreId> = replay.newcomers.keys().copied().collect();
    for store in stores {
        let Some(newcomer) = replay.newcomers.get(&store) else {
            continue;
        };
        keeper.losses.forget(store, newcomer.tenant.covered())?;
        let Some(lost_to) = newcomer.lost_to else {
            continue;
        };
        if !keeper.losses.knows(store, lost_to) {
            replay.admission.lost.push((store, lost_to));
        }
        replay.give(&newest, store, lost_to, &[]);
    }
    Ok(())
}

/// Cancels the announced erasure of each store that still exists.
fn take_back_erasures(keeper: &Keeper, newcomers: &BTreeMap<StoreId, Newcomer>) -> Result<()> {
    let mut identity = keeper.identity.lock();
    let before = identity.known.erased.len();
    identity
        .known
        .erased
        .retain(|store| !newcomers.contains_key(store));
    identity
        .undecided
        .retain(|store| !newcomers.contains_key(store));
    if identity.known.erased.len() < before {
        keeper.write_identity(&mut identity)?;
    }
    Ok(())
}

impl Replay {
    /// Replays a segment to the stores, if one lacks a batch of it.
    fn read(&mut self, segment: &Arc<LogSegment>) -> Result<()> {
        let is_lacked = |(store, newcomer): (&StoreId, &Newcomer)| {
            let holding = segment.holding(*store);
            holding.is_some_and(|it| it.last > newcomer.reached)
        };
        let is_unknown = segment.is_damaged() && !segment.is_listed();
        if !is_unknown && !self.newcomers.iter().any(is_lacked) {
            return Ok(());
        }
        // Appended records are synced, so the file exists.
        let reader = segment.reader().ok_or_else(|| {
            let path = segment.path.display();
            let detail =
                format!("{path} has batches that a store lacks, and no file; report this bug");
            BackendError::new(ErrorKind::Failed, detail)
        })?;
        self.admission.segments_read += 1;
        let mut batch = Met::default();
        let scan = reader.scan(segment.scan_options());
        for scanned in scan.map_err(|error| from_segment(&error))? {
            let record = match scanned.map_err(|error| from_segment(&error))? {
                Scanned::Record(record) => LoggedRecord::of(segment.number, record),
                Scanned::Damage(damage) => self.meet_damage(segment, damage),
            };
            match record {
                None => batch.is_cut = true,
                Some(record) if batch.takes(&record) => batch.push(record),
                Some(record) => {
                    self.take(segment, &batch);
                    batch = Met::of(record, batch.is_cut);
                }
            }
        }
        self.take(segment, &batch);
        if segment.is_listed() {
            self.miss_what_is_listed(segment);
        }
        Ok(())
    }

    /// The readable part of a damaged record.
    fn meet_damage(&mut self, segment: &LogSegment, damage: Damage) -> Option<LoggedRecord> {
        segment.set_damaged();
        let path = segment.path.display();
        self.admission.damage.push(format!("{path}: {damage}"));
        let held = match damage.remains {
            Remains::Front(front) => return LoggedRecord::without_back(segment.number, front),
            Remains::Header { sequence } => Held::One(Sequence(sequence)),
            Remains::Nothing => Held::AtMost(damage.len.div_ceil(RECORD_BYTES_MIN)),
        };
        if !segment.is_listed() {
            self.gaps.push(Gap {
                at: (segment.number, damage.offset),
                held,
            });
        }
        None
    }

    /// Counts batches as lost that the list beside a segment names and the segment did not yield.
    fn miss_what_is_listed(&mut self, segment: &LogSegment) {
        for (store, holding) in segment.holders() {
            if let Some(newcomer) = self.newcomers.get_mut(&store)
                && holding.last > newcomer.reached
            {
                newcomer.at = Some((segment.number, segment.end()));
                newcomer.miss_to(holding.last);
            }
        }
    }

    /// Replays a batch to its store, if the store lacks it.
    fn take(&mut self, segment: &Arc<LogSegment>, batch: &Met) {
        let Some(first) = batch.records.first() else {
            return;
        };
        let (store, sequence) = (first.store, Sequence(first.stored.head.sequence));
        let Some(newcomer) = self.newcomers.get_mut(&store) else {
            return;
        };
        let last_at = newcomer.at;
        newcomer.at = Some((segment.number, first.stored.head.location.offset));
        if sequence <= newcomer.reached {
            return;
        }
        let before = Sequence(sequence.0 - 1);
        // A store that once had no log has its first batches in its own files.
        let is_own = last_at.is_none() && before <= newcomer.known;
        // A store without its covered sequence needs nothing of dropped segments, and their
        // contents are unknown.
        let from = last_at.map_or(0, |(number, _)| number);
        let is_let_go = !newcomer.has_covered && self.let_go.has_any_between(from, segment.number);
        // A loss before skipped sequences was reported by the opening that skipped them.
        let is_skipped = before.0.saturating_sub(newcomer.reached.0) >= UNKNOWN_SEQUENCES;
        if before > newcomer.reached && !is_own && !is_let_go && !is_skipped {
            newcomer.miss_to(before);
        }
        if !batch.is_whole() {
            newcomer.lost_to = newcomer.lost_to.max(Some(sequence));
        }
        if self.give(segment, store, sequence, &batch.records) {
            self.admission.batches_replayed += 1;
        }
    }

    /// Ends the replay: gaps behind the last batch of a store may have held its next ones.
    fn end(&mut self) {
        self.gaps.sort_by_key(|gap| gap.at);
        for newcomer in self.newcomers.values_mut() {
            let at = newcomer.at;
            let gaps = self.gaps.iter();
            for gap in gaps.filter(|gap| at.is_none_or(|at| gap.at > at)) {
                match gap.held {
                    Held::One(sequence) if sequence.0 == newcomer.reached.0 + 1 => {
                        newcomer.miss_to(sequence);
                    }
                    Held::One(_) => {}
                    Held::AtMost(batches) => {
                        let last = newcomer.reached.0.saturating_add(batches);
                        newcomer.miss_to(Sequence(last));
                    }
                }
            }
        }
    }

    /// Replays a batch to a store, or reports that it cannot be read. False if the store failed;
    /// then it is not admitted.
    fn give(
        &mut self,
        segment: &Arc<LogSegment>,
        store: StoreId,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> bool {
        let Some(newcomer) = self.newcomers.get_mut(&store) else {
            return false;
        };
        match newcomer.tenant.replay(segment, sequence, records) {
            Ok(()) => {
                newcomer.reached = newcomer.reached.max(sequence);
                true
            }
            Err(error) => {
                self.newcomers.remove(&store);
                self.admission.failed.push((store, error));
                false
            }
        }
    }
}

impl Met {
    fn of(record: LoggedRecord, is_behind_damage: bool) -> Self {
        Self {
            is_broken: is_behind_damage && record.stored.head.batch.is_continued(),
            records: vec![record],
            is_cut: false,
        }
    }

    /// True for a record of the same batch.
    fn takes(&self, record: &LoggedRecord) -> bool {
        let key = |it: &LoggedRecord| (it.store, it.stored.head.sequence);
        self.records
            .last()
            .is_some_and(|last| key(last) == key(record))
    }

    fn push(&mut self, record: LoggedRecord) {
        self.is_broken |= self.is_cut;
        self.is_cut = false;
        self.records.push(record);
    }

    /// False if one of its records may be missing.
    fn is_whole(&self) -> bool {
        let last = self.records.last();
        let is_ended = last.is_some_and(|last| !last.stored.head.batch.continues());
        is_ended && !self.is_broken
    }
}

impl Newcomer {
    /// Counts all batches up to this one that were not read as lost.
    fn miss_to(&mut self, sequence: Sequence) {
        self.lost_to = self.lost_to.max(Some(sequence));
        self.reached = self.reached.max(sequence);
    }
}
