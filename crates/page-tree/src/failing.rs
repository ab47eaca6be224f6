//! Pages that the device persistently fails to read.
//!
//! A device may fail for a while, and the pages are readable again afterwards: until then reads
//! return an error, and no page is overwritten or left out. A permanently lost sector would stop
//! upkeep for ever. So a page at which upkeep has failed often and for long counts as damaged,
//! until the store is opened again.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_backend::{BackendError, ErrorKind, LastingFailures, Timestamp};
use parking_lot::Mutex;

use crate::place::PagePlace;

/// See the module.
#[derive(Default)]
pub(crate) struct FailingPages {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The name of the page with the latest failed read.
    last: Option<u64>,
    /// Failures, by the names of pages.
    failures: BTreeMap<u64, LastingFailures>,
    /// The names of pages that count as damaged.
    given_up: BTreeSet<u64>,
}

impl FailingPages {
    /// Notes that the device failed to read a page. True if the page counts as damaged.
    pub(crate) fn failed(&self, place: &PagePlace) -> bool {
        let mut known = self.known.lock();
        known.last = Some(place.name());
        known.given_up.contains(&place.name())
    }

    /// Counts a failure of upkeep at the page that failed last. A full disk and a lack of file
    /// handles do not count, since they pass.
    pub(crate) fn count(&self, error: &BackendError, now: Timestamp) {
        let mut known = self.known.lock();
        let Some(page) = known.last.take() else {
            return;
        };
        if matches!(error.kind(), ErrorKind::Full | ErrorKind::Exhausted) {
            return;
        }
        let failures = known
            .failures
            .entry(page)
            .or_insert(LastingFailures::none());
        failures.count(now);
        if failures.are_enough(now) {
            known.given_up.insert(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread() -> BackendError {
        BackendError::new(ErrorKind::Unread, "a page was not read")
    }

    fn place(offset: u64) -> PagePlace {
        PagePlace {
            file: 1,
            offset,
            len: 4096,
            check: 0,
        }
    }

    #[test]
    fn a_page_is_given_up_when_upkeep_failed_at_it_often_and_for_long_whatever_reads_do() {
        let failing = FailingPages::default();
        for failure in 0..8 {
            for _ in 0..100 {
                assert!(!failing.failed(&place(8192)), "reads alone count nothing");
            }
            assert!(!failing.failed(&place(4096)));
            failing.count(&unread(), Timestamp(failure));
        }
        assert!(!failing.failed(&place(4096)), "all in a moment");
        failing.count(&unread(), Timestamp(LastingFailures::TIME_MICROS_MIN));
        assert!(failing.failed(&place(4096)));
        assert!(!failing.failed(&place(8192)));
    }

    #[test]
    fn a_failure_of_upkeep_that_is_no_pages_counts_for_none() {
        let failing = FailingPages::default();
        for _ in 0..20 {
            failing.count(&unread(), Timestamp(LastingFailures::TIME_MICROS_MIN));
        }
        assert!(!failing.failed(&place(4096)));
    }
}
