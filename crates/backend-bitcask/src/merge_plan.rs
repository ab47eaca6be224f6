//! The next merge and its urgency; [`crate::victim`] decides by the numbers from here.

use std::collections::VecDeque;

use kvorum_backend::{BackendError, Task, TaskKind, Timestamp, Unreadable, Urgency};

use crate::segment_files::SegmentFiles;
use crate::segment_stats::SegmentStats;
use crate::segments::{Catalog, SegmentEntry};
use crate::settings::{MergePolicy, MergeSettings};
use crate::victim::{Candidate, WholeStore, choose_round, urgency};

/// Limit of garbage in the store, in percent, while puts are refused for want of space, if the
/// setting is not lower: copying much for little is better than refusing.
const EXHAUSTED_GARBAGE_PERCENT: u8 = 5;
/// The same while removals will soon be refused too.
const GARBAGE_PERCENT_FOR_REMOVALS: u8 = 1;

/// The planned merges of a store.
#[derive(Default)]
pub(crate) struct MergePlan {
    /// Segments to merge in this round, best first.
    round: VecDeque<u32>,
    /// Segments whose merges failed.
    unreadable: Unreadable,
}

impl MergePlan {
    /// The task of dropping a segment in which all entries have expired.
    pub(crate) fn expired(
        &self,
        files: &SegmentFiles,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Option<Task> {
        let (_, entry) = catalog.segments.iter().find(|(number, entry)| {
            self.is_mergeable(**number)
                && entry.is_sealed
                && entry.stats.records > 0
                && files.home.expiry.is_all_collectable(&entry.stats, now)
        })?;
        Some(merge_task(entry, TaskKind::Expire, 0, Urgency::Normal))
    }

    /// The task of the merge in progress, given by segment and position, or of the next merge.
    /// `output` is the segment for copies.
    pub(crate) fn due(
        &mut self,
        files: &SegmentFiles,
        catalog: &Catalog,
        under_way: Option<(u32, u64)>,
        output: Option<u32>,
        now: Timestamp,
    ) -> Option<Task> {
        let settings = Self::merge_settings(files);
        if !settings.policy.allows(now) {
            return None;
        }
        if let Some((number, position)) = under_way
            && let Some(entry) = catalog.segments.get(&number)
        {
            let urgency = Self::merge_urgency(files, entry, catalog, &settings);
            return Some(merge_task(entry, TaskKind::Merge, position, urgency));
        }
        let room_bytes = Self::room_for_copies(files);
        let oldest = files.log.oldest();
        let mut round = std::mem::take(&mut self.round);
        round.retain(|number| {
            let entry = catalog.segments.get(number);
            let known = entry.map(|it| Self::candidate(files, catalog, *number, &it.stats, oldest));
            known.is_some_and(|it| it.copied_bytes() <= room_bytes)
        });
        if round.is_empty() {
            let mut candidates = Self::candidates(files, catalog);
            candidates.retain(|it| self.is_mergeable(it.number));
            candidates.retain(|it| it.copied_bytes() <= room_bytes);
            let whole = Self::whole_store(files, catalog);
            let output = Self::output_candidate(files, output, catalog);
            let output = output.filter(|it| it.copied_bytes() <= room_bytes);
            round = choose_round(&candidates, output, whole, &settings).into();
        }
        self.round = round;
        let number = self.round.front()?;
        let entry = catalog.segments.get(number)?;
        let urgency = Self::merge_urgency(files, entry, catalog, &settings);
        Some(merge_task(entry, TaskKind::Merge, 0, urgency))
    }

    /// Notes a failed merge. An unreadable segment is left alone: its readable records are served,
    /// and other segments are merged.
    pub(crate) fn failed(&mut self, number: u32, error: &BackendError) {
        if self.unreadable.failed(number.into(), error) {
            self.done(number);
        }
    }

    /// Removes a segment from the round.
    pub(crate) fn done(&mut self, number: u32) {
        self.round.retain(|waiting| *waiting != number);
    }

    pub(crate) fn abandon(&mut self) {
        self.round.clear();
    }

    /// Bytes that the round has yet to read and write.
    pub(crate) fn backlog_bytes(&self, catalog: &Catalog) -> u64 {
        let merged = self.round.iter().filter_map(|it| catalog.segments.get(it));
        merged
            .map(|it| it.stats.data_end + it.stats.live_bytes)
            .sum()
    }

    fn is_mergeable(&self, number: u32) -> bool {
        !self.unreadable.contains(number.into())
    }

    /// The present settings of merges. While puts are refused for want of space, merges wait
    /// neither for their hours nor for more garbage.
    fn merge_settings(files: &SegmentFiles) -> MergeSettings {
        let mut settings = files.home.settings.merge.clone();
        let headroom = files.home.intake.headroom();
        if headroom.is_exhausted() && settings.policy != MergePolicy::Never {
            settings.policy = MergePolicy::Always;
            let trigger = &mut settings.store_garbage_trigger_percent;
            if *trigger <= 100 {
                let most = match headroom.is_short_for_removals() {
                    true => GARBAGE_PERCENT_FOR_REMOVALS,
                    false => EXHAUSTED_GARBAGE_PERCENT,
                };
                *trigger = most.min(*trigger);
            }
        }
        settings
    }

    /// The space for the copy of a segment. Files of earlier versions may be longer than the
    /// reserve: a file whose copy does not fit is left alone, and merges of other files make room.
    fn room_for_copies(files: &SegmentFiles) -> u64 {
        let headroom = files.home.intake.headroom();
        match headroom.is_scarce() {
            true => headroom.available,
            false => u64::MAX,
        }
    }

    /// The urgency of a merge. The bound on garbage holds at any load; other merges can wait until
    /// they free much.
    fn merge_urgency(
        files: &SegmentFiles,
        entry: &SegmentEntry,
        catalog: &Catalog,
        settings: &MergeSettings,
    ) -> Urgency {
        if files.home.intake.headroom().is_scarce() {
            return Urgency::Pressing;
        }
        let stats = &entry.stats;
        let garbage_bytes =
            stats.garbage_bytes() + files.home.expiry.expired_in(stats).freed_bytes();
        let is_mostly_garbage = garbage_bytes * 2 > stats.data_bytes();
        let by_itself = if is_mostly_garbage {
            Urgency::Normal
        } else {
            Urgency::Idle
        };
        let bound = urgency(Self::whole_store(files, catalog), settings);
        bound.map_or(by_itself, |urgency| urgency.max(by_itself))
    }

    fn candidates(files: &SegmentFiles, catalog: &Catalog) -> Vec<Candidate> {
        let sealed = catalog.segments.iter().filter(|(_, entry)| entry.is_sealed);
        let oldest = files.log.oldest();
        sealed
            .map(|(number, entry)| Self::candidate(files, catalog, *number, &entry.stats, oldest))
            .collect()
    }

    /// The segment for copies, as a candidate for ending it early.
    fn output_candidate(
        files: &SegmentFiles,
        output: Option<u32>,
        catalog: &Catalog,
    ) -> Option<Candidate> {
        let number = output?;
        let stats = &catalog.segments.get(&number)?.stats;
        Some(Self::candidate(
            files,
            catalog,
            number,
            stats,
            files.log.oldest(),
        ))
    }

    /// A segment as a candidate for merging. Removals count as garbage if a merge could drop all of
    /// them, and expired entries if they do not become removals.
    fn candidate(
        files: &SegmentFiles,
        catalog: &Catalog,
        number: u32,
        stats: &SegmentStats,
        oldest: Option<u32>,
    ) -> Candidate {
        let expired = files.home.expiry.expired_in(stats);
        let has_removals = stats.removals + expired.records > 0;
        let are_removals_garbage =
            has_removals && catalog.is_removal_droppable(stats.sequence_max, number, oldest);
        let (bytes, records) = match are_removals_garbage {
            true => (
                expired.bytes + stats.removal_bytes,
                expired.records + stats.removals,
            ),
            false => (expired.freed_bytes(), 0),
        };
        Candidate {
            number,
            bytes: stats.data_bytes(),
            garbage_bytes: stats.garbage_bytes() + bytes,
            records: stats.records,
            garbage_records: stats.garbage_entries() + records,
        }
    }

    fn whole_store(files: &SegmentFiles, catalog: &Catalog) -> WholeStore {
        let stats = || catalog.segments.values().map(|entry| &entry.stats);
        let garbage_bytes =
            |it: &SegmentStats| it.garbage_bytes() + files.home.expiry.expired_in(it).freed_bytes();
        WholeStore {
            bytes: stats().map(SegmentStats::data_bytes).sum(),
            garbage_bytes: stats().map(garbage_bytes).sum(),
            file_bytes_aim: files.bytes_max(),
        }
    }
}

fn merge_task(entry: &SegmentEntry, kind: TaskKind, done_bytes: u64, urgency: Urgency) -> Task {
    let stats = &entry.stats;
    Task {
        kind,
        subject: u64::from(entry.segment.number),
        urgency,
        cost_bytes: stats.data_end.saturating_sub(done_bytes) + stats.live_bytes,
    }
}
