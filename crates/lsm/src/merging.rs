//! Downward merges of tables, selected by the policy.

use std::collections::BTreeSet;
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
use crate::policy::{self, Backlog, Pick, Reason};
use crate::read_failures::ReadFailures;
use crate::rebuilding::lost_tables;
use crate::shares::Shares;
use crate::store::Store;
use crate::version::{LevelTable, Version, layers_of};

/// The fewest bytes of a layer that are read at once, for any number of layers.
const READ_AHEAD_BYTES_MIN: usize = 32 << 10;

/// The caller that pays for a part of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payer {
    Upkeep,
    /// A put, which has no time.
    Writer,
}

/// Shares of several puts, counted in bytes that go to tables.
pub(crate) struct SharedPut {
    /// Bytes of all puts that have not paid yet, the present one included.
    pub(crate) unpaid_bytes: u64,
    /// Bytes of the present put.
    pub(crate) own_bytes: u64,
    /// Bytes of merging due for each byte, for all levels with a due merge.
    pub(crate) per_byte: u64,
}

/// The merges in progress, as many as the policy allows, and the tables whose merges failed.
#[derive(Default)]
pub(crate) struct Merging {
    running: Vec<(Pick, Job)>,
    read_failures: ReadFailures,
    shares: Shares,
    /// The levels with due merges, and the number of version changes at which they were found.
    due_levels: Option<(u64, Vec<usize>)>,
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
        let at = match self.running_at(level) {
            Some(at) => at,
            None => match self.begin(store, level, now, payer)? {
                Some(at) => at,
                None => return Ok(StepOutcome::nothing_left()),
            },
        };
        let (pick, job) = &mut self.running[at];
        let level = pick.level;
        let outcome = job.step(store, budget_bytes, now);
        if let Err(error) = &outcome {
            self.due_levels = None;
            let (_, job) = self.running.remove(at);
            store.remove_files(job.output_paths(store));
            if error.kind() == ErrorKind::Failed {
                match payer {
                    Payer::Upkeep => self.read_failures.failed(&job.inputs, now),
                    Payer::Writer => self.read_failures.failed_for_writer(&job.inputs),
                }
            }
        }
        let (cost_bytes, reached) = outcome?;
        self.shares.done(level, cost_bytes);
        let is_done = matches!(reached, Reached::End);
        match reached {
            Reached::Budget => {}
            Reached::Part(next) => {
                let (pick, job) = self.running.remove(at);
                self.running.push(install_part(store, pick, job, next)?);
            }
            Reached::End => {
                let (pick, job) = self.running.remove(at);
                install_merge(store, &pick, job)?;
                self.ended(store, &pick, now)?;
            }
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    fn running_at(&self, level: u64) -> Option<usize> {
        let mut running = self.running.iter();
        running.position(|(pick, _)| pick.level as u64 == level)
    }

    fn may_begin(&self, store: &Store, pick: &Pick) -> bool {
        let begun: Vec<&Pick> = self.running.iter().map(|(pick, _)| pick).collect();
        store.settings.compaction.may_begin(pick, &begun)
    }

    /// Begins the due merge of a level, and returns its index among the merges in progress. A mere
    /// move is made at once instead.
    fn begin(
        &mut self,
        store: &Store,
        level: u64,
        now: Timestamp,
        payer: Payer,
    ) -> Result<Option<usize>> {
        let version = store.version.load_full();
        let picks = picks(store, &version, now);
        let due = picks.into_iter().find(|it| it.level as u64 == level);
        let Some(pick) = due.filter(|it| self.may_begin(store, it)) else {
            return Ok(None);
        };
        // A table that changes the directory is rewritten, as in a merge.
        let is_crossing = store.is_slow_level(pick.level) != store.is_slow_level(pick.output);
        if pick.is_move && !is_crossing {
            move_tables(store, &version, &pick)?;
            return Ok(None);
        }
        self.read_failures.keep(&version);
        let gives_up = payer == Payer::Upkeep
            && self.read_failures.is_lasting(&pick, now)
            && is_manifest_readable(&*store.disk, &store.directory);
        self.running
            .push(start_merge(store, &version, pick, gives_up, None));
        Ok(Some(self.running.len() - 1))
    }

    /// If puts pay shares, the result of a finished merge moves on at once: another merge may be
    /// waiting for its place.
    fn ended(&mut self, store: &Store, pick: &Pick, now: Timestamp) -> Result<()> {
        if store.settings.compaction.share_per_byte().is_none() {
            return Ok(());
        }
        if pick.level == 0 || store.version.load().levels[pick.level].is_empty() {
            self.shares.close(pick.level);
        }
        for _ in 0..store.settings.policy.levels {
            let version = store.version.load_full();
            let mut picks = picks(store, &version, now).into_iter();
            let next = picks.find(|it| it.is_move && self.may_begin(store, it));
            let Some(pick) = next else {
                break;
            };
            move_tables(store, &version, &pick)?;
        }
        Ok(())
    }

    /// Does the part of a merge that a put pays for.
    pub(crate) fn pay(
        &mut self,
        store: &Store,
        version: &Version,
        budget_bytes: u64,
        now: Timestamp,
    ) {
        let next = self.read_failures.next_sound(picks(store, version, now));
        let level = self.running.first().map(|(pick, _)| pick.level);
        if let Some(level) = level.or(next.map(|pick| pick.level)) {
            let level = level as u64;
            let _paid_or_due = self.step(store, level, budget_bytes, now, Payer::Writer);
        }
    }

    /// Charges for these bytes, and does a part of the charged work; the rest stays charged.
    /// `own_bytes` are the bytes of the paying put, which does at least its own share.
    pub(crate) fn pay_share(
        &mut self,
        store: &Store,
        put: &SharedPut,
        budget_bytes: u64,
        now: Timestamp,
    ) {
        let levels = self.due_levels(store, now);
        let share = |bytes: u64| bytes.saturating_mul(put.per_byte);
        self.shares.put(&levels, share(put.unpaid_bytes));
        let own = share(put.own_bytes).saturating_mul(levels.len() as u64);
        let mut left = budget_bytes.max(own);
        let mut passed = Vec::new();
        while left > 0
            && let Some((level, charge)) = self.shares.most(&passed)
        {
            passed.push(level);
            // A failed step is due again, and the next upkeep reports the failure.
            let paid = self.step(store, level as u64, charge.min(left), now, Payer::Writer);
            let Ok(paid) = paid else {
                return;
            };
            left = left.saturating_sub(paid.cost_bytes);
        }
    }

    /// The levels with merges that a put may pay for, computed again when the version has changed.
    fn due_levels(&mut self, store: &Store, now: Timestamp) -> Vec<usize> {
        let changes = store.version_changes.load(Ordering::Relaxed);
        if let Some((known, levels)) = &self.due_levels
            && *known == changes
        {
            return levels.clone();
        }
        let picks = picks(store, &store.version.load(), now);
        let is_due = |it: &&Pick| it.reason == Reason::Size && self.read_failures.is_sound(it);
        let due = picks.iter().filter(is_due).map(|it| it.level);
        let running = self.running.iter().map(|(pick, _)| pick.level);
        let levels: BTreeSet<usize> = running.chain(due).collect();
        let levels: Vec<usize> = levels.into_iter().collect();
        self.due_levels = Some((changes, levels.clone()));
        levels
    }

    /// Abandons the merges; their files are removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        for (_, job) in self.running.drain(..) {
            store.remove_files(job.output_paths(store));
        }
    }
}

/// The merges in progress, and the merges that may begin in addition, or the next one. During a
/// step of another thread, the merges in progress are unknown.
pub(crate) fn due(
    store: &Store,
    merging: Option<&Merging>,
    version: &Version,
    now: Timestamp,
    urgency: Urgency,
) -> Vec<Task> {
    let picks = picks(store, version, now);
    let mut due: Vec<Pick> = Vec::new();
    if let Some(merging) = merging {
        due.extend(merging.running.iter().map(|(pick, _)| pick.clone()));
    }
    let next = match merging {
        Some(merging) => merging.read_failures.sound_first(picks),
        None => picks,
    };
    for pick in next {
        let begun: Vec<&Pick> = due.iter().collect();
        if store.settings.compaction.may_begin(&pick, &begun) {
            due.push(pick);
        }
    }
    due.iter().map(|it| task(version, it, urgency)).collect()
}

/// The backlog of merging.
pub(crate) fn backlog(store: &Store, version: &Version) -> Backlog {
    let settings = &store.settings;
    settings
        .compaction
        .backlog(&shape(store, version), &settings.policy)
}

fn shape(store: &Store, version: &Version) -> policy::Shape {
    let is_misplaced = |level: usize, it: &LevelTable| {
        let table = it.table.as_ref();
        level > 0 && table.is_some_and(|it| store.lies_slow(it) != store.is_slow_level(level))
    };
    version.shape(store.expiry.age_micros(), is_misplaced)
}

/// The due merges. While puts are refused for want of space, new tables are merged at once if that
/// may free enough of the older tables: superseded entries take space until then.
fn picks(store: &Store, version: &Version, now: Timestamp) -> Vec<Pick> {
    let mut settings = store.settings.policy.clone();
    let headroom = store.intake.headroom();
    let shape = shape(store, version);
    settings.table_bytes_max = store.table_bytes_max(false);
    // If space is scarce, merges may use the part of the reserve that removals leave; the rest may
    // be used up before the merges end.
    settings.room_bytes = match headroom.is_scarce() {
        true => headroom.available.min(headroom.reserve / 2),
        false => headroom.for_puts(),
    };
    if headroom.refuses_puts() {
        let worth_part = policy::worth_part(&headroom);
        settings.worth_part = Some(worth_part);
        if policy::is_zero_worth_merging(&shape, worth_part) {
            settings.level_zero_tables = 1;
        }
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

/// Moves tables to another level without rewriting them.
fn move_tables(store: &Store, version: &Version, pick: &Pick) -> Result<()> {
    let tables = version.levels[pick.level].iter();
    let moved = tables.filter(|it| pick.inputs.contains(&it.number));
    let moved: Vec<LevelTable> = moved.cloned().collect();
    if moved.is_empty() {
        return Ok(());
    }
    install::exchange(store, pick, &moved)?;
    store.counters.moves.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Replaces the output level's tables with keys below `next` by new tables. The inputs stay until
/// the whole merge is done: they have the same entries, in a newer layer. Returns the rest of the
/// merge.
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
    // Open files take space, and the job has the old tables open.
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
    // The oldest first: if some files stay and the manifest is lost, no removed entry comes back.
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

/// Begins a merge, or continues it from a key; a merge that gives up continues without the blocks that the
/// device cannot read.
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
    // Layers with the same keys read their next pieces at the same time.
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
    // Policies count no bytes for moves.
    let cost_bytes = if pick.bytes == 0 { 0 } else { 2 * bytes };
    Task {
        kind,
        subject: pick.level as u64,
        urgency,
        cost_bytes,
    }
}

/// The cost of a walk over a table, in the bytes that steps count: uncompressed entries.
fn worked_bytes(it: &LevelTable) -> u64 {
    it.properties.raw_bytes.max(it.file_len)
}
