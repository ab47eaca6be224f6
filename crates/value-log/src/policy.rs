//! Choice of the next segment to collect: a function of sizes and ages.
//!
//! Garbage may take a set share of the log, with the active segment. Beyond that, the segment with
//! the highest gain for its cost is collected, older ones first: long-lived data is likely to live
//! longer, and repays its copy for longer.
//!
//! A segment counts as free of garbage, and is not collected, while a store has a part of it only
//! in memory. The store will soon write that part by itself. Collecting the segment now would make
//! all stores write their memory at once.

/// The most victims that an estimate of the work counts.
const VICTIMS_COUNTED: usize = 32;

/// Sizes and state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFacts {
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    /// Bytes that would have to be copied.
    pub(crate) live_bytes: u64,
    /// Approximate bytes that stores would have to write in addition. They are written once for all
    /// older segments.
    pub(crate) settle_bytes: u64,
    /// A store will soon need less of it, without a collection.
    pub(crate) is_passing: bool,
    /// It is closed, so that it may be collected.
    pub(crate) is_closed: bool,
}

impl SegmentFacts {
    fn garbage_bytes(&self) -> u64 {
        match self.is_passing {
            true => 0,
            false => self.bytes.saturating_sub(self.live_bytes),
        }
    }

    /// False if no record in it has to be copied.
    pub(crate) fn has_to_be_read(&self) -> bool {
        self.live_bytes > 0
    }

    /// Bytes written before the segment can be removed.
    fn written_bytes(&self) -> u64 {
        match self.has_to_be_read() {
            true => self.live_bytes.saturating_add(self.settle_bytes),
            false => 0,
        }
    }

    /// Bytes of reading and copying all of it.
    fn cost_bytes(&self) -> u64 {
        self.unread_cost_bytes(0)
    }

    /// Bytes of reading and copying the rest; live records are assumed to be spread evenly.
    pub(crate) fn unread_cost_bytes(&self, read_to: u64) -> u64 {
        if !self.has_to_be_read() {
            return 0;
        }
        let unread = self.bytes.saturating_sub(read_to);
        let live = u128::from(self.live_bytes.min(self.bytes)) * u128::from(unread)
            / u128::from(self.bytes.max(1));
        unread + u64::try_from(live).unwrap_or(unread)
    }

    /// Bytes freed for each byte read and written, times the age.
    fn worth(&self, newest: u32) -> u128 {
        let age = u128::from(newest.saturating_sub(self.number)) + 1;
        let cost = u128::from(self.cost_bytes()) + 1;
        // In millionths, to keep the fraction in an integer.
        u128::from(self.garbage_bytes()) * age * 1_000_000 / cost
    }
}

/// Bytes of all segments, and of the garbage in them.
pub(crate) fn totals(segments: &[SegmentFacts]) -> (u64, u64) {
    let bytes = segments.iter().map(|it| it.bytes).sum();
    let garbage = segments.iter().map(SegmentFacts::garbage_bytes).sum();
    (bytes, garbage)
}

/// The segment to collect now, if garbage takes more than `garbage_percent_max` of all bytes. Its
/// copies have to fit into `room_bytes`.
pub(crate) fn choose(
    segments: &[SegmentFacts],
    garbage_percent_max: u8,
    room_bytes: u64,
) -> Option<u32> {
    let (bytes, garbage) = totals(segments);
    let is_due = u128::from(garbage) * 100 > u128::from(bytes) * u128::from(garbage_percent_max);
    if !is_due {
        return None;
    }
    let newest = segments.iter().map(|it| it.number).max()?;
    let closed = segments
        .iter()
        .filter(|it| it.is_closed && it.written_bytes() <= room_bytes);
    let best = closed.max_by_key(|it| (it.worth(newest), u32::MAX - it.number))?;
    (best.garbage_bytes() > 0).then_some(best.number)
}

/// Estimates the bytes that collections read and copy until garbage takes at most
/// `garbage_percent_max`, from the first victims.
pub(crate) fn backlog_bytes(segments: &[SegmentFacts], garbage_percent_max: u8) -> u64 {
    let mut left = segments.to_vec();
    // They are removed first, at no cost, and allow no estimate for the others.
    left.retain(|it| it.has_to_be_read() || !it.is_closed);
    let mut backlog = 0;
    for _ in 0..VICTIMS_COUNTED {
        let Some(number) = choose(&left, garbage_percent_max, u64::MAX) else {
            break;
        };
        let collected = left.extract_if(.., |it| it.number == number);
        backlog += collected.map(|it| it.cost_bytes()).sum::<u64>();
    }
    backlog
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(segments: &[SegmentFacts], garbage_percent_max: u8) -> Option<u32> {
        super::choose(segments, garbage_percent_max, u64::MAX)
    }

    /// Regression: segments of an earlier version were longer than the reserve. The one with the
    /// highest worth was tried for ever, since its copy never fitted.
    #[test]
    fn a_segment_of_which_the_copy_does_not_fit_is_left_alone() {
        let segments = [facts(1, 40), facts(2, 20), facts(3, 0)];
        let chosen = |room, left: &[SegmentFacts]| super::choose(left, 5, room);
        assert_eq!(chosen(30, &segments[..2]), Some(2));
        assert_eq!(chosen(10, &segments[..2]), None);
        let settled_with = |settle_bytes| SegmentFacts {
            settle_bytes,
            ..segments[1]
        };
        assert_eq!(chosen(30, &[segments[0], settled_with(10)]), Some(2));
        assert_eq!(chosen(30, &[segments[0], settled_with(11)]), None);
        assert_eq!(chosen(0, &segments), Some(3));
    }

    fn facts(number: u32, live_bytes: u64) -> SegmentFacts {
        SegmentFacts {
            number,
            bytes: 100,
            live_bytes,
            settle_bytes: 0,
            is_passing: false,
            is_closed: true,
        }
    }

    #[test]
    fn garbage_in_the_segment_being_written_counts_and_others_pay() {
        let open = SegmentFacts {
            is_closed: false,
            ..facts(3, 0)
        };
        assert_eq!(choose(&[facts(1, 90), facts(2, 80)], 30), None);
        assert_eq!(choose(&[facts(1, 90), facts(2, 80), open], 30), Some(2));
        assert_eq!(choose(&[open], 30), None);
    }

    #[test]
    fn what_stores_have_in_memory_alone_is_left_to_them() {
        let passing = |number| SegmentFacts {
            is_passing: true,
            ..facts(number, 10)
        };
        assert_eq!(choose(&[passing(1), passing(2)], 30), None);
        assert_eq!(choose(&[passing(1), facts(2, 60), facts(3, 100)], 30), None);
        assert_eq!(choose(&[passing(1), facts(2, 0)], 30), Some(2));
        assert_eq!(backlog_bytes(&[passing(1), passing(2)], 30), 0);
    }

    #[test]
    fn nothing_is_collected_within_the_bound() {
        assert_eq!(choose(&[facts(1, 70), facts(2, 70)], 30), None);
        assert_eq!(choose(&[], 0), None);
        assert_eq!(choose(&[facts(1, 100)], 0), None);
    }

    #[test]
    fn the_backlog_ends_where_the_bound_is_met() {
        let segments = [facts(1, 20), facts(2, 50), facts(3, 100)];
        // Of 300 bytes 130 are garbage; without the first one, 50 of 200.
        assert_eq!(backlog_bytes(&segments, 30), 120);
        assert_eq!(backlog_bytes(&segments, 20), 270);
        assert_eq!(backlog_bytes(&segments, 50), 0);
    }

    #[test]
    fn what_is_left_of_a_collection_shrinks_evenly() {
        let left = |read_to| facts(1, 40).unread_cost_bytes(read_to);
        assert_eq!((left(0), left(50), left(100), left(120)), (140, 70, 0, 0));
    }

    #[test]
    fn what_holds_nothing_that_lives_costs_nothing_and_goes_first() {
        assert_eq!(facts(1, 0).cost_bytes(), 0);
        assert_eq!(backlog_bytes(&[facts(1, 0), facts(2, 100)], 30), 0);
        assert_eq!(choose(&[facts(2, 1), facts(9, 0)], 30), Some(9));
    }

    #[test]
    fn the_emptiest_goes_first() {
        assert_eq!(
            choose(&[facts(1, 60), facts(2, 20), facts(3, 50)], 30),
            Some(2)
        );
        assert_eq!(choose(&[facts(1, 60), facts(2, 0)], 30), Some(2));
    }

    #[test]
    fn of_equals_the_older_goes_first() {
        assert_eq!(
            choose(&[facts(1, 40), facts(2, 40), facts(3, 40)], 30),
            Some(1)
        );
    }

    #[test]
    fn a_segment_that_seems_to_hold_more_than_it_has_is_left_alone() {
        assert_eq!(choose(&[facts(1, 150), facts(2, 10)], 30), Some(2));
    }
}

#[cfg(test)]
#[path = "policy_script_test.rs"]
mod scripts;
