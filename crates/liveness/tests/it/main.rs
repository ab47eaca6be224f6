//! Nodes that watch one another, on virtual time.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its input should fail"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kvorum_liveness::{Liveness, LivenessSettings};
use kvorum_peer::{Caller, Message, PeerService, PeerSettings, Peers, Served};
use kvorum_ring::NodeId;
use kvorum_runtime::{Link, ListenOptions, Moment, SimulatedProcess, World};
use kvorum_test_cluster::{Everybody, machine, node_id, peer_address};

struct Hears(Liveness);

impl PeerService for Hears {
    fn handle(&self, _: Caller, message: Message, _: Moment) -> Served {
        self.0.hear(&message);
        Served::Now(Message::default())
    }
}

struct Node {
    process: SimulatedProcess,
    liveness: Liveness,
}

fn start(world: &World, number: u8, members: &BTreeSet<NodeId>) -> Node {
    let process = world.start_process(machine(number));
    let runtime = process.runtime();
    let peers = Peers::new(
        runtime.clone(),
        Arc::new(Everybody(number)),
        PeerSettings::default(),
    );
    let generation = runtime.wall_time().micros();
    let settings = LivenessSettings::default();
    let liveness = Liveness::start(
        &runtime,
        peers.clone(),
        node_id(number),
        generation,
        settings,
    );
    liveness.follow_members(members.clone());
    let at = peer_address(number);
    let listener = runtime.listen(at, ListenOptions::default()).unwrap();
    let hears = Arc::new(Hears(liveness.clone()));
    runtime.spawn("serve", async move { peers.serve(listener, hears).await });
    Node { process, liveness }
}

fn members(count: u8) -> BTreeSet<NodeId> {
    (1..=count).map(node_id).collect()
}

fn simulated<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(World) -> F) {
    let (executor, world) = World::new(seed).unwrap();
    executor.block_on(test(world));
}

async fn until(world: &World, limit: Duration, holds: impl Fn() -> bool) -> Duration {
    let runtime = world.runtime();
    let started = runtime.now();
    while !holds() {
        assert!(
            runtime.now().since(started) < limit,
            "it does not come to hold"
        );
        runtime.sleep(Duration::from_millis(50)).await;
    }
    runtime.now().since(started)
}

const SOON: Duration = Duration::from_secs(30);

#[test]
fn all_nodes_see_each_other_and_a_killed_node_is_noticed() {
    for seed in 1..6 {
        simulated(seed, |world| async move {
            let all = members(5);
            let nodes: Vec<Node> = (1..=5).map(|number| start(&world, number, &all)).collect();
            let sees_all = || nodes.iter().all(|it| *it.liveness.up() == all);
            until(&world, SOON, sees_all).await;
            nodes[2].process.kill();
            let noticed = || {
                let others = [0, 1, 3, 4].map(|place: usize| &nodes[place].liveness);
                others
                    .iter()
                    .all(|it| !it.is_up(node_id(3)) && it.up().len() == 4)
            };
            let took = until(&world, SOON, noticed).await;
            assert!(took < Duration::from_secs(15), "{took:?}");
        });
    }
}

#[test]
fn a_node_that_comes_back_is_up_soon() {
    simulated(2, |world| async move {
        let all = members(3);
        let mut nodes: Vec<Node> = (1..=3).map(|number| start(&world, number, &all)).collect();
        until(&world, SOON, || {
            nodes.iter().all(|it| *it.liveness.up() == all)
        })
        .await;
        nodes[1].process.kill();
        until(&world, SOON, || !nodes[0].liveness.is_up(node_id(2))).await;
        nodes[1] = start(&world, 2, &all);
        let took = until(&world, SOON, || {
            nodes.iter().all(|it| *it.liveness.up() == all)
        })
        .await;
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}

#[test]
fn two_halves_that_meet_again_see_one_another() {
    simulated(3, |world| async move {
        let all = members(4);
        let nodes: Vec<Node> = (1..=4).map(|number| start(&world, number, &all)).collect();
        until(&world, SOON, || {
            nodes.iter().all(|it| *it.liveness.up() == all)
        })
        .await;
        let between = |is_cut| {
            for one in [1, 2] {
                for other in [3, 4] {
                    let link = Link {
                        is_cut,
                        ..Link::default()
                    };
                    world.set_link(machine(one), machine(other), link);
                    world.set_link(machine(other), machine(one), link);
                }
            }
        };
        between(true);
        let halves = || {
            *nodes[0].liveness.up() == BTreeSet::from([node_id(1), node_id(2)])
                && *nodes[3].liveness.up() == BTreeSet::from([node_id(3), node_id(4)])
        };
        until(&world, SOON * 2, halves).await;
        between(false);
        let took = until(&world, SOON * 2, || {
            nodes.iter().all(|it| *it.liveness.up() == all)
        });
        let took = took.await;
        assert!(took < Duration::from_secs(30), "{took:?}");
    });
}

#[test]
fn no_node_counts_as_down_on_a_slow_network() {
    simulated(4, |world| async move {
        let all = members(4);
        for one in 1..=4 {
            for other in 1..=4 {
                let link = Link {
                    delay_min: Duration::from_millis(5),
                    delay_max: Duration::from_millis(150),
                    is_cut: false,
                };
                world.set_link(machine(one), machine(other), link);
            }
        }
        let nodes: Vec<Node> = (1..=4).map(|number| start(&world, number, &all)).collect();
        until(&world, SOON, || {
            nodes.iter().all(|it| *it.liveness.up() == all)
        })
        .await;
        for _ in 0..600 {
            world.runtime().sleep(Duration::from_millis(200)).await;
            assert!(nodes.iter().all(|it| *it.liveness.up() == all));
        }
    });
}

#[test]
fn who_says_good_bye_is_down_at_once() {
    simulated(5, |world| async move {
        let all = members(3);
        let nodes: Vec<Node> = (1..=3).map(|number| start(&world, number, &all)).collect();
        until(&world, SOON, || {
            nodes.iter().all(|it| *it.liveness.up() == all)
        })
        .await;
        nodes[1].liveness.leave();
        let took = until(&world, SOON, || !nodes[0].liveness.is_up(node_id(2))).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}
