//! Release of a segment of the value log: its entries in memory are flushed, copies are made
//! durable, and the rest is reported as lost.
//!
//! A rest exists only in damaged segments: the log offers all readable records. A walk over all
//! keys, in steps, finds the keys with bodies there.

use bytes::Bytes;
use kvorum_backend::{ErrorKind, LostRange, Result, StepBudget, StepOutcome};
use kvorum_disk::Reading;
use kvorum_sst::ScanFilter;

use crate::Entry;
use crate::flush::{Flushing, uncovered_in};
use crate::logged::lost_name;
use crate::merge::{MergeWalk, Merged};
use crate::relocation::{Relocating, logged_at};
use crate::store::Store;
use crate::version::{Collected, Version};

/// The most bodies of a segment that are reported one by one; further bodies are counted.
const LISTED_MAX: u64 = 1_000;

/// The search for bodies left in a damaged segment, if one is in progress.
#[derive(Default)]
pub(crate) struct SegmentRelease {
    search: Option<Search>,
}

struct Search {
    segment: u32,
    walk: MergeWalk,
    found: u64,
    bytes: u64,
}

impl SegmentRelease {
    /// Does a part of the work before the log may drop a segment.
    pub(crate) fn settle(
        &mut self,
        store: &Store,
        flushing: &mut Flushing,
        relocating: &mut Relocating,
        segment: u32,
        budget: StepBudget,
    ) -> Result<StepOutcome> {
        let mut cost_bytes = 0;
        if let Some(last) = uncovered_in(store, segment) {
            cost_bytes += flushing.towards(store, last, budget.bytes)?;
            if uncovered_in(store, segment).is_some() {
                return Ok(StepOutcome::partial(cost_bytes));
            }
        }
        cost_bytes += relocating.install(store, flushing)?;
        // The entry that hides a record may be in memory and the unsynced log alone.
        store.sync_value_log()?;
        let rest = budget.bytes.saturating_sub(cost_bytes);
        let (searched, is_done) = self.report_what_is_left(store, segment, rest)?;
        if is_done {
            // Once the segment is removed, nothing else shows the loss.
            store.read_side.lost.write(&*store.disk);
            let_go(store, segment);
            // Closes replaced files, so that the segment's space is free at once.
            store.replaced.release_unread();
        }
        Ok(StepOutcome {
            cost_bytes: cost_bytes + searched,
            is_done,
        })
    }

    /// Reports bodies in a damaged segment that were not copied. Returns the cost, and true at the
    /// end.
    fn report_what_is_left(
        &mut self,
        store: &Store,
        segment: u32,
        budget_bytes: u64,
    ) -> Result<(u64, bool)> {
        let version = store.version.load_full();
        let held = version.segments.get(&segment);
        if held.is_none_or(|it| !it.is_damaged()) {
            return Ok((0, true));
        }
        let begun = self.search.take().filter(|it| it.segment == segment);
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
            match search.walk.advance::<Entry>(&store.read_side)? {
                Merged::End => {
                    search.report_rest(store);
                    return Ok((cost_bytes, true));
                }
                Merged::Hidden => {}
                Merged::Entry(entry) => search.report_if_left(store, &version, &entry)?,
            }
            cost_bytes = search.walk.bytes() - before;
        }
        self.search = Some(search);
        Ok((cost_bytes, false))
    }
}

impl Search {
    fn report_if_left(&mut self, store: &Store, version: &Version, entry: &Entry) -> Result<()> {
        let place = logged_at(entry).filter(|it| it.at.segment == self.segment);
        let Some(place) = place else {
            return Ok(());
        };
        // Entries of a store with a journal name the place even after a collection.
        let context = store.read_side.at_journal(Reading::MayBlock);
        match version.read_journal(&place.at, entry.sequence, &context) {
            Ok(Collected::Record(_)) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            _ => {}
        }
        self.found += 1;
        if self.found <= LISTED_MAX {
            store.note_lost_body(self.walk.key(), &place);
        } else {
            self.bytes += place.at.record.len;
        }
        Ok(())
    }

    fn report_rest(&self, store: &Store) {
        if self.found > LISTED_MAX {
            let rest = self.found - LISTED_MAX;
            store.read_side.lost.note(LostRange {
                file: lost_name(self.segment),
                offset: 0,
                len: self.bytes,
                held: format!("the bodies of {rest} more keys"),
            });
        }
    }
}

/// Notes that this store needs nothing of the segment any more.
fn let_go(store: &Store, segment: u32) {
    store.change_version(|version| {
        let mut segments = (*version.segments).clone();
        segments.remove(&segment);
        version.segments = segments.into();
    });
    let named = store.version.load().segment_use();
    let mut writer = store.writer.lock();
    // Numbers are never reused, so segments that no table names need no note.
    writer.settled.retain(|it| named.contains_key(it));
    writer.settled.insert(segment);
}
