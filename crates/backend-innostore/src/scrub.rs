//! Scrubbing: all pages are read again from time to time, past every cache. Damage is noted as if a
//! reader had found it; a branch with one damaged copy is rewritten.
//!
//! Scrubbing treats the tree as one file, and after a restart begins again.

use std::collections::BTreeSet;

use bytes::Bytes;
use kvorum_backend::{Result, ScrubFile, Scrubbing, StepOutcome, Task, Timestamp};
use kvorum_page_tree::{Census, Change, Counted};

use crate::rewriting::Rewriting;
use crate::store::Store;

/// The number of the only file.
const TREE: u64 = 1;
/// The most branches that are rewritten after one reading of all pages.
const MENDED_MAX: usize = 100;

/// A reading of the tree.
pub(crate) struct ScrubJob {
    census: Census,
    /// Keys of branches with one damaged copy.
    mending: BTreeSet<Bytes>,
}

/// The files to read again.
fn files(store: &Store) -> Vec<ScrubFile> {
    let manifest = store.manifest.lock();
    let bytes: u64 = manifest.files.iter().map(|it| it.live_bytes).sum();
    let tree = ScrubFile {
        number: TREE,
        bytes,
    };
    manifest.root.map(|_| tree).into_iter().collect()
}

/// The task of reading pages again, if it is due.
pub(crate) fn due(
    store: &Store,
    scrubbing: &mut Scrubbing<ScrubJob>,
    now: Timestamp,
) -> Option<Task> {
    let (disk, directory) = (&*store.disk, &*store.directory);
    let period = store.settings.scrub_period;
    scrubbing.due(disk, directory, &files(store), period, now)
}

/// Reads some pages, while the task is due.
pub(crate) fn step(
    store: &Store,
    scrubbing: &mut Scrubbing<ScrubJob>,
    rewriting: &mut Rewriting,
    budget_bytes: u64,
    now: Timestamp,
) -> Result<StepOutcome> {
    if due(store, scrubbing, now).is_none() {
        return Ok(StepOutcome::nothing_left());
    }
    let Some(tree) = files(store).first().copied() else {
        return Ok(StepOutcome::nothing_left());
    };
    let open = || {
        Ok(ScrubJob {
            census: Census::new(store.version.load().tree.clone()),
            mending: BTreeSet::new(),
        })
    };
    let read = |job: &mut ScrubJob| job.read(store, rewriting, budget_bytes);
    let (disk, directory) = (&*store.disk, &*store.directory);
    let (cost_bytes, is_read) = scrubbing.step(disk, directory, tree, open, read)?;
    Ok(StepOutcome {
        cost_bytes,
        is_done: is_read || due(store, scrubbing, now).is_none(),
    })
}

impl ScrubJob {
    fn read(
        &mut self,
        store: &Store,
        rewriting: &mut Rewriting,
        budget_bytes: u64,
    ) -> Result<(u64, bool)> {
        let mut cost_bytes = 0;
        while cost_bytes < budget_bytes.max(1) {
            let (counted, read) = self.census.advance()?;
            cost_bytes += read;
            match counted {
                Counted::Page(..) => {}
                Counted::OneCopy(page) => {
                    store.count_corrupt_read();
                    if self.mending.len() < MENDED_MAX {
                        self.mending.insert(page.range.from);
                    }
                }
                // A rewrite may have left the page out since.
                Counted::Lost(page) if store.is_current(&page)? => {
                    let _reported_in_the_status = store.corrupt(&page);
                }
                Counted::Lost(_) => {}
                Counted::End => return self.mend(store, rewriting, cost_bytes),
            }
        }
        Ok((cost_bytes, false))
    }

    /// Replaces the damaged copies, which ends the reading. No other job may be in progress
    /// meanwhile.
    fn mend(
        &mut self,
        store: &Store,
        rewriting: &mut Rewriting,
        cost_bytes: u64,
    ) -> Result<(u64, bool)> {
        if self.mending.is_empty() {
            return Ok((cost_bytes, true));
        }
        if rewriting.is_going_on() {
            let step = rewriting.go_on(store, u64::MAX)?;
            return Ok((cost_bytes + step.cost_bytes, false));
        }
        let keys = std::mem::take(&mut self.mending);
        let changes = keys.into_iter().map(|key| (key, Change::Touch)).collect();
        let written = rewriting.change_below(store, changes)?;
        Ok((cost_bytes + written, true))
    }
}
