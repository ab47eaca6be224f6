//! The side of a cluster that admits nodes.
//!
//! A request is the service's byte and JSON, and so is its answer.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState, ClusterState, Command, Member as MemberEntry, MemberStatus};
use kvorum_peer::{Caller, Message, Served};
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;
use serde::{Deserialize, Serialize};

/// The first byte of every message of this service.
pub(crate) const SERVICE: u8 = b'J';

/// Time for the log to drop a removed member before the member is added again.
const LET_GO_WAIT: Duration = Duration::from_secs(10);
/// The time between two looks at the log during this wait.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// A node's request to join, with its introduction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Knock {
    /// The name that the operator gave for the member; `None` if only its address was given.
    pub(crate) looks_for: Option<String>,
    pub(crate) name: String,
    pub(crate) addresses: BTreeMap<String, String>,
    /// Set by a remaining member that was ordered to follow the member that recovered the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<Follows>,
}

/// A remaining member's state of the former cluster.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Follows {
    pub(crate) cluster: String,
    pub(crate) version: u64,
}

/// The question of a former member that may have been removed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Inquiry {
    /// The version of the state in which it was a member.
    pub(crate) member_at: u64,
}

/// A request to a member by a node that is not a member.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Request {
    Knock(Knock),
    Inquiry(Inquiry),
}

/// The member's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The node is a member that joins.
    Welcome { cluster: String, name: String },
    /// The node expected another name.
    OtherName { name: String },
    /// The request was refused; the reason is for the operator.
    Refused { reason: String },
    /// The node was a member of this cluster, and a later state has removed it.
    Removed { cluster: String },
}

/// The admitting side.
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
                Ok(Request::Inquiry(inquiry)) => {
                    answer_inquiry(&state.current(), caller.node, &inquiry)
                }
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
        // The caller did not receive the first answer.
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

/// Waits until the log does not count a node. The leader would expect the node to have its earlier
/// log, but the node's log is empty.
async fn has_let_go(runtime: &Runtime, state: &ReplicatedState, node: NodeId) -> bool {
    let is_counted = || {
        let status = state.agreement().status();
        status.voters.contains(&node) || status.listeners.contains(&node)
    };
    let deadline = runtime.now().plus(LET_GO_WAIT);
    while is_counted() && runtime.now() < deadline {
        runtime.sleep(LOOK_PERIOD).await;
    }
    !is_counted()
}

/// Tells a former member whether it has been removed.
fn answer_inquiry(current: &ClusterState, node: NodeId, inquiry: &Inquiry) -> Answer {
    if current.member(node).is_none() && current.version() > inquiry.member_at {
        let cluster = current.id().to_string();
        return Answer::Removed { cluster };
    }
    Answer::Refused {
        reason: "there is no record of a removal here".to_owned(),
    }
}

/// The reason why a remaining member cannot follow, if there is one. None of its agreed entries may
/// be undone.
fn not_followed(current: &ClusterState, node: NodeId, follows: &Follows) -> Option<String> {
    if current.member(node).is_none() {
        return Some("this node is no member of the recovered cluster".into());
    }
    let Some(recovery) = current.recovery() else {
        return Some("this cluster was not recovered: it still has its former identity".into());
    };
    if recovery.from.to_string() != follows.cluster {
        return Some("the recovered cluster was another one".into());
    }
    (follows.version > recovery.version).then(|| {
        format!(
            "this node has decisions up to version {}, and the cluster was recovered with those \
             up to {}: recover here instead, and let the others follow",
            follows.version, recovery.version
        )
    })
}
