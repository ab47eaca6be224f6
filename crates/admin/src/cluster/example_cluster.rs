//! A small cluster in known states, for the golden texts of the views.

use kvorum_cluster::{
    ClusterId, ClusterState, Command, GrowthStep, Member, MemberStatus, MoveStep, StagedChange,
    apply,
};
use kvorum_ring::{NodeId, Ring, RingSize};

/// The nodes have numbers, and addresses that end with them.
pub(super) fn node(number: u8) -> NodeId {
    NodeId::from_random([number; 16])
}

fn member(number: u8, status: MemberStatus) -> Member {
    let front = char::from(b'`' + number);
    Member {
        status,
        ..Member::new(&format!("{front}@10.0.0.{number}"))
    }
}

pub(super) fn done(state: &ClusterState, command: Command) -> ClusterState {
    apply(state, command).unwrap()
}

/// One node, `a@10.0.0.1`, and eight partitions.
pub(super) fn founded() -> ClusterState {
    founded_with(8)
}

pub(super) fn founded_with(partitions: u64) -> ClusterState {
    let size = RingSize::new(partitions).unwrap();
    let ring = Ring::single(size, node(1));
    let first = member(1, MemberStatus::Valid);
    ClusterState::found(
        ClusterId::from_random([9; 16]),
        "test",
        node(1),
        first,
        ring,
    )
}

pub(super) fn join(state: &ClusterState, number: u8) -> ClusterState {
    let member = member(number, MemberStatus::Joining);
    let node = node(number);
    done(state, Command::AddMember { node, member })
}

pub(super) fn marked_as_down(state: &ClusterState, number: u8) -> ClusterState {
    let member = member(number, MemberStatus::Down);
    let node = node(number);
    done(state, Command::UpdateMember { node, member })
}

pub(super) fn stage(state: &ClusterState, number: u8, change: StagedChange) -> ClusterState {
    let node = node(number);
    done(state, Command::Stage { node, change })
}

pub(super) fn commit(state: &ClusterState) -> ClusterState {
    let id = state.plan().unwrap().id;
    done(state, Command::CommitPlan { id })
}

/// Three nodes, and each has its share of the partitions.
pub(super) fn three_members() -> ClusterState {
    settled(commit(&join(&join(&founded(), 2), 3)))
}

/// The state after all committed changes.
pub(super) fn settled(mut state: ClusterState) -> ClusterState {
    loop {
        if let Some(to) = state.next_growth() {
            let from = state.ring().replicas_max();
            for step in [GrowthStep::Begin(to), GrowthStep::Close, GrowthStep::Settle] {
                state = done(&state, Command::Grow { from, step });
            }
            continue;
        }
        let Some((partition, _)) = state.next_moves(1).first().copied() else {
            return state;
        };
        for step in [MoveStep::Begin, MoveStep::Close, MoveStep::Settle] {
            let at = state.ring().epoch(partition);
            let command = Command::Move {
                partition,
                at,
                step,
            };
            state = done(&state, command);
        }
    }
}
