//! A cluster whose state follows every command, and a leader that looks at it every ten seconds.

use std::collections::BTreeSet;

use kvorum_cluster::{ClusterId, Member, MemberStatus, StagedChange, apply};
use kvorum_ring::{Ring, RingSize};

use super::*;

const MOVES_MAX: usize = 8;
const LOOK: Duration = Duration::from_secs(10);

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn done(state: &ClusterState, command: Command) -> ClusterState {
    apply(state, command).unwrap()
}

fn join(state: &ClusterState, number: u8) -> ClusterState {
    let member = Member {
        status: MemberStatus::Joining,
        ..Member::new(&format!("kvorum@{number}"))
    };
    let node = node(number);
    done(state, Command::AddMember { node, member })
}

fn commit(state: &ClusterState) -> ClusterState {
    let id = state.plan().unwrap().id;
    done(state, Command::CommitPlan { id })
}

/// A leader, and the nodes that move data: each node that is up takes its next step at once.
struct Leader {
    pacing: Pacing,
    state: ClusterState,
    now: Moment,
    away: BTreeSet<NodeId>,
    begun: Vec<(Moment, Partition)>,
}

impl Leader {
    fn new(state: ClusterState) -> Self {
        Self {
            pacing: Pacing::new(Duration::from_secs(60)),
            state,
            now: Moment::default(),
            away: BTreeSet::new(),
            begun: Vec::new(),
        }
    }

    fn ends(&self, partition: Partition) -> [NodeId; 2] {
        let ring = self.state.ring();
        let to = self.state.transition().map(|it| it.target(partition));
        [ring.owner(partition), to.unwrap_or(ring.owner(partition))]
    }

    fn is_waiting(&self, partition: Partition) -> bool {
        self.ends(partition).iter().any(|it| self.away.contains(it))
    }

    /// Applies the leader's present proposals.
    fn look(&mut self) {
        self.now = self.now.plus(LOOK);
        let away = &self.away;
        let is_up = |node| !away.contains(&node);
        let commands = self
            .pacing
            .next_commands(&self.state, MOVES_MAX, self.now, is_up);
        let begun_before = self.begun.len();
        for command in commands {
            if let Command::Move {
                partition,
                step: MoveStep::Begin,
                ..
            } = &command
            {
                assert!(!self.is_waiting(*partition), "{partition:?}");
                self.begun.push((self.now, *partition));
            }
            self.state = done(&self.state, command);
        }
        let ring = self.state.ring();
        let going = ring.moves().keys().filter(|it| !self.is_waiting(**it));
        // Moves of a node that is back continue beside moves begun meanwhile; no further move
        // begins then.
        assert!(self.begun.len() == begun_before || going.count() <= MOVES_MAX);
    }

    /// Nodes that are up take the next step of every move.
    fn advance(&mut self) {
        let ring = self.state.ring().clone();
        for (partition, moving) in ring.moves() {
            if self.is_waiting(*partition) {
                continue;
            }
            let step = match moving.phase {
                Phase::Filling => MoveStep::Close,
                Phase::Closing => MoveStep::Settle,
            };
            let (partition, at) = (*partition, ring.epoch(*partition));
            let command = Command::Move {
                partition,
                at,
                step,
            };
            self.state = done(&self.state, command);
        }
    }

    fn work(&mut self, looks: usize) {
        for _ in 0..looks {
            self.look();
            self.advance();
            if let Some(growth) = self.state.ring().growth() {
                let step = match growth.phase {
                    Phase::Filling => GrowthStep::Close,
                    Phase::Closing => GrowthStep::Settle,
                };
                let from = self.state.ring().replicas_max();
                self.state = done(&self.state, Command::Grow { from, step });
            }
        }
    }

    fn due(&self) -> Vec<Partition> {
        let transition = self.state.transition();
        transition.map_or_else(Vec::new, |it| it.due(self.state.ring()).collect())
    }
}

/// Four nodes with three replicas; the first hands its partitions to a fifth, and a sixth joins.
fn changing() -> Leader {
    let ring = Ring::single(RingSize::new(64).unwrap(), node(1));
    let id = ClusterId::from_random([9; 16]);
    let state = ClusterState::found(id, "test", node(1), Member::new("kvorum@1"), ring);
    let state = (2..=4).fold(state, |state, number| join(&state, number));
    let mut leader = Leader::new(commit(&state));
    leader.work(200);
    assert_eq!(leader.due(), []);
    let state = join(&join(&leader.state, 5), 6);
    let change = StagedChange::Replace { by: node(5) };
    let node = node(1);
    let staged = done(&state, Command::Stage { node, change });
    Leader::new(commit(&staged))
}

#[test]
fn what_waits_for_a_node_holds_up_no_other() {
    let mut leader = changing();
    let is_from_first = |it: &Leader| {
        let mut moves = it.state.ring().moves().keys();
        moves.any(|at| it.state.ring().owner(*at) == node(1))
    };
    while !is_from_first(&leader) {
        leader.advance();
        leader.look();
    }
    leader.away.insert(node(1));
    leader.work(60);
    let left = leader.due();
    assert!(!left.is_empty());
    for partition in &left {
        assert!(leader.is_waiting(*partition), "{partition:?} could move");
    }
    leader.away.clear();
    leader.work(100);
    assert_eq!(leader.due(), []);
}

#[test]
fn nothing_begins_towards_a_node_that_is_away() {
    let mut leader = changing();
    leader.away.extend([node(5), node(6)]);
    leader.work(20);
    assert_eq!(leader.begun, []);
    leader.away.remove(&node(6));
    leader.work(60);
    assert!(!leader.begun.is_empty());
}

#[test]
fn a_node_that_restarts_goes_on_where_it_was() {
    let mut leader = changing();
    leader.look();
    let begun = leader.begun.len();
    leader.away.insert(node(1));
    leader.look();
    leader.look();
    leader.away.clear();
    leader.work(200);
    assert_eq!(leader.due(), []);
    let all: BTreeSet<Partition> = leader.begun.iter().map(|(_, it)| *it).collect();
    assert_eq!(all.len(), leader.begun.len(), "begun twice, after {begun}");
}

#[test]
fn what_is_given_up_again_and_again_waits_longer_each_time() {
    let mut leader = changing();
    let partition = leader.due()[0];
    let mut pauses = Vec::new();
    for _ in 0..12 {
        leader.pacing.note_given_up(partition, leader.now);
        let given_up = leader.now;
        while !leader
            .pacing
            .is_ready(&leader.state, partition, leader.now, |_| true)
        {
            leader.now = leader.now.plus(LOOK);
        }
        pauses.push(leader.now.since(given_up).as_secs());
    }
    assert_eq!(pauses[..6], [60, 120, 240, 480, 960, 1920]);
    assert!(pauses[6..].iter().all(|pause| *pause == 3600), "{pauses:?}");
    // Once the partition has moved, its record is dropped.
    leader.work(200);
    assert_eq!(leader.due(), []);
    assert!(leader.pacing.given_up.is_empty());
}

#[test]
fn nothing_begins_to_move_while_the_number_of_replicas_changes() {
    let size = RingSize::new(8).unwrap();
    let id = ClusterId::from_random([1; 16]);
    let ring = Ring::single(size, node(1)).with_replicas_max(2);
    let state = ClusterState::found(id, "test", node(1), Member::new("kvorum@1"), ring);
    let step = GrowthStep::Begin(1);
    let state = done(&state, Command::Grow { from: 2, step });
    let grow = |step| Command::Grow { from: 2, step };
    let closing = done(&join(&state, 2), grow(GrowthStep::Close));
    let committed = commit(&closing);
    assert!(committed.transition().is_some());
    let mut pacing = Pacing::new(Duration::from_secs(60));
    let mut next =
        |state: &ClusterState| pacing.next_commands(state, MOVES_MAX, Moment::default(), |_| true);
    assert_eq!(next(&committed), []);
    let settled = done(&committed, grow(GrowthStep::Settle));
    assert!(!next(&settled).is_empty());
}
