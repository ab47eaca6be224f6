//! The number of bytes in a step of the target duration: learned from steps, for each kind.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::TaskKind;

use crate::average::whole;

/// A step's budget before anything is known, in bytes.
const BUDGET_AT_FIRST: u64 = 256 << 10;
/// Below this, the fixed costs of a step outweigh its bytes.
pub(crate) const BUDGET_MIN: u64 = 32 << 10;
/// Above this, a step holds memory and locks for too long.
const BUDGET_MAX: u64 = 8 << 20;
/// The weight of earlier steps falls by this factor with each step.
const FADING: f64 = 0.9;
/// The speed of background work before anything is known, in bytes per second.
const SPEED_AT_FIRST: f64 = 100e6;

/// The measured speeds of steps.
#[derive(Clone, Debug)]
pub(crate) struct Speeds {
    step_time: Duration,
    kinds: BTreeMap<TaskKind, Speed>,
    all: Speed,
}

#[derive(Clone, Debug)]
struct Speed {
    bytes: f64,
    seconds: f64,
    budget: u64,
}

impl Speeds {
    pub(crate) fn new(step_time: Duration) -> Self {
        Self {
            step_time,
            kinds: BTreeMap::new(),
            all: Speed::unknown(),
        }
    }

    /// The budget of the next step of a kind, in bytes.
    pub(crate) fn budget(&self, kind: TaskKind) -> u64 {
        self.kinds
            .get(&kind)
            .map_or(BUDGET_AT_FIRST, |it| it.budget)
    }

    /// Bytes of one worker in a second of work.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.all.per_second().unwrap_or(SPEED_AT_FIRST)
    }

    /// Learns from a step. The last step of a task also syncs and renames, and a step may be
    /// abandoned early, so their bytes are no measure.
    pub(crate) fn learn(&mut self, kind: TaskKind, cost_bytes: u64, is_done: bool, took: Duration) {
        if cost_bytes == 0 || took.is_zero() {
            return;
        }
        self.all.note(cost_bytes, took);
        let speed = self.kinds.entry(kind).or_insert_with(Speed::unknown);
        if is_done && cost_bytes < speed.budget / 2 {
            return;
        }
        speed.note(cost_bytes, took);
        if let Some(per_second) = speed.per_second() {
            let wanted = whole(per_second * self.step_time.as_secs_f64());
            // A single fast step must not make the next one long.
            speed.budget = wanted.min(speed.budget * 2).clamp(BUDGET_MIN, BUDGET_MAX);
        }
    }
}

impl Speed {
    fn unknown() -> Self {
        Self {
            bytes: 0.0,
            seconds: 0.0,
            budget: BUDGET_AT_FIRST,
        }
    }

    fn note(&mut self, bytes: u64, took: Duration) {
        self.bytes = self.bytes * FADING + bytes as f64;
        self.seconds = self.seconds * FADING + took.as_secs_f64();
    }

    fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(bytes_per_second: f64) -> u64 {
        let mut speeds = Speeds::new(Duration::from_millis(2));
        for _ in 0..60 {
            let budget = speeds.budget(TaskKind::Merge);
            let took = Duration::from_secs_f64(budget as f64 / bytes_per_second);
            speeds.learn(TaskKind::Merge, budget, false, took);
        }
        speeds.budget(TaskKind::Merge)
    }

    #[test]
    fn the_budget_settles_where_a_step_lasts_as_long_as_it_should() {
        for bytes_per_second in [40e6, 300e6, 2e9] {
            let budget = settle(bytes_per_second);
            let took = budget as f64 / bytes_per_second;
            assert!((0.0019..0.0021).contains(&took), "{took}");
        }
    }

    #[test]
    fn budgets_have_bounds() {
        assert_eq!(settle(1e3), BUDGET_MIN);
        assert_eq!(settle(1e12), BUDGET_MAX);
    }

    #[test]
    fn kinds_are_apart_and_a_slow_end_of_a_task_counts_for_nothing() {
        let mut speeds = Speeds::new(Duration::from_millis(2));
        for _ in 0..50 {
            let budget = speeds.budget(TaskKind::Merge);
            speeds.learn(TaskKind::Merge, budget, false, Duration::from_millis(2));
            speeds.learn(TaskKind::Merge, 1000, true, Duration::from_millis(50));
        }
        let budget = speeds.budget(TaskKind::Merge);
        assert!(budget > BUDGET_AT_FIRST - 100, "{budget}");
        assert_eq!(speeds.budget(TaskKind::Scrub), BUDGET_AT_FIRST);
    }
}
