//! The order in which transfers get slots. Pure.
//!
//! Repairs come first. An incomplete vnode answers no reads, and cannot be the source of a move or
//! of a change of the number of replicas. So other transfers may wait for a repair, and a repair
//! waits for no other transfer.
//!
//! A transfer that cannot begin holds no slot. It is tried again after a pause. The pause doubles until the
//! transfer makes progress, so that many waiting transfers cost little.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_planted_defects::is_planted;
use kvorum_runtime::Moment;

use crate::transfer_id::{TransferId, TransferKind};

/// The most doublings of the shortest pause.
const DOUBLINGS_MAX: u32 = 3;

/// Transfers that have had a turn and are not done.
#[derive(Default)]
pub(crate) struct Turns {
    resting: BTreeMap<TransferId, Rest>,
}

struct Rest {
    /// The earliest time of the next attempt.
    until: Moment,
    /// Consecutive turns without progress.
    failures: u32,
    /// The reason for the rest; empty for a finished transfer.
    reason: String,
}

impl Turns {
    /// Notes the end of a turn. The transfer is tried again after a pause, if it is still wanted.
    pub(crate) fn rest(
        &mut self,
        id: TransferId,
        reason: String,
        has_got_on: bool,
        pause: Duration,
        now: Moment,
    ) {
        let before = self.resting.get(&id).map_or(0, |rest| rest.failures);
        let failures = if has_got_on { 0 } else { before };
        let pause = pause.saturating_mul(1 << failures.min(DOUBLINGS_MAX));
        let rest = Rest {
            until: now.plus(pause),
            failures: failures.saturating_add(1),
            reason,
        };
        self.resting.insert(id, rest);
    }

    /// Ends all rests, since a change may have removed their reasons.
    pub(crate) fn wake(&mut self, now: Moment) {
        for rest in self.resting.values_mut() {
            rest.until = rest.until.min(now);
            rest.failures = 0;
        }
    }

    /// The reason for which a transfer rests.
    pub(crate) fn reason(&self, id: &TransferId) -> Option<String> {
        let rest = self.resting.get(id);
        rest.map(|rest| rest.reason.clone())
    }

    /// Drops transfers that are no longer wanted.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&TransferId) -> bool) {
        self.resting.retain(|id, _| is_wanted(id));
    }

    /// Transfers that may begin now, in order: repairs, then transfers without a turn so far, then those that
    /// have waited longest.
    pub(crate) fn in_order(
        &self,
        ids: impl Iterator<Item = TransferId>,
        now: Moment,
    ) -> Vec<TransferId> {
        let rested = |id: &TransferId| self.resting.get(id).map(|rest| rest.until);
        let mut startable: Vec<TransferId> = ids
            .filter(|id| rested(id).is_none_or(|until| until <= now))
            .collect();
        let are_repairs_first = !is_planted!(WaitingTransferKeepsTurn);
        let is_later = |id: &TransferId| id.kind != TransferKind::Repair && are_repairs_first;
        startable.sort_by_key(|id| (is_later(id), rested(id), *id));
        startable
    }
}

#[cfg(test)]
mod tests {
    use kvorum_ring::{Epoch, RingSize};

    use super::*;

    const PAUSE: Duration = Duration::from_millis(500);

    fn id(kind: TransferKind, number: u16) -> TransferId {
        TransferId {
            kind,
            partition: RingSize::new(64).unwrap().partition(number).unwrap(),
            epoch: Epoch::FIRST,
        }
    }

    fn at(millis: u64) -> Moment {
        Moment::default().plus(Duration::from_millis(millis))
    }

    #[test]
    fn repairs_come_before_transfers_that_have_never_had_a_turn() {
        let mut turns = Turns::default();
        let repair = id(TransferKind::Repair, 9);
        let others = [
            id(TransferKind::Ownership, 1),
            id(TransferKind::Growth, 2),
            id(TransferKind::Growth, 3),
        ];
        let all = || others.into_iter().chain([repair]);
        turns.rest(repair, "the source is away".into(), false, PAUSE, at(0));
        assert_eq!(turns.in_order(all(), at(499)), others);
        turns.rest(others[1], "not ready".into(), false, PAUSE, at(0));
        let order = [repair, others[0], others[2], others[1]];
        assert_eq!(turns.in_order(all(), at(500)), order);
    }

    #[test]
    fn a_transfer_that_does_not_get_on_is_tried_less_often() {
        let mut turns = Turns::default();
        let growth = id(TransferKind::Growth, 2);
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            turns.rest(growth, "not ready".into(), false, PAUSE, now);
            let begun = now;
            while turns.in_order([growth].into_iter(), now).is_empty() {
                now = now.plus(Duration::from_millis(1));
            }
            pauses.push(now.since(begun).as_millis());
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 4_000, 4_000]);
        turns.rest(growth, "not ready".into(), false, PAUSE, now);
        turns.wake(now);
        assert_eq!(turns.in_order([growth].into_iter(), now), [growth]);
        turns.rest(growth, "cut off".into(), true, PAUSE, now);
        let soon = now.plus(PAUSE);
        assert_eq!(turns.in_order([growth].into_iter(), soon), [growth]);
    }
}
