//! Requests about the log between nodes, over the control lane.
//!
//! A request's head is the service's byte and a [`Call`] as JSON; its answer is JSON as well. Snapshots
//! are sent in pieces that the library chooses.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use kvorum_peer::{Lane, Message, PeerError, Peers};
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;
use openraft::EmptyNode;
use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::raft_types::{MemberId, Types};

/// The first byte of every request to this service.
pub(crate) const SERVICE: u8 = b'A';

/// A request of one node to another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<MemberId>),
    Snapshot(InstallSnapshotRequest<Types>),
    /// To the leader: put this command into the log.
    Propose(String),
    /// Asks the leader for the index of the last agreed entry: a node that has applied it has
    /// everything.
    Read,
}

/// The leader's answer to a proposal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Proposed {
    /// The command is agreed, at this index.
    Agreed { index: u64, outcome: String },
    /// This node leads no longer; another one may.
    NotLeading { leader: Option<MemberId> },
    /// The proposal failed.
    Failed(String),
}

/// The leader's answer to a node that has to catch up with the log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ReadPoint {
    /// A majority has just confirmed this leader; all entries up to this index are agreed.
    At { index: Option<u64> },
    /// This node leads no longer, or no majority confirms its lead.
    NotLeading { leader: Option<MemberId> },
    /// The check failed.
    Failed(String),
}

pub(crate) fn request(call: &Call) -> Result<Message, serde_json::Error> {
    let mut head = vec![SERVICE];
    serde_json::to_writer(&mut head, call)?;
    Ok(Message::of_head(head))
}

pub(crate) fn parse(message: &Message) -> Option<Call> {
    let json = message.head.strip_prefix(&[SERVICE])?;
    serde_json::from_slice(json).ok()
}

pub(crate) fn answer<T: Serialize>(answer: &T) -> Message {
    // An answer that cannot be encoded becomes an empty one, which its reader refuses.
    Message::of_head(serde_json::to_vec(answer).map_or_else(|_| Bytes::new(), Bytes::from))
}

/// Asks a node and reads its answer.
pub(crate) async fn ask<T: DeserializeOwned>(
    runtime: &Runtime,
    peers: &Peers,
    node: NodeId,
    call: &Call,
    wait: Duration,
) -> Result<T, Unanswered> {
    let message = request(call).map_err(|error| Unanswered::Garbled(error.to_string()))?;
    let deadline = runtime.now().plus(wait);
    let answer = peers
        .request(node, Lane::Control, message, deadline)
        .await?;
    serde_json::from_slice(&answer.head).map_err(|error| Unanswered::Garbled(error.to_string()))
}

/// The reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("an answer that cannot be read: {0}")]
    Garbled(String),
}

/// Makes the library's connections.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) runtime: Runtime,
    pub(crate) peers: Peers,
}

/// The library's connection to one node.
pub(crate) struct AskingOne {
    asking: Asking,
    target: MemberId,
}

impl RaftNetworkFactory<Types> for Asking {
    type Network = AskingOne;

    async fn new_client(&mut self, target: MemberId, _: &EmptyNode) -> AskingOne {
        AskingOne {
            asking: self.clone(),
            target,
        }
    }
}

impl AskingOne {
    async fn ask<T, E>(
        &self,
        call: Call,
        option: &RPCOption,
    ) -> Result<T, RPCError<MemberId, EmptyNode, E>>
    where
        T: DeserializeOwned,
        E: std::error::Error + DeserializeOwned + Display,
    {
        let Asking { runtime, peers } = &self.asking;
        let wait = option.hard_ttl();
        let answered: Result<Result<T, E>, Unanswered> =
            ask(runtime, peers, self.target.into(), &call, wait).await;
        match answered {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RemoteError::new(self.target, error).into()),
            Err(error) if is_out_of_reach(&error) => Err(Unreachable::new(&error).into()),
            Err(error) => Err(NetworkError::new(&error).into()),
        }
    }
}

/// True for an error that needs a pause before the next try.
fn is_out_of_reach(error: &Unanswered) -> bool {
    matches!(
        error,
        Unanswered::Peer(
            PeerError::NoAddress { .. }
                | PeerError::Unreachable { .. }
                | PeerError::Refused { .. }
                | PeerError::Encryption { .. }
        )
    )
}

impl RaftNetwork<Types> for AskingOne {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<MemberId>, RPCError<MemberId, EmptyNode, RaftError<MemberId>>>
    {
        self.ask(Call::Append(request), &option).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<MemberId>,
        RPCError<MemberId, EmptyNode, RaftError<MemberId, InstallSnapshotError>>,
    > {
        self.ask(Call::Snapshot(request), &option).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<MemberId>,
        option: RPCOption,
    ) -> Result<VoteResponse<MemberId>, RPCError<MemberId, EmptyNode, RaftError<MemberId>>> {
        self.ask(Call::Vote(request), &option).await
    }
}
