//! Merging tables downwards, as the policy wants it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{ErrorKind, Result, StepOutcome, Task, TaskKind, Timestamp, Urgency};
use kvorum_sst::ScanFilter;

use crate::compaction::Job;
use crate::merge::{MergeWalk, Source, alone};
use crate::policy::{Pick, Reason};
use crate::store::{Store, table_path};
use crate::upkeep::Upkeep;
use crate::version::{LevelTable, Version};

impl Store {
    pub(crate) fn merge_step(
        &self,
        upkeep: &mut Upkeep,
        level: u64,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if upkeep.merge.is_none() {
            let version = self.version.load_full();
            let picks = self.picks(&version, now);
            let Some(pick) = picks.into_iter().find(|it| it.level as u64 == level) else {
                return Ok(StepOutcome::nothing_left());
            };
            if pick.is_move() {
                self.move_table(&version, &pick)?;
                return Ok(StepOutcome::nothing_left());
            }
            upkeep.merge = Some(start_merge(version, pick));
        }
        let Some((pick, job)) = &mut upkeep.merge else {
            return Ok(StepOutcome::nothing_left());
        };
        if pick.level as u64 != level {
            return Ok(StepOutcome::nothing_left());
        }
        let outcome = job.step(self, budget_bytes, now);
        if outcome.is_err()
            && let Some((_, job)) = upkeep.merge.take()
        {
            self.remove_files(job.output_paths(self));
        }
        let (cost_bytes, is_done) = outcome?;
        if is_done && let Some((pick, job)) = upkeep.merge.take() {
            self.install_merge(&pick, job)?;
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

    fn install_merge(&self, pick: &Pick, mut job: Job) -> Result<()> {
        let written = std::mem::take(&mut job.written);
        let exchanged = self
            .publish(&written)
            .and_then(|tables| self.exchange(pick, &tables));
        if let Err(error) = exchanged {
            if error.kind() == ErrorKind::Full || error.kind() == ErrorKind::Corrupt {
                job.written = written;
                self.remove_files(job.output_paths(self));
            }
            return Err(error);
        }
        // What damaged blocks held is copied before they go.
        self.read_side.lost.write(&*self.disk);
        let paths = job.inputs.iter().map(|it| table_path(&self.directory, *it));
        self.remove_files(paths);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn start_merge(version: Arc<Version>, pick: Pick) -> (Pick, Job) {
    let from = std::ops::Bound::Unbounded;
    let of = |level: usize, numbers: &[u64]| -> Vec<LevelTable> {
        let tables = version.levels[level].iter();
        tables
            .filter(|it| numbers.contains(&it.number))
            .cloned()
            .collect()
    };
    let filter = ScanFilter::default;
    let inputs = of(pick.level, &pick.inputs);
    let mut sources: Vec<Source> = match pick.level {
        0 => inputs
            .iter()
            .map(|it| Source::run(&alone(it), &from, filter()))
            .collect(),
        _ => vec![Source::run(&Arc::new(inputs), &from, filter())],
    };
    let below = of(pick.output, &pick.below);
    if pick.output != pick.level {
        sources.push(Source::run(&Arc::new(below), &from, filter()));
    }
    let numbers = pick.inputs.iter().chain(&pick.below).copied().collect();
    let walk = MergeWalk::new(sources);
    let job = Job::new(walk, version, pick.output, numbers, false);
    (pick, job)
}

pub(crate) fn merge_task(pick: &Pick, urgency: Urgency) -> Task {
    let (kind, urgency) = match pick.reason {
        Reason::Size if pick.level == 0 => (TaskKind::Compact, urgency),
        Reason::Size => (TaskKind::Compact, Urgency::Normal),
        Reason::Removals => (TaskKind::Compact, Urgency::Idle),
        Reason::Expired => (TaskKind::Expire, Urgency::Idle),
    };
    Task {
        kind,
        subject: pick.level as u64,
        urgency,
        cost_bytes: 2 * pick.bytes,
    }
}
