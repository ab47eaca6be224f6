//! Merging tables downwards, as the policy wants it.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{ErrorKind, Result, StepOutcome, Task, TaskKind, Timestamp, Urgency};
use kvorum_sst::{ScanOptions, Table};

use crate::compaction::{Job, Reached};
use crate::files::table_path;
use crate::install::are_unlisted;
use crate::merge::{MergeWalk, READ_AHEAD_BYTES, Source};
use crate::opening::is_manifest_readable;
use crate::policy::{Pick, Reason};
use crate::store::Store;
use crate::upkeep::Upkeep;
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

impl Store {
    pub(crate) fn merge_step(
        &self,
        upkeep: &mut Upkeep,
        level: u64,
        budget_bytes: u64,
        now: Timestamp,
        payer: Payer,
    ) -> Result<StepOutcome> {
        if upkeep.merge.is_none() {
            let version = self.version.load_full();
            let picks = self.picks(&version, now);
            let Some(pick) = picks.into_iter().find(|it| it.level as u64 == level) else {
                return Ok(StepOutcome::nothing_left());
            };
            // From one directory to the other, a table is written again like any other.
            let is_crossing = self.is_slow_level(pick.level) != self.is_slow_level(pick.output);
            if pick.is_move() && !is_crossing {
                self.move_table(&version, &pick)?;
                return Ok(StepOutcome::nothing_left());
            }
            upkeep.troubles.keep(&version);
            let gives_up = payer == Payer::Upkeep
                && upkeep.troubles.is_lasting(&pick, now)
                && is_manifest_readable(&*self.disk, &self.directory);
            upkeep.merge = Some(start_merge(&version, pick, gives_up, None));
        }
        let Some((pick, job)) = &mut upkeep.merge else {
            return Ok(StepOutcome::nothing_left());
        };
        if pick.level as u64 != level {
            return Ok(StepOutcome::nothing_left());
        }
        let outcome = job.step(self, budget_bytes, now);
        if let Err(error) = &outcome
            && let Some((_, job)) = upkeep.merge.take()
        {
            self.remove_files(job.output_paths(self));
            if error.kind() == ErrorKind::Failed {
                match payer {
                    Payer::Upkeep => upkeep.troubles.failed(&job.inputs, now),
                    Payer::Writer => upkeep.troubles.failed_for_writer(&job.inputs),
                }
            }
        }
        let (cost_bytes, reached) = outcome?;
        let is_done = matches!(reached, Reached::End);
        match reached {
            Reached::Budget => {}
            Reached::Part(next) => {
                if let Some((pick, job)) = upkeep.merge.take() {
                    upkeep.merge = Some(self.install_part(pick, job, next)?);
                }
            }
            Reached::End => {
                if let Some((pick, job)) = upkeep.merge.take() {
                    self.install_merge(&pick, job)?;
                }
            }
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// A table without anything below it goes down as it is.
    fn move_table(&self, version: &Version, pick: &Pick) -> Result<()> {
        let is_it = |number: u64| pick.inputs.contains(&number);
        let Some(table) = version.levels[pick.level]
            .iter()
            .find(|it| is_it(it.number))
        else {
            return Ok(());
        };
        let moved = vec![table.clone()];
        self.exchange(pick, &moved)?;
        self.counters.moves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Tables for the keys below `next` take the place of those of the output level. What they were merged
    /// with stays until the whole is done: it is newer, and says the same. Returns what is left to do.
    fn install_part(&self, mut pick: Pick, mut job: Job, next: Bytes) -> Result<(Pick, Job)> {
        let version = self.version.load_full();
        let is_passed = |it: &&LevelTable| it.properties.largest < next;
        let passed = version.levels[pick.output].iter().filter(is_passed);
        let passed: Vec<u64> = passed.map(|it| it.number).collect();
        drop(version);
        let (below, rest): (Vec<u64>, Vec<u64>) =
            pick.below.iter().partition(|it| passed.contains(it));
        let part = Pick {
            inputs: Vec::new(),
            below,
            ..pick.clone()
        };
        self.install(&part, &mut job)?;
        let gives_up = job.gives_up;
        // Their files are open, and take space, for as long as the job has them.
        drop(job);
        self.replaced.release_unread();
        self.retire_files(part.below.iter().map(|it| table_path(&self.directory, *it)));
        pick.below = rest;
        Ok(start_merge(
            &self.version.load(),
            pick,
            gives_up,
            Some(next),
        ))
    }

    fn install_merge(&self, pick: &Pick, mut job: Job) -> Result<()> {
        self.install(pick, &mut job)?;
        // The oldest first: should some stay, and the manifest be lost, none comes back that was removed.
        let oldest_first = job.inputs.iter().rev();
        let paths = oldest_first.map(|it| table_path(&self.directory, *it));
        self.retire_files(paths);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn install(&self, pick: &Pick, job: &mut Job) -> Result<()> {
        let written = std::mem::take(&mut job.written);
        let mut was_listing = false;
        let exchanged = self.publish(&written).and_then(|tables| {
            was_listing = true;
            self.exchange(pick, &tables)
        });
        if let Err(error) = exchanged {
            if are_unlisted(was_listing, &error) {
                job.written = written;
                self.remove_files(job.output_paths(self));
            }
            return Err(error);
        }
        Ok(())
    }
}

/// Begins a merge, or goes on with it from a key; one that gives up goes on without the blocks that the device
/// cannot read.
fn start_merge(version: &Version, pick: Pick, gives_up: bool, from: Option<Bytes>) -> (Pick, Job) {
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
    job.gives_up = gives_up;
    if let Some(ranges) = ranges_below {
        job = job.in_parts(ranges, from);
    }
    (pick, job)
}

pub(crate) fn merge_task(version: &Version, pick: &Pick, urgency: Urgency) -> Task {
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
