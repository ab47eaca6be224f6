//! Upkeep: choice of the segments to remove, and copies out of them before.
//!
//! Stores are asked for their usage ([`Tenant::usage`](crate::Tenant::usage)) rather than reporting
//! each change: there is no state to keep in step, and the answer is the same after a crash. A
//! segment that no store names is removed once everything appended until then is durable: the
//! records that superseded its own must not be lost after them.
//!
//! A store that is not open needs its records in the log until it is known to be erased.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    BackendError, ErrorKind, Result, StepBudget, StepOutcome, StoreId, Unreadable,
};
use kvorum_segment::{Scan, Scanned};
use parking_lot::Mutex;

use crate::error::from_segment;
use crate::keeper::{Keeper, Stores};
use crate::log_segment::LogSegment;
use crate::opening::LOST_NAME;
use crate::policy::{SegmentFacts, backlog_bytes, choose, totals};
use crate::record::LoggedRecord;
use crate::tenant::Tenant;

/// The number of surveys of usage while a segment is filled.
const SURVEYS_PER_SEGMENT: u64 = 4;
/// Upkeep presses when garbage exceeds its limit by this much. Percent.
const PRESSING_PERCENT: u8 = 3;
/// Limit of garbage while puts are refused for want of space, regardless of the settings: copying
/// much for little is better than refusing. Percent.
const EXHAUSTED_GARBAGE_PERCENT: u8 = 5;
/// The same where removals will soon be refused too: removals of small values take nearly as much
/// as they free.
const GARBAGE_PERCENT_FOR_REMOVALS: u8 = 1;

/// The upkeep of a log: surveys of what stores need, and collections.
pub(crate) struct Upkeep {
    keeper: Arc<Keeper>,
    state: Mutex<State>,
}

/// The state of upkeep.
#[derive(Default)]
struct State {
    /// The newest segment at the last survey, and its end.
    surveyed: Option<(u32, u64)>,
    /// The segments as they were then.
    facts: Vec<SegmentFacts>,
    waiting_bytes: u64,
    /// Segments that were collected and are still needed for a snapshot or a backup, or that a
    /// store could not read or settle in several attempts. They stay until the next opening, and
    /// others are collected instead.
    settled: BTreeSet<u32>,
    /// Segments whose collections failed.
    unreadable: Unreadable,
    collection: Option<Collection>,
    /// Collections are held.
    is_held: bool,
}

impl State {
    /// The facts of the last survey.
    fn facts_of(&self, segment: u32) -> Option<SegmentFacts> {
        let mut facts = self.facts.iter();
        facts.find(|it| it.number == segment).copied()
    }

    /// True when the segment stays as it is from here on.
    fn collection_failed(&mut self, segment: u32, error: &BackendError) -> bool {
        let is_given_up = self.unreadable.failed_in_any_way(segment.into(), error);
        if is_given_up {
            self.settled.insert(segment);
        }
        is_given_up
    }
}

/// A segment that is being collected.
struct Collection {
    segment: Arc<LogSegment>,
    scan: Box<Scan>,
    /// The stores that have yet to settle, once all required records were read.
    settling: Option<Vec<StoreId>>,
    /// The stores that were open at the beginning: a store that was opened later was not offered
    /// all records.
    stores: Stores,
    /// The facts at the beginning, with the present estimate for settling.
    facts: SegmentFacts,
}

impl Collection {
    /// True when all stores that need the segment were open at the beginning.
    fn is_for(&self, stores: &Stores) -> bool {
        let is_same = |store: &StoreId| match (self.stores.get(store), stores.get(store)) {
            (Some(then), Some(now)) => then.ptr_eq(now),
            (_, now) => now.is_none(),
        };
        needing(&self.segment).iter().all(is_same)
    }
}

/// The known cost of collecting the next segment, or the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionDue {
    /// The segment.
    pub segment: u32,
    /// The remaining cost, in bytes read plus bytes written.
    pub cost_bytes: u64,
    /// The same with other segments that will be due after it.
    pub backlog_bytes: u64,
    /// Garbage is above its limit.
    pub is_pressing: bool,
}

/// The needs of all open stores.
#[derive(Default)]
struct Needs {
    asked: BTreeSet<StoreId>,
    segments: BTreeMap<u32, Needed>,
}

/// The needs for one segment.
#[derive(Default)]
struct Needed {
    by: BTreeSet<StoreId>,
    live_bytes: u64,
    settle_bytes: u64,
    is_passing: bool,
}

impl Upkeep {
    pub(crate) fn of(keeper: Arc<Keeper>) -> Self {
        Self {
            keeper,
            state: Mutex::default(),
        }
    }

    pub(crate) fn set_held(&self, is_held: bool) {
        self.state.lock().is_held = is_held;
    }

    pub(crate) fn is_chore_due(&self) -> bool {
        let files = self.keeper.files();
        let wants_mark = files.wants_mark();
        wants_mark
            || files.wants_seal()
            || files.room.wants_spare()
            || self.wants_identity()
            || files.wants_note()
            || files.wants_retry()
            || self.is_survey_due(&self.state.lock())
    }

    pub(crate) fn next_collection(&self) -> Option<CollectionDue> {
        let headroom = self.keeper.measure_headroom();
        let is_pressing = headroom.is_scarce() || self.has_too_much_garbage();
        let percent_max = self.garbage_percent_max();
        let upkeep = self.state.lock();
        let (facts, read_to) = match &upkeep.collection {
            Some(under_way) if !upkeep.is_held => (under_way.facts, under_way.scan.read_to()),
            _ => (upkeep.facts_of(self.victim(&upkeep)?)?, 0),
        };
        let segment = facts.number;
        // Checkpoints that stores have written meanwhile need not be written again.
        let settle_bytes = upkeep.facts_of(segment).map_or(0, |it| it.settle_bytes);
        let settle_bytes = settle_bytes.min(facts.settle_bytes);
        let cost_bytes = (facts.unread_cost_bytes(read_to) + settle_bytes).max(1);
        let others = upkeep.facts.iter().filter(|it| it.number != segment);
        let others: Vec<SegmentFacts> = others.copied().collect();
        Some(CollectionDue {
            segment,
            cost_bytes,
            backlog_bytes: cost_bytes + backlog_bytes(&others, percent_max),
            is_pressing,
        })
    }

    /// True when appends or deletes since the last survey may have left much garbage.
    fn is_survey_due(&self, upkeep: &State) -> bool {
        let files = self.keeper.files();
        let newest = files.newest();
        let is_much = |bytes: u64| bytes * SURVEYS_PER_SEGMENT >= files.room.segment_bytes();
        let is_appended = upkeep.surveyed.is_none_or(|(number, end)| {
            let appended = newest.end().saturating_sub(end);
            number != newest.number || is_much(appended)
        });
        let is_usage_new = self.keeper.is_usage_new.load(Ordering::Acquire);
        is_usage_new || is_appended || self.has_usage_fallen(is_much)
    }

    /// On a full disk there are few appends, and only deletes make room.
    fn has_usage_fallen(&self, is_much: impl Fn(u64) -> bool) -> bool {
        let fallen = self.keeper.fallen_bytes.load(Ordering::Relaxed);
        let is_exhausted = || self.keeper.files().reserve.seen().is_exhausted();
        is_much(fallen) || (fallen > 0 && is_exhausted())
    }

    pub(crate) fn has_too_much_garbage(&self) -> bool {
        let upkeep = self.state.lock();
        if upkeep.is_held {
            return false;
        }
        let (bytes, garbage) = totals(&upkeep.facts);
        let percent_max = self.garbage_percent_max().saturating_add(PRESSING_PERCENT);
        u128::from(garbage) * 100 > u128::from(bytes) * u128::from(percent_max)
    }

    /// The garbage allowed in the log at present. A log that is never collected keeps its setting.
    fn garbage_percent_max(&self) -> u8 {
        let files = self.keeper.files();
        let set = files.settings.garbage_percent_max;
        let headroom = files.reserve.seen();
        if set >= 100 || !headroom.is_exhausted() {
            return set;
        }
        match headroom.is_short_for_removals() {
            true => set.min(GARBAGE_PERCENT_FOR_REMOVALS),
            false => set.min(EXHAUSTED_GARBAGE_PERCENT),
        }
    }

    pub(crate) fn garbage_and_waiting_bytes(&self) -> (u64, u64) {
        let upkeep = self.state.lock();
        (totals(&upkeep.facts).1, upkeep.waiting_bytes)
    }

    /// Does a chore; false when there is none.
    pub(crate) fn do_chore(&self) -> Result<bool> {
        let files = self.keeper.files();
        let has_spare = files
            .room
            .make_spare()
            .map_err(|failure| self.keeper.failed(failure))?;
        if has_spare || self.settle_identity()? || files.write_note()? || files.seal_one()? {
            return Ok(true);
        }
        files.mark_if_idle()?;
        let is_survey_due = {
            let upkeep = self.state.lock();
            let is_usage_new = self.keeper.is_usage_new.swap(false, Ordering::AcqRel);
            let is_due = is_usage_new || self.is_survey_due(&upkeep);
            if is_due {
                self.keeper.fallen_bytes.store(0, Ordering::Relaxed);
            }
            is_due
        };
        if is_survey_due {
            self.survey().inspect_err(|_| self.keeper.usage_changed())?;
            return Ok(true);
        }
        self.write_what_was_refused()
    }

    /// Makes batches durable that found no room when they were put, if there may be room now: they
    /// can be read, and a crash would lose them until another put is written.
    fn write_what_was_refused(&self) -> Result<bool> {
        let files = self.keeper.files();
        if !files.wants_retry() {
            return Ok(false);
        }
        files
            .sync_written()
            .map_err(|failure| self.keeper.failed(failure))?;
        Ok(true)
    }

    /// Surveys the usage of every store, and drops segments that none needs.
    fn survey(&self) -> Result<()> {
        // The order matters: usage sees all that was appended to a segment before it was closed,
        // and the later sync makes the records that superseded it durable.
        let files = self.keeper.files();
        let (newest, closed) = (files.newest(), files.closed());
        let surveyed = (newest.number, newest.end());
        let open = files.segments().into_iter();
        let open =
            open.filter(|it| it.has_records() && closed.iter().all(|i| i.number != it.number));
        let open: Vec<_> = open.map(|it| (it.end(), it)).collect();
        let needs = self.ask_stores();
        self.keeper.sync()?;
        let erased = self.erased_for_certain();
        let mut unneeded = Vec::new();
        let mut facts = Vec::new();
        let mut waiting_bytes = 0;
        let settled = self.state.lock().settled.clone();
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
            if needs.is_waiting(&segment) {
                waiting_bytes += segment.end();
            }
            let mut fact = needs.facts_of(&segment, segment.end(), true);
            if settled.contains(&segment.number) {
                fact.live_bytes = fact.bytes;
            }
            facts.push(fact);
        }
        let open = open.iter();
        facts.extend(open.map(|(end, segment)| needs.facts_of(segment, *end, false)));
        self.drop_unneeded(&unneeded)?;
        self.forget_erased()?;
        self.keeper.measure_room();
        let mut upkeep = self.state.lock();
        let is_there = |number: &u32| facts.iter().any(|it| it.number == *number);
        upkeep.settled.retain(is_there);
        upkeep.facts = facts;
        upkeep.waiting_bytes = waiting_bytes;
        upkeep.surveyed = Some(surveyed);
        Ok(())
    }

    fn ask_stores(&self) -> Needs {
        let stores: Vec<StoreId> = self.keeper.stores.lock().keys().copied().collect();
        let mut needs = Needs::default();
        for store in stores {
            let Some(tenant) = self.keeper.tenant(store) else {
                continue;
            };
            let usage = tenant.usage();
            // The store may have been erased meanwhile, and these are the needs of other contents.
            if tenant.store_id() != store {
                continue;
            }
            needs.asked.insert(store);
            for used in usage {
                let needed = needs.segments.entry(used.segment).or_default();
                needed.by.insert(store);
                needed.live_bytes += used.live_bytes;
                needed.settle_bytes += used.settle_bytes;
                needed.is_passing |= used.is_passing;
            }
        }
        needs
    }

    /// Stores that are erased, or are going to be.
    fn erased_for_certain(&self) -> BTreeSet<StoreId> {
        let identity = self.keeper.identity.lock();
        let erased = identity.known.erased.difference(&identity.undecided);
        erased.copied().collect()
    }

    fn drop_unneeded(&self, unneeded: &[Arc<LogSegment>]) -> Result<()> {
        let lost = self.keeper.files().directory.join(LOST_NAME);
        self.keeper.files().drop_segments(unneeded, &lost)?;
        // All its records may have become garbage while it was collected.
        let is_dropped =
            |it: &mut Collection| self.keeper.files().segment(it.segment.number).is_none();
        let _given_up = self.state.lock().collection.take_if(is_dropped);
        Ok(())
    }

    /// Releases an erased store's records in the log.
    pub(crate) fn release_all(&self, erased: StoreId) -> Result<()> {
        let newest = self.keeper.files().newest();
        let is_alone = newest.has_records()
            && !newest.judge_holders(|store, was_needed| was_needed && store != erased);
        if is_alone {
            // Its room is needed now. Without space for a new segment, it is dropped later.
            let _rolled_or_later = self.keeper.close_written();
        }
        let is_unneeded = |segment: &Arc<LogSegment>| {
            !segment.judge_holders(|store, was_needed| was_needed && store != erased)
        };
        let closed = self.keeper.files().closed();
        let unneeded: Vec<_> = closed.into_iter().filter(is_unneeded).collect();
        self.drop_unneeded(&unneeded)?;
        self.keeper.usage_changed();
        Ok(())
    }

    /// Removes the note of erased stores without records in the log.
    fn forget_erased(&self) -> Result<()> {
        let segments = self.keeper.files().segments();
        let is_left = |store: &StoreId| segments.iter().any(|it| it.holding(*store).is_some());
        let is_open = |store: &StoreId| self.keeper.tenant(*store).is_some();
        let mut identity = self.keeper.identity.lock();
        let before = identity.known.erased.len();
        identity
            .known
            .erased
            .retain(|store| is_left(store) || is_open(store));
        if identity.known.erased.len() < before {
            self.keeper.write_identity(&mut identity)?;
        }
        Ok(())
    }

    fn wants_identity(&self) -> bool {
        let files = self.keeper.files();
        files.has_files() && !files.is_full() && !self.keeper.identity.lock().is_written
    }

    fn settle_identity(&self) -> Result<bool> {
        if !self.wants_identity() {
            return Ok(false);
        }
        let mut identity = self.keeper.identity.lock();
        match self.keeper.write_identity(&mut identity) {
            // The rest of upkeep makes room.
            Err(error) if error.kind() == ErrorKind::Full => {
                self.keeper.files().note_full();
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }

    fn victim(&self, upkeep: &State) -> Option<u32> {
        if upkeep.is_held {
            return None;
        }
        let headroom = self.keeper.files().reserve.seen();
        let room_bytes = match headroom.is_scarce() {
            true => headroom.available,
            false => u64::MAX,
        };
        choose(&upkeep.facts, self.garbage_percent_max(), room_bytes)
    }

    /// Continues the collection of a segment, or begins one.
    pub(crate) fn collect(&self, budget: StepBudget) -> Result<StepOutcome> {
        let collection = {
            let mut upkeep = self.state.lock();
            if upkeep.is_held {
                return Ok(StepOutcome::nothing_left());
            }
            upkeep.collection.take()
        };
        let collection = match collection {
            Some(collection) => Some(collection),
            None => self.begin_collection()?,
        };
        let Some(mut collection) = collection else {
            return Ok(StepOutcome::nothing_left());
        };
        // After an error the segment is offered again from its start: copied records are no longer
        // current at their old places.
        let number = collection.segment.number;
        let collected = self.offer_and_settle(&mut collection, budget);
        let (cost_bytes, is_done) = collected.inspect_err(|error| {
            if self.state.lock().collection_failed(number, error) {
                self.keeper.usage_changed();
            }
        })?;
        let is_dropped = self.keeper.files().segment(number).is_none();
        let is_done = is_done || is_dropped;
        // If a store was opened meanwhile, the segment is offered again from its start.
        let is_settled = is_done && collection.is_for(&self.keeper.stores.lock());
        let mut upkeep = self.state.lock();
        if is_settled {
            upkeep.settled.insert(number);
        }
        if is_done {
            self.keeper.usage_changed();
        } else {
            upkeep.collection = Some(collection);
        }
        Ok(StepOutcome {
            cost_bytes: cost_bytes.max(1),
            is_done,
        })
    }

    /// Offers and settles until the budget is used up. Returns the cost, and true when it is done.
    fn offer_and_settle(
        &self,
        collection: &mut Collection,
        budget: StepBudget,
    ) -> Result<(u64, bool)> {
        let mut cost_bytes = 0;
        if collection.settling.is_none() {
            let (offered, is_read) = self.offer(collection, budget)?;
            cost_bytes = offered;
            collection.settling = is_read.then(|| needing(&collection.segment));
        }
        let is_done = self.settle(collection, budget, &mut cost_bytes)?;
        Ok((cost_bytes, is_done))
    }

    /// Has stores settle until the budget is used up; true when all have. Stores that only sync,
    /// without counted bytes, do that in one step: each asks for a survey, and one is enough for
    /// all.
    fn settle(
        &self,
        collection: &mut Collection,
        budget: StepBudget,
        cost_bytes: &mut u64,
    ) -> Result<bool> {
        let Some(settling) = &mut collection.settling else {
            return Ok(false);
        };
        while let Some(store) = settling.last().copied() {
            if *cost_bytes >= budget.bytes {
                return Ok(false);
            }
            let rest = StepBudget {
                bytes: budget.bytes - *cost_bytes,
            };
            let number = collection.segment.number;
            let step = match tenant_of(&collection.stores, store) {
                Some(tenant) => unless_closed(tenant.settle(number, rest))?,
                None => None,
            };
            let settled = step.map_or(0, |step| step.cost_bytes);
            *cost_bytes += settled;
            let left = &mut collection.facts.settle_bytes;
            *left = left.saturating_sub(settled);
            if step.is_none_or(|step| step.is_done) {
                settling.pop();
            }
        }
        Ok(true)
    }

    fn begin_collection(&self) -> Result<Option<Collection>> {
        let facts = {
            let upkeep = self.state.lock();
            let victim = self.victim(&upkeep);
            victim.and_then(|number| upkeep.facts_of(number))
        };
        let Some(facts) = facts else {
            return Ok(None);
        };
        let Some(segment) = self.keeper.files().segment(facts.number) else {
            return Ok(None);
        };
        let stores = self.keeper.stores.lock().clone();
        let Some(reader) = segment.reader() else {
            return Ok(None);
        };
        let scan = reader.scan(segment.scan_options());
        let scan = scan.map_err(|error| from_segment(&error))?;
        Ok(Some(Collection {
            scan: Box::new(scan),
            stores,
            settling: (!facts.has_to_be_read()).then(|| needing(&segment)),
            segment,
            facts,
        }))
    }

    /// Reads on and offers the records to their stores. True when the end was reached.
    fn offer(&self, collection: &mut Collection, budget: StepBudget) -> Result<(u64, bool)> {
        let segment = &collection.segment;
        let mut by_store = BTreeMap::<StoreId, Vec<LoggedRecord>>::new();
        let mut cost_bytes = 0;
        let mut is_read = false;
        // Records that are read may have to be written as well.
        collection.scan.set_read_ahead(budget.bytes / 2);
        while 2 * cost_bytes < budget.bytes || cost_bytes == 0 {
            let Some(scanned) = collection.scan.next() else {
                is_read = true;
                break;
            };
            match scanned.map_err(|error| from_segment(&error))? {
                Scanned::Record(record) => {
                    cost_bytes += record.head.location.len;
                    if let Some(record) = LoggedRecord::of(segment.number, record) {
                        by_store.entry(record.store).or_default().push(record);
                    }
                }
                Scanned::Damage(damage) => {
                    cost_bytes += damage.len;
                    self.keeper.note_damage(segment, &damage);
                }
            }
        }
        for (store, records) in by_store {
            if let Some(tenant) = tenant_of(&collection.stores, store) {
                let copied = unless_closed(tenant.relocate(&records))?;
                cost_bytes += copied.unwrap_or(0);
            }
        }
        Ok((cost_bytes, is_read))
    }
}

/// The stores that need something of a segment.
fn needing(segment: &LogSegment) -> Vec<StoreId> {
    let holders = segment.holders().into_iter();
    let needing = holders.filter(|(_, holding)| holding.is_needed);
    needing.map(|(store, _)| store).collect()
}

/// The registered store, if it is open and has the same contents.
fn tenant_of(stores: &Stores, store: StoreId) -> Option<Arc<dyn Tenant>> {
    let tenant = stores.get(&store)?.upgrade()?;
    (tenant.store_id() == store).then_some(tenant)
}

/// `None` for a store that was closed meanwhile: its next opening reports its needs.
fn unless_closed<T>(called: Result<T>) -> Result<Option<T>> {
    match called {
        Err(error) if error.kind() == ErrorKind::Closed => Ok(None),
        called => called.map(Some),
    }
}

impl Needs {
    fn is_needed_by(&self, segment: u32, store: StoreId) -> bool {
        let needed = self.segments.get(&segment);
        needed.is_some_and(|needed| needed.by.contains(&store))
    }

    /// True when a store that is not open needs it.
    fn is_waiting(&self, segment: &LogSegment) -> bool {
        let holders = segment.holders();
        let mut needed = holders.iter().filter(|(_, holding)| holding.is_needed);
        needed.any(|(store, _)| !self.asked.contains(store))
    }

    fn facts_of(&self, segment: &LogSegment, bytes: u64, is_closed: bool) -> SegmentFacts {
        let needed = self.segments.get(&segment.number);
        let live_bytes = if self.is_waiting(segment) {
            bytes
        } else {
            needed.map_or(0, |needed| needed.live_bytes)
        };
        SegmentFacts {
            number: segment.number,
            bytes,
            live_bytes,
            settle_bytes: needed.map_or(0, |needed| needed.settle_bytes),
            is_passing: needed.is_some_and(|needed| needed.is_passing),
            is_closed,
        }
    }
}
