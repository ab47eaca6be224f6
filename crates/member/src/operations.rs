//! Operators' questions to a node through another node: about its transfers, its stores, and
//! repairs.
//!
//! A question is the service's byte and JSON, and so is its answer: people and scripts send a few a
//! minute. Fields may be added; a node refuses an operation that it does not have.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_claimant::ReplicatedState;
use kvorum_cluster::AgreedState as _;
use kvorum_coordinator::VnodeHints;
use kvorum_encoding::BucketType;
use kvorum_exchanges::{AskedRound, RoundAnswer, RoundQuestion};
use kvorum_handoff::{Activity, Direction, TransferStatus, Transfers};
use kvorum_peer::{Caller, Lane, Message, Peers, Served};
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::Runtime;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::health::{Health, HealthWatch};
use crate::moves_of_stores::{StoreMoves, moves_of};
use crate::type_holding::{Holding, TypeQuestion};
use crate::vnode_table::VnodeTable;

/// The first byte of every message of this service.
const SERVICE: u8 = b'O';
/// Time for a node to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Time for an answer that needs a search of stores: many tombstones may come before the first key.
const SEARCH_WAIT: Duration = Duration::from_secs(120);

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Lists its transfers, under way and waiting.
    Transfers,
    /// Lists the contents of its stores.
    Sizes,
    /// Sets the number of transfers at once in each direction.
    LimitTransfers(usize),
    /// Turns fetching on or off in each direction; `None` keeps the present state.
    SwitchTransfers {
        /// True if it fetches.
        inbound: Option<bool>,
        /// True if other nodes may fetch from it.
        outbound: Option<bool>,
    },
    /// Repairs a partition from its other replicas.
    Repair {
        /// The partition's number.
        partition: u16,
    },
    /// Repairs all its partitions.
    RepairNode,
    /// Its services.
    Services,
    /// The ability of the member to serve, and its hindrances.
    Health,
    /// The plan that the member has shown an operator last.
    ShownPlan,
    /// Moves between the backends of its stores.
    BackendMoves,
    /// The version of its agreed state.
    Version,
    /// Asks for the version of its agreed state, and whether a node is a member in it.
    Knows {
        /// The identity of the node that is asked about.
        node: String,
    },
    /// Asks whether it holds a key of a bucket type that is being removed.
    HoldsType {
        /// The type's name.
        bucket_type: String,
        /// The version of the state at which the removal began.
        since: u64,
    },
    /// Asks whether it may be removed after handing over its partitions. It must keep nothing for
    /// other nodes, and then accepts nothing more.
    MayGo,
    /// A question of a round, which removes tombstones.
    Round(RoundQuestion),
    /// Waits until all earlier requests of the caller on the same lane have ended.
    SettleReceived,
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its transfers.
    Transfers(TransfersView),
    /// The contents of its stores, by partition.
    Sizes(Vec<StoreSize>),
    /// The operation is done.
    Done,
    /// The partitions whose repair begins, or was under way.
    Repairing(Vec<u16>),
    /// Its services.
    Services(Vec<String>),
    /// The ability of the member to serve, and its hindrances.
    Health(Box<Health>),
    /// The plan that the member has shown an operator last, unless it was committed there.
    ShownPlan(Option<u32>),
    /// Moves between the backends of its stores, without stores that have one backend.
    BackendMoves(Vec<StoreMoves>),
    /// The version of its agreed state.
    Version(u64),
    /// Its state of a node.
    Knows {
        /// The version of its agreed state.
        version: u64,
        /// True when the node is a member in that state.
        is_member: bool,
    },
    /// The part of a bucket type that it holds.
    HoldsType(Holding),
    /// The answer to a question of a round.
    Round(RoundAnswer),
    /// The operation is refused; the reason is for the operator.
    Refused(String),
}

/// The content of a partition's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSize {
    /// The partition's number.
    pub partition: u16,
    /// Keys, tombstones included.
    pub keys: u64,
    /// Disk space of live entries.
    pub bytes: u64,
}

/// The transfers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransfersView {
    /// Transfers into it, under way and waiting.
    pub inbound: Vec<TransferView>,
    /// Vnodes that other nodes fetch from it.
    pub outbound_active: usize,
    /// Partitions that are here in full, but whose source is not notified yet.
    pub settling: Vec<u16>,
    /// Objects that it keeps for other nodes.
    pub hints: u64,
    /// Transfers at once in each direction.
    pub limit: usize,
    /// True if it fetches.
    pub is_inbound_enabled: bool,
    /// True if other nodes may fetch from it.
    pub is_outbound_enabled: bool,
}

/// A transfer into a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferView {
    /// `ownership`, `growth` or `repair`.
    pub kind: String,
    /// The number of the partition that is filled.
    pub partition: u16,
    /// The source at present.
    pub from: Option<String>,
    /// False while it waits for its turn.
    pub is_active: bool,
    /// Objects confirmed since it began or was resumed.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The approximate number of objects in all; 0 while it is unknown.
    pub keys_about: u64,
    /// The time since its beginning, in milliseconds.
    pub begun_ms_ago: Option<u64>,
    /// The time of the last confirmation of objects.
    pub updated_ms_ago: Option<u64>,
    /// Bytes a second since it began.
    pub bytes_per_second: u64,
    /// The remaining time at this rate.
    pub remaining_ms: Option<u64>,
    /// The reason for its last delay, if it has made no progress since.
    pub hindrance: Option<String>,
}

/// The side that answers.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) runtime: Runtime,
    pub(crate) node: NodeId,
    pub(crate) state: ReplicatedState,
    pub(crate) transfers: Transfers,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) hints: Arc<VnodeHints>,
    pub(crate) health: Arc<HealthWatch>,
    pub(crate) shown_plan: Arc<Mutex<Option<u32>>>,
    pub(crate) rounds: Arc<dyn AnswersRounds>,
}

/// Answers the questions of rounds.
pub(crate) trait AnswersRounds: Send + Sync {
    /// The answer to a question.
    fn answer(&self, question: RoundQuestion) -> AskedRound;

    /// Ends when all earlier requests of a member on the lane of its connection have ended.
    fn settle_for(&self, caller: Caller) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl Operations {
    pub(crate) fn serves(message: &Message) -> bool {
        message.head.first() == Some(&SERVICE)
    }

    pub(crate) fn handle(&self, caller: Caller, message: &Message) -> Served {
        let json = message.head.get(1..).unwrap_or_default();
        let operation = match serde_json::from_slice::<Operation>(json) {
            Ok(operation) => operation,
            Err(error) => {
                let refused = format!("this node's version does not support this: {error}");
                return Served::Now(encode(&Outcome::Refused(refused)));
            }
        };
        let operations = self.clone();
        Served::Later(Box::pin(async move {
            if operation == Operation::SettleReceived {
                operations.rounds.settle_for(caller).await;
                return encode(&Outcome::Done);
            }
            encode(&operations.carry_out(operation).await)
        }))
    }

    pub(crate) async fn carry_out(&self, operation: Operation) -> Outcome {
        match operation {
            Operation::Transfers => Outcome::Transfers(self.view()),
            Operation::Sizes => {
                let vnodes = self.vnodes.clone();
                Outcome::Sizes(self.runtime.blocking(move || sizes(&vnodes)).await)
            }
            Operation::BackendMoves => {
                let vnodes = self.vnodes.clone();
                Outcome::BackendMoves(self.runtime.blocking(move || moves_of(&vnodes)).await)
            }
            Operation::LimitTransfers(limit) => {
                self.transfers.set_transfers_max(limit);
                Outcome::Done
            }
            Operation::SwitchTransfers { inbound, outbound } => {
                for (direction, switch) in [
                    (Direction::Inbound, inbound),
                    (Direction::Outbound, outbound),
                ] {
                    if let Some(is_enabled) = switch {
                        self.transfers.enable(direction, is_enabled);
                    }
                }
                Outcome::Done
            }
            Operation::Repair { .. } | Operation::RepairNode if self.is_any_type_leaving() => {
                Outcome::Refused(
                    "a bucket type is being removed: repair when that has ended".into(),
                )
            }
            Operation::Repair { partition } => self.repair(partition),
            Operation::RepairNode => {
                let repairing = self.transfers.repair_node();
                let numbers = repairing.into_iter().map(kvorum_ring::Partition::number);
                Outcome::Repairing(numbers.collect())
            }
            Operation::ShownPlan => Outcome::ShownPlan(*self.shown_plan.lock()),
            Operation::HoldsType { bucket_type, since } => {
                self.holds_type(bucket_type, since).await
            }
            Operation::Version => Outcome::Version(self.state.current().version()),
            Operation::Knows { node } => self.knows(&node),
            Operation::MayGo => match self.reason_to_stay().await {
                None => Outcome::Done,
                Some(reason) => Outcome::Refused(reason),
            },
            Operation::Services => {
                let services = self
                    .health
                    .health()
                    .is_ready()
                    .then(|| "riak_kv".to_owned());
                Outcome::Services(services.into_iter().collect())
            }
            Operation::Health => Outcome::Health(Box::new(self.health.health())),
            Operation::Round(question) => Outcome::Round(self.rounds.answer(question).await),
            Operation::SettleReceived => {
                Outcome::Refused("only another member asks that, on a connection".into())
            }
        }
    }

    async fn reason_to_stay(&self) -> Option<String> {
        if !self.hints.is_closed() {
            return Some("it has not learned yet that it has left".to_owned());
        }
        let (hints, now) = (self.hints.clone(), self.runtime.wall_time().micros());
        let first = move || hints.first(Timestamp(now));
        match self.runtime.blocking(first).await {
            Ok(None) => None,
            Ok(Some(hint)) => {
                let state = self.state.current();
                let owner = state.ring().owner(hint.partition);
                let name = state.member(owner).map(|member| member.name.clone());
                let name = name.unwrap_or_else(|| owner.to_string());
                Some(format!("it keeps objects for other nodes, {name} for one"))
            }
            Err(failure) => Some(failure.to_string()),
        }
    }

    /// True while a bucket type is being removed. A repair could then copy keys to a node that has
    /// answered that it holds none.
    fn is_any_type_leaving(&self) -> bool {
        let state = self.state.current();
        let mut types = state.bucket_types().keys();
        types.any(|it| state.is_leaving(it))
    }

    async fn holds_type(&self, name: String, since: u64) -> Outcome {
        let question = TypeQuestion {
            node: self.node,
            state: self.state.current(),
            vnodes: self.vnodes.clone(),
            hints: self.hints.clone(),
            clock: self.runtime.clock(),
        };
        let bucket_type = BucketType::new(name.into_bytes());
        let answer = move || question.answer(&bucket_type, since);
        match self.runtime.blocking(answer).await {
            Ok(holding) => Outcome::HoldsType(holding),
            Err(reason) => Outcome::Refused(reason),
        }
    }

    fn knows(&self, node: &str) -> Outcome {
        let state = self.state.current();
        let member = node.parse().ok().and_then(|node| state.member(node));
        Outcome::Knows {
            version: state.version(),
            is_member: member.is_some(),
        }
    }

    fn repair(&self, number: u16) -> Outcome {
        // The repair checks that the ring has the partition.
        let repaired =
            Partition::of_number(number).map(|partition| self.transfers.repair(partition));
        match repaired {
            Some(Ok(())) => Outcome::Repairing(vec![number]),
            Some(Err(refused)) => Outcome::Refused(refused.to_string()),
            None => Outcome::Refused(format!("there is no partition {number}")),
        }
    }

    fn view(&self) -> TransfersView {
        let status = self.transfers.status();
        let now = self.runtime.now();
        let ago = |moment: Option<kvorum_runtime::Moment>| {
            moment.map(|moment| milliseconds(now.since(moment)))
        };
        let view = |it: &TransferStatus| TransferView {
            kind: it.id.kind.name().to_owned(),
            partition: it.id.partition.number(),
            from: it.from.map(|node| node.to_string()),
            is_active: it.activity != Activity::Waiting,
            keys: it.keys,
            bytes: it.bytes,
            keys_about: it.keys_about,
            begun_ms_ago: ago(it.begun_at),
            updated_ms_ago: ago(it.updated_at),
            bytes_per_second: it.bytes_per_second,
            remaining_ms: it.remaining.map(milliseconds),
            hindrance: it.hindrance.clone(),
        };
        TransfersView {
            inbound: status.inbound.iter().map(view).collect(),
            outbound_active: status.outbound.len(),
            settling: status.settling.iter().map(|it| it.number()).collect(),
            hints: self.hints.vnode().store_status().keys,
            limit: status.transfers_max,
            is_inbound_enabled: status.is_inbound_enabled,
            is_outbound_enabled: status.is_outbound_enabled,
        }
    }
}

/// Blocks.
fn sizes(vnodes: &VnodeTable) -> Vec<StoreSize> {
    let size = |vnode: Arc<kvorum_vnode::Vnode>| {
        let status = vnode.store_status();
        StoreSize {
            partition: vnode.partition().number(),
            keys: status.keys,
            bytes: status.live_bytes,
        }
    };
    vnodes.all().into_iter().map(size).collect()
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Message {
    let mut head = vec![SERVICE];
    head.extend(serde_json::to_vec(value).unwrap_or_default());
    Message::of_head(head)
}

/// The reason why another node that has left may not be removed yet.
pub(crate) async fn reason_to_stay(runtime: Runtime, peers: Peers, node: NodeId) -> Option<String> {
    match ask(&runtime, &peers, node, &Operation::MayGo).await {
        Ok(Outcome::Done) => None,
        Ok(Outcome::Refused(reason)) | Err(reason) => Some(reason),
        Ok(other) => Some(format!("it answers {other:?}")),
    }
}

/// Asks another node; returns its answer, or the reason why there is none.
pub(crate) async fn ask(
    runtime: &Runtime,
    peers: &Peers,
    node: NodeId,
    operation: &Operation,
) -> Result<Outcome, String> {
    let wait = match operation {
        Operation::HoldsType { .. } | Operation::Round(_) => SEARCH_WAIT,
        _ => ANSWER_WAIT,
    };
    let deadline = runtime.now().plus(wait);
    let asked = peers.request(node, Lane::Control, encode(operation), deadline);
    let answer = asked.await.map_err(|error| error.without_node())?;
    decode(&answer)
}

pub(crate) fn decode(answer: &Message) -> Result<Outcome, String> {
    let json = answer.head.get(1..).unwrap_or_default();
    serde_json::from_slice(json).map_err(|error| format!("its answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_asks_is_refused_in_words() {
        let json = serde_json::to_string(&Operation::Repair { partition: 7 }).unwrap();
        assert_eq!(json, r#"{"repair":{"partition":7}}"#);
        assert!(serde_json::from_str::<Operation>(r#""dance""#).is_err());
        let outcome = Outcome::Sizes(vec![StoreSize {
            partition: 3,
            keys: 2,
            bytes: 1,
        }]);
        let message = encode(&outcome);
        assert!(Operations::serves(&message));
        let read: Outcome = serde_json::from_slice(&message.head[1..]).unwrap();
        assert_eq!(read, outcome);
    }
}
