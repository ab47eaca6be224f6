//! Which segment is merged next: a pure choice over numbers.
//!
//! Triggers start a round, thresholds say what belongs to it, as in Riak; within a round the segment
//! that frees the most for what it costs goes first. One segment at a time: merging all of them at
//! once is what made merges felt.

use crate::MergeSettings;

/// What is known of a finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) number: u32,
    /// Bytes of its records.
    pub(crate) bytes: u64,
    /// Bytes that merging it frees.
    pub(crate) dead_bytes: u64,
    /// Its records, and those that merging it frees.
    pub(crate) records: u64,
    pub(crate) dead_records: u64,
}

/// The whole store, for the trigger that bounds its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeStore {
    pub(crate) bytes: u64,
    pub(crate) dead_bytes: u64,
}

/// The segments of a new round, best first; empty when no trigger is met.
pub(crate) fn choose_round(
    candidates: &[Candidate],
    whole: WholeStore,
    settings: &MergeSettings,
) -> Vec<u32> {
    let is_store_dead = percent(whole.dead_bytes, whole.bytes)
        >= u64::from(settings.store_dead_trigger_percent)
        && whole.bytes >= settings.small_file_threshold_bytes;
    let is_triggered = candidates.iter().any(|it| is_trigger(it, settings));
    if !is_triggered && !is_store_dead {
        return Vec::new();
    }
    let mut chosen: Vec<&Candidate> = candidates
        .iter()
        .filter(|it| it.dead_bytes > 0 || is_small(it, settings))
        .filter(|it| is_store_dead || meets_threshold(it, settings))
        .collect();
    // The most freed for each byte copied first; older ones first where that is equal, for removals
    // in younger ones may be waiting for them.
    chosen.sort_by_key(|it| {
        (
            std::cmp::Reverse(percent(it.dead_bytes, it.bytes)),
            it.number,
        )
    });
    let is_pointless = chosen.len() == 1 && chosen.iter().all(|it| it.dead_bytes == 0);
    if is_pointless {
        return Vec::new();
    }
    chosen.into_iter().map(|it| it.number).collect()
}

fn is_trigger(it: &Candidate, settings: &MergeSettings) -> bool {
    let fragmentation = percent(it.dead_records, it.records);
    it.dead_records > 0
        && (fragmentation >= u64::from(settings.fragmentation_trigger_percent)
            || it.dead_bytes >= settings.dead_bytes_trigger)
}

fn meets_threshold(it: &Candidate, settings: &MergeSettings) -> bool {
    let fragmentation = percent(it.dead_records, it.records);
    fragmentation >= u64::from(settings.fragmentation_threshold_percent)
        || it.dead_bytes >= settings.dead_bytes_threshold
        || is_small(it, settings)
}

fn is_small(it: &Candidate, settings: &MergeSettings) -> bool {
    it.bytes < settings.small_file_threshold_bytes
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: u32, dead_percent: u64) -> Candidate {
        Candidate {
            number,
            bytes: 1 << 30,
            dead_bytes: (dead_percent << 30) / 100,
            records: 1000,
            dead_records: 10 * dead_percent,
        }
    }

    const WHOLE: WholeStore = WholeStore {
        bytes: 100 << 30,
        dead_bytes: 0,
    };

    fn round(candidates: &[Candidate]) -> Vec<u32> {
        let settings = MergeSettings {
            dead_bytes_trigger: 1 << 40,
            dead_bytes_threshold: 1 << 40,
            ..MergeSettings::default()
        };
        choose_round(candidates, WHOLE, &settings)
    }

    #[test]
    fn nothing_is_merged_before_a_trigger_is_met() {
        assert!(round(&[candidate(1, 59), candidate(2, 45)]).is_empty());
    }

    #[test]
    fn a_round_takes_all_that_meet_a_threshold_the_deadest_first() {
        let all = [
            candidate(1, 41),
            candidate(2, 80),
            candidate(3, 39),
            candidate(4, 60),
        ];
        assert_eq!(round(&all), [2, 4, 1]);
    }

    #[test]
    fn too_many_dead_bytes_in_all_start_a_round_of_their_own() {
        let whole = WholeStore {
            bytes: 3 << 30,
            dead_bytes: 1 << 30,
        };
        let all = [candidate(1, 30), candidate(2, 40), candidate(3, 0)];
        let chosen = choose_round(&all, whole, &MergeSettings::default());
        assert_eq!(chosen, [2, 1]);
    }

    #[test]
    fn a_small_segment_alone_is_left_alone() {
        let small = Candidate {
            number: 2,
            bytes: 1000,
            dead_bytes: 0,
            records: 5,
            dead_records: 0,
        };
        let whole = WholeStore {
            bytes: 1 << 30,
            dead_bytes: 1 << 30,
        };
        let settings = MergeSettings::default();
        assert!(choose_round(&[small], whole, &settings).is_empty());
        assert_eq!(
            choose_round(&[candidate(1, 70), small], WHOLE, &settings),
            [1, 2]
        );
    }
}
