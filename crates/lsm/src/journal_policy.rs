//! Choice of journal files to rewrite: a run of neighbours, by the space that it would free.
//!
//! As in leveled, a run of files scores by the distance of its live share below a target, and the best run
//! above zero is selected. A single file has to be emptier than a long run, because a run frees
//! more for each remaining file. The shares are exact counts from the tables, not samples.
//!
//! In addition, small neighbours are collected together at any live share: each collection of the
//! value log makes a file, even for a few records.

use kvorum_backend::DayHours;

/// A file with fewer bytes is merged with its neighbours.
const SMALL_BYTES: u64 = 8 << 20;

/// Rules for rewriting journal files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPolicy {
    /// The most neighbours that one collection rewrites.
    pub run_files_max: usize,
    /// The live share at or below which one file is rewritten alone. Percent.
    pub single_file_percent: u8,
    /// The live share for a run of the most files. Percent.
    pub longest_run_percent: u8,
    /// Hours in which a collection may begin. It begins at any time while puts are refused for want
    /// of space.
    pub hours: DayHours,
}

impl Default for JournalPolicy {
    fn default() -> Self {
        Self {
            run_files_max: 4,
            single_file_percent: 25,
            longest_run_percent: 75,
            hours: DayHours::ALL,
        }
    }
}

/// Sizes of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalFacts {
    pub(crate) number: u64,
    /// Its length, in bytes.
    pub(crate) file_len: u64,
    /// Bytes of its records when the file was written.
    pub(crate) logged_bytes: u64,
    /// Bytes of the records that tables still name.
    pub(crate) live_bytes: u64,
}

impl JournalPolicy {
    /// The files to rewrite together, if any, from `files` in the order of their records.
    /// `garbage_percent` is the allowed garbage while space is scarce.
    pub(crate) fn pick(&self, files: &[JournalFacts], garbage_percent: Option<u8>) -> Vec<u64> {
        let lengths = 1..=self.run_files_max.max(1);
        let runs = lengths.flat_map(|len| files.windows(len));
        let scored = runs.map(|run| (self.score(run, garbage_percent), run));
        let best = scored
            .filter(|(score, _)| *score > 0)
            .max_by_key(|(score, _)| *score);
        let run = best.map(|(_, run)| run).or_else(|| self.small_run(files));
        run.unwrap_or(&[]).iter().map(|it| it.number).collect()
    }

    /// The distance of the run's live share below its target, in percent of its bytes.
    fn score(&self, run: &[JournalFacts], garbage_percent: Option<u8>) -> i64 {
        let logged: u64 = run.iter().map(|it| it.logged_bytes).sum();
        let live: u64 = run
            .iter()
            .map(|it| it.live_bytes.min(it.logged_bytes))
            .sum();
        let percent = i64::try_from(100 * live / logged.max(1)).unwrap_or(100);
        let allowed = garbage_percent.map_or(0, |it| 100 - i64::from(it.min(100)));
        self.target(run.len()).max(allowed) - percent
    }

    /// The share of live bytes below which a run of this many files is picked, in percent: between the
    /// shares of a single file and of the longest run.
    fn target(&self, files: usize) -> i64 {
        let (single, longest) = (
            i64::from(self.single_file_percent),
            i64::from(self.longest_run_percent),
        );
        let steps = i64::try_from(self.run_files_max.max(2) - 1).unwrap_or(1);
        let step = i64::try_from(files.saturating_sub(1)).unwrap_or(0);
        single + (longest - single) * step.min(steps) / steps
    }

    fn small_run<'a>(&self, files: &'a [JournalFacts]) -> Option<&'a [JournalFacts]> {
        let is_small = |it: &JournalFacts| it.file_len < SMALL_BYTES;
        let mut runs = files.windows(self.run_files_max.max(2));
        runs.find(|run| run.iter().all(is_small))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 64 << 20;

    fn file(number: u64, live_percent: u64) -> JournalFacts {
        JournalFacts {
            number,
            file_len: LARGE,
            logged_bytes: LARGE,
            live_bytes: LARGE / 100 * live_percent,
        }
    }

    fn pick(live_percents: &[u64]) -> Vec<u64> {
        let numbered = live_percents.iter().zip(1..);
        let files: Vec<JournalFacts> = numbered.map(|(live, number)| file(number, *live)).collect();
        JournalPolicy::default().pick(&files, None)
    }

    #[test]
    fn a_single_file_has_to_be_emptier_than_a_long_run() {
        assert_eq!(pick(&[100, 20, 100]), [2]);
        assert_eq!(pick(&[100, 30, 100]), [0; 0]);
        assert_eq!(pick(&[70, 70, 70, 70, 100]), [1, 2, 3, 4]);
        assert_eq!(pick(&[70, 70, 70]), [0; 0]);
        assert_eq!(pick(&[]), [0; 0]);
    }

    #[test]
    fn the_run_that_gives_most_back_is_taken() {
        assert_eq!(pick(&[10, 100, 100, 0, 0, 100]), [4, 5]);
        assert_eq!(pick(&[100, 0]), [2]);
    }

    #[test]
    fn whatever_is_left_no_long_run_is_emptier_than_allowed() {
        for seed in 0..200_u64 {
            let live = |at: u64| (seed * 31 + at * 57) % 101;
            let files: Vec<u64> = (0..12).map(live).collect();
            let picked = pick(&files);
            let is_emptier = |run: &[u64]| run.iter().sum::<u64>() / 4 < 74;
            let due = files.windows(4).any(is_emptier);
            assert!(!due || !picked.is_empty(), "{files:?}");
        }
    }

    #[test]
    fn where_space_is_scarce_little_garbage_is_enough() {
        let files = [file(1, 90)];
        let policy = JournalPolicy::default();
        assert_eq!(policy.pick(&files, Some(30)), [0; 0]);
        assert_eq!(policy.pick(&files, Some(5)), [1]);
    }

    #[test]
    fn small_neighbours_are_put_together() {
        let small = |number| JournalFacts {
            file_len: 1 << 20,
            ..file(number, 100)
        };
        let policy = JournalPolicy::default();
        let mut files: Vec<JournalFacts> = (1..=3).map(small).collect();
        assert_eq!(policy.pick(&files, None), [0; 0]);
        files.push(small(4));
        assert_eq!(policy.pick(&files, None), [1, 2, 3, 4]);
    }
}
