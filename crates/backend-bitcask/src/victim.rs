//! The choice of the next segment to merge: a pure function of numbers.
//!
//! Triggers start a round and thresholds select its segments, as in Riak; within a round the
//! segment that frees the most for its cost goes first. One segment is merged at a time: merging
//! all segments of a round at once was noticeable. Bytes that have expired by estimate count as
//! garbage.
//!
//! The bound on the whole store's garbage selects one segment at a time, the one that frees the
//! most for its cost, times its age. A round of all segments would copy nearly everything if each
//! has some garbage. The rest of an old segment is likely to stay live and repays its copy for
//! longer; a young segment soon has more garbage. The value log has the same rule.
//!
//! The segment for copies is left alone until it is full. It is ended early only if it has too much
//! garbage and no other segment is worth a merge; otherwise a small store would keep several times
//! its live bytes in it.

use kvorum_backend::Urgency;

use crate::MergeSettings;

/// The size below which a store may have any share of garbage: even a merge that frees little costs
/// some syncs.
const SMALL_STORE_BYTES: u64 = 256 << 10;
/// Merges are urgent when garbage exceeds its limit by this many percent.
const PRESSING_PERCENT: u64 = 3;

/// Facts of a finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) number: u32,
    /// Bytes of its records.
    pub(crate) bytes: u64,
    /// Bytes that merging it frees.
    pub(crate) garbage_bytes: u64,
    /// Its records, and the records that merging it frees.
    pub(crate) records: u64,
    pub(crate) garbage_records: u64,
}

impl Candidate {
    fn garbage_percent(&self) -> u64 {
        percent(self.garbage_bytes, self.bytes)
    }

    /// Bytes that merging it writes.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.garbage_bytes)
    }

    /// Bytes freed for each byte read and written, times the age.
    fn worth(&self, newest: u32) -> u128 {
        let age = u128::from(newest.saturating_sub(self.number)) + 1;
        let copied = u128::from(self.copied_bytes());
        let cost = u128::from(self.bytes) + copied + 1;
        // In millionths, so that whole numbers suffice.
        u128::from(self.garbage_bytes) * age * 1_000_000 / cost
    }
}

/// The whole store, for the trigger that bounds its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeStore {
    pub(crate) bytes: u64,
    pub(crate) garbage_bytes: u64,
    /// The present target for the length of segments.
    pub(crate) file_bytes_aim: u64,
}

/// The segments of a new round, best first; none if no trigger is met. `output` is the segment for
/// copies.
pub(crate) fn choose_round(
    candidates: &[Candidate],
    output: Option<Candidate>,
    whole: WholeStore,
    settings: &MergeSettings,
) -> Vec<u32> {
    let is_triggered = candidates.iter().any(|it| is_trigger(it, settings));
    if !is_triggered {
        let best = worthiest(candidates, whole, settings);
        let best = best.or_else(|| output_with_garbage(output, whole, settings));
        return best.into_iter().collect();
    }
    let mut chosen: Vec<&Candidate> = candidates
        .iter()
        .filter(|it| it.garbage_bytes > 0 || is_small(it, whole, settings))
        .filter(|it| meets_threshold(it, whole, settings))
        .collect();
    // The most freed for each byte copied first; of equal ones the older first, since removals in
    // younger segments may be waiting for it.
    chosen.sort_by_key(|it| (std::cmp::Reverse(it.garbage_percent()), it.number));
    let is_pointless = chosen.len() == 1 && chosen.iter().all(|it| it.garbage_bytes == 0);
    if is_pointless {
        return Vec::new();
    }
    chosen.into_iter().map(|it| it.number).collect()
}

/// The urgency of merges for the bound on the whole store's garbage; `None` within it.
pub(crate) fn urgency(whole: WholeStore, settings: &MergeSettings) -> Option<Urgency> {
    if !has_too_much_garbage(whole, settings) {
        return None;
    }
    let pressing = u64::from(settings.store_garbage_trigger_percent) + PRESSING_PERCENT;
    let is_pressing = percent(whole.garbage_bytes, whole.bytes) >= pressing;
    Some(if is_pressing {
        Urgency::Pressing
    } else {
        Urgency::Normal
    })
}

fn has_too_much_garbage(whole: WholeStore, settings: &MergeSettings) -> bool {
    percent(whole.garbage_bytes, whole.bytes) >= u64::from(settings.store_garbage_trigger_percent)
        && whole.bytes >= settings.small_file_threshold_bytes.min(SMALL_STORE_BYTES)
}

/// The segment with the highest worth, when the whole store has too much garbage.
fn worthiest(candidates: &[Candidate], whole: WholeStore, settings: &MergeSettings) -> Option<u32> {
    if !has_too_much_garbage(whole, settings) {
        return None;
    }
    // If all shares are far below the bound, the garbage is in the active segment, and a later
    // merge can free it.
    let share_min = u64::from(settings.store_garbage_trigger_percent) / 2;
    let newest = candidates.iter().map(|it| it.number).max()?;
    let with_garbage = candidates
        .iter()
        .filter(|it| it.garbage_bytes > 0 && it.garbage_percent() >= share_min);
    let best = with_garbage.max_by_key(|it| (it.worth(newest), std::cmp::Reverse(it.number)));
    best.map(|it| it.number)
}

/// The segment for copies, when it and the whole store have too much garbage.
fn output_with_garbage(
    output: Option<Candidate>,
    whole: WholeStore,
    settings: &MergeSettings,
) -> Option<u32> {
    let share_min = u64::from(settings.store_garbage_trigger_percent);
    let mostly_garbage =
        output.filter(|it| it.garbage_bytes > 0 && it.garbage_percent() >= share_min);
    let is_due = has_too_much_garbage(whole, settings);
    mostly_garbage.filter(|_| is_due).map(|it| it.number)
}

fn is_trigger(it: &Candidate, settings: &MergeSettings) -> bool {
    let fragmentation = percent(it.garbage_records, it.records);
    it.garbage_records > 0
        && (fragmentation >= u64::from(settings.fragmentation_trigger_percent)
            || it.garbage_bytes >= settings.garbage_bytes_trigger)
}

fn meets_threshold(it: &Candidate, whole: WholeStore, settings: &MergeSettings) -> bool {
    let fragmentation = percent(it.garbage_records, it.records);
    fragmentation >= u64::from(settings.fragmentation_threshold_percent)
        || it.garbage_bytes >= settings.garbage_bytes_threshold
        || is_small(it, whole, settings)
}

fn is_small(it: &Candidate, whole: WholeStore, settings: &MergeSettings) -> bool {
    let aimed_at = whole.file_bytes_aim / 2;
    it.bytes < settings.small_file_threshold_bytes.min(aimed_at)
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: u32, garbage_percent: u64) -> Candidate {
        Candidate {
            number,
            bytes: 1 << 30,
            garbage_bytes: (garbage_percent << 30) / 100,
            records: 1000,
            garbage_records: 10 * garbage_percent,
        }
    }

    const WHOLE: WholeStore = WholeStore {
        bytes: 100 << 30,
        garbage_bytes: 0,
        file_bytes_aim: 2 << 30,
    };

    fn round(candidates: &[Candidate]) -> Vec<u32> {
        let settings = MergeSettings {
            garbage_bytes_trigger: 1 << 40,
            garbage_bytes_threshold: 1 << 40,
            ..MergeSettings::default()
        };
        choose_round(candidates, None, WHOLE, &settings)
    }

    #[test]
    fn nothing_is_merged_before_a_trigger_is_met() {
        assert!(round(&[candidate(1, 59), candidate(2, 45)]).is_empty());
    }

    #[test]
    fn a_round_takes_all_that_meet_a_threshold_those_with_most_garbage_first() {
        let all = [
            candidate(1, 41),
            candidate(2, 80),
            candidate(3, 39),
            candidate(4, 60),
        ];
        assert_eq!(round(&all), [2, 4, 1]);
    }

    #[test]
    fn too_much_garbage_in_all_is_freed_one_segment_at_a_time() {
        let whole = WholeStore {
            bytes: 3 << 30,
            garbage_bytes: 1 << 30,
            ..WHOLE
        };
        let all = [candidate(1, 0), candidate(2, 40), candidate(3, 30)];
        let chosen = choose_round(&all, None, whole, &MergeSettings::default());
        assert_eq!(chosen, [2]);
    }

    #[test]
    fn for_the_bound_an_old_segment_goes_before_a_young_one_with_somewhat_more_garbage() {
        let whole = WholeStore {
            bytes: 3 << 30,
            garbage_bytes: 1 << 30,
            ..WHOLE
        };
        let chosen = |old_percent, young_percent| {
            let all = [
                candidate(1, old_percent),
                candidate(4, young_percent),
                candidate(5, 0),
            ];
            let settings = MergeSettings {
                garbage_bytes_trigger: 1 << 40,
                ..MergeSettings::default()
            };
            choose_round(&all, None, whole, &settings)
        };
        assert_eq!(chosen(30, 45), [1]);
        // Far more garbage outweighs age.
        assert_eq!(chosen(16, 55), [4]);
        // A segment of any age with little garbage is not chosen.
        assert_eq!(chosen(14, 20), [4]);
    }

    #[test]
    fn a_small_segment_alone_is_left_alone() {
        let small = Candidate {
            number: 2,
            bytes: 1000,
            garbage_bytes: 0,
            records: 5,
            garbage_records: 0,
        };
        let whole = WholeStore {
            bytes: 1 << 30,
            garbage_bytes: 1 << 30,
            ..WHOLE
        };
        let settings = MergeSettings::default();
        assert!(choose_round(&[small], None, whole, &settings).is_empty());
        assert_eq!(
            choose_round(&[candidate(1, 70), small], None, WHOLE, &settings),
            [1, 2]
        );
    }

    /// Regression: each of 16 stores of two megabytes kept a segment of ten megabytes, mostly garbage,
    /// because copies were still appended to it.
    #[test]
    fn the_output_is_ended_when_it_is_garbage_and_nothing_else_is_worth_a_merge() {
        let whole = WholeStore {
            bytes: 3 << 20,
            garbage_bytes: 1 << 20,
            file_bytes_aim: 1 << 20,
        };
        let of = |number, garbage_percent: u64| Candidate {
            bytes: 1 << 20,
            garbage_bytes: (garbage_percent << 20) / 100,
            ..candidate(number, garbage_percent)
        };
        let chosen = |sealed: &[Candidate], output| {
            choose_round(sealed, Some(output), whole, &MergeSettings::default())
        };
        assert_eq!(chosen(&[of(1, 5), of(2, 10)], of(3, 50)), [3]);
        assert_eq!(chosen(&[of(1, 40)], of(3, 50)), [1]);
        assert!(chosen(&[of(1, 5)], of(3, 20)).is_empty());
    }

    #[test]
    fn segments_as_long_as_the_store_aims_at_are_not_small() {
        let whole = WholeStore {
            file_bytes_aim: 1 << 20,
            ..WHOLE
        };
        let of = |number, bytes, garbage_records| Candidate {
            number,
            bytes,
            garbage_bytes: bytes * garbage_records / 1000,
            records: 1000,
            garbage_records,
        };
        let all = [of(1, 1 << 20, 700), of(2, 1 << 20, 0), of(3, 1 << 18, 0)];
        let chosen = choose_round(&all, None, whole, &MergeSettings::default());
        assert_eq!(chosen, [1, 3]);
    }
}

#[cfg(test)]
#[path = "victim_script_test.rs"]
mod scripts;
