//! The choice of moves that begin and of moves that are given up. Pure.
//!
//! A move whose source or receiver is away makes no progress and does not count against the limit.
//! It stays for a while, since a restarted node resumes it. Then, if it delays other moves, it is
//! given up if possible, and started again later. Its data is then fetched again, so the wait
//! doubles each time.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_cluster::{ClusterState, Command, GrowthStep, MoveStep};
use kvorum_ring::{Move, NodeId, Partition, Phase};
use kvorum_runtime::Moment;

/// The longest wait before a move that was given up is started again.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// A leader's record of moves. A new leader begins with an empty record.
#[derive(Debug)]
pub struct Pacing {
    /// The time for which a move without progress is left alone.
    patience: Duration,
    /// The moves without progress, each with the time of the first look that found it so.
    stuck: BTreeMap<Partition, Moment>,
    /// Moves that were given up.
    given_up: BTreeMap<Partition, GivenUp>,
}

#[derive(Debug)]
struct GivenUp {
    times: u32,
    not_before: Moment,
}

impl Pacing {
    /// The empty record of a new leader.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            stuck: BTreeMap::new(),
            given_up: BTreeMap::new(),
        }
    }

    /// The leader's proposals in this state: moves to abandon, moves to begin, or a change of the
    /// number of replicas.
    pub fn next_commands(
        &mut self,
        state: &ClusterState,
        moves_max: usize,
        now: Moment,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Vec<Command> {
        let mut commands = self.give_up(state, now, &is_up);
        let ring = state.ring();
        let Some(transition) = state.transition() else {
            self.given_up.clear();
            let from = ring.replicas_max();
            commands.extend(state.next_growth().map(|to| Command::Grow {
                from,
                step: GrowthStep::Begin(to),
            }));
            return commands;
        };
        self.given_up
            .retain(|partition, _| ring.owner(*partition) != transition.target(*partition));
        if ring.growth().is_some() {
            // A plan that is committed meanwhile waits until the number of replicas has changed.
            return commands;
        }
        let going = ring.moves().len().saturating_sub(self.stuck.len());
        let room = moves_max.saturating_sub(going);
        let begin = transition.startable_of(ring, room, |it| self.is_ready(state, it, now, &is_up));
        commands.extend(begin.into_iter().map(|partition| Command::Move {
            partition,
            at: ring.epoch(partition),
            step: MoveStep::Begin,
        }));
        commands
    }

    /// Notes moves without progress, and gives up those that have made none for long and delay
    /// others.
    fn give_up(
        &mut self,
        state: &ClusterState,
        now: Moment,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Vec<Command> {
        let ring = state.ring();
        let is_stuck = |partition: &Partition, moving: &Move| {
            is_away(state, ring.owner(*partition), &is_up) || is_away(state, moving.to, &is_up)
        };
        let stuck = ring
            .moves()
            .iter()
            .filter(|(it, moving)| is_stuck(it, moving));
        let before = std::mem::take(&mut self.stuck);
        self.stuck = stuck
            .map(|(partition, _)| (*partition, before.get(partition).copied().unwrap_or(now)))
            .collect();
        let Some(transition) = state.transition() else {
            return Vec::new();
        };
        let waiting: Vec<Partition> = transition
            .due(ring)
            .filter(|it| !ring.moves().contains_key(it) && self.is_ready(state, *it, now, &is_up))
            .collect();
        let is_filling =
            |partition| ring.moves().get(partition).map(|it| it.phase) == Some(Phase::Filling);
        let holds_up = |stuck| {
            waiting
                .iter()
                .any(|it| transition.is_close(ring, *it, stuck))
        };
        let ends = self.stuck.iter().filter(|(partition, since)| {
            now.since(**since) >= self.patience && is_filling(*partition) && holds_up(**partition)
        });
        let ends: Vec<Partition> = ends.map(|(partition, _)| *partition).collect();
        for partition in &ends {
            self.note_given_up(*partition, now);
        }
        let abandon = |partition| Command::Move {
            partition,
            at: ring.epoch(partition),
            step: MoveStep::Abandon,
        };
        ends.into_iter().map(abandon).collect()
    }

    fn note_given_up(&mut self, partition: Partition, now: Moment) {
        let times = self.given_up.get(&partition).map_or(0, |it| it.times);
        let pause = self
            .patience
            .saturating_mul(1 << times.min(16))
            .min(PAUSE_MAX);
        tracing::info!(
            event = "move_given_up",
            partition = partition.number(),
            "its source or its receiver is away; it begins again when the node is back",
        );
        let given_up = GivenUp {
            times: times.saturating_add(1),
            not_before: now.plus(pause),
        };
        self.given_up.insert(partition, given_up);
    }

    /// True for a partition whose move would make progress if it began now.
    fn is_ready(
        &self,
        state: &ClusterState,
        partition: Partition,
        now: Moment,
        is_up: impl Fn(NodeId) -> bool,
    ) -> bool {
        let rests = self
            .given_up
            .get(&partition)
            .is_some_and(|it| now < it.not_before);
        let target = state.transition().map(|it| it.target(partition));
        let ends = [Some(state.ring().owner(partition)), target];
        !rests
            && !ends
                .into_iter()
                .flatten()
                .any(|node| is_away(state, node, &is_up))
    }
}

/// True for a member that cannot be reached. A node that is no longer a member does not count.
fn is_away(state: &ClusterState, node: NodeId, is_up: impl Fn(NodeId) -> bool) -> bool {
    state.member(node).is_some() && !is_up(node)
}

#[cfg(test)]
#[path = "pacing_test.rs"]
mod tests;
