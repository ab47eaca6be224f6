//! Becoming a member of a cluster: the side that asks.
//!
//! Only an empty node joins. It takes its vnodes away from requests, checks that they are empty,
//! and asks a member. The member proposes the node as a member that joins and owns nothing yet.
//! Then the node changes its card: from then on it follows the cluster's log instead of its own. A
//! crash before the card changes leaves a lone node that the cluster expects; the cluster admits it
//! when it asks again.
//!
//! A node that has left a cluster, or whose join was cleared, joins like a new one. It may not have
//! been notified of its removal, so it asks the members. Only members with a later state than its
//! own count: an older state may lack its join.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_agreement::{Agreement, Founding};
use kvorum_backend::Timestamp;
use kvorum_claimant::ClusterMachine;
use kvorum_cluster::{AgreedState, ClusterId};
use kvorum_peer::{Introduction, Message, PeerError};
use kvorum_vnode::Vnode;
use serde::Serialize;

use crate::card::{Card, Stage};
use crate::doorkeeper::{Answer, Follows, Inquiry, Knock, SERVICE};
use crate::error::JoinError;
use crate::follower::Ground;
use crate::member::Member;
use crate::peer_service::PEER_SERVICE;
use crate::store_list::StoreList;
use crate::unknown_state::{NO_NODE, is_unknown, unknown_state};
use crate::vnode_table::Readiness;

/// Time for a member to get the join agreed.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// Time for a member to answer whether this node was removed.
const INQUIRY_WAIT: Duration = Duration::from_secs(5);
/// Time for the cluster to send its state.
const STATE_WAIT: Duration = Duration::from_secs(30);
const STATE_LOOK_PERIOD: Duration = Duration::from_millis(20);

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The member that admitted it.
    pub by: String,
}

fn unreadable(address: SocketAddr, detail: &dyn std::fmt::Display) -> JoinError {
    JoinError::Refused {
        reason: format!("the answer of {address} cannot be read: {detail}"),
    }
}

impl Member {
    /// Joins the cluster of the node at `address`, which must be called `name` if the operator
    /// gives one. This node is then a joining member, and owns nothing before a plan is committed.
    ///
    /// # Errors
    /// No error loses data. The node stays as it was, except that after [`JoinError::NoWordYet`]
    /// and [`JoinError::Log`] it is a member already.
    pub async fn join(&self, address: SocketAddr, name: Option<&str>) -> Result<Joined, JoinError> {
        let own = self.peer_address();
        if own == Some(address) || name == Some(&self.settings.name) {
            return Err(JoinError::SelfJoin);
        }
        // A store that is not open may not be empty.
        let opened = self.vnodes.until_opened();
        let _opened_or_not = self.runtime.timeout(ANSWER_WAIT, opened).await;
        // Held to the end: no vnode is added or removed meanwhile.
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

    /// True if this node's state has other members, or the node has joined a cluster.
    fn has_others(&self) -> bool {
        self.state.current().members().len() > 1 || self.card.load().stage == Stage::Joined
    }

    /// True if this node is no longer a member, in its own state or in that of another member.
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

    /// Asks the node at `address` to admit this node; returns the cluster and the name of the asked
    /// member.
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
            Answer::Removed { .. } => Err(unreadable(address, &"it answers another question")),
        }
    }

    /// Asks the node at `address` as a node without a cluster.
    async fn ask_as_stranger(
        &self,
        address: SocketAddr,
        question: &impl Serialize,
    ) -> Result<Answer, JoinError> {
        let mut head = vec![SERVICE];
        head.extend(serde_json::to_vec(question).unwrap_or_default());
        let introduction = Introduction {
            cluster: NO_NODE,
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
                partitions += usize::from(!vnode.is_empty(now)?);
            }
            Ok((partitions, hints.vnode().is_empty(now)?))
        };
        let looked = self.runtime.blocking(look).await;
        let storage = |error: kvorum_vnode::ReplicaFailure| JoinError::Storage {
            detail: error.to_string(),
        };
        match looked.map_err(storage)? {
            (0, true) => Ok(()),
            (0, false) => Err(JoinError::HoldsHints),
            (partitions, _) => Err(JoinError::NotEmpty { partitions }),
        }
    }

    /// Abandons this node's log and follows the cluster's.
    async fn follow_another(
        &self,
        cluster: ClusterId,
        held: &mut StoreList,
        vnodes: Vec<Arc<Vnode>>,
    ) -> Result<(), JoinError> {
        self.state.agreement().stop().await;
        let machine = Arc::new(ClusterMachine::new(self.state.shown().clone()));
        let (card, agreement) = self.open_next_log(cluster, machine.clone()).await?;
        self.cards.store(&card).map_err(JoinError::log)?;
        // From here on this node belongs to the cluster.
        let unknown = unknown_state(cluster, self.node, &self.settings.name);
        self.state.shown().show(unknown);
        self.state.follow(agreement, machine);
        self.card.store(Arc::new(card));
        self.contacts.cluster.store(Arc::new(cluster));
        let gone = vnodes.into_iter();
        let gone = gone.map(|vnode| (vnode.partition(), Some(vnode)));
        let remove = move |ground: &Ground, held: &mut StoreList| ground.remove(held, gone);
        let removed = self.follower.with_record(held, remove).await;
        removed.map_err(JoinError::log)
    }

    /// Opens the log of a cluster that admits this node, beside the former log. The card that it
    /// returns is valid once it is stored.
    pub(crate) async fn open_next_log(
        &self,
        cluster: ClusterId,
        machine: Arc<ClusterMachine>,
    ) -> Result<(Card, Agreement), JoinError> {
        let card = Card {
            stage: Stage::Joined,
            node: self.node,
            cluster,
            log: self.card.load().log + 1,
        };
        let directory = self.cards.log_directory(card.log);
        // The directory is left over from an uncompleted attempt.
        if let Ok(Some(_)) = self.disk.info(&directory) {
            let removed = self.disk.remove_directory(&directory);
            removed.map_err(JoinError::log)?;
        }
        let parts = kvorum_agreement::Parts {
            runtime: self.runtime.clone(),
            disk: self.disk.clone(),
            directory,
            second_mark: self.cards.second_mark(card.log),
            node: self.node,
            peers: self.peers.clone(),
            machine,
        };
        let opened = Agreement::open(parts, Founding::Joining, self.settings.agreement).await;
        Ok((card, opened.map_err(JoinError::log)?))
    }

    /// The address at which other nodes reach this one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.settings.addresses.get(PEER_SERVICE)?.parse().ok()
    }
}
