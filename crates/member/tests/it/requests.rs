//! Reads and writes through a cluster whose nodes fail.

use std::sync::Arc;
use std::time::Duration;

use kvorum_cluster::{Command, MemberStatus, StagedChange};
use kvorum_coordinator::{PutOptions, RequestError};
use kvorum_member::{Member, Operation, Outcome};
use kvorum_object::Clock;
use kvorum_test_cluster::link_all;

use crate::machines::{Machine, at, carry_out, cluster, cut, name, put_at, simulated, until};

const KEYS: u32 = 40;

async fn write(machine: &Machine, round: u32) {
    for number in 0..KEYS {
        machine
            .put(&format!("key {number}"), &format!("{round}"))
            .await;
    }
}

async fn check(machine: &Machine, round: u32) {
    for number in 0..KEYS {
        let got = machine.get(&format!("key {number}")).await;
        assert_eq!(got, [format!("{round}")], "key {number}");
    }
}

/// Number of hints that a node keeps.
fn hints(machine: &Machine) -> u64 {
    machine.member().hints().vnode().store_status().keys
}

#[test]
fn every_node_serves_what_any_node_took() {
    simulated(1, |world| async move {
        let machines = cluster(&world, 3).await;
        for (round, writer) in (0..).zip(&machines) {
            write(writer, round).await;
            for reader in &machines {
                check(reader, round).await;
            }
        }
    });
}

#[test]
fn a_killed_node_misses_nothing_in_the_end() {
    simulated(2, |world| async move {
        let machines = cluster(&world, 3).await;
        write(&machines[0], 1).await;
        machines[1].lose_power(&world).await;
        // One write before the other nodes detect the failure, and one after.
        write(&machines[0], 2).await;
        world.runtime().sleep(Duration::from_secs(15)).await;
        assert_eq!(machines[0].member().liveness().up().len(), 2);
        write(&machines[2], 3).await;
        check(&machines[0], 3).await;
        machines[1].start(&world).await;
        check(&machines[1], 3).await;
        let see_one_another = || {
            let up = |machine: &Machine| machine.member().liveness().up().len();
            machines.iter().all(|machine| up(machine) == 3)
        };
        until(&world, "all see one another", see_one_another).await;
        let handed = || machines.iter().all(|machine| hints(machine) == 0);
        until(&world, "all hints are handed over", handed).await;
        // Two of the three nodes are now enough, one of them the node that was killed.
        machines[2].lose_power(&world).await;
        check(&machines[1], 3).await;
    });
}

/// Regression: a stopping node dropped the writes that it coordinated for other nodes, and their
/// clients received `timeout`.
#[test]
fn a_node_that_stops_fails_no_request_of_another() {
    simulated(12, |world| async move {
        let machines = cluster(&world, 5).await;
        for stopping in 1..machines.len() {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    let member = machines[0].member();
                    let prefix = format!("{stopping} {writer}");
                    world.runtime().spawn("writer", write_anew(member, prefix))
                })
                .collect();
            world.runtime().sleep(Duration::from_millis(100)).await;
            machines[stopping].stop(&world).await;
            for writer in writers {
                assert_eq!(writer.await.unwrap(), []);
            }
            machines[stopping].start(&world).await;
            until(&world, "all see one another", || {
                let up = |machine: &Machine| machine.member().liveness().up().len();
                machines.iter().all(|machine| up(machine) == 5)
            })
            .await;
        }
    });
}

/// Writes new keys, one after the other; returns the failures.
async fn write_anew(member: Arc<Member>, prefix: String) -> Vec<RequestError> {
    let mut failed = Vec::new();
    for number in 0..100 {
        let (key, options) = (format!("{prefix} {number}"), PutOptions::default());
        let put = put_at(&member, &key, "value", Clock::new(), &options).await;
        failed.extend(put.err());
    }
    failed
}

/// Three nodes cannot alternate evenly around sixteen partitions: at the end of the ring, lists
/// make a detour.
#[test]
fn any_one_of_three_nodes_may_be_down_and_no_key_notices() {
    simulated(9, |world| async move {
        let machines = cluster(&world, 3).await;
        assert!(!machines[0].state().ring().detours().is_empty());
        assert_eq!(machines[0].state().ring().crowded(3), []);
        write(&machines[0], 0).await;
        for (round, down) in (1..).zip(0..3) {
            machines[down].lose_power(&world).await;
            let others: Vec<&Machine> = (0..3)
                .filter(|it| *it != down)
                .map(|it| &machines[it])
                .collect();
            check(others[0], round - 1).await;
            world.runtime().sleep(Duration::from_secs(15)).await;
            assert_eq!(others[0].member().liveness().up().len(), 2);
            check(others[1], round - 1).await;
            write(others[0], round).await;
            check(others[1], round).await;
            machines[down].start(&world).await;
            let is_well = || {
                let up = |machine: &Machine| machine.member().liveness().up().len();
                machines.iter().all(|it| up(it) == 3 && hints(it) == 0)
            };
            until(&world, "all is well again", is_well).await;
        }
        for machine in &machines {
            check(machine, 3).await;
        }
    });
}

/// With a fourth node, lists need no detours, and their objects move to the new replicas.
#[test]
fn detours_end_when_a_node_more_makes_them_needless() {
    simulated(10, |world| async move {
        let mut machines = cluster(&world, 3).await;
        write(&machines[0], 1).await;
        let fourth = Machine::new(4);
        fourth.start(&world).await;
        fourth.member().join(at(1), Some(&name(1))).await.unwrap();
        machines.push(fourth);
        machines[0].commit_plan().await;
        carry_out(&world, &machines).await;
        assert!(machines[0].state().ring().detours().is_empty());
        assert_eq!(machines[0].state().ring().crowded(3), []);
        for machine in &machines {
            check(machine, 1).await;
        }
        for down in &machines[1..] {
            down.lose_power(&world).await;
            check(&machines[0], 1).await;
            down.start(&world).await;
            let is_well = || {
                machines
                    .iter()
                    .all(|it| it.member().liveness().up().len() == 4)
            };
            until(&world, "all see one another", is_well).await;
            // A node that could not be reached is tried again after a pause.
            world.runtime().sleep(Duration::from_secs(10)).await;
        }
    });
}

#[test]
fn a_lost_majority_of_the_log_stops_neither_reads_nor_writes() {
    simulated(3, |world| async move {
        let machines = cluster(&world, 5).await;
        let all_vote = || {
            machines[0]
                .member()
                .state()
                .agreement()
                .status()
                .voters
                .len()
                == 5
        };
        until(&world, "all vote", all_vote).await;
        for lost in &machines[2..] {
            lost.lose_power(&world).await;
        }
        world.runtime().sleep(Duration::from_secs(30)).await;
        write(&machines[0], 1).await;
        check(&machines[1], 1).await;
        let member = machines[0].member();
        let refused = member.state().agree(Command::NameCluster("other".into()));
        assert!(refused.await.is_err());
        for lost in &machines[2..] {
            lost.start(&world).await;
        }
        until(&world, "a node leads again", || {
            member.state().agreement().status().leader.is_some()
        })
        .await;
        let handed = || machines.iter().all(|machine| hints(machine) == 0);
        until(&world, "all hints are handed over", handed).await;
        for machine in &machines {
            check(machine, 1).await;
        }
        machines[1].agree(Command::NameCluster("test".into())).await;
    });
}

#[test]
fn all_may_lose_power_at_once() {
    for seed in 4..8 {
        simulated(seed, |world| async move {
            let machines = cluster(&world, 3).await;
            write(&machines[1], 1).await;
            for machine in &machines {
                machine.lose_power(&world).await;
            }
            for machine in &machines {
                machine.start(&world).await;
            }
            world.runtime().sleep(Duration::from_secs(10)).await;
            for machine in &machines {
                check(machine, 1).await;
            }
            let id = machines[0].state().version();
            machines[2].agree(Command::ClearStaged).await;
            assert!(machines[2].state().version() >= id);
        });
    }
}

#[test]
fn both_sides_of_a_cut_go_on_and_what_both_wrote_is_kept() {
    simulated(9, |world| async move {
        let machines = cluster(&world, 5).await;
        cut(&world, &[4, 5], &[1, 2, 3], true);
        world.runtime().sleep(Duration::from_secs(30)).await;
        write(&machines[0], 1).await;
        write(&machines[4], 2).await;
        check(&machines[2], 1).await;
        check(&machines[3], 2).await;
        cut(&world, &[4, 5], &[1, 2, 3], false);
        let handed = || machines.iter().all(|machine| hints(machine) == 0);
        until(&world, "all hints are handed over", handed).await;
        for number in 0..KEYS {
            let mut got = machines[2].get(&format!("key {number}")).await;
            got.sort();
            assert_eq!(got, ["1", "2"], "both sides wrote");
        }
    });
}

#[test]
fn the_same_seed_twice_is_the_same_run() {
    let run = || {
        simulated(11, |world| async move {
            let machines = cluster(&world, 3).await;
            write(&machines[0], 1).await;
            machines[1].lose_power(&world).await;
            write(&machines[2], 2).await;
            machines[1].start(&world).await;
            check(&machines[1], 2).await;
            let trace = |machine: &Machine| {
                let state = format!("{:?}", machine.state());
                (state, machine.disk.operations(), machine.number)
            };
            let now = world.runtime().now();
            let traces: Vec<_> = machines.iter().map(trace).collect();
            (now, traces, world.runtime().random_u64())
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn a_cluster_that_grows_from_one_to_three_never_misses_a_key() {
    simulated(12, |world| async move {
        let one = Machine::new(1);
        one.start(&world).await;
        write(&one, 1).await;
        let mut machines = vec![one];
        for number in 2..=3 {
            let machine = Machine::new(number);
            machine.start(&world).await;
            let member = machine.member();
            member.join(crate::machines::at(1), None).await.unwrap();
            machines.push(machine);
        }
        machines[0].commit_plan().await;
        let mut rounds = 0;
        while machines[0].state().ring().replicas_max() < 3 {
            for (number, machine) in (0..KEYS).zip(machines.iter().cycle()) {
                let key = format!("key {number}");
                // A coordinator with an older ring is refused, and catches up in a moment.
                let mut tries = 0;
                let found = loop {
                    match machine.try_get(&key).await {
                        Ok(found) => break found,
                        Err(error) => assert!(tries < 50, "{key}: {error}"),
                    }
                    tries += 1;
                    world.runtime().sleep(Duration::from_millis(50)).await;
                };
                assert!(found.is_some(), "{key}");
            }
            world.runtime().sleep(Duration::from_millis(200)).await;
            rounds += 1;
            assert!(rounds < 2_000, "it never grows");
        }
        for machine in &machines {
            check(machine, 1).await;
        }
    });
}

/// Regression: a node left with its hints for a node that was down, and acknowledged writes were
/// lost.
#[test]
fn who_leaves_is_removed_when_it_keeps_nothing_for_others_any_more() {
    simulated(21, |world| async move {
        let mut machines = cluster(&world, 5).await;
        link_all(&world, 6);
        let sixth = Machine::new(6);
        sixth.start(&world).await;
        sixth.member().join(at(1), Some(&name(1))).await.unwrap();
        machines.push(sixth);
        machines[1].lose_power(&world).await;
        world.runtime().sleep(Duration::from_secs(15)).await;
        write(&machines[0], 1).await;
        assert!(hints(&machines[4]) > 0);
        let (leaver, by) = (machines[4].member().node(), machines[5].member().node());
        let change = StagedChange::Replace { by };
        let replace = Command::Stage {
            node: leaver,
            change,
        };
        machines[0].agree(replace).await;
        machines[0].commit_plan().await;
        carry_out(&world, &machines).await;
        world.runtime().sleep(Duration::from_secs(120)).await;
        let status = |machine: &Machine| {
            let state = machine.state();
            state.member(leaver).map(|member| member.status)
        };
        assert_eq!(status(&machines[0]), Some(MemberStatus::Exiting));
        assert!(hints(&machines[4]) > 0);
        let answer = machines[0].member().operate(leaver, Operation::MayGo).await;
        let reason = format!("it keeps objects for other nodes, {} for one", name(2));
        assert_eq!(answer, Ok(Outcome::Refused(reason)));

        machines[1].start(&world).await;
        until(&world, "it is removed", || status(&machines[0]).is_none()).await;
        assert_eq!(hints(&machines[4]), 0);
        check(&machines[1], 1).await;
    });
}
