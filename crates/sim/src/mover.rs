//! Carries out what is agreed of moves: what a claimant and transfers do for a real cluster.
//!
//! The steps and their gates are those of the ring's moves. What stands in is the transfer itself: it
//! is done in one piece, through the vnodes and their logs, while both machines can reach each other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kvorum_backend::{
    Durability, Durable, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Reading, Timestamp,
    Visited,
};
use kvorum_cluster::{ClusterState, Command, GrowthStep, MoveStep};
use kvorum_coordinator::LocalVnodes as _;
use kvorum_encoding::StorageKey;
use kvorum_object::{Object, Resolution};
use kvorum_ring::{Move, NodeId, Partition, Phase};
use kvorum_runtime::{PlantedDefect, is_planted};
use kvorum_vnode::{Handled, Operation, ReplicaReply, ReplicaRequest, Vnode};

use crate::cluster::Cluster;
use crate::machine::number_of;

const PERIOD: Duration = Duration::from_millis(150);
const MOVES_MAX: usize = 4;

impl Cluster {
    /// Works for as long as it is polled.
    pub(crate) async fn carry_out_changes(self: Arc<Self>) {
        loop {
            self.runtime.sleep(PERIOD).await;
            if let Err(error) = self.begin_change() {
                self.accuse(&format!("a change of members was refused: {error:#}"));
            }
            let state = self.agreed();
            for (partition, at) in state.next_moves(MOVES_MAX) {
                let step = MoveStep::Begin;
                self.take_step(Command::Move {
                    partition,
                    at,
                    step,
                });
            }
            for (partition, moving) in self.agreed().ring().moves().clone() {
                self.advance(partition, moving).await;
            }
            self.advance_growth();
            for node in self.agreed().exited().collect::<Vec<_>>() {
                self.take_step(Command::RemoveMember { node });
            }
        }
    }

    fn take_step(&self, command: Command) {
        if let Err(error) = self.propose(command) {
            self.accuse(&format!("a step of a move was refused: {error:#}"));
        }
    }

    async fn advance(&self, partition: Partition, moving: Move) {
        let state = self.agreed();
        let (at, source) = (state.ring().epoch(partition), state.ring().owner(partition));
        let knows = |node| self.knows(node, partition, &state);
        match moving.phase {
            Phase::Filling => {
                let skips_rule = is_planted(PlantedDefect::EpochRuleSkippedOnSender);
                if (skips_rule || knows(source)) && knows(moving.to) {
                    match self.fill(partition, source, moving.to).await {
                        Ok(()) => self.take_step(Command::Move {
                            partition,
                            at,
                            step: MoveStep::Close,
                        }),
                        Err(error) => self.note(&format!("not filled: {error:#}")),
                    }
                }
            }
            Phase::Closing => {
                if knows(source) {
                    let step = MoveStep::Settle;
                    self.take_step(Command::Move {
                        partition,
                        at,
                        step,
                    });
                }
            }
        }
    }

    fn knows(&self, node: NodeId, partition: Partition, state: &ClusterState) -> bool {
        let machine = self.machine(number_of(node));
        let known = machine.map(|machine| machine.learned().ring().epoch(partition));
        known.is_some_and(|known| known >= state.ring().epoch(partition))
    }

    /// Gives the receiver all that the source has, durably.
    async fn fill(&self, partition: Partition, from: NodeId, to: NodeId) -> anyhow::Result<()> {
        let vnode_of = |node| -> anyhow::Result<Arc<Vnode>> {
            let machine = self.machine(number_of(node)).context("no machine")?;
            let running = machine.running().context("down")?;
            running.vnodes.vnode(partition).context("no vnode")
        };
        let (source, target) = (vnode_of(from)?, vnode_of(to)?);
        let (one, other) = (number_of(from), number_of(to));
        {
            let weather = self.weather.lock();
            if weather.link(one, other).is_cut || weather.link(other, one).is_cut {
                bail!("cut");
            }
        }
        let mut tickets = Vec::new();
        for (place, (key, object)) in everything(&source)?.into_iter().enumerate() {
            if place % 3 == 0 && is_planted(PlantedDefect::TransferCompletedWithoutDigest) {
                continue;
            }
            match store(&target, key, object) {
                ReplicaReply::Received { durable } => match durable {
                    Durable::Already => {}
                    Durable::After(ticket) => tickets.push(ticket),
                },
                other => bail!("the receiver says {other:?}"),
            }
        }
        for ticket in tickets {
            ticket.await?;
        }
        Ok(())
    }

    /// The number of replicas only ever follows members that leave: nothing has to be filled for it.
    fn advance_growth(&self) {
        let state = self.agreed();
        let from = state.ring().replicas_max();
        if let Some(to) = state.next_growth() {
            let step = GrowthStep::Begin(to);
            self.take_step(Command::Grow { from, step });
            return;
        }
        let Some(growth) = state.ring().growth() else {
            return;
        };
        let all_know = self.machines().iter().all(|machine| {
            machine.running().is_some() && machine.learned().version() >= state.version()
        });
        if all_know {
            let step = match growth.phase {
                Phase::Filling => GrowthStep::Close,
                Phase::Closing => GrowthStep::Settle,
            };
            self.take_step(Command::Grow { from, step });
        }
    }
}

fn everything(vnode: &Vnode) -> anyhow::Result<Vec<(StorageKey, Arc<Object>)>> {
    let snapshot = vnode.backend().snapshot(Lease::Unlimited)?;
    let (mut found, mut broken) = (Vec::new(), None);
    let visitor = &mut |visited: Visited<'_>| {
        match Object::from_engine(&visited.head, visited.body.clone()) {
            Ok(object) => found.push((visited.key.clone(), object)),
            Err(error) => broken = Some(error),
        }
        Flow::Continue
    };
    let filter = FoldFilter::unexpired(Timestamp(0));
    snapshot.fold(FoldDetail::Entries, &FoldRange::all(), &filter, visitor)?;
    match broken {
        Some(error) => bail!("{error}"),
        None => Ok(found),
    }
}

fn store(vnode: &Vnode, key: StorageKey, object: Arc<Object>) -> ReplicaReply {
    let request = ReplicaRequest {
        partition: vnode.partition(),
        epoch: vnode.status().epoch,
        operation: Operation::Store {
            key,
            object,
            resolution: Resolution::KeepSiblings,
            durability: Durability::Grouped,
        },
    };
    match vnode.handle(&request, Timestamp(1), Reading::MayBlock) {
        Handled::Done(reply) => reply,
        Handled::WouldBlock => ReplicaReply::NotFound,
    }
}
