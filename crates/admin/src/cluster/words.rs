//! Words and lines that several views have in common, as Riak's operators expect them.

use kvorum_cluster::{ClusterState, MemberStatus};
use kvorum_ring::NodeId;

pub(super) const RULER: &str =
    "-------------------------------------------------------------------------------";

pub(super) fn banner(title: &str) -> String {
    format!("{:=^79}\n", format!(" {title} "))
}

pub(crate) fn name_of(state: &ClusterState, node: NodeId) -> String {
    let member = state.member(node);
    member.map_or_else(|| node.to_string(), |member| member.name.clone())
}

pub(super) fn status_word(status: MemberStatus) -> &'static str {
    match status {
        MemberStatus::Joining => "joining",
        MemberStatus::Valid => "valid",
        MemberStatus::Leaving => "leaving",
        MemberStatus::Exiting => "exiting",
        MemberStatus::Down => "down",
    }
}
