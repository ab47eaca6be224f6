//! A cluster's state in the agreed log: one node founds it, others join, and all can change it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot make its input should fail"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvorum_agreement::{Agreement, AgreementSettings, Founding, Parts};
use kvorum_claimant::{Claimant, ClaimantSettings, ClusterMachine, ReplicatedState, ShownState};
use kvorum_cluster::{
    AgreedState, ClusterId, ClusterState, Command, GrowthStep, Member, MemberStatus, MoveStep,
    ProposeError, Refusal, StagedChange,
};
use kvorum_disk::{CrashOptions, MemoryDisk};
use kvorum_peer::{Caller, Message, PeerService, PeerSettings, Peers, Served};
use kvorum_ring::{Phase, Ring, RingSize};
use kvorum_runtime::{ListenOptions, Moment, SimulatedProcess, World};
use kvorum_test_cluster::{Everybody, machine, node_id, peer_address};

fn founded() -> ClusterState {
    let id = ClusterId::from_random([7; 16]);
    let ring = Ring::single(RingSize::new(16).unwrap(), node_id(1));
    ClusterState::found(id, "test", node_id(1), Member::new("kvorum@1"), ring)
}

struct Answers(Agreement);

impl PeerService for Answers {
    fn handle(&self, _: Caller, message: Message, _: Moment) -> Served {
        let agreement = self.0.clone();
        Served::Later(Box::pin(async move { agreement.answer(message).await }))
    }
}

struct Node {
    number: u8,
    disk: MemoryDisk,
    running: Option<(SimulatedProcess, ReplicatedState)>,
}

impl Node {
    fn new(number: u8) -> Self {
        Self {
            number,
            disk: MemoryDisk::new(),
            running: None,
        }
    }

    async fn start(&mut self, world: &World, founding: Founding) {
        let process = world.start_process(machine(self.number));
        let runtime = process.runtime();
        let directory = Arc::new(Everybody(self.number));
        let peers = Peers::new(runtime.clone(), directory, PeerSettings::default());
        let shown = Arc::new(ShownState::new(founded()));
        let machine = Arc::new(ClusterMachine::new(shown));
        let parts = Parts {
            runtime: runtime.clone(),
            disk: Arc::new(self.disk.clone()),
            directory: PathBuf::from("agreement"),
            second_mark: PathBuf::from("agreement.end"),
            node: node_id(self.number),
            peers: peers.clone(),
            machine: machine.clone(),
        };
        let settings = AgreementSettings {
            commands_between_snapshots: 20,
            ..AgreementSettings::default()
        };
        let agreement = Agreement::open(parts, founding, settings).await.unwrap();
        let at = peer_address(self.number);
        let listener = runtime.listen(at, ListenOptions::default()).unwrap();
        let answers = Arc::new(Answers(agreement.clone()));
        runtime.spawn("serve", async move { peers.serve(listener, answers).await });
        let state = ReplicatedState::new(runtime.clone(), agreement, machine);
        if founding == Founding::Alone {
            state.found(&founded()).await.unwrap();
        }
        let settings = ClaimantSettings::default();
        let claimant = Claimant::new(
            runtime.clone(),
            state.clone(),
            node_id(self.number),
            settings,
        );
        runtime.spawn("claimant", async move { claimant.run().await });
        self.running = Some((process, state));
    }

    fn state(&self) -> &ReplicatedState {
        &self.running.as_ref().unwrap().1
    }

    fn current(&self) -> Arc<ClusterState> {
        self.state().current()
    }

    async fn lose_power(&mut self, world: &World) {
        let (process, state) = self.running.take().unwrap();
        process.kill();
        world.runtime().sleep(Duration::from_millis(1)).await;
        drop((process, state));
        self.disk
            .crash(CrashOptions::drawn(world.runtime().random_u64()));
    }
}

fn simulated<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(World) -> F) {
    let (executor, world) = World::new(seed).unwrap();
    executor.block_on(test(world));
}

async fn until(world: &World, what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_200 {
        if holds() {
            return;
        }
        world.runtime().sleep(Duration::from_millis(50)).await;
    }
    panic!("it never comes to hold that {what}");
}

/// Nodes 1 to `count`; nodes from 2 on are joining members, and nothing is committed yet.
async fn joined(world: &World, count: u8) -> Vec<Node> {
    let mut nodes: Vec<Node> = (1..=count).map(Node::new).collect();
    nodes[0].start(world, Founding::Alone).await;
    for joining in &mut nodes[1..] {
        joining.start(world, Founding::Joining).await;
    }
    for number in 2..=count {
        let member = Member {
            status: MemberStatus::Joining,
            ..Member::new(&format!("kvorum@{number}"))
        };
        let node = node_id(number);
        nodes[0]
            .state()
            .agree(Command::AddMember { node, member })
            .await
            .unwrap();
    }
    let members = usize::from(count);
    let all_know = || {
        nodes
            .iter()
            .all(|node| node.current().members().len() == members)
    };
    until(world, "all nodes know each other", all_know).await;
    nodes
}

/// Confirms every step of moves and growth in place of the nodes that move data, until nothing is left.
async fn carry_out(world: &World, nodes: &[Node], look: impl Fn(&ClusterState)) {
    for _ in 0..2_000 {
        let state = nodes[0].current();
        look(&state);
        let ring = state.ring();
        let is_done = state.transition().is_none() && state.next_growth().is_none();
        if is_done && ring.moves().is_empty() && ring.growth().is_none() {
            return;
        }
        for (partition, moving) in ring.moves() {
            let step = match moving.phase {
                Phase::Filling => MoveStep::Close,
                Phase::Closing => MoveStep::Settle,
            };
            let command = Command::Move {
                partition: *partition,
                at: ring.epoch(*partition),
                step,
            };
            nodes[1].state().agree(command).await.unwrap();
        }
        if let Some(growth) = ring.growth() {
            let step = match growth.phase {
                Phase::Filling => GrowthStep::Close,
                Phase::Closing => GrowthStep::Settle,
            };
            let from = ring.replicas_max();
            nodes[1]
                .state()
                .agree(Command::Grow { from, step })
                .await
                .unwrap();
        }
        world.runtime().sleep(Duration::from_millis(100)).await;
    }
    panic!("the plan is never carried out");
}

#[test]
fn a_cluster_grows_from_one_to_three_by_a_committed_plan() {
    simulated(1, |world| async move {
        let nodes = joined(&world, 3).await;
        let id = nodes[2].current().plan().unwrap().id;
        nodes[2]
            .state()
            .agree(Command::CommitPlan { id })
            .await
            .unwrap();
        carry_out(&world, &nodes, |state| {
            assert!(state.ring().moves().len() <= 8);
        })
        .await;
        let same = || {
            nodes
                .iter()
                .all(|node| *node.current() == *nodes[0].current())
        };
        until(&world, "all have the same state", same).await;
        let ring = nodes[1].current().ring().clone();
        assert_eq!(ring.replicas_max(), 3);
        for number in 1..=3 {
            assert!((5..=6).contains(&ring.owned_by(node_id(number)).count()));
        }
        let voters = || nodes[0].state().agreement().status().voters.len() == 3;
        until(&world, "all three vote", voters).await;
    });
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    simulated(2, |world| async move {
        let nodes = joined(&world, 2).await;
        let refused = nodes[1].state().agree(Command::Stage {
            node: node_id(9),
            change: StagedChange::Leave,
        });
        let refused = refused.await;
        assert!(matches!(
            refused,
            Err(ProposeError::Refused(Refusal::Staging(_)))
        ));
        let sync = nodes[1].state().propose(Command::ClearStaged);
        assert!(matches!(sync, Err(ProposeError::NotAgreed { .. })));
    });
}

#[test]
fn the_leader_may_die_while_a_plan_is_carried_out() {
    for seed in 3..8 {
        simulated(seed, |world| async move {
            let mut nodes = joined(&world, 4).await;
            let all_vote = |nodes: &[Node]| nodes[0].state().agreement().status().voters.len() == 3;
            let committed = nodes[0].current().plan().unwrap().id;
            nodes[0]
                .state()
                .agree(Command::CommitPlan { id: committed })
                .await
                .unwrap();
            until(&world, "three vote", || all_vote(&nodes)).await;
            let leader = nodes[0].state().agreement().status().leader.unwrap();
            let place = usize::from(leader.as_bytes()[0]) - 1;
            nodes[place].lose_power(&world).await;
            world.runtime().sleep(Duration::from_secs(5)).await;
            nodes[place].start(&world, Founding::Opened).await;
            carry_out(&world, &nodes, |_| {}).await;
            let same = || {
                nodes
                    .iter()
                    .all(|node| *node.current() == *nodes[0].current())
            };
            until(&world, "all have the same state", same).await;
            assert_eq!(nodes[0].current().ring().members().len(), 4);
        });
    }
}
