//! The required moves, and the progress of the present one: state beside the stores themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use bytes::Bytes;
use kvorum_backend::{MoveStatus, Result, Timestamp};
use kvorum_backend_migration::{End, Migration, Phase, Plan};
use kvorum_encoding::pages_prefix;
use parking_lot::Mutex;

use crate::carry::IndexEntriesOf;
use crate::child::{Child, ChildNumber, ChildSet};
use crate::move_record;
use crate::opening::CardFiles;
use crate::routes::RouteTable;
use crate::walk::Count;

/// The number of parts after which the record is written, beside the ends of phases: repeated work
/// does no harm.
const PARTS_PER_RECORD: u32 = 32;

/// Buckets by their prefixes, and the children with data of them.
pub(crate) type StrayBuckets = Arc<HashMap<Bytes, ChildSet>>;

/// A move from one child to another for one reason: a property of a bucket, or of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Job {
    pub(crate) scope: Bytes,
    pub(crate) source: ChildNumber,
    pub(crate) target: ChildNumber,
}

/// See the module's description.
pub(crate) struct Mover {
    pub(crate) index_entries: Box<IndexEntriesOf>,
    /// Held by the step that continues a move.
    pub(crate) turn: Mutex<()>,
    pub(crate) state: Mutex<State>,
    /// Says to queries that a part waits for them.
    pub(crate) is_waiting: AtomicBool,
    /// Parts in a row that had to be put off.
    pub(crate) put_off: AtomicU32,
}

/// The state of a move.
#[derive(Clone)]
pub(crate) enum Going {
    /// The bytes to copy are counted.
    Counting { count: Count, after: Option<Bytes> },
    /// By the orders of the machine.
    Moving(Migration),
}

/// The part of a move that is next.
#[derive(Clone)]
pub(crate) struct Next {
    pub(crate) job: Job,
    /// In order: the prefix of each bucket's keys, and that of the keys of its pages.
    pub(crate) buckets: Arc<Vec<Bytes>>,
    pub(crate) going: Going,
    /// The routes by which it is the next one.
    pub(crate) table: Arc<RouteTable>,
}

#[derive(Default)]
pub(crate) struct State {
    /// The source of the jobs.
    strays: Option<StrayBuckets>,
    table: Option<Arc<RouteTable>>,
    jobs: BTreeMap<Job, Arc<Vec<Bytes>>>,
    /// The finished jobs: a survey has to look for their data again.
    moved: BTreeSet<Job>,
    /// Jobs that are left alone until the routes change, or there is room of this many bytes.
    stuck: BTreeMap<Job, Option<u64>>,
    current: Option<(Job, Going)>,
    /// The last move, of this run or of one before.
    last: Option<Migration>,
    generation: u64,
    parts_unrecorded: u32,
    pace: Option<Pace>,
}

/// The speed of a job's move in this run.
struct Pace {
    job: Job,
    begun: Timestamp,
    begun_permille: u16,
    last: Timestamp,
}

impl Pace {
    /// The time to the end at this rate, in seconds.
    fn seconds_left(&self, done_permille: u16) -> Option<u64> {
        let done = u64::from(done_permille.checked_sub(self.begun_permille)?);
        let left = u64::from(1_000_u16.saturating_sub(done_permille));
        let micros = self.last.0.saturating_sub(self.begun.0);
        let seconds = (micros / 1_000_000).saturating_mul(left);
        seconds.checked_div(done)
    }
}

impl Mover {
    /// Reads the record of a run before.
    pub(crate) fn new(
        files: &CardFiles,
        identity: u64,
        index_entries: Box<IndexEntriesOf>,
    ) -> Result<Self> {
        let record = move_record::read(files, identity)?;
        let mut state = State::default();
        if let Some(mut record) = record {
            record.migration.resume();
            state.generation = record.generation;
            state.last = Some(record.migration);
        }
        Ok(Self {
            index_entries,
            turn: Mutex::new(()),
            state: Mutex::new(state),
            is_waiting: AtomicBool::new(false),
            put_off: AtomicU32::new(0),
        })
    }
}

/// The next work for moves.
pub(crate) enum Wanted {
    Nothing,
    /// Repeat the survey.
    Survey,
    Move(Box<Next>),
}

impl State {
    /// Uses the present result of the survey.
    pub(crate) fn renew(&mut self, strays: &StrayBuckets, table: &Arc<RouteTable>) {
        let is_same = |it: &StrayBuckets| Arc::ptr_eq(it, strays);
        if self.strays.as_ref().is_some_and(is_same) {
            return;
        }
        let is_same = |it: &Arc<RouteTable>| Arc::ptr_eq(it, table);
        if !self.table.as_ref().is_some_and(is_same) {
            self.stuck.clear();
        }
        let mut jobs: BTreeMap<Job, Vec<Bytes>> = BTreeMap::new();
        for (bucket, children) in &**strays {
            let Some(scope) = table.chosen_scope(bucket) else {
                continue;
            };
            let target = table.child_of(bucket);
            for source in children.without(target).iter() {
                let scope = bucket.slice(..scope);
                let job = Job {
                    scope,
                    source,
                    target,
                };
                let pages = Bytes::from(pages_prefix(bucket));
                jobs.entry(job).or_default().extend([bucket.clone(), pages]);
            }
        }
        let sorted = jobs.into_iter().map(|(job, mut buckets)| {
            buckets.sort_unstable();
            (job, Arc::new(buckets))
        });
        self.jobs = sorted.collect();
        self.moved.clear();
        self.current = None;
        (self.strays, self.table) = (Some(strays.clone()), Some(table.clone()));
    }

    /// `has_room` is true if there are this many bytes for the move to a child.
    pub(crate) fn wanted(
        &mut self,
        children: &[Child],
        has_room: &dyn Fn(ChildNumber, u64) -> bool,
    ) -> Wanted {
        self.stuck.retain(|job, needed| {
            let needed = needed.unwrap_or(u64::MAX);
            needed == u64::MAX || !has_room(job.target, needed)
        });
        let is_due = |job: &&Job| !self.moved.contains(job) && !self.stuck.contains_key(job);
        let of_last = |job: &&Job| {
            let last = self.last.as_ref();
            last.is_some_and(|it| continued(it, job, children).is_some())
        };
        let mut due = self.jobs.keys().filter(is_due);
        let job = match due.clone().find(of_last) {
            None => due.next(),
            continued => continued,
        };
        let (Some(job), Some(table)) = (job.cloned(), self.table.clone()) else {
            return match self.moved.is_empty() {
                true => Wanted::Nothing,
                false => Wanted::Survey,
            };
        };
        let going = self.going(&job, children);
        let buckets = self.jobs.get(&job).cloned().unwrap_or_default();
        Wanted::Move(Box::new(Next {
            job,
            buckets,
            going,
            table,
        }))
    }

    fn going(&mut self, job: &Job, children: &[Child]) -> Going {
        if let Some((of, going)) = &self.current
            && of == job
        {
            return going.clone();
        }
        let last = self.last.as_ref();
        let going = match last.and_then(|it| continued(it, job, children)) {
            Some(migration) => Going::Moving(migration),
            None => Going::Counting {
                count: Count::default(),
                after: None,
            },
        };
        self.current = Some((job.clone(), going.clone()));
        going
    }

    /// Continues the count behind a key, or ends it.
    pub(crate) fn counted(
        &mut self,
        job: &Job,
        count: Count,
        after: Option<Bytes>,
        children: &[Child],
    ) {
        let going = match after {
            Some(_) => Going::Counting { count, after },
            None => Going::Moving(Migration::new(Plan {
                source: children[job.source].name.clone(),
                target: children[job.target].name.clone(),
                scope: job.scope.clone(),
                bytes_estimate: count.bytes(),
            })),
        };
        self.current = Some((job.clone(), going));
    }

    /// The generation for the record of a move, if it has to be written.
    pub(crate) fn generation_due(&self, before: Phase, now: Phase) -> Option<u64> {
        let is_due = before != now || self.parts_unrecorded >= PARTS_PER_RECORD;
        is_due.then_some(self.generation + 1)
    }

    /// Notes that the move has continued, and is recorded under a generation if there is one.
    pub(crate) fn went_on(
        &mut self,
        job: &Job,
        migration: Migration,
        recorded: Option<u64>,
        now: Timestamp,
    ) {
        match &mut self.pace {
            Some(pace) if pace.job == *job => pace.last = now,
            _ => {
                self.pace = Some(Pace {
                    job: job.clone(),
                    begun: now,
                    begun_permille: migration.done_permille(),
                    last: now,
                });
            }
        }
        match recorded {
            Some(generation) => (self.generation, self.parts_unrecorded) = (generation, 0),
            None => self.parts_unrecorded += 1,
        }
        match migration.phase() {
            Phase::Ended(end) => {
                self.current = None;
                self.ended(job, end, &migration);
            }
            _ => self.current = Some((job.clone(), Going::Moving(migration.clone()))),
        }
        self.last = Some(migration);
    }

    fn ended(&mut self, job: &Job, end: End, migration: &Migration) {
        let stuck = match end {
            // Unreadable entries stay, and would be found again and again.
            End::Moved | End::TakenBack if migration.progress().keys_removed == 0 => None,
            End::Moved | End::TakenBack => {
                self.moved.insert(job.clone());
                return;
            }
            End::NoRoom => Some(migration.room_needed_bytes()),
            End::Differs => None,
        };
        self.stuck.insert(job.clone(), stuck);
    }

    /// Forgets everything: the store was erased.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            generation: self.generation,
            ..Self::default()
        };
    }

    /// The last move, and those that wait.
    pub(crate) fn statuses(&self, children: &[Child]) -> Vec<MoveStatus> {
        let last = self.last.iter().filter(|it| self.is_shown(it, children));
        let mut all: Vec<MoveStatus> = last.map(|it| self.shown(it)).collect();
        for job in self.jobs.keys() {
            let is_last = |it: &Migration| continued(it, job, children).is_some();
            if self.moved.contains(job)
                || self.last.as_ref().is_some_and(is_last)
                || all
                    .iter()
                    .any(|it| it.has_failed() && it.scope == job.scope)
            {
                continue;
            }
            let phase = match self.stuck.get(job) {
                None => MoveStatus::PHASES[0],
                Some(Some(_)) => MoveStatus::PHASES[7],
                Some(None) => MoveStatus::PHASES[8],
            };
            all.push(MoveStatus {
                source: children[job.source].name.clone(),
                target: children[job.target].name.clone(),
                scope: job.scope.clone(),
                phase,
                is_taken_back: false,
                bytes_estimate: 0,
                bytes_copied: 0,
                keys_copied: 0,
                keys_verified: 0,
                keys_removed: 0,
                done_permille: 0,
                seconds_left: None,
            });
        }
        all
    }

    fn shown(&self, migration: &Migration) -> MoveStatus {
        let mut status = shown(migration);
        let is_under_way = self.current.is_some() && !status.has_ended() && !status.is_taken_back;
        if let Some(pace) = &self.pace
            && is_under_way
        {
            status.seconds_left = pace.seconds_left(status.done_permille);
        }
        status
    }

    /// True unless writes finished the move: it did not end, and nothing of it is left to do.
    fn is_shown(&self, migration: &Migration, children: &[Child]) -> bool {
        let has_ended = matches!(migration.phase(), Phase::Ended(_));
        let mut jobs = self.jobs.keys();
        let is_known = self.strays.is_some();
        has_ended || !is_known || jobs.any(|job| continued(migration, job, children).is_some())
    }
}

/// The move of an earlier run or table, continued by a job: a job in the other direction reverses
/// it.
fn continued(migration: &Migration, job: &Job, children: &[Child]) -> Option<Migration> {
    let plan = migration.plan();
    if matches!(migration.phase(), Phase::Ended(_)) || plan.scope != job.scope {
        return None;
    }
    let (source, target) = (&children[job.source].name, &children[job.target].name);
    let is_forward = (&plan.source, &plan.target) == (source, target);
    let is_backward = (&plan.target, &plan.source) == (source, target);
    match migration.is_taken_back() {
        false if is_forward => Some(migration.clone()),
        true if is_backward => Some(migration.clone()),
        false if is_backward => {
            let mut taken_back = migration.clone();
            taken_back.cancel().ok()?;
            Some(taken_back)
        }
        _ => None,
    }
}

fn shown(migration: &Migration) -> MoveStatus {
    let (plan, progress) = (migration.plan(), migration.progress());
    let at = match migration.phase() {
        Phase::Room => 1,
        Phase::Copy => 2,
        Phase::Verify => 3,
        Phase::Remove => 4,
        Phase::Ended(End::Moved) => 5,
        Phase::Ended(End::TakenBack) => 6,
        Phase::Ended(End::NoRoom) => 7,
        Phase::Ended(End::Differs) => 8,
    };
    MoveStatus {
        source: plan.source.clone(),
        target: plan.target.clone(),
        scope: plan.scope.clone(),
        phase: MoveStatus::PHASES[at],
        is_taken_back: migration.is_taken_back(),
        bytes_estimate: progress.bytes_estimate,
        bytes_copied: progress.bytes_copied,
        keys_copied: progress.keys_copied,
        keys_verified: progress.keys_verified,
        keys_removed: progress.keys_removed,
        done_permille: migration.done_permille(),
        seconds_left: None,
    }
}
