//! Emptying files that are mostly garbage: live pages are found by reading the file, and written to
//! another.
//!
//! Pages behind a damaged page are not found in this way. Then the whole tree is searched for pages
//! of the file, and unreadable pages are lost with it.

use std::collections::BTreeSet;

use bytes::Bytes;
use kvorum_backend::{
    BackendError, ErrorKind, Result, StepOutcome, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_page_tree::{Census, Counted, FileRecord, FileScan, ScannedPage};

use crate::rewriting::Rewriting;
use crate::settings::InnostoreSettings;
use crate::store::Store;

/// A file with less than the largest size divided by this is small.
const SMALL_PART: u64 = 2;
/// The share of garbage in a file, in thousandths, above which emptying it certainly frees more
/// than it takes.
const SCARCE_PERMILLE: u64 = 750;
/// The share of garbage in small files, in thousandths, from which on joining them frees something.
const JOINED_PERMILLE: u64 = 100;
/// The number of failures in a row for want of space after which memory no longer waits until files
/// are emptied. Other stores have had a minute or more to make room then.
const FAILURES_AWAITED: u32 = 64;

/// The files being emptied, if any.
#[derive(Default)]
pub(crate) struct Leaving {
    under_way: Option<UnderWay>,
    /// Files with pages that could not be moved.
    stuck: BTreeSet<u64>,
    /// Failures in a row for want of space.
    failures: u32,
}

struct UnderWay {
    files: BTreeSet<u64>,
    /// Scans of the files that are not read to their ends.
    scans: Vec<FileScan>,
    /// The search that replaces the scans if a file is damaged.
    census: Option<Census>,
    /// There is a damaged branch, and the pages below are unknown.
    lacks_branch: bool,
    /// The keys to touch.
    keys: BTreeSet<Bytes>,
    is_rewriting: bool,
}

/// The next files to empty: the large file with the largest share of garbage, or all small files.
///
/// A rewrite makes garbage of the branches on its way, which may be half of a small file: if small
/// files were emptied one by one, each would leave another small file. If space is scarce there may
/// be no room to rewrite all of them, and one that is mostly garbage goes first. Small files with
/// hardly any garbage are not joined then: that frees nothing.
fn choose(
    files: &[FileRecord],
    settings: &InnostoreSettings,
    stuck: &BTreeSet<u64>,
    is_scarce: bool,
) -> Option<BTreeSet<u64>> {
    let is_small = |it: &FileRecord| it.len < settings.file_bytes_max / SMALL_PART;
    let files = files.iter().filter(|it| !stuck.contains(&it.number));
    let files: Vec<_> = files.collect();
    let worst = files.iter().max_by_key(|it| garbage_permille(&[**it]));
    if let Some(worst) = worst
        && is_scarce
        && garbage_permille(&[worst]) >= SCARCE_PERMILLE
    {
        return Some(BTreeSet::from([worst.number]));
    }
    let (small, large): (Vec<_>, Vec<_>) = files.into_iter().partition(|it| is_small(it));
    let worst = large.iter().max_by_key(|it| garbage_permille(&[**it]));
    let wanted = u64::from(settings.garbage_percent) * 10;
    if let Some(worst) = worst
        && garbage_permille(&[worst]) >= wanted
    {
        return Some(BTreeSet::from([worst.number]));
    }
    let garbage = garbage_permille(&small);
    let frees_some = !is_scarce || garbage >= JOINED_PERMILLE;
    let are_many = small.len() > settings.small_files_max && frees_some;
    let are_left = are_many || garbage >= wanted;
    let are_left = are_left && !small.is_empty();
    are_left.then(|| small.iter().map(|it| it.number).collect())
}

/// The garbage in some files, in thousandths of their bytes.
fn garbage_permille(files: &[&FileRecord]) -> u64 {
    let bytes: u64 = files.iter().map(|it| it.len).sum();
    let live: u64 = files.iter().map(|it| it.live_bytes).sum();
    bytes.saturating_sub(live).saturating_mul(1_000) / bytes.max(1)
}

impl UnderWay {
    /// Continues the census, if there is one. Returns the bytes read, and true at the end.
    fn count(&mut self, budget_bytes: u64) -> Result<(u64, bool)> {
        let mut cost_bytes = 0;
        while let Some(census) = &mut self.census {
            if cost_bytes >= budget_bytes {
                return Ok((cost_bytes, false));
            }
            let (counted, read) = census.advance()?;
            cost_bytes += read;
            let is_left = |file: u64| self.files.contains(&file);
            match counted {
                Counted::Page(key, place) if is_left(place.file) => _ = self.keys.insert(key),
                Counted::OneCopy(page) if is_left(page.place.file) => {
                    self.keys.insert(page.range.from);
                }
                Counted::Lost(page) => {
                    self.lacks_branch |= page.is_branch;
                    if is_left(page.place.file) {
                        self.keys.insert(page.range.from);
                    }
                }
                Counted::Page(..) | Counted::OneCopy(_) => {}
                Counted::End => break,
            }
        }
        Ok((cost_bytes, true))
    }
}

impl Leaving {
    pub(crate) fn due(&self, store: &Store, urgency: Urgency) -> Option<Task> {
        let (subject, files) = self.files(store)?;
        Some(Task {
            kind: TaskKind::Collect,
            subject,
            urgency,
            cost_bytes: files.iter().map(|it| it.len + it.live_bytes).sum(),
        })
    }

    /// The live bytes of the files being emptied, or of the next ones; `None` without such files, or
    /// if emptying them has failed too often for want of space.
    pub(crate) fn live_bytes(&self, store: &Store) -> Option<u64> {
        if !self.is_awaited() {
            return None;
        }
        let (_, files) = self.files(store)?;
        Some(files.iter().map(|it| it.live_bytes).sum())
    }

    /// True unless emptying files has failed for want of space again and again.
    fn is_awaited(&self) -> bool {
        self.failures < FAILURES_AWAITED
    }

    fn note_failure(&mut self, error: &BackendError) {
        if error.kind() == ErrorKind::Full {
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// The first number of these files, and the files that still exist.
    fn files(&self, store: &Store) -> Option<(u64, Vec<FileRecord>)> {
        let manifest = store.manifest.lock();
        let files = match &self.under_way {
            Some(under_way) => under_way.files.clone(),
            None => self.choose(store, &manifest.files)?,
        };
        let existing = manifest.files.iter();
        let existing = existing.filter(|it| files.contains(&it.number));
        Some((*files.first()?, existing.copied().collect()))
    }

    fn choose(&self, store: &Store, files: &[FileRecord]) -> Option<BTreeSet<u64>> {
        let is_scarce = store.intake.headroom().is_scarce();
        choose(files, &store.settings, &self.stuck, is_scarce)
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        rewriting: &mut Rewriting,
        subject: u64,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if rewriting.is_flushing() {
            let flushed = rewriting.go_on(store, budget_bytes)?;
            return Ok(StepOutcome::partial(flushed.cost_bytes));
        }
        if !self.has_begun(store, subject) {
            return Ok(StepOutcome::nothing_left());
        }
        let Some(mut under_way) = self.under_way.take() else {
            return Ok(StepOutcome::nothing_left());
        };
        if !under_way.is_rewriting {
            return self.scan(store, rewriting, under_way, budget_bytes, now);
        }
        if !rewriting.is_going_on() {
            // The rewrite has ended under other upkeep, or failed there: files are chosen again.
            return Ok(StepOutcome::nothing_left());
        }
        let outcome = rewriting
            .go_on(store, budget_bytes)
            .inspect_err(|error| self.note_failure(error))?;
        if !outcome.is_done {
            under_way.is_rewriting = rewriting.is_going_on();
            self.under_way = Some(under_way);
            return Ok(outcome);
        }
        self.failures = 0;
        let left = store.manifest.lock().files.clone();
        let left = left.iter().map(|it| it.number);
        self.stuck
            .extend(left.filter(|it| under_way.files.contains(it)));
        store
            .counters
            .files_left
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(outcome)
    }

    /// True when the files being emptied begin with this one.
    fn has_begun(&mut self, store: &Store, subject: u64) -> bool {
        if self.under_way.is_none() {
            let manifest = store.manifest.lock();
            let chosen = self.choose(store, &manifest.files);
            let chosen = chosen.filter(|it| it.first() == Some(&subject));
            self.under_way = chosen.map(|files| {
                let records = manifest.files.iter();
                let records = records.filter(|it| files.contains(&it.number));
                let version = store.version.load();
                let open = |it: &FileRecord| {
                    let file = version.tree.files().get(&it.number)?;
                    Some(FileScan::new(file.clone(), it))
                };
                UnderWay {
                    scans: records.filter_map(open).collect(),
                    census: None,
                    lacks_branch: false,
                    files,
                    keys: BTreeSet::new(),
                    is_rewriting: false,
                }
            });
        }
        let first = self.under_way.as_ref().and_then(|it| it.files.first());
        first == Some(&subject)
    }

    fn scan(
        &mut self,
        store: &Store,
        rewriting: &mut Rewriting,
        mut under_way: UnderWay,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let tree = store.version.load().tree.clone();
        let mut cost_bytes = 0;
        while let Some(scan) = under_way.scans.last_mut() {
            let (scanned, read) = scan.advance(&tree)?;
            cost_bytes += read;
            match scanned {
                ScannedPage::Live(key) => _ = under_way.keys.insert(key),
                ScannedPage::Superseded => {}
                ScannedPage::End => _ = under_way.scans.pop(),
                ScannedPage::Damaged => {
                    under_way.scans.clear();
                    under_way.census = Some(Census::new(tree.clone()));
                }
            }
            if cost_bytes >= budget_bytes {
                self.under_way = Some(under_way);
                return Ok(StepOutcome::partial(cost_bytes));
            }
        }
        let left = budget_bytes.saturating_sub(cost_bytes).max(1);
        let (counted, is_counted) = under_way.count(left)?;
        cost_bytes += counted;
        if !is_counted {
            self.under_way = Some(under_way);
            return Ok(StepOutcome::partial(cost_bytes));
        }
        let keys = std::mem::take(&mut under_way.keys);
        let are_dropped = under_way.census.is_some() && !under_way.lacks_branch;
        let files = (under_way.files.clone(), are_dropped);
        rewriting.begin_leaving(store, keys, files, now);
        under_way.is_rewriting = true;
        self.under_way = Some(under_way);
        Ok(StepOutcome::partial(cost_bytes))
    }

    /// Drops the files in progress.
    pub(crate) fn abandon(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, len: u64, live_bytes: u64) -> FileRecord {
        FileRecord {
            number,
            len,
            live_bytes,
        }
    }

    #[test]
    fn the_file_with_most_garbage_goes_first_and_then_the_small_ones() {
        let settings = InnostoreSettings {
            file_bytes_max: 1_000,
            garbage_percent: 50,
            small_files_max: 2,
            ..InnostoreSettings::default()
        };
        let chosen = |files: &[FileRecord], stuck: &[u64]| {
            choose(files, &settings, &stuck.iter().copied().collect(), false)
        };
        let full = file(1, 1_000, 990);
        assert_eq!(chosen(&[], &[]), None);
        assert_eq!(chosen(&[full, file(2, 1_000, 501)], &[]), None);
        let files = [full, file(2, 1_000, 500), file(3, 1_000, 400)];
        assert_eq!(chosen(&files, &[]), Some(BTreeSet::from([3])));
        assert_eq!(chosen(&files, &[3]), Some(BTreeSet::from([2])));
        assert_eq!(chosen(&files, &[2, 3]), None);
        let small = |number| file(number, 249, 240);
        assert_eq!(chosen(&[full, small(2), small(3)], &[]), None);
        let files = [full, small(2), small(3), small(4)];
        assert_eq!(chosen(&files, &[]), Some(BTreeSet::from([2, 3, 4])));
        // Small files are emptied together.
        let half = |number| file(number, 250, 120);
        assert_eq!(chosen(&[full, half(2)], &[]), Some(BTreeSet::from([2])));
        let files = [full, half(2), half(3)];
        assert_eq!(chosen(&files, &[]), Some(BTreeSet::from([2, 3])));
        assert_eq!(chosen(&[full, half(2), file(3, 499, 499)], &[]), None);
        // If there may be no room for all of them, the file that frees the most is emptied alone.
        let files = [half(2), file(3, 250, 60), half(4)];
        let scarce = |files: &[FileRecord]| choose(files, &settings, &BTreeSet::new(), true);
        assert_eq!(scarce(&files), Some(BTreeSet::from([3])));
        // Joining files without garbage takes as much space as it frees.
        assert_eq!(scarce(&[small(2), small(3), small(4)]), None);
        let files = [half(2), half(3), half(4)];
        assert_eq!(scarce(&files), Some(BTreeSet::from([2, 3, 4])));
    }

    /// Regression: files that fit nowhere were emptied in vain for ever, and memory waited for that.
    #[test]
    fn memory_waits_for_some_failures_only() {
        let mut leaving = Leaving::default();
        for _ in 0..FAILURES_AWAITED {
            assert!(leaving.is_awaited());
            leaving.note_failure(&BackendError::new(ErrorKind::Unread, "a device that fails"));
            leaving.note_failure(&BackendError::new(ErrorKind::Full, "a full disk"));
        }
        assert!(!leaving.is_awaited());
        leaving.abandon();
        assert!(leaving.is_awaited());
    }
}
