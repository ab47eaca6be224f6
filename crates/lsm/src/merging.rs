//! Merging tables downwards, as the policy wants it.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{ErrorKind, Result, StepOutcome, Task, TaskKind, Timestamp, Urgency};
use kvorum_sst::{ScanOptions, Table};

use crate::compaction::{Job, Reached};
use crate::files::table_path;
use crate::install::{self, are_unlisted};
use crate::journal_parts::JournalParts;
use crate::merge::{MergeWalk, READ_AHEAD_BYTES, Source};
use crate::opening::is_manifest_readable;
use crate::policy::{self, Debt, Pick, Reason};
use crate::rebuilding::lost_tables;
use crate::store::Store;
use crate::trouble::Troubles;
use crate::version::{LevelTable, Version, layers_of};

/// However many layers are merged, each is read in pieces of so many bytes.
const READ_AHEAD_BYTES_MIN: usize = 32 << 10;

/// Who has a part of a merge done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payer {
    Upkeep,
    /// A put, which knows no time.
    Writer,
}

/// The merge that is going on, and the tables of which merges failed.
#[derive(Default)]
pub(crate) struct Merging {
    running: Option<(Pick, Job)>,
    troubles: Troubles,
}

impl Merging {
    pub(crate) fn step(
        &mut self,
        store: &Store,
        level: u64,
        budget_bytes: u64,
        now: Timestamp,
        payer: Payer,
    ) -> Result<StepOutcome> {
        if self.running.is_none() {
            let version = store.version.load_full();
            let picks = picks(store, &version, now);
            let Some(pick) = picks.into_iter().find(|it| it.level as u64 == level) else {
                return Ok(StepOutcome::nothing_left());
            };
            // From one directory to the other, a table is written again like any other.
            let is_crossing = store.is_slow_level(pick.level) != store.is_slow_level(pick.output);
            if pick.is_move() && !is_crossing {
                move_table(store, &version, &pick)?;
                return Ok(StepOutcome::nothing_left());
            }
            self.troubles.keep(&version);
            let gives_up = payer == Payer::Upkeep
                && self.troubles.is_lasting(&pick, now)
                && is_manifest_readable(&*store.disk, &store.directory);
            self.running = Some(start_merge(store, &version, pick, gives_up, None));
        }
        let Some((pick, job)) = &mut self.running else {
            return Ok(StepOutcome::nothing_left());
        };
        if pick.level as u64 != level {
            return Ok(StepOutcome::nothing_left());
        }
        let outcome = job.step(store, budget_bytes, now);
        if let Err(error) = &outcome
            && let Some((_, job)) = self.running.take()
        {
            store.remove_files(job.output_paths(store));
            if error.kind() == ErrorKind::Failed {
                match payer {
                    Payer::Upkeep => self.troubles.failed(&job.inputs, now),
                    Payer::Writer => self.troubles.failed_for_writer(&job.inputs),
                }
            }
        }
        let (cost_bytes, reached) = outcome?;
        let is_done = matches!(reached, Reached::End);
        match reached {
            Reached::Budget => {}
            Reached::Part(next) => {
                if let Some((pick, job)) = self.running.take() {
                    self.running = Some(install_part(store, pick, job, next)?);
                }
            }
            Reached::End => {
                if let Some((pick, job)) = self.running.take() {
                    install_merge(store, &pick, job)?;
                }
            }
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// Does a part of what a put pays for.
    pub(crate) fn pay(
        &mut self,
        store: &Store,
        version: &Version,
        budget_bytes: u64,
        now: Timestamp,
    ) {
        let next = self.troubles.next_sound(picks(store, version, now));
        let level = self.running.as_ref().map(|(pick, _)| pick.level);
        if let Some(level) = level.or(next.map(|pick| pick.level)) {
            let level = level as u64;
            let _paid_or_due = self.step(store, level, budget_bytes, now, Payer::Writer);
        }
    }

    /// Gives up what was begun; its files go with it.
    pub(crate) fn abandon(&mut self, store: &Store) {
        if let Some((_, job)) = self.running.take() {
            store.remove_files(job.output_paths(store));
        }
    }
}

/// The merge that is going on, or the one that would be next. While somebody is at a step, what was begun is
/// not known.
pub(crate) fn due(
    store: &Store,
    merging: Option<&Merging>,
    version: &Version,
    now: Timestamp,
    urgency: Urgency,
) -> Option<Task> {
    let running = merging.and_then(|it| it.running.as_ref().map(|(pick, _)| pick));
    let picks = picks(store, version, now);
    let next = match merging {
        Some(merging) => merging.troubles.next(picks),
        None => picks.into_iter().next(),
    };
    let pick = running.or(next.as_ref())?;
    Some(task(version, pick, urgency))
}

/// How far merging is behind.
pub(crate) fn debt(store: &Store, version: &Version) -> Debt {
    let settings = &store.settings;
    settings
        .compaction
        .debt(&shape(store, version), &settings.policy)
}

fn shape(store: &Store, version: &Version) -> policy::Shape {
    let is_misplaced = |level: usize, it: &LevelTable| {
        let table = it.table.as_ref();
        level > 0 && table.is_some_and(|it| store.lies_slow(it) != store.is_slow_level(level))
    };
    version.shape(store.expiry.age_micros(), is_misplaced)
}

/// The merges that are due. Where puts are refused for want of space, new tables are merged at once if
/// that may free a part of what is there: what they supersede in older ones counts as used until then.
fn picks(store: &Store, version: &Version, now: Timestamp) -> Vec<Pick> {
    let mut settings = store.settings.policy.clone();
    let headroom = store.intake.headroom();
    let shape = shape(store, version);
    settings.table_bytes_max = store.table_bytes_max(false);
    // Where space is scarce, merges have what removals leave of the reserve: the rest may be gone before
    // they end.
    settings.room_bytes = match headroom.is_scarce() {
        true => headroom.available.min(headroom.reserve / 2),
        false => headroom.for_puts(),
    };
    if headroom.refuses_puts()
        && policy::is_zero_worth_merging(&shape, policy::worth_part(&headroom))
    {
        settings.level_zero_tables = 1;
    }
    let mut picks = store.settings.compaction.picks(&shape, &settings, now.0);
    let lost: Vec<u64> = lost_tables(store, version).map(|it| it.number).collect();
    let is_of_lost = |it: &Pick| {
        it.inputs
            .iter()
            .chain(&it.below)
            .any(|it| lost.contains(it))
    };
    picks.retain(|it| !is_of_lost(it));
    picks
}

/// A table without anything below it goes down as it is.
fn move_table(store: &Store, version: &Version, pick: &Pick) -> Result<()> {
    let is_it = |number: u64| pick.inputs.contains(&number);
    let Some(table) = version.levels[pick.level]
        .iter()
        .find(|it| is_it(it.number))
    else {
        return Ok(());
    };
    let moved = vec![table.clone()];
    install::exchange(store, pick, &moved)?;
    store.counters.moves.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Tables for the keys below `next` take the place of those of the output level. What they were merged
/// with stays until the whole is done: it is newer, and says the same. Returns what is left to do.
fn install_part(store: &Store, mut pick: Pick, mut job: Job, next: Bytes) -> Result<(Pick, Job)> {
    let version = store.version.load_full();
    let is_passed = |it: &&LevelTable| it.properties.largest < next;
    let passed = version.levels[pick.output].iter().filter(is_passed);
    let passed: Vec<u64> = passed.map(|it| it.number).collect();
    drop(version);
    let (below, rest): (Vec<u64>, Vec<u64>) = pick.below.iter().partition(|it| passed.contains(it));
    let part = Pick {
        inputs: Vec::new(),
        below,
        ..pick.clone()
    };
    install(store, &part, &mut job)?;
    let gives_up = job.gives_up;
    // Their files are open, and take space, for as long as the job has them.
    drop(job);
    store.replaced.release_unread();
    store.retire_files(
        part.below
            .iter()
            .map(|it| table_path(&store.directory, *it)),
    );
    pick.below = rest;
    Ok(start_merge(
        store,
        &store.version.load(),
        pick,
        gives_up,
        Some(next),
    ))
}

fn install_merge(store: &Store, pick: &Pick, mut job: Job) -> Result<()> {
    install(store, pick, &mut job)?;
    // The oldest first: should some stay, and the manifest be lost, none comes back that was removed.
    let oldest_first = job.inputs.iter().rev();
    let paths = oldest_first.map(|it| table_path(&store.directory, *it));
    store.retire_files(paths);
    store.counters.merges.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn install(store: &Store, pick: &Pick, job: &mut Job) -> Result<()> {
    let written = std::mem::take(&mut job.written);
    let mut was_listing = false;
    let exchanged = install::publish(store, &written).and_then(|tables| {
        was_listing = true;
        install::exchange(store, pick, &tables)
    });
    if let Err(error) = exchanged {
        if are_unlisted(was_listing, &error) {
            job.written = written;
            store.remove_files(job.output_paths(store));
        }
        return Err(error);
    }
    Ok(())
}

/// Begins a merge, or goes on with it from a key; one that gives up goes on without the blocks that the device
/// cannot read.
fn start_merge(
    store: &Store,
    version: &Version,
    pick: Pick,
    gives_up: bool,
    from: Option<Bytes>,
) -> (Pick, Job) {
    let taken = |it: &LevelTable| match (gives_up, &it.table) {
        (true, Some(table)) => LevelTable {
            table: Some(Arc::new(Table::clone(table).giving_up_bad_sectors())),
            ..it.clone()
        },
        _ => it.clone(),
    };
    let of = |level: usize, numbers: &[u64]| -> Vec<LevelTable> {
        let tables = version.levels[level].iter();
        let chosen = tables.filter(|it| numbers.contains(&it.number));
        chosen.map(taken).collect()
    };
    let inputs = of(pick.level, &pick.inputs);
    let mut runs: Vec<Arc<Vec<LevelTable>>> = match pick.level {
        0 => layers_of(&inputs).collect(),
        _ => vec![Arc::new(inputs)],
    };
    let mut ranges_below = None;
    if pick.output != pick.level {
        let below = of(pick.output, &pick.below);
        let range = |it: &LevelTable| {
            let properties = &it.properties;
            (properties.smallest.clone(), properties.largest.clone())
        };
        ranges_below = Some(below.iter().map(range).collect());
        runs.push(Arc::new(below));
    }
    // Layers with the same keys are all read again at the same time.
    let options = ScanOptions {
        read_ahead_bytes: (READ_AHEAD_BYTES / runs.len()).max(READ_AHEAD_BYTES_MIN),
        from: from.clone().map_or(Bound::Unbounded, Bound::Included),
        ..ScanOptions::default()
    };
    let sources = runs.iter().map(|it| Source::run(it, options.clone()));
    let sources = sources.collect();
    let numbers = pick.inputs.iter().chain(&pick.below).copied().collect();
    let walk = MergeWalk::new(sources);
    let mut job = Job::new(walk, version, pick.output, numbers, false);
    job = job.over_journal(JournalParts::of(store, version));
    job.gives_up = gives_up;
    if let Some(ranges) = ranges_below {
        job = job.in_parts(ranges, from);
    }
    (pick, job)
}

fn task(version: &Version, pick: &Pick, urgency: Urgency) -> Task {
    let of = |level: usize, numbers: &[u64]| -> u64 {
        let tables = version.levels[level].iter();
        let chosen = tables.filter(|it| numbers.contains(&it.number));
        chosen.map(worked_bytes).sum()
    };
    let bytes = of(pick.level, &pick.inputs) + of(pick.output, &pick.below);
    let (kind, urgency) = match pick.reason {
        Reason::Size if pick.level == 0 => (TaskKind::Compact, urgency),
        Reason::Size => (TaskKind::Compact, Urgency::Normal),
        Reason::Removals => (TaskKind::Compact, Urgency::Idle),
        Reason::Expired => (TaskKind::Expire, Urgency::Idle),
        Reason::Misplaced => (TaskKind::Compact, Urgency::Idle),
    };
    Task {
        kind,
        subject: pick.level as u64,
        urgency,
        cost_bytes: 2 * bytes,
    }
}

/// What walking over a table takes, in the bytes that steps count: those of entries, unpacked.
fn worked_bytes(it: &LevelTable) -> u64 {
    it.properties.raw_bytes.max(it.file_len)
}
