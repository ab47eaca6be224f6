//! Letting go of a segment of the node's log: what is in memory of it is flushed, copies are made durable,
//! and what is left there is told as lost.
//!
//! Something is left only where the segment is damaged: the log offers what it can read. Then all keys are
//! walked over, in steps, for those whose bodies stand there.

use bytes::Bytes;
use kvorum_backend::{LostRange, Result, StepBudget, StepOutcome};
use kvorum_sst::ScanFilter;

use crate::Entry;
use crate::logged::lost_name;
use crate::merge::{MergeWalk, Merged};
use crate::relocation::logged_at;
use crate::store::Store;
use crate::upkeep::Upkeep;

/// So many bodies are told one by one; the rest of a segment's are counted.
const TOLD_MAX: u64 = 1_000;

/// A search that is going on.
pub(crate) struct Search {
    segment: u32,
    walk: MergeWalk,
    found: u64,
    bytes: u64,
}

impl Store {
    /// Does a part of what has to be done before the log may let go of a segment.
    pub(crate) fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome> {
        let mut upkeep = self.upkeep.lock();
        self.check_writable()?;
        let mut cost_bytes = 0;
        if let Some(last) = self.uncovered_in(segment) {
            cost_bytes += self.flush_towards(&mut upkeep, last, budget.bytes)?;
            if self.uncovered_in(segment).is_some() {
                let is_done = false;
                return Ok(StepOutcome {
                    cost_bytes,
                    is_done,
                });
            }
        }
        cost_bytes += self.install_relocated(&mut upkeep)?;
        // What hides a record that was not copied may be in memory alone.
        self.sync_shared_log()?;
        let rest = budget.bytes.saturating_sub(cost_bytes);
        let (searched, is_done) = self.tell_what_is_left(&mut upkeep, segment, rest)?;
        if is_done {
            // Once the segment is gone, nothing else tells.
            self.read_side.lost.write(&*self.disk);
            self.let_go(segment);
            // Closes replaced files, so that the log has the segment's space back at once.
            self.replaced.release_unread();
        }
        Ok(StepOutcome {
            cost_bytes: cost_bytes + searched,
            is_done,
        })
    }

    /// Nothing that counts is in this segment any more.
    fn let_go(&self, segment: u32) {
        self.change_version(|version| {
            let mut segments = (*version.segments).clone();
            segments.remove(&segment);
            version.segments = segments.into();
        });
        let named = self.version.load().segment_use();
        let mut writer = self.writer.lock();
        // Numbers are never used again: those that no table names are of no more interest.
        writer.settled.retain(|it| named.contains_key(it));
        writer.settled.insert(segment);
    }

    /// Tells of the bodies that stand in a damaged segment and were not copied. Returns what that cost, and
    /// true when it is done.
    fn tell_what_is_left(
        &self,
        upkeep: &mut Upkeep,
        segment: u32,
        budget_bytes: u64,
    ) -> Result<(u64, bool)> {
        let version = self.version.load_full();
        let shared = version.segments.get(&segment);
        if shared.is_none_or(|it| !it.is_damaged()) {
            return Ok((0, true));
        }
        let begun = upkeep.search.take().filter(|it| it.segment == segment);
        let mut search = begun.unwrap_or_else(|| {
            let from = std::ops::Bound::<Bytes>::Unbounded;
            let filter = ScanFilter::default();
            Search {
                segment,
                walk: MergeWalk::of_version(&version, u64::MAX, &from, &filter),
                found: 0,
                bytes: 0,
            }
        });
        let before = search.walk.bytes();
        let mut cost_bytes = 0;
        while cost_bytes < budget_bytes.max(1) {
            match search.walk.advance::<Entry>(&self.read_side)? {
                Merged::End => {
                    self.tell_rest(&search);
                    return Ok((cost_bytes, true));
                }
                Merged::Hidden => {}
                Merged::Entry(entry) => self.tell_if_left(&mut search, &entry),
            }
            cost_bytes = search.walk.bytes() - before;
        }
        upkeep.search = Some(search);
        Ok((cost_bytes, false))
    }

    fn tell_if_left(&self, search: &mut Search, entry: &Entry) {
        let place = logged_at(entry).filter(|it| it.at.segment == search.segment);
        if let Some(place) = place {
            search.found += 1;
            if search.found <= TOLD_MAX {
                self.note_lost_body(search.walk.key(), &place);
            } else {
                search.bytes += place.at.record.len;
            }
        }
    }

    fn tell_rest(&self, search: &Search) {
        if search.found > TOLD_MAX {
            let rest = search.found - TOLD_MAX;
            self.read_side.lost.note(LostRange {
                file: lost_name(search.segment),
                offset: 0,
                len: search.bytes,
                held: format!("the bodies of {rest} more keys"),
            });
        }
    }
}
