//! Callers that are not members in this node's state: they may have joined since, or may have been
//! removed.
//!
//! A node that was cut off while another node joined would refuse the new member. If the new member
//! leads the agreed log by then, no other node can give the cut-off node its state. So this node
//! asks the members in its state. A member vouches for a caller if it has a later state in which
//! the caller is a member; this counts until this node has that state. The callers' own statements
//! do not count: a removed node may claim anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvorum_claimant::ShownState;
use kvorum_peer::Peers;
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::operations::{Operation, Outcome, ask};

/// Members that are asked each time a caller is refused. When the caller calls again, other members
/// are drawn.
const ASKED_MAX: usize = 3;
/// Most callers asked about, and most vouched for: more than ever join while a node is away.
const CALLERS_MAX: usize = 256;

/// See the module's description.
#[derive(Default)]
pub(crate) struct Vouching {
    callers: Mutex<Callers>,
    news: Notify,
}

#[derive(Default)]
struct Callers {
    /// Callers about which no member was asked since their last call.
    doubtful: BTreeSet<NodeId>,
    /// The version of the state of the member that vouched for them.
    vouched: BTreeMap<NodeId, u64>,
}

impl Vouching {
    /// True for a caller that was vouched for by a member with a later state than this version. Members
    /// are asked about any other caller.
    pub(crate) fn is_vouched(&self, caller: NodeId, version: u64) -> bool {
        let mut callers = self.callers.lock();
        callers.vouched.retain(|_, theirs| *theirs > version);
        if callers.vouched.contains_key(&caller) {
            return true;
        }
        if callers.doubtful.len() < CALLERS_MAX && callers.doubtful.insert(caller) {
            self.news.notify_one();
        }
        false
    }

    fn vouch(&self, caller: NodeId, theirs: u64) {
        let mut callers = self.callers.lock();
        if callers.vouched.len() < CALLERS_MAX {
            callers.vouched.insert(caller, theirs);
        }
    }

    /// Asks members about callers, for as long as the node takes part.
    pub(crate) async fn run(
        self: Arc<Self>,
        runtime: Runtime,
        peers: Peers,
        node: NodeId,
        shown: Arc<ShownState>,
    ) {
        loop {
            self.news.notified().await;
            loop {
                let Some(caller) = self.callers.lock().doubtful.pop_first() else {
                    break;
                };
                self.ask_about(caller, &runtime, &peers, node, &shown).await;
            }
        }
    }

    async fn ask_about(
        &self,
        caller: NodeId,
        runtime: &Runtime,
        peers: &Peers,
        node: NodeId,
        shown: &ShownState,
    ) {
        let state = shown.current();
        let mut others: Vec<NodeId> = state.members().keys().copied().collect();
        others.retain(|it| *it != node);
        for asked in 0..ASKED_MAX.min(others.len()) {
            let drawn = usize::try_from(runtime.random_u64()).unwrap_or(asked) % others.len();
            let other = others.swap_remove(drawn);
            let question = Operation::Knows {
                node: caller.to_string(),
            };
            let answer = ask(runtime, peers, other, &question).await;
            let Ok(Outcome::Knows { version, is_member }) = answer else {
                continue;
            };
            if is_member && version > state.version() {
                tracing::info!(event = "peer_vouched_for", node = %caller, by = %other, version);
                return self.vouch(caller, version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_vouched_for_until_this_node_knows_as_much() {
        let vouching = Vouching::default();
        let [one, two] = [1, 2].map(|byte| NodeId::from_bytes([byte; 16]));
        assert!(!vouching.is_vouched(one, 5));
        assert!(vouching.callers.lock().doubtful.contains(&one));
        vouching.vouch(one, 7);
        assert!(vouching.is_vouched(one, 5));
        assert!(vouching.is_vouched(one, 6));
        assert!(!vouching.is_vouched(two, 6));
        assert!(!vouching.is_vouched(one, 7));
        assert!(!vouching.is_vouched(one, 5), "it was forgotten");
    }

    #[test]
    fn no_more_callers_are_kept_than_there_is_room_for() {
        let vouching = Vouching::default();
        for number in 0..1_000_u16 {
            let mut bytes = [0; 16];
            bytes[..2].copy_from_slice(&number.to_le_bytes());
            assert!(!vouching.is_vouched(NodeId::from_bytes(bytes), 1));
        }
        assert_eq!(vouching.callers.lock().doubtful.len(), CALLERS_MAX);
    }
}
