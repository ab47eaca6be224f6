//! The health of a node: its ability to serve and its hindrances, for load balancers, orchestrators and
//! operators.
//!
//! [`Health`] is the state at one moment, as plain values; [`Health::findings`] judges it, purely.
//! A blocking finding means that requests should go to another node; any other finding deserves an
//! operator's attention, while the node serves the rest. Findings contain no path of the server,
//! since clients may read them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState as _, ClusterState, MemberStatus};
use kvorum_coordinator::{Coordinator, OutOfReach};
use kvorum_liveness::Liveness;
use kvorum_ring::{NodeId, Partition, Position};
use kvorum_vnode::Vnode;
use serde::{Deserialize, Serialize};

use crate::stores::Stores;
use crate::unknown_state::is_unknown;
use crate::vnode_table::{Unopened, VnodeTable};
use crate::writability::{self, Look, Refusal, Writability};

/// The most partitions that a text names one by one.
const PARTITIONS_NAMED: usize = 8;

/// The node's place in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Membership {
    /// The node has joined a cluster whose state has not arrived yet.
    Unknown,
    /// The node has left its cluster or was replaced, or its join was cleared.
    Removed,
    /// The node has joined, and owns nothing until a plan is committed.
    Joining,
    /// A full member.
    #[default]
    Valid,
    /// The node hands over its partitions.
    Leaving,
    /// The node has handed over its partitions and waits for its removal.
    Exiting,
    /// The other members count the node as down.
    Down,
}

impl Membership {
    /// The name that operators read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Removed => "removed",
            Self::Joining => "joining",
            Self::Valid => "valid",
            Self::Leaving => "leaving",
            Self::Exiting => "exiting",
            Self::Down => "down",
        }
    }

    pub(crate) fn of(state: &ClusterState, node: NodeId, is_removed: bool) -> Self {
        if is_unknown(state) {
            return Self::Unknown;
        }
        match state.member(node).map(|member| member.status) {
            _ if is_removed => Self::Removed,
            None => Self::Removed,
            Some(MemberStatus::Joining) => Self::Joining,
            Some(MemberStatus::Valid) => Self::Valid,
            Some(MemberStatus::Leaving) => Self::Leaving,
            Some(MemberStatus::Exiting) => Self::Exiting,
            Some(MemberStatus::Down) => Self::Down,
        }
    }
}

/// The state of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// The node's place in its cluster.
    pub membership: Membership,
    /// Vnodes that serve.
    pub open: usize,
    /// Vnodes whose stores are being opened.
    pub opening: usize,
    /// The numbers of the partitions whose stores could not be opened or were refused.
    pub failed: Vec<u16>,
    /// The numbers of the partitions whose stores are incomplete: they take writes and answer no reads
    /// until they are repaired from other replicas.
    pub incomplete: Vec<u16>,
    /// Serving vnodes that take no writes.
    pub unwritable: usize,
    /// The reason why they take no writes.
    pub refusal: Option<Refusal>,
    /// The numbers of the partitions of the whole ring whose keys have no readable replica now.
    pub unserved: Vec<u16>,
    /// The numbers of the partitions of the whole ring that refuse gets at the default quorum, because too
    /// few nodes are up.
    pub reads_refused: Vec<u16>,
    /// The same for puts.
    pub writes_refused: Vec<u16>,
    /// Partitions of the ring.
    pub partitions: usize,
}

/// One problem of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A code for programs, in one word.
    pub code: &'static str,
    /// True when requests should go to another node.
    pub is_blocking: bool,
    /// A sentence for people, without a full stop.
    pub text: String,
}

/// The status of a node that has nothing to report.
pub const READY: &str = "ready";
/// The status of a node that serves, but not everything that it should.
pub const DEGRADED: &str = "degraded";

impl Health {
    /// All problems, blocking ones first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |code, is_blocking, text: String| {
            findings.push(Finding {
                code,
                is_blocking,
                text,
            });
        };
        match self.membership {
            Membership::Unknown => find(
                "not_a_member",
                true,
                "this node has joined a cluster whose state has not arrived yet".to_owned(),
            ),
            Membership::Removed => find(
                "not_a_member",
                true,
                "this node is no member of its cluster any more: it has left, was replaced, or its join \
                 was cleared; stop it, or let it join again"
                    .to_owned(),
            ),
            Membership::Exiting => find(
                "leaving",
                true,
                "this node has handed over its partitions and waits for its removal".to_owned(),
            ),
            Membership::Down => find(
                "marked_down",
                false,
                "the cluster counts this node as down".to_owned(),
            ),
            Membership::Joining | Membership::Valid | Membership::Leaving => {}
        }
        let vnodes = self.open + self.opening + self.failed.len();
        if self.opening > 0 {
            let are = agreeing(self.opening, "is", "are");
            let text = format!(
                "{} of {vnodes} stores {are} still being opened",
                self.opening
            );
            find("opening", true, text);
        }
        if !self.failed.is_empty() {
            let text = format!(
                "{} of {vnodes} stores could not be opened: {}; see this node's log",
                self.failed.len(),
                named(&self.failed)
            );
            find("failed", self.failed.len() == vnodes, text);
        }
        if let Some(refusal) = self.refusal.filter(|_| self.unwritable > 0) {
            let take = agreeing(self.unwritable, "takes", "take");
            let text = format!(
                "{} of {} open stores {take} no writes: {}; reads go on",
                self.unwritable,
                self.open,
                refusal.text()
            );
            find(refusal.code(), self.unwritable >= self.open, text);
        }
        if !self.incomplete.is_empty() {
            let are = agreeing(self.incomplete.len(), "is", "are");
            let answer = agreeing(self.incomplete.len(), "answers", "answer");
            let text = format!(
                "{} of {vnodes} stores {are} repaired from other replicas and {answer} no reads: {}",
                self.incomplete.len(),
                named(&self.incomplete)
            );
            find("incomplete", false, text);
        }
        if !self.unserved.is_empty() && self.opening == 0 {
            let text = format!(
                "{} of {} partitions cannot be served, no replica can be read: {}",
                self.unserved.len(),
                self.partitions,
                named(&self.unserved)
            );
            find("unserved", self.unserved.len() == self.partitions, text);
        }
        for (code, requests, refused) in [
            ("no_read_quorum", "reads", &self.reads_refused),
            ("no_write_quorum", "writes", &self.writes_refused),
        ] {
            if !refused.is_empty() {
                let refuse = agreeing(refused.len(), "refuses", "refuse");
                let text = format!(
                    "{} of {} partitions {refuse} {requests} at the default quorum, too few nodes are up: {}",
                    refused.len(),
                    self.partitions,
                    named(refused)
                );
                find(code, refused.len() == self.partitions, text);
            }
        }
        findings.sort_by_key(|finding| !finding.is_blocking);
        findings
    }

    /// True when requests may be sent to the node.
    pub fn is_ready(&self) -> bool {
        !self.findings().iter().any(|finding| finding.is_blocking)
    }

    /// The state in one word: [`READY`], [`DEGRADED`], or the code of the blocking finding.
    pub fn status(&self) -> &'static str {
        match self.findings().first() {
            None => READY,
            Some(finding) if finding.is_blocking => finding.code,
            Some(_) => DEGRADED,
        }
    }

    /// The state as text: a line for the whole, and one for each finding.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.status());
        for finding in self.findings() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}: {}", finding.code, finding.text);
        }
        text
    }
}

/// The sources of a node's health.
pub(crate) struct HealthWatch {
    pub(crate) node: NodeId,
    pub(crate) state: ReplicatedState,
    pub(crate) liveness: Liveness,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) stores: Arc<dyn Stores>,
    pub(crate) writability: Writability,
    pub(crate) coordinator: Arc<Coordinator>,
    /// Another member has answered that this node was removed.
    pub(crate) is_removed: AtomicBool,
}

impl HealthWatch {
    pub(crate) fn health(&self) -> Health {
        let state = self.state.current();
        let is_removed = self.is_removed.load(Ordering::Relaxed);
        let (vnodes, readiness) = (self.vnodes.all(), self.vnodes.readiness());
        let ring = state.ring();
        let is_lacking = |vnode: &&Arc<Vnode>| {
            !vnode.is_complete() && ring.reader(vnode.partition()) == self.node
        };
        let incomplete = vnodes.iter().filter(is_lacking);
        let (unwritable, refusal) = self.writable(&vnodes);
        let membership = Membership::of(&state, self.node, is_removed);
        // The partitions of a ring without this node say nothing about its health.
        let is_member = !matches!(membership, Membership::Unknown | Membership::Removed);
        let is_up = |node| self.liveness.is_up(node);
        let (unserved, out_of_reach) = match is_member {
            false => (Vec::new(), OutOfReach::default()),
            true => (
                unserved(&state, self.node, &self.vnodes, is_up),
                self.coordinator.out_of_reach(),
            ),
        };
        Health {
            membership,
            open: vnodes.len(),
            opening: readiness.opening,
            failed: failed(&self.vnodes),
            incomplete: incomplete.map(|vnode| vnode.partition().number()).collect(),
            unwritable,
            refusal,
            unserved,
            reads_refused: numbers(&out_of_reach.reads),
            writes_refused: numbers(&out_of_reach.writes),
            partitions: usize::from(ring.size().get()),
        }
    }

    fn writable(&self, vnodes: &[Arc<Vnode>]) -> (usize, Option<Refusal>) {
        let (refused, refusing) = writability::refusals(vnodes);
        let look = Look {
            has_log_failed: self.stores.log_failure().is_some(),
            open: vnodes.len(),
            failed: vnodes.iter().filter(|it| it.unwritable().is_some()).count(),
            refused,
            refusing,
            stored: vnodes.iter().map(|vnode| vnode.objects_stored()).sum(),
            is_log_shared: self.stores.is_log_shared(),
            room: self.stores.room_for_puts(),
        };
        self.writability.judge(&look)
    }
}

/// The partitions of the ring whose keys have no readable replica now.
///
/// Keys whose first replica is partition P have the replicas that `ring` lists for it; `is_up` and the
/// vnodes of this node, `own`, decide which of them answer.
fn unserved(
    state: &ClusterState,
    own: NodeId,
    vnodes: &VnodeTable,
    is_up: impl Fn(NodeId) -> bool,
) -> Vec<u16> {
    let ring = state.ring();
    let n_val = u32::from(ring.replicas_max().max(1));
    let can_read = |node: NodeId, partition: Partition| {
        if node != own {
            return is_up(node);
        }
        let vnode = vnodes.numbered(partition.number());
        vnode.is_some_and(|vnode| vnode.is_complete())
    };
    let is_served = |first: &Partition| {
        let replicas = ring.primaries(Position::before(ring.size(), *first), n_val, false);
        let mut replicas = replicas.iter();
        replicas.any(|replica| can_read(replica.node, replica.partition))
    };
    let partitions = ring.size().partitions();
    let lacking = partitions.filter(|first| !is_served(first));
    lacking.map(Partition::number).collect()
}

fn numbers(partitions: &[Partition]) -> Vec<u16> {
    partitions.iter().map(|it| it.number()).collect()
}

/// The partitions of this node whose stores could not be opened.
fn failed(vnodes: &VnodeTable) -> Vec<u16> {
    let unopened = vnodes.unopened().into_iter();
    let failed = unopened.filter(|(_, it)| matches!(it, Unopened::Failed { .. }));
    failed.map(|(partition, _)| partition.number()).collect()
}

/// The form of a verb that agrees with a number.
fn agreeing(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// `partition 3` or `partitions 3, 4 and 12 more`.
fn named(partitions: &[u16]) -> String {
    let shown: Vec<String> = partitions
        .iter()
        .take(PARTITIONS_NAMED)
        .map(u16::to_string)
        .collect();
    let word = if partitions.len() == 1 {
        "partition"
    } else {
        "partitions"
    };
    let shown = shown.join(", ");
    match partitions.len().saturating_sub(PARTITIONS_NAMED) {
        0 => format!("{word} {shown}"),
        more => format!("{word} {shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Health {
        Health {
            open: 8,
            partitions: 8,
            ..Health::default()
        }
    }

    fn codes(health: &Health) -> Vec<(&'static str, bool)> {
        let findings = health.findings().into_iter();
        findings.map(|it| (it.code, it.is_blocking)).collect()
    }

    #[test]
    fn a_node_with_nothing_to_report_is_ready() {
        assert_eq!((alone().status(), alone().is_ready()), (READY, true));
        assert_eq!(alone().text(), "ready\n");
    }

    #[test]
    fn a_node_that_is_no_member_is_not_ready_whatever_its_stores_say() {
        for membership in [Membership::Unknown, Membership::Removed] {
            let health = Health {
                membership,
                ..alone()
            };
            assert_eq!(codes(&health), [("not_a_member", true)]);
            assert_eq!(
                (health.status(), health.is_ready()),
                ("not_a_member", false)
            );
        }
    }

    #[test]
    fn a_node_that_joins_or_leaves_serves_until_it_has_handed_over_everything() {
        for (membership, is_ready) in [
            (Membership::Joining, true),
            (Membership::Leaving, true),
            (Membership::Exiting, false),
        ] {
            let health = Health {
                membership,
                ..alone()
            };
            assert_eq!(health.is_ready(), is_ready, "{membership:?}");
        }
    }

    #[test]
    fn what_blocks_comes_first() {
        let health = Health {
            open: 5,
            opening: 2,
            failed: vec![3],
            unserved: vec![0, 1, 3],
            ..alone()
        };
        assert_eq!(codes(&health), [("opening", true), ("failed", false)]);
        assert_eq!(health.status(), "opening");
        let text = health.text();
        assert!(
            text.contains("2 of 8 stores are still being opened"),
            "{text}"
        );
    }

    #[test]
    fn a_full_disk_blocks_when_no_store_takes_writes() {
        let mut health = Health {
            unwritable: 8,
            refusal: Some(Refusal::DiskFull),
            ..alone()
        };
        assert_eq!(codes(&health), [("disk_full", true)]);
        health.unwritable = 1;
        assert_eq!(codes(&health), [("disk_full", false)]);
        assert_eq!((health.status(), health.is_ready()), (DEGRADED, true));
    }

    #[test]
    fn partitions_that_cannot_be_served_are_named() {
        let health = Health {
            open: 7,
            failed: vec![3],
            unserved: vec![3],
            ..alone()
        };
        assert_eq!(codes(&health), [("failed", false), ("unserved", false)]);
        assert!(health.text().contains("partition 3"), "{}", health.text());
        let all = Health {
            open: 0,
            failed: (0..8).collect(),
            unserved: (0..8).collect(),
            ..alone()
        };
        assert_eq!(codes(&all), [("failed", true), ("unserved", true)]);
    }

    #[test]
    fn a_quorum_that_no_partition_has_blocks() {
        let all: Vec<u16> = (0..8).collect();
        let health = Health {
            writes_refused: all.clone(),
            reads_refused: vec![7],
            ..alone()
        };
        assert_eq!(
            codes(&health),
            [("no_write_quorum", true), ("no_read_quorum", false)]
        );
        let text = health.text();
        assert!(text.contains("8 of 8 partitions refuse writes"), "{text}");
    }

    #[test]
    fn a_report_of_an_older_node_is_read() {
        let older = r#"{"membership": "leaving", "open": 3}"#;
        let health: Health = serde_json::from_str(older).unwrap();
        assert_eq!((health.membership, health.open), (Membership::Leaving, 3));
    }

    #[test]
    fn long_lists_are_cut() {
        let many: Vec<u16> = (0..20).collect();
        assert_eq!(
            named(&many),
            "partitions 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"
        );
    }
}
