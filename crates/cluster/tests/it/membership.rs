//! Staged changes, plans, and the steps that carry out a committed plan.

use kvorum_cluster::{
    ClusterState, Command, GrowthStep, Member, MemberStatus, MoveStep, PlanError, Refusal,
    StagedChange, StagingRefusal, apply,
};
use kvorum_ring::{Epoch, NodeId, Phase};
use proptest::prelude::*;

use crate::{founded, node, size};

pub(crate) fn done(state: &ClusterState, command: Command) -> ClusterState {
    apply(state, command).unwrap()
}

fn refused(state: &ClusterState, command: Command) -> Refusal {
    apply(state, command).unwrap_err()
}

fn join(state: &ClusterState, number: u8) -> ClusterState {
    let member = Member {
        status: MemberStatus::Joining,
        ..Member::new(&format!("riak@10.0.0.{number}"))
    };
    let node = node(number);
    done(state, Command::AddMember { node, member })
}

pub(crate) fn stage(number: u8, change: StagedChange) -> Command {
    Command::Stage {
        node: node(number),
        change,
    }
}

pub(crate) fn commit(state: &ClusterState) -> ClusterState {
    let id = state.plan().unwrap().id;
    done(state, Command::CommitPlan { id })
}

pub(crate) fn step(
    state: &ClusterState,
    partition: kvorum_ring::Partition,
    step: MoveStep,
) -> ClusterState {
    let at = state.ring().epoch(partition);
    let command = Command::Move {
        partition,
        at,
        step,
    };
    done(state, command)
}

/// Takes all steps that are due, `count` moves at once; `look` receives every state.
pub(crate) fn carry_out(
    mut state: ClusterState,
    count: usize,
    mut look: impl FnMut(&ClusterState),
) -> ClusterState {
    loop {
        let moves = state.next_moves(count);
        if let Some(to) = state.next_growth() {
            let from = state.ring().replicas_max();
            for step in [GrowthStep::Begin(to), GrowthStep::Close, GrowthStep::Settle] {
                state = done(&state, Command::Grow { from, step });
                look(&state);
            }
        } else if moves.is_empty() {
            return state;
        }
        for each in [MoveStep::Begin, MoveStep::Close, MoveStep::Settle] {
            for (partition, _) in &moves {
                state = step(&state, *partition, each);
                look(&state);
            }
        }
    }
}

pub(crate) fn cluster(count: u8) -> ClusterState {
    let mut state = founded();
    for number in 2..=count {
        state = join(&state, number);
    }
    if count > 1 {
        state = commit(&state);
    }
    carry_out(state, 8, |_| {})
}

fn share(state: &ClusterState, number: u8) -> usize {
    state.ring().owned_by(node(number)).count()
}

#[test]
fn one_node_becomes_three_and_then_keeps_three_replicas() {
    let state = join(&join(&founded(), 2), 3);
    let plan = state.plan().unwrap();
    assert_eq!(plan.transfers.len(), 5, "five of eight partitions move");
    assert!(plan.lost.is_empty());
    let state = commit(&state);
    assert!(state.transition().is_some());
    assert_eq!(state.plan(), Err(PlanError::NothingPlanned));
    let mut replicas = vec![1];
    let state = carry_out(state, 2, |state| {
        assert!(state.ring().moves().len() <= 2);
        let n = state.ring().effective_n(3, false);
        if replicas.last() != Some(&n) {
            replicas.push(n);
        }
    });
    assert_eq!(replicas, [1, 2, 3]);
    assert!(state.transition().is_none());
    let shares: Vec<usize> = (1..=3).map(|number| share(&state, number)).collect();
    assert_eq!(shares.iter().sum::<usize>(), 8);
    assert!(
        shares.iter().all(|share| (2..=3).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn a_node_that_leaves_hands_over_and_can_then_be_removed() {
    let state = cluster(4);
    let state = commit(&done(&state, stage(4, StagedChange::Leave)));
    assert_eq!(state.member(node(4)).unwrap().status, MemberStatus::Leaving);
    assert!(matches!(
        refused(&state, Command::RemoveMember { node: node(4) }),
        Refusal::OwnsPartitions { .. }
    ));
    let state = carry_out(state, 2, |_| {});
    assert_eq!(state.exited().collect::<Vec<_>>(), [node(4)]);
    let state = done(&state, Command::RemoveMember { node: node(4) });
    assert_eq!(state.ring().members(), {
        let mut three: Vec<NodeId> = (1..=3).map(node).collect();
        three.sort_unstable();
        three
    });
}

#[test]
fn a_node_that_is_gone_for_good_while_it_leaves_can_be_removed() {
    let leaving = commit(&done(&cluster(5), stage(4, StagedChange::Leave)));
    let again = refused(&leaving, stage(4, StagedChange::Leave));
    assert_eq!(again, StagingRefusal::AlreadyLeaving.into());
    let removal = stage(4, StagedChange::ForceRemove);
    let state = commit(&done(&leaving, removal.clone()));
    assert!(state.member(node(4)).is_none());
    let state = carry_out(state, 8, |_| {});
    assert!(!state.ring().members().contains(&node(4)));

    let exiting = carry_out(leaving, 8, |_| {});
    let state = commit(&done(&exiting, removal));
    assert!(state.member(node(4)).is_none());
    assert!(state.transition().is_none(), "it had nothing to give up");
    assert_eq!(state.ring(), exiting.ring());
}

/// Regression: a restarted node introduced itself with its old state. That reverted a weight
/// committed meanwhile; a node that had begun to leave became a full member again and never left.
#[test]
fn who_comes_back_with_an_old_state_takes_nothing_back() {
    let state = cluster(4);
    let mut old = state.member(node(4)).unwrap().clone();
    let is_at = |address: &str| [("peer".to_owned(), address.to_owned())];
    let back = |member: &Member| Command::UpdateMember {
        node: node(4),
        member: member.clone(),
    };
    let state = done(&state, stage(4, StagedChange::Weight(2)));
    let location = StagedChange::Location(Some("rack 1".to_owned()));
    let state = carry_out(commit(&done(&state, stage(3, location))), 8, |_| {});
    let state = commit(&done(&state, stage(4, StagedChange::Leave)));
    old.addresses.extend(is_at("10.0.0.44:8099"));
    let state = done(&state, back(&old));
    let known = state.member(node(4)).unwrap();
    assert_eq!(known.weight, 2);
    assert_eq!(known.status, MemberStatus::Leaving);
    assert_eq!(known.addresses, old.addresses);
    let state = carry_out(state, 8, |_| {});
    assert_eq!(state.exited().collect::<Vec<_>>(), [node(4)]);
}

#[test]
fn a_node_marked_as_down_is_a_full_member_again_and_a_leaving_one_goes_on_leaving() {
    let status = |state: &ClusterState| state.member(node(4)).unwrap().status;
    let said = |status| Command::UpdateMember {
        node: node(4),
        member: Member {
            status,
            ..Member::new("riak@10.0.0.44")
        },
    };
    let state = cluster(4);
    let down = done(&state, said(MemberStatus::Down));
    let expected = Member {
        status: MemberStatus::Down,
        ..state.member(node(4)).unwrap().clone()
    };
    assert_eq!(*down.member(node(4)).unwrap(), expected, "nothing else");
    let back = done(&down, said(MemberStatus::Valid));
    assert_eq!(status(&back), MemberStatus::Valid);
    assert_eq!(back.member(node(4)).unwrap().name, "riak@10.0.0.44");

    let leaving = commit(&done(&state, stage(4, StagedChange::Leave)));
    let down = done(&leaving, said(MemberStatus::Down));
    assert_eq!(status(&down), MemberStatus::Leaving);
    let joining = join(&cluster(3), 4);
    let down = done(&joining, said(MemberStatus::Down));
    assert_eq!(status(&down), MemberStatus::Joining);
}

#[test]
fn a_replacement_takes_exactly_what_the_replaced_node_had() {
    let state = cluster(4);
    let had: Vec<_> = state.ring().owned_by(node(2)).collect();
    let state = join(&state, 9);
    let state = done(&state, stage(2, StagedChange::Replace { by: node(9) }));
    assert_eq!(state.plan().unwrap().transfers.len(), had.len());
    let state = carry_out(commit(&state), 2, |_| {});
    assert_eq!(state.ring().owned_by(node(9)).collect::<Vec<_>>(), had);
    assert_eq!(state.exited().collect::<Vec<_>>(), [node(2)]);
}

#[test]
fn who_is_removed_by_force_is_gone_at_once() {
    let state = cluster(4);
    let had: Vec<_> = state.ring().owned_by(node(3)).collect();
    let state = done(&state, stage(3, StagedChange::ForceRemove));
    let plan = state.plan().unwrap();
    assert_eq!(plan.lost, had);
    let committed = commit(&state);
    assert!(committed.member(node(3)).is_none());
    assert_eq!(share(&committed, 3), 0);
    for partition in had {
        assert!(committed.ring().epoch(partition) > state.ring().epoch(partition));
    }
}

#[test]
fn who_is_replaced_by_force_is_gone_at_once_and_all_that_it_had_is_its_replacements() {
    let state = cluster(4);
    let had: Vec<_> = state.ring().owned_by(node(3)).collect();
    let replacement = |by| stage(3, StagedChange::ForceReplace { by: node(by) });
    // Only a joining node can replace it, and a node can replace only one.
    let refusal = StagingRefusal::InvalidReplacement;
    assert_eq!(refused(&state, replacement(2)), refusal.into());
    let state = done(&join(&state, 9), replacement(9));
    let other = stage(2, StagedChange::ForceReplace { by: node(9) });
    let refusal = StagingRefusal::AlreadyReplacement;
    assert_eq!(refused(&state, other), refusal.into());

    let plan = state.plan().unwrap();
    assert_eq!(plan.lost, had);
    assert_eq!(plan.transfers, []);
    let committed = commit(&state);
    assert!(committed.member(node(3)).is_none());
    let status = committed.member(node(9)).unwrap().status;
    assert_eq!(status, MemberStatus::Valid);
    // No node has to hand over anything, and the epoch makes the new owner repair its partition.
    assert!(committed.transition().is_none() && committed.ring().moves().is_empty());
    let of_replacement: Vec<_> = committed.ring().owned_by(node(9)).collect();
    assert_eq!(of_replacement, had);
    for (partition, owner, epoch) in committed.ring().partitions() {
        let is_raised = epoch > state.ring().epoch(partition);
        assert_eq!(
            is_raised,
            had.contains(&partition),
            "{partition} of {owner}"
        );
    }
}

#[test]
fn a_node_that_is_gone_for_good_is_replaced_in_the_midst_of_moves() {
    let mut state = commit(&join(&cluster(4), 5));
    let moves = state.next_moves(3);
    let source = state.ring().owner(moves[0].0);
    for (partition, _) in moves {
        state = step(&state, partition, MoveStep::Begin);
    }
    let change = StagedChange::ForceReplace { by: node(9) };
    let replacement = Command::Stage {
        node: source,
        change,
    };
    // Another joining node would wait for moves under way; the replacement does not.
    let state = done(&join(&state, 9), replacement);
    let waits = join(&state, 8);
    assert!(matches!(waits.plan(), Err(PlanError::RingNotReady { .. })));
    let state = carry_out(commit(&state), 8, |_| {});
    assert!(state.member(source).is_none() && state.transition().is_none());
    assert!(state.ring().members().contains(&node(9)));
}

#[test]
fn what_is_cleared_was_never_staged_and_what_was_committed_goes_on() {
    let state = cluster(4);
    let down = Command::UpdateMember {
        node: node(2),
        member: Member {
            status: MemberStatus::Down,
            ..Member::new("riak@10.0.0.2")
        },
    };
    let before = done(&state, down);
    let mut state = join(&join(&before, 8), 9);
    for command in [
        stage(1, StagedChange::Leave),
        stage(2, StagedChange::ForceReplace { by: node(9) }),
        stage(3, StagedChange::Location(Some("rack 1".to_owned()))),
        stage(4, StagedChange::Weight(2)),
    ] {
        state = done(&state, command);
    }
    let cleared = done(&state, Command::ClearStaged);
    assert_eq!(cleared.plan(), Err(PlanError::NothingPlanned));
    assert!(cleared.staged().is_empty());
    assert_eq!(cleared.members(), before.members());
    assert_eq!(cleared.ring(), before.ring());
    // The name of the node whose join was cleared is free again, for any node.
    let member = Member {
        status: MemberStatus::Joining,
        ..Member::new("riak@10.0.0.9")
    };
    let other = Command::AddMember {
        node: node(19),
        member,
    };
    assert!(done(&cleared, other).member(node(19)).is_some());
    let again = done(&cleared, Command::ClearStaged);
    assert_eq!(again.version(), cleared.version(), "nothing was left");

    let committed = commit(&join(&cluster(3), 4));
    let staged = done(&join(&committed, 5), stage(1, StagedChange::Leave));
    let cleared = done(&staged, Command::ClearStaged);
    assert_eq!(cleared.transition(), committed.transition());
    assert_eq!(cleared.members(), committed.members());
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let state = cluster(3);
    let staging = |command| match refused(&state, command) {
        Refusal::Staging(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        staging(stage(7, StagedChange::Leave)),
        StagingRefusal::NotMember
    );
    assert_eq!(
        staging(stage(1, StagedChange::Replace { by: node(2) })),
        StagingRefusal::InvalidReplacement
    );
    assert_eq!(
        staging(stage(1, StagedChange::Weight(0))),
        StagingRefusal::NoWeight
    );
    assert_eq!(
        staging(Command::CommitPlan { id: 1 }),
        StagingRefusal::NoPlan(PlanError::NothingPlanned)
    );
    let alone = founded();
    assert!(matches!(
        refused(&alone, stage(1, StagedChange::Leave)),
        Refusal::Staging(StagingRefusal::OnlyMember)
    ));
    let two = done(&state, stage(1, StagedChange::Leave));
    let two = done(&two, stage(2, StagedChange::Leave));
    assert!(matches!(
        refused(&two, stage(3, StagedChange::Leave)),
        Refusal::Staging(StagingRefusal::OnlyMember)
    ));
}

#[test]
fn a_plan_that_changed_since_it_was_seen_is_not_committed() {
    let state = join(&founded(), 2);
    let seen = state.plan().unwrap().id;
    let state = join(&state, 3);
    assert!(matches!(
        refused(&state, Command::CommitPlan { id: seen }),
        Refusal::Staging(StagingRefusal::PlanChanged)
    ));
    let cleared = done(&state, Command::ClearStaged);
    assert_eq!(cleared.members().len(), 1);
    assert_eq!(cleared.plan(), Err(PlanError::NothingPlanned));
}

#[test]
fn a_plan_holds_while_a_member_comes_back_and_moves_that_it_ends_go_on() {
    let said = |number: u8, status| Command::UpdateMember {
        node: node(number),
        member: Member {
            status,
            ..Member::new(&format!("riak@10.0.1.{number}"))
        },
    };
    let state = done(&cluster(4), said(2, MemberStatus::Down));
    let state = done(&state, stage(4, StagedChange::ForceRemove));
    let seen = state.plan().unwrap();
    let back = done(&state, said(2, MemberStatus::Valid));
    let committed = done(&back, Command::CommitPlan { id: seen.id });
    let member = committed.member(node(2)).unwrap();
    assert_eq!(member.status, MemberStatus::Valid);
    assert_eq!(member.name, "riak@10.0.1.2");
    assert_eq!(share(&committed, 4), 0);

    let growing = commit(&join(&cluster(3), 4));
    let state = done(&growing, stage(4, StagedChange::ForceRemove));
    let seen = state.plan().unwrap();
    let (partition, _) = state.next_moves(1)[0];
    let state = step(&state, partition, MoveStep::Begin);
    let committed = done(&state, Command::CommitPlan { id: seen.id });
    assert!(committed.member(node(4)).is_none() && committed.ring().moves().is_empty());

    // A change of weight, location or owners changes the plan.
    let state = done(&cluster(4), stage(4, StagedChange::Weight(2)));
    let seen = state.plan().unwrap().id;
    for change in [
        StagedChange::Weight(3),
        StagedChange::Location(Some("here".to_owned())),
    ] {
        let state = done(&state, stage(4, change));
        let commit = Command::CommitPlan { id: seen };
        assert!(matches!(
            refused(&state, commit),
            Refusal::Staging(StagingRefusal::PlanChanged)
        ));
    }
}

#[test]
fn a_confirmation_that_comes_late_changes_nothing() {
    let state = commit(&join(&founded(), 2));
    let (partition, at) = state.next_moves(1)[0];
    let begin = Command::Move {
        partition,
        at,
        step: MoveStep::Begin,
    };
    let begun = done(&state, begin.clone());
    assert!(matches!(refused(&begun, begin), Refusal::OtherEpoch { .. }));
    let stale = Command::Move {
        partition,
        at: Epoch::FIRST,
        step: MoveStep::Close,
    };
    assert!(matches!(refused(&begun, stale), Refusal::OtherEpoch { .. }));
    let growing = Command::Grow {
        from: 1,
        step: GrowthStep::Begin(2),
    };
    assert!(matches!(refused(&begun, growing), Refusal::Move(_)));
}

fn grow(step: GrowthStep) -> Command {
    Command::Grow { from: 1, step }
}

#[test]
fn replicas_grow_when_every_vnode_is_filled_and_every_owner_knows() {
    let two = carry_out(commit(&join(&founded(), 2)), 8, |_| {});
    // Back to one replica, with all data in place, so the number grows again.
    let mut state = done(
        &two,
        Command::SetRing((**two.ring()).clone().with_replicas_max(1)),
    );
    state = done(&state, grow(GrowthStep::Begin(2)));
    let epochs: Vec<_> = state.ring().partitions().collect();
    let filled = |partition, at| grow(GrowthStep::Filled { partition, at });
    let (first, _, at) = epochs[0];
    let stale = filled(first, Epoch::FIRST);
    assert!(matches!(refused(&state, stale), Refusal::OtherEpoch { .. }));
    for (partition, _, at) in &epochs {
        assert_eq!(state.ring().growth().unwrap().phase, Phase::Filling);
        state = done(&state, filled(*partition, *at));
        let read = ClusterState::from_json(&state.to_json().unwrap()).unwrap();
        assert_eq!(read, state);
    }
    assert_eq!(state.ring().growth().unwrap().phase, Phase::Closing);
    assert!(matches!(
        refused(&state, filled(first, at)),
        Refusal::Move(_)
    ));
    assert!(state.growth_filled().is_empty());
    let known = |number, at| {
        let node = node(number);
        grow(GrowthStep::Known { node, at })
    };
    let late = known(1, at);
    assert!(matches!(refused(&state, late), Refusal::OtherEpoch { .. }));
    let at = state.ring().epoch(first);
    let stranger = known(9, at);
    assert!(matches!(
        refused(&state, stranger),
        Refusal::NotMember { .. }
    ));
    state = done(&state, known(1, at));
    assert_eq!(state.ring().replicas_max(), 1);
    assert_eq!(state.growth_known().len(), 1);
    let read = ClusterState::from_json(&state.to_json().unwrap()).unwrap();
    assert_eq!(read, state);
    state = done(&state, known(2, at));
    assert_eq!(state.ring().replicas_max(), 2);
    assert!(state.growth_known().is_empty() && state.ring().growth().is_none());
}

#[test]
fn a_node_that_is_gone_for_good_is_removed_in_the_midst_of_moves() {
    let state = commit(&join(&cluster(4), 5));
    let moves = state.next_moves(3);
    let mut state = moves.iter().fold(state, |state, (partition, _)| {
        step(&state, *partition, MoveStep::Begin)
    });
    let (closing, _) = moves[0];
    state = step(&state, closing, MoveStep::Close);
    let ordinary = done(&state, stage(2, StagedChange::Leave));
    assert!(matches!(
        ordinary.plan(),
        Err(PlanError::RingNotReady { .. })
    ));
    let source = state.ring().owner(closing);
    let epoch = state.ring().epoch(closing);
    // The receiver is gone: a partition that moved there stays where it was.
    let without = commit(&done(&state, stage(5, StagedChange::ForceRemove)));
    let ring = without.ring();
    assert!(ring.moves().is_empty() && without.member(node(5)).is_none());
    assert_eq!(
        (ring.owner(closing), ring.epoch(closing)),
        (source, epoch.next())
    );
    assert!(carry_out(without, 8, |_| {}).transition().is_none());
    // The source is gone: a move that closes belongs to its receiver, which has everything.
    let change = StagedChange::ForceRemove;
    let removal = Command::Stage {
        node: source,
        change,
    };
    let without = commit(&done(&state, removal));
    let ring = without.ring();
    assert!(!ring.members().contains(&source) && !ring.moves().contains_key(&closing));
    assert_eq!(
        (ring.owner(closing), ring.epoch(closing)),
        (node(5), epoch.next())
    );
    let state = carry_out(without, 8, |_| {});
    assert_eq!(state.ring().members().len(), 4);
}

#[test]
fn a_node_that_is_gone_for_good_does_not_hold_up_replicas_that_grow() {
    let three = cluster(3);
    let ring = (**three.ring()).clone().with_replicas_max(1);
    let state = done(
        &done(&three, Command::SetRing(ring)),
        grow(GrowthStep::Begin(2)),
    );
    let removal = stage(3, StagedChange::ForceRemove);
    let without = commit(&done(&state, removal.clone()));
    assert!(without.ring().growth().is_none() && without.growth_filled().is_empty());
    assert_eq!(carry_out(without, 8, |_| {}).ring().replicas_max(), 2);
    // The remaining members have confirmed the close before the removal.
    let mut state = done(&state, grow(GrowthStep::Close));
    let at = state.ring().partitions().next().unwrap().2;
    for number in 1..=2 {
        let node = node(number);
        state = done(&state, grow(GrowthStep::Known { node, at }));
    }
    assert!(state.ring().growth().is_some());
    let without = commit(&done(&state, removal));
    assert!(without.ring().growth().is_none());
    assert_eq!(without.ring().replicas_max(), 2);
}

#[test]
fn two_partitions_of_one_list_never_move_together() {
    let state = commit(&join(&cluster(4), 5));
    let ring = state.ring();
    let transition = state.transition().unwrap();
    let (first, _) = state.next_moves(1)[0];
    let begun = step(&state, first, MoveStep::Begin);
    for partition in transition.due(ring) {
        let apart = ring
            .size()
            .distance(first, partition)
            .min(ring.size().distance(partition, first));
        if apart > 0 && apart < transition.apart() {
            let command = Command::Move {
                partition,
                at: ring.epoch(partition),
                step: MoveStep::Begin,
            };
            assert!(matches!(refused(&begun, command), Refusal::TooClose { .. }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Joins, departures and changes in any order: every plan can be carried out, every state can
    /// be written, and in the end every member has a fair share.
    #[test]
    fn any_plan_comes_to_an_end(changes in prop::collection::vec((0u8..8, 1u8..9, 1u8..9), 1..12)) {
        let mut state = founded();
        for (kind, number, other) in changes {
            let command = match kind {
                0 | 1 => {
                    let node = node(number);
                    let member = Member {
                        status: MemberStatus::Joining,
                        ..Member::new(&format!("riak@10.0.0.{number}"))
                    };
                    Command::AddMember { node, member }
                }
                2 => stage(number, StagedChange::Leave),
                3 => stage(number, StagedChange::Replace { by: node(other) }),
                4 => stage(number, StagedChange::Weight(u32::from(other))),
                5 => stage(number, StagedChange::ForceReplace { by: node(other) }),
                6 => Command::ClearStaged,
                _ => stage(number, StagedChange::ForceRemove),
            };
            if let Ok(next) = apply(&state, command) {
                state = next;
            }
            if other % 3 == 0 && let Ok(plan) = state.plan() {
                state = done(&state, Command::CommitPlan { id: plan.id });
                state = carry_out(state, 4, |state| {
                    let json = Command::SetRing((**state.ring()).clone()).to_json();
                    assert_eq!(Command::from_json(&json), Ok(Command::SetRing((**state.ring()).clone())));
                });
                for exited in state.exited().collect::<Vec<_>>() {
                    state = done(&state, Command::RemoveMember { node: exited });
                }
                prop_assert!(state.transition().is_none());
                prop_assert!(state.ring().moves().is_empty());
                let owners = state.ring().members().len();
                prop_assert_eq!(usize::from(state.ring().replicas_max()), owners.min(3));
            }
        }
        prop_assert_eq!(state.ring().size(), size(8));
    }
}

#[test]
fn what_is_staged_and_what_moves_is_there_after_a_restart() {
    let disk: std::sync::Arc<dyn kvorum_disk::Disk> =
        std::sync::Arc::new(kvorum_disk::MemoryDisk::new());
    let local = crate::created(&disk);
    let propose = |command| kvorum_cluster::AgreedState::propose(&local, command).unwrap();
    let joining = Member {
        status: MemberStatus::Joining,
        ..Member::new("riak@10.0.0.2")
    };
    propose(Command::AddMember {
        node: node(2),
        member: joining,
    });
    propose(stage(2, StagedChange::Location(Some("rack 2".into()))));
    let staged = propose(stage(1, StagedChange::Weight(2)));
    assert_eq!(*reopened(&disk), *staged);
    let id = staged.plan().unwrap().id;
    let committed = propose(Command::CommitPlan { id });
    let (partition, at) = committed.next_moves(1)[0];
    let moving = propose(Command::Move {
        partition,
        at,
        step: MoveStep::Begin,
    });
    assert_eq!(moving.ring().moves().len(), 1);
    assert_eq!(*reopened(&disk), *moving);
}

fn reopened(disk: &std::sync::Arc<dyn kvorum_disk::Disk>) -> std::sync::Arc<ClusterState> {
    let opened = kvorum_cluster::LocalState::open(
        std::sync::Arc::clone(disk),
        crate::directory(),
        crate::NODE_NAME,
    );
    kvorum_cluster::AgreedState::current(&opened.unwrap().state)
}

/// Three nodes do not divide eight partitions evenly.
#[test]
fn three_nodes_agree_on_detours_last_and_keep_them() {
    let kept = |state: &ClusterState| {
        let json = state.to_json().unwrap();
        assert_eq!(ClusterState::from_json(&json).unwrap(), *state);
    };
    let three = commit(&join(&join(&founded(), 2), 3));
    let mut with_next = 0;
    let state = carry_out(three, 2, |state| {
        kept(state);
        with_next += usize::from(state.ring().next_detours().is_some_and(|it| !it.is_empty()));
    });
    assert!(with_next > 0);
    assert!(!state.ring().detours().is_empty());
    assert_eq!(state.ring().crowded(3), []);
    assert_eq!(
        (state.ring().replicas_max(), state.next_growth()),
        (3, None)
    );
    let plan = join(&state, 4).plan().unwrap();
    assert_eq!(plan.crowded, []);
    let four = carry_out(commit(&join(&state, 4)), 2, kept);
    assert!(four.ring().detours().is_empty());
}

/// Regression: after the loss of two nodes of three, the survivor lowers the number of replicas,
/// which lasts as long as its repairs. A join could not be planned in that time.
#[test]
fn a_join_is_committed_while_the_number_of_replicas_changes() {
    let mut state = cluster(3);
    for lost in [2, 3] {
        state = done(&state, stage(lost, StagedChange::ForceRemove));
    }
    let state = commit(&state);
    assert_eq!(
        (state.next_growth(), state.plan()),
        (Some(2), Err(PlanError::NothingPlanned))
    );
    let grow = |step| Command::Grow { from: 3, step };
    let joining = join(&state, 4);
    let filling = done(&joining, grow(GrowthStep::Begin(2)));
    // The plan does not wait for the transfers of a change to fewer replicas.
    let committed = commit(&filling);
    assert!(committed.ring().growth().is_none());
    assert_eq!(committed.ring().replicas_max(), 3);
    assert!(!committed.next_moves(4).is_empty());
    // A closing change ends first.
    let closing = done(&filling, grow(GrowthStep::Close));
    let committed = commit(&closing);
    assert!(committed.ring().growth().is_some() && committed.transition().is_some());
    assert!(committed.next_moves(4).is_empty());
    let settled = done(&committed, grow(GrowthStep::Settle));
    assert_eq!(settled.ring().replicas_max(), 2);
    assert!(!settled.next_moves(4).is_empty() && settled.next_growth().is_none());
    let end = carry_out(settled, 4, |_| {});
    assert_eq!((share(&end, 1), share(&end, 4)), (4, 4));
    // The name of a plan that was shown before is refused.
    let seen = joining.plan().unwrap().id;
    let commit_seen = Command::CommitPlan { id: seen };
    let changed = Refusal::Staging(StagingRefusal::PlanChanged);
    assert_eq!(refused(&filling, commit_seen), changed);
}

#[test]
fn replicas_that_become_more_do_so_before_what_is_committed_meanwhile_moves() {
    let state = commit(&join(&founded(), 2));
    let mut state = state;
    while let [(partition, _), ..] = state.next_moves(1)[..] {
        for each in [MoveStep::Begin, MoveStep::Close, MoveStep::Settle] {
            state = step(&state, partition, each);
        }
    }
    let grow = |step| Command::Grow { from: 1, step };
    let filling = done(&state, grow(GrowthStep::Begin(2)));
    let committed = commit(&join(&filling, 3));
    assert_eq!(committed.ring().growth(), filling.ring().growth());
    assert!(committed.next_moves(4).is_empty());
    let settled = done(
        &done(&committed, grow(GrowthStep::Close)),
        grow(GrowthStep::Settle),
    );
    assert_eq!(settled.ring().replicas_max(), 2);
    assert!(!settled.next_moves(4).is_empty());
}
