//! The times at which a node tries to hand over its hints: when another node comes up, at
//! intervals, and sooner while hints stay that could go.
//!
//! A node that has come up may not have its stores open yet, and a connection may break while no
//! node counts as down. A node that restarts may be back before the next look. A request that was
//! planned during the restart may then leave a hint after all other hints have gone. So the first
//! hints after a time without hints are tried at once. A hint that waits for long is a danger: if
//! its replicas are lost meanwhile, it brings back an old object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kvorum_coordinator::HandedOff;
use kvorum_ring::NodeId;
use kvorum_runtime::Moment;

/// Time between two looks at the nodes that are up.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Decides when hints are tried next.
#[derive(Debug)]
pub(crate) struct HintPace {
    /// Hints are tried at least this often.
    period: Duration,
    pause: Duration,
    passed_at: Moment,
    up: Arc<BTreeSet<NodeId>>,
}

impl HintPace {
    /// Hints are due when another node comes up or goes down, when the first hints are stored, or
    /// after `period`.
    pub(crate) fn new(period: Duration, up: Arc<BTreeSet<NodeId>>, now: Moment) -> Self {
        Self {
            period,
            pause: LOOK_PERIOD.min(period),
            passed_at: now,
            up,
        }
    }

    /// Time to wait before the next look.
    pub(crate) fn look_period(&self) -> Duration {
        LOOK_PERIOD.min(self.period)
    }

    /// True if hints are due; they then count as tried.
    pub(crate) fn is_due(&mut self, up: Arc<BTreeSet<NodeId>>, now: Moment) -> bool {
        let has_changed = self.up != up;
        if has_changed {
            self.up = up;
            // The pause followed from an outcome with other nodes.
            self.pause = self.look_period();
        } else if now.since(self.passed_at) < self.pause {
            return false;
        }
        self.passed_at = now;
        true
    }

    /// Records the outcome of an attempt: while no hint can be handed over, the pause doubles.
    pub(crate) fn passed(&mut self, outcome: HandedOff, now: Moment) {
        self.passed_at = now;
        self.pause = match outcome {
            // There were hints, and none could be read.
            HandedOff { handed: 0, kept: 0 } => self.period,
            HandedOff { handed: 0, .. } => self.pause.saturating_mul(2).min(self.period),
            HandedOff { .. } => self.look_period(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    fn up(count: u8) -> Arc<BTreeSet<NodeId>> {
        Arc::new((1..=count).map(|it| NodeId::from_bytes([it; 16])).collect())
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    /// The seconds of the first `count` passes, each with this outcome.
    fn passes(pace: &mut HintPace, nodes: u8, outcome: HandedOff, count: usize) -> Vec<u64> {
        let mut seconds = Vec::new();
        for second in 1.. {
            if pace.is_due(up(nodes), at(second)) {
                pace.passed(outcome, at(second));
                seconds.push(second);
                if seconds.len() == count {
                    break;
                }
            }
        }
        seconds
    }

    fn pace() -> HintPace {
        HintPace::new(PERIOD, up(2), at(0))
    }

    #[test]
    fn what_cannot_be_read_is_tried_once_a_period() {
        let nothing = HandedOff::default();
        assert_eq!(passes(&mut pace(), 2, nothing, 3), [1, 31, 61]);
    }

    #[test]
    fn what_stays_while_nobody_comes_up_is_tried_ever_later() {
        let kept = HandedOff { handed: 0, kept: 5 };
        let seconds = passes(&mut pace(), 2, kept, 6);
        assert_eq!(seconds, [1, 3, 7, 15, 31, 61]);
    }

    #[test]
    fn what_stays_when_a_node_comes_up_is_tried_again_soon_and_then_ever_later() {
        let refused = HandedOff { handed: 0, kept: 5 };
        let seconds = passes(&mut pace(), 3, refused, 8);
        assert_eq!(seconds, [1, 3, 7, 15, 31, 61, 91, 121]);
    }

    #[test]
    fn while_some_go_the_others_are_tried_at_once() {
        let some = HandedOff { handed: 3, kept: 5 };
        assert_eq!(passes(&mut pace(), 3, some, 4), [1, 2, 3, 4]);
    }

    /// Regression: a node was restarted within half a second, between two looks. Its hints waited
    /// for half a minute, since no node appeared to come up.
    #[test]
    fn what_comes_when_all_have_gone_is_tried_soon() {
        let mut pace = pace();
        let refused = HandedOff { handed: 0, kept: 5 };
        passes(&mut pace, 3, refused, 2);
        assert!(pace.is_due(up(3), at(7)));
        pace.passed(HandedOff { handed: 5, kept: 0 }, at(7));
        assert!(pace.is_due(up(3), at(8)));
        pace.passed(refused, at(8));
        assert!(!pace.is_due(up(3), at(9)));
        assert!(pace.is_due(up(3), at(10)));
    }
}
