//! Becoming a member of a cluster: who asks, and who lets in.
//!
//! Only an empty node joins. It takes its vnodes away from requests, looks whether they are empty,
//! and asks a member, who has it agreed that there is one more member, one that joins and owns nothing
//! yet. Then the node changes its card: from there on it follows the cluster's log, and its own is
//! gone. A crash before the card changes leaves a node of its own that the cluster expects; asked
//! again, it is let in again.
//!
//! Who has left a cluster, or whose join was taken back, joins like a new one. Nobody may have told it
//! so: it asks, and goes by members who know a later state than it does, in which it has no part.
//! Whoever knows less may not have heard of it yet.
//!
//! A request is the service's byte and JSON, and so is its answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_agreement::{Agreement, Founding};
use kvorum_backend::Timestamp;
use kvorum_claimant::{ClusterMachine, ReplicatedState};
use kvorum_cluster::{
    AgreedState, ClusterId, ClusterState, Command, Member as MemberEntry, MemberStatus,
};
use kvorum_peer::{Caller, Introduction, Message, PeerError, Served};
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;
use kvorum_vnode::Vnode;
use serde::{Deserialize, Serialize};

use crate::PEER_SERVICE;
use crate::card::{Card, Stage};
use crate::contacts::{NOBODY, is_unknown, unknown_state};
use crate::error::JoinError;
use crate::held::Held;
use crate::member::Member;
use crate::vnode_table::Readiness;

/// The first byte of every message of this service.
const SERVICE: u8 = b'J';

/// How long a member may take to have it agreed.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long a member may take to say whether this node was removed.
const INQUIRY_WAIT: Duration = Duration::from_secs(5);
/// How long the log may take to let go of a member that was removed, before it comes back.
const LET_GO_WAIT: Duration = Duration::from_secs(10);
/// How long the cluster may take to send its state.
const STATE_WAIT: Duration = Duration::from_secs(30);
const STATE_LOOK_PERIOD: Duration = Duration::from_millis(20);

/// What a node that wants to join says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Knock {
    /// The name by which the operator called the member; none when only its address was given.
    looks_for: Option<String>,
    name: String,
    addresses: BTreeMap<String, String>,
    /// Of a member that is left, and is to follow the one that has recovered the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    follows: Option<Follows>,
}

/// What a member that is left knows of the cluster that was.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Follows {
    pub(crate) cluster: String,
    pub(crate) version: u64,
}

/// What a node asks that was a member, and may have been removed.
#[derive(Debug, Serialize, Deserialize)]
struct Inquiry {
    /// The version of the state in which it was one.
    member_at: u64,
}

/// What is asked of a member by somebody who is none.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Request {
    Knock(Knock),
    Inquiry(Inquiry),
}

/// What the member says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The node is a member that joins.
    Welcome { cluster: String, name: String },
    /// It looked for somebody else.
    OtherName { name: String },
    /// It is not, in words for its operator.
    Refused { reason: String },
    /// It was a member of this cluster, and is none by a later state.
    Removed { cluster: String },
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The member that let it in.
    pub by: String,
}

/// The side that lets in.
pub(crate) struct Doorkeeper {
    pub(crate) runtime: Runtime,
    pub(crate) state: ReplicatedState,
    pub(crate) name: String,
}

impl Doorkeeper {
    pub(crate) fn serves(message: &Message) -> bool {
        message.head.first() == Some(&SERVICE)
    }

    pub(crate) fn answer(&self, caller: Caller, message: Message) -> Served {
        let (runtime, state, name) = (self.runtime.clone(), self.state.clone(), self.name.clone());
        Served::Later(Box::pin(async move {
            let json = message.head.get(1..).unwrap_or_default();
            let answer = match serde_json::from_slice(json) {
                Ok(Request::Knock(knock))
                    if knock.looks_for.as_ref().is_some_and(|it| *it != name) =>
                {
                    Answer::OtherName { name }
                }
                Ok(Request::Knock(knock)) => let_in(&runtime, &state, name, caller, knock).await,
                Ok(Request::Inquiry(inquiry)) => tell(&state.current(), caller.node, &inquiry),
                Err(error) => Answer::Refused {
                    reason: format!("the request to join cannot be read: {error}"),
                },
            };
            Message::of_head(serde_json::to_vec(&answer).unwrap_or_default())
        }))
    }
}

async fn let_in(
    runtime: &Runtime,
    state: &ReplicatedState,
    name: String,
    caller: Caller,
    knock: Knock,
) -> Answer {
    let current = state.current();
    let cluster = current.id().to_string();
    if let Some(follows) = &knock.follows {
        return match not_followed(&current, caller.node, follows) {
            Some(reason) => Answer::Refused { reason },
            None => Answer::Welcome { cluster, name },
        };
    }
    if let Some(known) = current.member(caller.node) {
        // It did not get to hear it the first time.
        return if known.name == knock.name {
            Answer::Welcome { cluster, name }
        } else {
            Answer::Refused {
                reason: format!("this node is a member called {} already", known.name),
            }
        };
    }
    let member = MemberEntry {
        status: MemberStatus::Joining,
        addresses: knock.addresses,
        ..MemberEntry::new(&knock.name)
    };
    let node = caller.node;
    if !has_let_go(runtime, state, node).await {
        return Answer::Refused {
            reason:
                "this node was a member, and the log of the cluster still counts it; try again \
                     when a majority of the voters is up"
                    .to_owned(),
        };
    }
    match state.agree(Command::AddMember { node, member }).await {
        Ok(_) => Answer::Welcome { cluster, name },
        Err(error) => Answer::Refused {
            reason: error.to_string(),
        },
    }
}

/// Waits until the log does not count a node: who leads would expect it to have what it had before, and
/// it comes with an empty log.
async fn has_let_go(runtime: &Runtime, state: &ReplicatedState, node: NodeId) -> bool {
    let is_counted = || {
        let status = state.agreement().status();
        status.voters.contains(&node) || status.listeners.contains(&node)
    };
    let deadline = runtime.now().plus(LET_GO_WAIT);
    while is_counted() && runtime.now() < deadline {
        runtime.sleep(STATE_LOOK_PERIOD).await;
    }
    !is_counted()
}

/// Whether a node that was a member was removed since.
fn tell(current: &ClusterState, node: NodeId, inquiry: &Inquiry) -> Answer {
    if current.member(node).is_none() && current.version() > inquiry.member_at {
        let cluster = current.id().to_string();
        return Answer::Removed { cluster };
    }
    Answer::Refused {
        reason: "nothing is known here of a removal".to_owned(),
    }
}

/// Why a member that is left cannot follow: nothing that it knows may be undone.
fn not_followed(current: &ClusterState, node: NodeId, follows: &Follows) -> Option<String> {
    if current.member(node).is_none() {
        return Some("this node is no member of the recovered cluster".into());
    }
    let Some(recovery) = current.recovery() else {
        return Some("this cluster was not recovered: it still has the identity of before".into());
    };
    if recovery.from.to_string() != follows.cluster {
        return Some("the recovered cluster was another one".into());
    }
    (follows.version > recovery.version).then(|| {
        format!(
            "this node knows decisions up to version {}, and the cluster was recovered with those up \
             to {}: recover here instead, and have the others follow",
            follows.version, recovery.version
        )
    })
}

fn unreadable(address: SocketAddr, detail: &dyn std::fmt::Display) -> JoinError {
    JoinError::Refused {
        reason: format!("the answer of {address} cannot be read: {detail}"),
    }
}

impl Member {
    /// Joins the cluster of whoever listens at `address`, called `name` if the operator knows that:
    /// this node is a member that joins then, and owns nothing before a plan is committed.
    ///
    /// # Errors
    /// Whatever they are, nothing is lost: the node is what it was, but for [`JoinError::NoWordYet`]
    /// and [`JoinError::Log`], when it is a member already.
    pub async fn join(&self, address: SocketAddr, name: Option<&str>) -> Result<Joined, JoinError> {
        let own = self.peer_address();
        if own == Some(address) || name == Some(&self.settings.name) {
            return Err(JoinError::SelfJoin);
        }
        // Nobody knows whether a store is empty that is not open.
        let opened = self.vnodes.until_opened();
        let _opened_or_not = self.runtime.timeout(ANSWER_WAIT, opened).await;
        // Held to the end: meanwhile no vnode comes or goes.
        let mut held = self.follower.written.lock().await;
        if self.has_others() && !self.was_removed().await {
            return Err(JoinError::NotSingleNode);
        }
        let Some(vnodes) = self.vnodes.take_all() else {
            let Readiness {
                opening, failed, ..
            } = self.vnodes.readiness();
            return Err(JoinError::NotOpen { opening, failed });
        };
        match self.ask_to_join(&vnodes, address, name).await {
            Ok((cluster, by)) => {
                self.follow_another(cluster, &mut held, vnodes).await?;
                drop(held);
                self.health.is_removed.store(false, Ordering::Relaxed);
                self.until_heard(own.unwrap_or(address)).await?;
                tracing::info!(event = "cluster_joined", cluster = %cluster, by = %by);
                Ok(Joined { by })
            }
            Err(error) => {
                self.vnodes.put(vnodes);
                Err(error)
            }
        }
    }

    /// True for a member of a cluster that it did not found alone, as far as it knows.
    fn has_others(&self) -> bool {
        self.state.current().members().len() > 1 || self.card.load().stage == Stage::Joined
    }

    /// True if this node is no member any more, by its own state or by that of another member.
    pub(crate) async fn was_removed(&self) -> bool {
        let state = self.state.current();
        if is_unknown(&state) {
            return false;
        }
        if state.member(self.node).is_none() {
            return true;
        }
        let deadline = self.runtime.now().plus(ANSWER_WAIT);
        for (_, other) in state.members().iter().filter(|(it, _)| **it != self.node) {
            let address = other.addresses.get(PEER_SERVICE);
            let Some(address) = address.and_then(|address| address.parse().ok()) else {
                continue;
            };
            let inquiry = Inquiry {
                member_at: state.version(),
            };
            let asked = self.ask_as_stranger(address, &inquiry);
            let answer = self.runtime.timeout(INQUIRY_WAIT, asked).await;
            if let Ok(Ok(Answer::Removed { cluster })) = answer
                && cluster == state.id().to_string()
            {
                return true;
            }
            if self.runtime.now() >= deadline {
                return false;
            }
        }
        false
    }

    /// True once the cluster has sent its state.
    async fn until_heard(&self, own: SocketAddr) -> Result<(), JoinError> {
        let deadline = self.runtime.now().plus(STATE_WAIT);
        while !self.state.is_founded() {
            if self.runtime.now() >= deadline {
                return Err(JoinError::NoWordYet { address: own });
            }
            self.runtime.sleep(STATE_LOOK_PERIOD).await;
        }
        self.follower.follow().await;
        Ok(())
    }

    async fn ask_to_join(
        &self,
        vnodes: &[Arc<Vnode>],
        address: SocketAddr,
        name: Option<&str>,
    ) -> Result<(ClusterId, String), JoinError> {
        self.check_empty(vnodes).await?;
        self.knock(address, name, None).await
    }

    /// Asks whoever listens at `address` to be let in; the cluster, and who lets in.
    pub(crate) async fn knock(
        &self,
        address: SocketAddr,
        name: Option<&str>,
        follows: Option<Follows>,
    ) -> Result<(ClusterId, String), JoinError> {
        let knock = Knock {
            follows,
            looks_for: name.map(str::to_owned),
            name: self.settings.name.clone(),
            addresses: self.settings.addresses.clone(),
        };
        match self.ask_as_stranger(address, &knock).await? {
            Answer::Welcome { cluster, name } => {
                let cluster: ClusterId = cluster
                    .parse()
                    .map_err(|it: kvorum_ring::NodeIdError| unreadable(address, &it))?;
                Ok((cluster, name))
            }
            Answer::OtherName { name: got } => Err(JoinError::OtherName {
                address,
                expected: name.unwrap_or_default().to_owned(),
                got,
            }),
            Answer::Refused { reason } => Err(JoinError::Refused { reason }),
            Answer::Removed { .. } => Err(unreadable(address, &"it answers what was not asked")),
        }
    }

    /// Asks whoever listens at `address` as one who belongs to no cluster.
    async fn ask_as_stranger(
        &self,
        address: SocketAddr,
        question: &impl Serialize,
    ) -> Result<Answer, JoinError> {
        let mut head = vec![SERVICE];
        head.extend(serde_json::to_vec(question).unwrap_or_default());
        let introduction = Introduction {
            cluster: NOBODY,
            cluster_name: self.settings.cluster_name.clone(),
            node: self.node,
        };
        let deadline = self.runtime.now().plus(ANSWER_WAIT);
        let message = Message::of_head(head);
        let answered = self.peers.knock(address, introduction, message, deadline);
        let not_reachable = |error: PeerError| JoinError::NotReachable { address, error };
        let (reached, answer) = answered.await.map_err(not_reachable)?;
        if reached == self.node {
            return Err(JoinError::SelfJoin);
        }
        serde_json::from_slice(&answer.head).map_err(|error| unreadable(address, &error))
    }

    async fn check_empty(&self, vnodes: &[Arc<Vnode>]) -> Result<(), JoinError> {
        let now = Timestamp(self.runtime.wall_time().micros());
        let (vnodes, hints) = (vnodes.to_vec(), self.hints.clone());
        let look = move || {
            let mut partitions = 0;
            for vnode in &vnodes {
                partitions += usize::from(!vnode.backend().is_empty(now)?);
            }
            Ok((partitions, hints.vnode().backend().is_empty(now)?))
        };
        let looked = self.runtime.blocking(look).await;
        let storage = |error: kvorum_backend::BackendError| JoinError::Storage {
            detail: error.to_string(),
        };
        match looked.map_err(storage)? {
            (0, true) => Ok(()),
            (0, false) => Err(JoinError::HoldsHints),
            (partitions, _) => Err(JoinError::NotEmpty { partitions }),
        }
    }

    /// Leaves the log of before behind and follows that of the cluster.
    async fn follow_another(
        &self,
        cluster: ClusterId,
        held: &mut Held,
        vnodes: Vec<Arc<Vnode>>,
    ) -> Result<(), JoinError> {
        let failed = |error: &dyn std::fmt::Display| JoinError::Log {
            detail: error.to_string(),
        };
        let card = Card {
            stage: Stage::Joined,
            node: self.node,
            cluster,
            log: self.card.load().log + 1,
        };
        self.state.agreement().stop().await;
        let machine = Arc::new(ClusterMachine::new(self.state.shown().clone()));
        let directory = self.cards.log_directory(card.log);
        // Of a join that was not completed.
        if let Ok(Some(_)) = self.disk.info(&directory) {
            let removed = self.disk.remove_directory(&directory);
            removed.map_err(|error| failed(&error))?;
        }
        let parts = kvorum_agreement::Parts {
            runtime: self.runtime.clone(),
            disk: self.disk.clone(),
            directory,
            second_mark: self.cards.second_mark(card.log),
            node: self.node,
            peers: self.peers.clone(),
            machine: machine.clone(),
        };
        let opened = Agreement::open(parts, Founding::Joining, self.settings.agreement).await;
        let agreement = opened.map_err(|error| failed(&error))?;
        self.cards.store(&card).map_err(|error| failed(&error))?;
        // From here on this node is the cluster's.
        let unknown = unknown_state(cluster, self.node, &self.settings.name);
        self.state.shown().show(unknown);
        self.state.follow(agreement, machine);
        self.card.store(Arc::new(card));
        self.contacts.cluster.store(Arc::new(cluster));
        let ground = self.follower.ground.clone();
        let mut next = held.clone();
        let gone = move || {
            let of = |vnode: Arc<Vnode>| (vnode.partition(), Some(vnode));
            let removed = ground.remove(&mut next, vnodes.into_iter().map(of));
            (next, removed)
        };
        let (next, removed) = self.runtime.blocking(gone).await;
        *held = next;
        removed.map_err(|error| failed(&error))
    }

    /// Where other nodes reach this one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.settings.addresses.get(PEER_SERVICE)?.parse().ok()
    }
}
