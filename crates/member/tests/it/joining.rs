//! Becoming a member: nodes that are admitted, and nodes that are refused.

use std::time::Duration;

use kvorum_cluster::{AgreedState, Command, MemberStatus, StagedChange};
use kvorum_member::{JoinError, Operation};
use kvorum_test_cluster::link_all;

use crate::machines::{
    Machine, at, carry_out, cluster, cut, has_store, joined, name, simulated, until,
};

#[test]
fn a_node_that_joins_stands_in_the_plan_and_owns_nothing_yet() {
    simulated(1, |world| async move {
        let machines = joined(&world, 3).await;
        for machine in &machines {
            assert_eq!(machine.state().members().len(), 3);
        }
        let state = machines[2].state();
        let (node, member) = state.member_named(&name(2)).unwrap();
        assert_eq!(node, machines[1].member().node());
        assert_eq!(member.status, MemberStatus::Joining);
        assert_eq!(state.plan().unwrap().members.len(), 3);
        assert_eq!(machines[1].member().vnodes().all().len(), 0);
        assert!(
            !state
                .ring()
                .partitions()
                .any(|(it, ..)| has_store(&machines[1], it))
        );
        machines[1].put("key", "through another").await;
        assert_eq!(machines[2].get("key").await, ["through another"]);
    });
}

#[test]
fn a_committed_plan_gives_vnodes_to_all_and_takes_them_where_they_settled_elsewhere() {
    simulated(2, |world| async move {
        let machines = cluster(&world, 3).await;
        let state = machines[0].state();
        assert_eq!(state.ring().replicas_max(), 3);
        until(&world, "every node has just its own vnodes", || {
            machines.iter().all(|machine| {
                let node = machine.member().node();
                let vnodes = machine.member().vnodes().all();
                let have: Vec<_> = vnodes.iter().map(|vnode| vnode.partition()).collect();
                have == state.ring().owned_by(node).collect::<Vec<_>>()
            })
        })
        .await;
        for machine in &machines {
            let node = machine.member().node();
            for (partition, owner, epoch) in state.ring().partitions() {
                assert_eq!(has_store(machine, partition), owner == node);
                if let Some(vnode) = machine.member().vnodes().numbered(partition.number()) {
                    assert_eq!(vnode.status().epoch, epoch);
                }
            }
        }
        let voters = || {
            machines[0]
                .member()
                .state()
                .agreement()
                .status()
                .voters
                .len()
                == 3
        };
        until(&world, "all vote", voters).await;
    });
}

#[test]
fn the_ring_of_a_joining_node_is_replaced() {
    simulated(3, |world| async move {
        let (one, mut two) = (Machine::new(1), Machine::new(2));
        two.ring_size = 64;
        one.start(&world).await;
        two.start(&world).await;
        let joined = two.member().join(at(1), None).await.unwrap();
        assert_eq!(joined.by, name(1));
        assert_eq!(two.state().ring().size(), one.state().ring().size());
        two.lose_power(&world).await;
        two.start(&world).await;
        assert_eq!(two.state().id(), one.state().id());
    });
}

#[test]
fn a_node_that_is_refused_gets_the_reason_and_stays_as_it_was() {
    simulated(4, |world| async move {
        let machines = joined(&world, 2).await;
        let mut three = Machine::new(3);
        three.cluster_name = "another".to_owned();
        three.start(&world).await;
        three.put("key", "value").await;
        let member = three.member();
        let refused = member.join(at(1), None).await;
        assert!(matches!(
            refused,
            Err(JoinError::NotEmpty { partitions: 1 })
        ));
        assert_eq!(three.get("key").await, ["value"]);
        let refused = member.join(at(3), None).await;
        assert!(matches!(refused, Err(JoinError::SelfJoin)));

        let mut four = Machine::new(4);
        four.cluster_name = "another".to_owned();
        four.start(&world).await;
        let refused = four.member().join(at(1), None).await;
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("cluster_name"), "{error}");
        let refused = four.member().join(at(9), None).await;
        assert!(matches!(refused, Err(JoinError::NotReachable { .. })));
        assert_eq!(four.member().vnodes().all().len(), 16);
        four.put("key", "still its own").await;

        let five = Machine::new(5);
        five.start(&world).await;
        let refused = five.member().join(at(1), Some("other@10.0.0.1")).await;
        assert!(matches!(refused, Err(JoinError::OtherName { .. })));
        let refused = machines[1].member().join(at(5), None).await;
        assert!(matches!(refused, Err(JoinError::NotSingleNode)));
        let mut namesake = Machine::new(5);
        namesake.number = 2;
        assert_eq!(machines[0].state().members().len(), 2);
    });
}

#[test]
fn a_join_that_is_cut_short_can_be_asked_for_again() {
    let operations = simulated(5, |world| async move {
        let (one, two) = (Machine::new(1), Machine::new(2));
        one.start(&world).await;
        two.start(&world).await;
        let before = two.disk.operations();
        two.member().join(at(1), None).await.unwrap();
        before..two.disk.operations()
    });
    for cut in operations.step_by(7) {
        simulated(5, |world| async move {
            let (one, two) = (Machine::new(1), Machine::new(2));
            one.start(&world).await;
            two.start(&world).await;
            two.disk.cut_after(cut);
            let joining = two.member();
            let runtime = world.runtime();
            let waits = runtime.timeout(Duration::from_secs(60), async {
                let _joined_or_not = joining.join(at(1), None).await;
            });
            let _came_back_or_not = waits.await;
            drop(joining);
            two.lose_power(&world).await;
            two.start(&world).await;
            let is_in = two.state().id() == one.state().id();
            if !is_in {
                let joined = two.member().join(at(1), None).await;
                assert!(
                    matches!(joined, Ok(_) | Err(JoinError::NotSingleNode)),
                    "cut at {cut}: {joined:?}"
                );
            }
            let same = || *two.state() == *one.state();
            until(&world, "both have the same state", same).await;
            assert_eq!(one.state().members().len(), 2);
        });
    }
}

#[test]
fn a_leaving_node_hands_over_everything_and_is_gone() {
    simulated(6, |world| async move {
        let machines = cluster(&world, 3).await;
        let leaves = machines[2].member().node();
        let change = StagedChange::Leave;
        machines[0]
            .agree(Command::Stage {
                node: leaves,
                change,
            })
            .await;
        machines[0].commit_plan().await;
        carry_out(&world, &machines).await;
        let gone = || machines[0].state().member(leaves).is_none();
        until(&world, "it is no member any more", gone).await;
        assert_eq!(machines[0].state().ring().members().len(), 2);
        let state = machines[0].member().state().clone();
        let voters = || !state.agreement().status().voters.contains(&leaves);
        until(&world, "it does not vote", voters).await;
        assert_eq!(state.current().ring().replicas_max(), 2);
    });
}

/// Operators of Riak let a node leave and join again as it is. Here the node's data directory had
/// to be removed first.
#[test]
fn a_node_that_has_left_joins_again_as_it_is() {
    simulated(58, |world| async move {
        let machines = cluster(&world, 3).await;
        machines[0].put("key", "value").await;
        let leaver = machines[2].member();
        let refused = leaver.join(at(1), None).await;
        assert!(matches!(refused, Err(JoinError::NotSingleNode)));
        let (node, change) = (leaver.node(), StagedChange::Leave);
        machines[0].agree(Command::Stage { node, change }).await;
        machines[0].commit_plan().await;
        let gone = || machines[0].state().member(node).is_none();
        until(&world, "it is no member any more", gone).await;
        // With and without a restart.
        for restarts in [false, true] {
            if restarts {
                machines[2].stop(&world).await;
                machines[2].start(&world).await;
            }
            let returned = machines[2].member().join(at(1), None).await;
            assert_eq!(returned.map(|it| it.by).ok(), Some(name(1)));
            let joins = || machines[0].state().member(node).map(|it| it.status);
            until(&world, "it joins", || {
                joins() == Some(MemberStatus::Joining)
            })
            .await;
            if !restarts {
                machines[0].agree(Command::ClearStaged).await;
                assert_eq!(joins(), None, "its join was taken back");
            }
        }
        machines[0].commit_plan().await;
        carry_out(&world, &machines).await;
        assert_eq!(machines[0].state().ring().members().len(), 3);
        assert_eq!(machines[2].get("key").await, ["value"]);
        let voters = || {
            let status = machines[0].member().state().agreement().status();
            status.voters.contains(&node)
        };
        until(&world, "it votes again", voters).await;
    });
}

/// The state of a node that was cut off lacks the new member. It must not report the new member as
/// removed: the new member would discard its log.
#[test]
fn who_knows_less_proves_no_removal() {
    simulated(59, |world| async move {
        let mut machines = cluster(&world, 3).await;
        let fourth = Machine::new(4);
        link_all(&world, 4);
        cut(&world, &[3], &[1, 2, 4], true);
        fourth.start(&world).await;
        fourth.member().join(at(1), None).await.unwrap();
        machines.push(fourth);
        cut(&world, &[3], &[1, 2, 4], false);
        cut(&world, &[3], &[1, 2], true);
        for number in [1, 2, 3] {
            let refused = machines[3].member().join(at(number), None).await;
            assert!(
                matches!(refused, Err(JoinError::NotSingleNode)),
                "{refused:?}"
            );
        }
    });
}

/// Regression: the member refused nodes that joined its own cluster.
#[test]
fn the_name_that_was_agreed_on_counts_where_a_member_is_configured_otherwise() {
    simulated(60, |world| async move {
        let mut machines = cluster(&world, 3).await;
        machines[1].stop(&world).await;
        machines[1].cluster_name = "another".to_owned();
        machines[1].start(&world).await;
        link_all(&world, 4);
        let newcomer = Machine::new(4);
        newcomer.start(&world).await;
        let joined = newcomer.member().join(at(2), Some(&name(2))).await;
        assert_eq!(joined.map(|it| it.by).ok(), Some(name(2)));
    });
}

/// The node's state lacks the leader, and no other node sends it the state in which the leader is a
/// member.
#[test]
fn who_was_away_learns_from_a_leader_that_joined_meanwhile() {
    simulated(1, |world| async move {
        let mut machines = cluster(&world, 4).await;
        machines[3].stop(&world).await;
        let fifth = Machine::new(5);
        fifth.start(&world).await;
        machines.push(fifth);
        let newcomer = machines[4].member();
        newcomer.join(at(1), Some(&name(1))).await.unwrap();
        machines[0].commit_plan().await;
        let log = || newcomer.state().agreement().status();
        until(&world, "the newcomer votes", || {
            log().voters.contains(&newcomer.node())
        })
        .await;
        // Any other leader is stopped until another node leads.
        loop {
            until(&world, "a node leads", || log().leader.is_some()).await;
            let leader = log().leader;
            if leader == Some(newcomer.node()) {
                break;
            }
            let leads = |it: &&Machine| Some(it.member().node()) == leader;
            let machine = machines[..3].iter().find(leads).unwrap();
            machine.stop(&world).await;
            let is_other = || log().leader.is_some_and(|now| Some(now) != leader);
            until(&world, "another leads", is_other).await;
            machine.start(&world).await;
        }
        let agreed = machines[4].state().version();
        machines[3].start(&world).await;
        until(
            &world,
            "a node that was away knows as much as the others",
            || machines[3].state().version() >= agreed,
        )
        .await;
    });
}

/// The removed node is not notified, and keeps sending requests over its open connections.
/// Regression: the other nodes confirmed such writes, and the new owners of its partitions lacked
/// them.
#[test]
fn who_was_removed_by_force_is_not_answered_over_the_connections_that_it_had() {
    simulated(57, |world| async move {
        let machines = cluster(&world, 4).await;
        let removed = machines[3].member();
        let others: Vec<_> = machines[..3].iter().map(|it| it.member().node()).collect();
        for other in &others {
            let answer = removed.operate(*other, Operation::Version).await;
            assert!(answer.is_ok(), "{answer:?}");
        }
        let (node, change) = (removed.node(), StagedChange::ForceRemove);
        machines[0].agree(Command::Stage { node, change }).await;
        machines[0].commit_plan().await;
        let is_gone = |machine: &Machine| machine.state().member(node).is_none();
        until(&world, "all others know that it is gone", || {
            machines[..3].iter().all(is_gone)
        })
        .await;
        for other in others {
            let answer = removed.operate(other, Operation::Version).await;
            assert!(answer.is_err(), "{answer:?}");
        }
    });
}
