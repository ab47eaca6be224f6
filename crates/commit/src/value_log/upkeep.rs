//! Upkeep: which segments go, and what is copied out of them first.
//!
//! Stores are asked what they need ([`Adopting::usage`](kvorum_backend::Adopting::usage)), rather than
//! telling each change: nothing has to be kept in step, and after a crash the answer is the same. A
//! segment that no store names goes, once everything that had been appended by then is durable: what
//! superseded its records must not be lost after them.
//!
//! A store that is not open needs what it has in the log until it is known to be erased.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvorum_backend::{
    Adopting, Backend, ErrorKind, LoggedRecord, Result, SharedLog, StepBudget, StepOutcome, StoreId,
};
use kvorum_segment::{Scan, ScanOptions, Scanned};

use crate::error::from_segment;
use crate::value_log::ValueLog;
use crate::value_log::log_segment::{LogSegment, logged};
use crate::value_log::opening::LOST_NAME;
use crate::value_log::policy::{SegmentFacts, choose, totals};

/// Upkeep presses when this much more than allowed is dead. Percent.
const PRESSING_PERCENT: u8 = 15;
/// What creating or sealing a file is taken to cost. Bytes.
const FILE_COST_BYTES: u64 = 1 << 20;

/// What upkeep knows and does.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Usage has to be asked for again.
    pub(super) is_usage_new: bool,
    /// Damage that was not told yet.
    pub(super) damage: Vec<String>,
    /// The newest segment when usage was asked for last.
    surveyed: Option<u32>,
    /// Closed segments, as they were then.
    facts: Vec<SegmentFacts>,
    waiting_bytes: u64,
    /// Collected, and still needed for a snapshot or a backup.
    settled: BTreeSet<u32>,
    collection: Option<Collection>,
}

/// A segment that is being collected.
struct Collection {
    segment: Arc<LogSegment>,
    scan: Box<Scan>,
}

/// What all open stores need.
#[derive(Default)]
struct Needs {
    asked: BTreeSet<StoreId>,
    /// By segment: the stores, and their live bytes in all.
    segments: BTreeMap<u32, (BTreeSet<StoreId>, u64)>,
}

impl ValueLog {
    pub(super) fn is_any_upkeep_due(&self) -> bool {
        let files = self.files();
        let is_due = |upkeep: &Upkeep| {
            let is_survey_due =
                upkeep.is_usage_new || upkeep.surveyed != Some(files.newest().number);
            is_survey_due || upkeep.collection.is_some() || self.victim(upkeep).is_some()
        };
        let wants_mark = files.wants_mark();
        wants_mark
            || files.wants_seal()
            || files.wants_spare()
            || self.wants_identity()
            || is_due(&self.keeper.upkeep.lock())
    }

    pub(super) fn is_too_much_dead(&self) -> bool {
        let (bytes, dead) = totals(&self.keeper.upkeep.lock().facts);
        let percent_max = self
            .files()
            .settings
            .dead_percent_max
            .saturating_add(PRESSING_PERCENT);
        u128::from(dead) * 100 > u128::from(bytes) * u128::from(percent_max)
    }

    pub(super) fn dead_and_waiting_bytes(&self) -> (u64, u64) {
        let upkeep = self.keeper.upkeep.lock();
        (totals(&upkeep.facts).1, upkeep.waiting_bytes)
    }

    pub(super) fn do_upkeep(&self, budget: StepBudget) -> Result<StepOutcome> {
        let files = self.files();
        let done = |cost_bytes| StepOutcome {
            cost_bytes,
            is_done: false,
        };
        let has_spare = files.make_spare().map_err(|failure| self.told(failure))?;
        if has_spare || self.settle_identity()? || files.seal_one()? {
            return Ok(done(FILE_COST_BYTES));
        }
        files.mark_if_idle()?;
        let newest = files.newest().number;
        let is_survey_due = {
            let mut upkeep = self.keeper.upkeep.lock();
            let is_due = upkeep.is_usage_new || upkeep.surveyed != Some(newest);
            upkeep.is_usage_new = false;
            is_due
        };
        if is_survey_due {
            self.survey(newest).inspect_err(|_| self.usage_changed())?;
            return Ok(done(FILE_COST_BYTES));
        }
        match self.collect(budget)? {
            Some(cost_bytes) => Ok(done(cost_bytes)),
            None => Ok(StepOutcome::nothing_left()),
        }
    }

    /// Asks every store what it needs, and drops what none does.
    fn survey(&self, newest: u32) -> Result<()> {
        // In this order: what was appended to a segment before it was closed is seen by usage, and
        // what superseded it is durable behind the sync.
        let closed = self.files().closed();
        let needs = self.ask_stores();
        self.sync()?;
        let erased = self.keeper.identity.lock().known.erased.clone();
        let mut unneeded = Vec::new();
        let mut facts = Vec::new();
        let mut waiting_bytes = 0;
        let settled = self.keeper.upkeep.lock().settled.clone();
        for segment in closed {
            let is_needed = segment.judge_holders(|store, was_needed| {
                if needs.asked.contains(&store) {
                    needs.is_needed_by(segment.number, store)
                } else {
                    was_needed && !erased.contains(&store)
                }
            });
            if !is_needed {
                unneeded.push(segment);
                continue;
            }
            let is_waiting = segment
                .holders()
                .iter()
                .any(|(store, holding)| holding.is_needed && !needs.asked.contains(store));
            let bytes = segment.end();
            if is_waiting {
                waiting_bytes += bytes;
            }
            let is_fixed = is_waiting || settled.contains(&segment.number);
            let live_bytes = if is_fixed {
                bytes
            } else {
                needs.live_bytes(segment.number)
            };
            facts.push(SegmentFacts {
                number: segment.number,
                bytes,
                live_bytes,
            });
        }
        self.drop_unneeded(&unneeded)?;
        self.forget_erased()?;
        let mut upkeep = self.keeper.upkeep.lock();
        let is_there = |number: &u32| facts.iter().any(|it| it.number == *number);
        upkeep.settled.retain(is_there);
        upkeep.facts = facts;
        upkeep.waiting_bytes = waiting_bytes;
        upkeep.surveyed = Some(newest);
        Ok(())
    }

    fn ask_stores(&self) -> Needs {
        let stores: Vec<StoreId> = self.keeper.stores.lock().keys().copied().collect();
        let mut needs = Needs::default();
        for store in stores {
            let Some(engine) = self.engine(store) else {
                continue;
            };
            let Some(adopting) = engine.adopting() else {
                continue;
            };
            let usage = adopting.usage();
            // It may have been erased meanwhile, and these are the needs of other contents.
            if engine.identity() != store {
                continue;
            }
            needs.asked.insert(store);
            for used in usage {
                let (stores, live_bytes) = needs.segments.entry(used.segment).or_default();
                stores.insert(store);
                *live_bytes += used.live_bytes;
            }
        }
        needs
    }

    fn drop_unneeded(&self, unneeded: &[Arc<LogSegment>]) -> Result<()> {
        let lost = self.files().directory.join(LOST_NAME);
        self.files().drop_segments(unneeded, &lost)
    }

    /// Nobody waits any more for what an erased store has in the log.
    pub(super) fn release_all(&self, erased: StoreId) -> Result<()> {
        let newest = self.files().newest();
        let is_alone = newest.has_records()
            && !newest.judge_holders(|store, was_needed| was_needed && store != erased);
        if is_alone {
            // Its room is wanted now. Where there is none for a new segment, it goes later.
            let _rolled_or_later = self.roll();
        }
        let is_unneeded = |segment: &Arc<LogSegment>| {
            !segment.judge_holders(|store, was_needed| was_needed && store != erased)
        };
        let closed = self.files().closed();
        let unneeded: Vec<_> = closed.into_iter().filter(is_unneeded).collect();
        self.drop_unneeded(&unneeded)?;
        self.usage_changed();
        Ok(())
    }

    /// Erased stores of which nothing is left need not be remembered.
    fn forget_erased(&self) -> Result<()> {
        let segments = self.files().segments();
        let is_left = |store: &StoreId| segments.iter().any(|it| it.holding(*store).is_some());
        let is_open = |store: &StoreId| self.engine(*store).is_some();
        let mut identity = self.keeper.identity.lock();
        let before = identity.known.erased.len();
        identity
            .known
            .erased
            .retain(|store| is_left(store) || is_open(store));
        if identity.known.erased.len() < before {
            self.write_identity(&mut identity)?;
        }
        Ok(())
    }

    fn wants_identity(&self) -> bool {
        self.files().has_files() && !self.keeper.identity.lock().is_written
    }

    fn settle_identity(&self) -> Result<bool> {
        if !self.wants_identity() {
            return Ok(false);
        }
        let mut identity = self.keeper.identity.lock();
        self.write_identity(&mut identity)?;
        Ok(true)
    }

    fn victim(&self, upkeep: &Upkeep) -> Option<u32> {
        choose(&upkeep.facts, self.files().settings.dead_percent_max)
    }

    /// Goes on collecting a segment, or begins; `None` when nothing is to be collected.
    fn collect(&self, budget: StepBudget) -> Result<Option<u64>> {
        let collection = self.keeper.upkeep.lock().collection.take();
        let collection = match collection {
            Some(collection) => Some(collection),
            None => self.begin_collection()?,
        };
        let Some(mut collection) = collection else {
            return Ok(None);
        };
        // After an error the segment is offered again from its start: what was copied is not current
        // any more where it stood.
        let (cost_bytes, is_read) = self.offer(&mut collection, budget)?;
        if !is_read {
            self.keeper.upkeep.lock().collection = Some(collection);
            return Ok(Some(cost_bytes));
        }
        for (store, holding) in collection.segment.holders() {
            if let Some(engine) = self.engine(store).filter(|_| holding.is_needed) {
                adopting_of(&engine, |it| it.settle(collection.segment.number))?;
            }
        }
        let mut upkeep = self.keeper.upkeep.lock();
        upkeep.settled.insert(collection.segment.number);
        upkeep.is_usage_new = true;
        Ok(Some(cost_bytes))
    }

    fn begin_collection(&self) -> Result<Option<Collection>> {
        let number = self.victim(&self.keeper.upkeep.lock());
        let Some(segment) = number.and_then(|number| self.files().segment(number)) else {
            return Ok(None);
        };
        let Some(reader) = segment.reader() else {
            return Ok(None);
        };
        let end = segment.end();
        let options = ScanOptions {
            durable_to: end,
            until: Some(end),
            ..ScanOptions::default()
        };
        let scan = reader.scan(options).map_err(|error| from_segment(&error))?;
        Ok(Some(Collection {
            scan: Box::new(scan),
            segment,
        }))
    }

    /// Reads on and offers what is read to the stores. True when the end was reached.
    fn offer(&self, collection: &mut Collection, budget: StepBudget) -> Result<(u64, bool)> {
        let segment = &collection.segment;
        let mut by_store = BTreeMap::<StoreId, Vec<LoggedRecord>>::new();
        let mut cost_bytes = 0;
        let mut is_read = false;
        // What is read may have to be written as well.
        while 2 * cost_bytes < budget.bytes || cost_bytes == 0 {
            let Some(scanned) = collection.scan.next() else {
                is_read = true;
                break;
            };
            match scanned.map_err(|error| from_segment(&error))? {
                Scanned::Record(record) => {
                    cost_bytes += record.head.location.len;
                    if let Some(record) = logged(segment.number, &record) {
                        by_store.entry(record.head.store).or_default().push(record);
                    }
                }
                Scanned::Damage(damage) => {
                    cost_bytes += damage.len;
                    let (path, len, at) = (segment.path.display(), damage.len, damage.offset);
                    let what = format!("{path}: {len} bytes at {at}: {}", damage.found);
                    if !segment.is_damaged() {
                        self.keeper.upkeep.lock().damage.push(what);
                    }
                    segment.set_damaged();
                }
            }
        }
        for (store, records) in by_store {
            if let Some(engine) = self.engine(store) {
                cost_bytes += adopting_of(&engine, |it| it.relocate(&records))?;
            }
        }
        Ok((cost_bytes, is_read))
    }
}

fn adopting_of<T: Default>(
    engine: &Arc<dyn Backend>,
    call: impl FnOnce(&dyn Adopting) -> Result<T>,
) -> Result<T> {
    match engine.adopting().map(call) {
        // It was closed meanwhile, and says at its next opening what it needs.
        Some(Err(error)) if error.kind() == ErrorKind::Closed => Ok(T::default()),
        Some(outcome) => outcome,
        None => Ok(T::default()),
    }
}

impl Needs {
    fn is_needed_by(&self, segment: u32, store: StoreId) -> bool {
        let needed = self.segments.get(&segment);
        needed.is_some_and(|(stores, _)| stores.contains(&store))
    }

    fn live_bytes(&self, segment: u32) -> u64 {
        self.segments.get(&segment).map_or(0, |(_, live)| *live)
    }
}
