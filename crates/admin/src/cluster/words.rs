//! Words and lines that several views have in common, as Riak's operators know them.

use kvorum_cluster::{ClusterState, MemberStatus, StagedChange};
use kvorum_ring::NodeId;

pub(super) const RULER: &str =
    "-------------------------------------------------------------------------------";

pub(super) fn banner(title: &str) -> String {
    format!("{:=^79}\n", format!(" {title} "))
}

pub(super) fn name_of(state: &ClusterState, node: NodeId) -> String {
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

pub(super) fn action_of(change: &StagedChange) -> &'static str {
    match change {
        StagedChange::Leave => "leave",
        StagedChange::Replace { .. } => "replace",
        StagedChange::ForceRemove => "force-remove",
        StagedChange::ForceReplace { .. } => "force-replace",
        StagedChange::Location(_) => "location",
        StagedChange::Weight(_) => "weight",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banners_are_as_wide_as_rulers() {
        assert_eq!(banner("Membership").trim_end().len(), RULER.len());
    }
}
