//! Progress of an import and its remaining time, for other tasks to read.

use std::fmt;
use std::time::Duration;

use kvorum_runtime::Moment;
use parking_lot::Mutex;

use crate::counts::Counts;

/// Progress that is shared with its viewers.
#[derive(Debug, Default)]
pub struct Progress {
    now: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    stage: Option<WorkStage>,
    started: Moment,
    done_at_start: u64,
    done: u64,
    total: u64,
    counts: Counts,
}

/// The two halves of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkStage {
    /// The search for records, or other work before the puts; measured in bytes of files.
    Survey,
    /// The puts of objects; measured in records, or in bytes of files.
    Transfer,
}

/// A snapshot of an import's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressView {
    /// Stage under way.
    pub stage: WorkStage,
    /// Finished part of the stage.
    pub done: u64,
    /// Size of the stage.
    pub total: u64,
    /// Remaining time of the stage at the pace so far.
    pub left: Option<Duration>,
    /// Counts so far.
    pub counts: Counts,
}

impl Progress {
    /// The present snapshot; `None` before the work begins.
    pub fn view(&self, now: Moment) -> Option<ProgressView> {
        let inner = self.now.lock();
        let stage = inner.stage?;
        let elapsed = now.since(inner.started);
        let fresh = inner.done.saturating_sub(inner.done_at_start);
        let rest = inner.total.saturating_sub(inner.done);
        let left = (fresh > 0).then(|| {
            let seconds = elapsed.as_secs_f64() * (rest as f64 / fresh as f64);
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        });
        Some(ProgressView {
            stage,
            done: inner.done,
            total: inner.total,
            left,
            counts: inner.counts,
        })
    }

    /// Begins a stage, which may be partly finished.
    pub fn begin(&self, stage: WorkStage, now: Moment, done: u64, total: u64) {
        let mut inner = self.now.lock();
        inner.stage = Some(stage);
        inner.started = now;
        inner.done_at_start = done;
        inner.done = done;
        inner.total = total;
    }

    /// Sets the finished part of the stage, and the counts.
    pub fn set(&self, done: u64, counts: Counts) {
        let mut inner = self.now.lock();
        inner.done = done;
        inner.counts = counts;
    }
}

impl fmt::Display for ProgressView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.done as f64 / self.total.max(1) as f64 * 100.0;
        let share = share.min(100.0);
        match self.stage {
            WorkStage::Survey => write!(
                f,
                "survey {share:.0} %: {} records in {} of {} MB",
                self.counts.records,
                self.done >> 20,
                self.total >> 20
            )?,
            WorkStage::Transfer => write!(
                f,
                "import {share:.0} %: {} objects, {} MB",
                self.counts.objects,
                self.counts.value_bytes >> 20
            )?,
        }
        if self.counts.unreadable > 0 {
            write!(f, ", {} unreadable", self.counts.unreadable)?;
        }
        match self.left {
            Some(left) => {
                let seconds = left.as_secs();
                let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
                write!(f, ", about {hours}:{minutes:02}:{:02} left", seconds % 60)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_pace_of_this_run() {
        let progress = Progress::default();
        assert_eq!(progress.view(Moment::default()), None);
        let start = Moment::from_start(Duration::from_secs(50));
        progress.begin(WorkStage::Transfer, start, 500, 1000);
        let counts = Counts {
            objects: 7,
            ..Counts::default()
        };
        progress.set(600, counts);
        let view = progress.view(start.plus(Duration::from_secs(10))).unwrap();
        assert_eq!(view.left, Some(Duration::from_secs(40)));
        let line = view.to_string();
        assert_eq!(line, "import 60 %: 7 objects, 0 MB, about 0:00:40 left");
    }

    fn view(stage: WorkStage, counts: Counts) -> ProgressView {
        ProgressView {
            stage,
            done: 3 << 20,
            total: 4 << 20,
            left: None,
            counts,
        }
    }

    #[test]
    fn each_stage_shows_what_it_counts_and_what_cannot_be_read() {
        let counts = Counts {
            records: 12,
            unreadable: 2,
            objects: 7,
            value_bytes: 5 << 20,
            ..Counts::default()
        };
        let survey = view(WorkStage::Survey, counts).to_string();
        assert_eq!(survey, "survey 75 %: 12 records in 3 of 4 MB, 2 unreadable");
        let transfer = view(WorkStage::Transfer, counts).to_string();
        assert_eq!(transfer, "import 75 %: 7 objects, 5 MB, 2 unreadable");
    }

    #[test]
    fn a_stage_that_has_just_begun_has_no_estimate_and_one_that_stands_still_a_longer_one() {
        let progress = Progress::default();
        let start = Moment::from_start(Duration::from_secs(9));
        progress.begin(WorkStage::Survey, start, 100, 400);
        let left_after = |seconds| {
            let now = start.plus(Duration::from_secs(seconds));
            progress.view(now).unwrap().left
        };
        assert_eq!(left_after(30), None);
        progress.set(200, Counts::default());
        assert_eq!(left_after(30), Some(Duration::from_secs(60)));
        assert_eq!(left_after(60), Some(Duration::from_secs(120)));
        // The next stage has a pace of its own.
        progress.begin(WorkStage::Transfer, start, 0, 10);
        assert_eq!(left_after(60), None);
    }

    #[test]
    fn more_than_was_expected_and_nothing_at_all_are_whole() {
        let of = |done, total| {
            let counts = Counts::default();
            let view = ProgressView {
                done,
                total,
                ..view(WorkStage::Transfer, counts)
            };
            view.to_string()
        };
        assert!(of(7, 5).starts_with("import 100 %"));
        assert!(of(0, 0).starts_with("import 0 %"));
        let progress = Progress::default();
        progress.begin(WorkStage::Survey, Moment::default(), 0, 5);
        progress.set(7, Counts::default());
        let later = Moment::default().plus(Duration::from_secs(10));
        assert_eq!(progress.view(later).unwrap().left, Some(Duration::ZERO));
    }

    #[test]
    fn hours_are_shown_as_such() {
        let view = ProgressView {
            left: Some(Duration::from_secs(2 * 86_400 + 3 * 60 + 4)),
            ..view(WorkStage::Transfer, Counts::default())
        };
        assert!(view.to_string().ends_with(", about 48:03:04 left"));
    }
}
