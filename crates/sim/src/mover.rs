//! Carries out agreed moves, in place of a real cluster's claimant and transfers.
//!
//! The steps and their gates are those of the ring's moves. Only the transfer is a stand-in: it
//! happens in one piece, through the vnodes and their logs, while both machines can reach each
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kvorum_backend::{Durability, Durable, FoldClock, FoldRange, Lease, Reading, Timestamp};
use kvorum_claimant::Pacing;
use kvorum_cluster::{ClusterState, Command, GrowthStep, MoveStep};
use kvorum_encoding::StorageKey;
use kvorum_object::{Object, ObjectTag, Resolution};
use kvorum_planted_defects::is_planted;
use kvorum_ring::{Fill, KeyHash, Move, NodeId, Partition, Phase, position};
use kvorum_test_cluster::number_of;
use kvorum_vnode::{
    Handled, Operation, ReplicaReply, ReplicaRequest, ScanLimits, ScanRequest, StoredObject, Vnode,
};

use crate::cluster::Cluster;

const PERIOD: Duration = Duration::from_millis(150);
const MOVES_MAX: usize = 4;
/// The time after which a move is given up while one of its machines is down.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time after which a receiver gets all keys again: a receiver that ends does not confirm them.
const FILL_TIME_MAX: Duration = Duration::from_secs(10);

impl Cluster {
    /// Works for as long as it is polled.
    pub(crate) async fn carry_out_changes(self: Arc<Self>) {
        let mut pacing = Pacing::new(PATIENCE);
        loop {
            self.runtime.sleep(PERIOD).await;
            if let Err(error) = self.begin_change().await {
                self.accuse(&format!("a change of members was refused: {error:#}"));
            }
            let state = self.agreed();
            let is_up = |node| {
                let machine = self.machine(number_of(node));
                machine.is_some_and(|machine| machine.running().is_some())
            };
            let now = self.runtime.now();
            for command in pacing.next_commands(&state, MOVES_MAX, now, is_up) {
                self.take_step(command);
            }
            for (partition, moving) in self.agreed().ring().moves().clone() {
                self.advance(partition, moving).await;
            }
            self.advance_growth().await;
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
                let skips_rule = is_planted!(EpochRuleSkippedOnSender);
                if (skips_rule || knows(source)) && knows(moving.to) {
                    let filling = self.fill(partition, source, moving.to);
                    let filled = self.runtime.timeout(FILL_TIME_MAX, filling).await;
                    match filled.context("no confirmation").flatten() {
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

    /// Copies all keys of the source to the receiver, durably.
    async fn fill(&self, partition: Partition, from: NodeId, to: NodeId) -> anyhow::Result<()> {
        self.copy([(partition, from), (partition, to)], |_| true)
            .await
    }

    /// Copies the wanted keys of one vnode to another, durably.
    async fn copy(
        &self,
        [source, target]: [(Partition, NodeId); 2],
        is_wanted: impl Fn(&StorageKey) -> bool,
    ) -> anyhow::Result<()> {
        let running = |node| {
            let machine = self.machine(number_of(node)).context("no machine")?;
            machine.running().context("down")
        };
        let (one, other) = (number_of(source.1), number_of(target.1));
        let (giver, receiver) = (running(source.1)?, running(target.1)?);
        let source = giver.vnodes.vnode(source.0).context("no vnode")?;
        let target = receiver.vnodes.vnode(target.0).context("no vnode")?;
        {
            let weather = self.weather.lock();
            if weather.link(one, other).is_cut || weather.link(other, one).is_cut {
                bail!("cut");
            }
        }
        let state = self.agreed();
        let mut objects = everything(&source)?;
        objects.retain(|(key, _)| is_wanted(key));
        let mut tickets = Vec::new();
        for (place, (key, object)) in objects.into_iter().enumerate() {
            if place % 3 == 0 && is_planted!(TransferCompletedWithoutDigest) {
                continue;
            }
            let resolution = resolution_of(&state, &key);
            // The receiver's clock: stores use it to measure how long an operation has failed.
            let now = Timestamp(receiver.runtime.wall_time().micros());
            match store(&target, (key, object), resolution, now) {
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

    /// Advances a change of the number of replicas or of the detours of lists. The number changes
    /// only when members leave.
    async fn advance_growth(&self) {
        let state = self.agreed();
        let from = state.ring().replicas_max();
        let Some(growth) = state.ring().growth() else {
            return;
        };
        let all_know = self.machines().iter().all(|machine| {
            machine.running().is_some() && machine.learned().version() >= state.version()
        });
        if !all_know {
            return;
        }
        let step = match growth.phase {
            Phase::Filling => {
                let filling = self.fill_lists(&state);
                let filled = self.runtime.timeout(FILL_TIME_MAX, filling).await;
                if let Err(error) = filled.context("no confirmation").flatten() {
                    self.note(&format!("lists not filled: {error:#}"));
                    return;
                }
                GrowthStep::Close
            }
            Phase::Closing => GrowthStep::Settle,
        };
        self.take_step(Command::Grow { from, step });
    }

    /// Copies keys to each vnode that gets new replicas, durably.
    async fn fill_lists(&self, state: &ClusterState) -> anyhow::Result<()> {
        let ring = state.ring();
        let mut fills = BTreeMap::<Fill, BTreeSet<Partition>>::new();
        for owner in ring.size().partitions() {
            for n in 1..=ring.replicas_max() {
                for fill in ring.fills(owner, n) {
                    fills.entry(fill).or_default().insert(owner);
                }
            }
        }
        for (fill, owners) in fills {
            let ends = [fill.source, fill.target].map(|it| (it, ring.owner(it)));
            let is_wanted = |key: &StorageKey| {
                let address = key.decode().ok();
                address.is_some_and(|it| {
                    let place = position(&it.bucket_type, &it.bucket, &it.key, KeyHash::Standard);
                    owners.contains(&place.owner(ring.size()))
                })
            };
            self.copy(ends, is_wanted).await?;
        }
        Ok(())
    }
}

fn everything(vnode: &Vnode) -> anyhow::Result<Vec<(StorageKey, Arc<Object>)>> {
    let request = ScanRequest {
        range: FoldRange::all(),
        clock: FoldClock::stopped_at(Timestamp(0)),
        lease: Lease::Unlimited,
        limits: ScanLimits::NONE,
    };
    let page = match vnode.scan::<StoredObject>(&request, &mut |_| true) {
        Ok(page) => page,
        Err(failure) => bail!("{failure:?}"),
    };
    if page.undecodable > 0 {
        bail!("{} objects cannot be decoded", page.undecodable);
    }
    let decoded = |stored: StoredObject| Ok((stored.key.clone(), stored.decode()?));
    page.entries.into_iter().map(decoded).collect()
}

/// The resolution of the key's bucket, as for a transfer.
fn resolution_of(state: &ClusterState, key: &StorageKey) -> Resolution {
    let properties = key.decode().ok().and_then(|it| {
        let properties = state.properties(&it.bucket_type, &it.bucket);
        properties.ok()
    });
    properties.map_or(Resolution::KeepSiblings, |it| {
        Resolution::keeping_siblings(it.keeps_siblings())
    })
}

fn store(
    vnode: &Vnode,
    (key, object): (StorageKey, Arc<Object>),
    resolution: Resolution,
    now: Timestamp,
) -> ReplicaReply {
    let request = ReplicaRequest {
        partition: vnode.partition(),
        epoch: vnode.status().epoch,
        operation: Operation::Store {
            key,
            object,
            resolution,
            // Simulated buckets choose no other.
            tag: ObjectTag::default(),
            durability: Durability::Grouped,
        },
    };
    match vnode.handle(&request, now, Reading::MayBlock) {
        Handled::Done(reply) => reply,
        Handled::WouldBlock => ReplicaReply::NotFound,
    }
}
