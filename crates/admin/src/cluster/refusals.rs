//! Texts for operators when a change of the cluster is refused: a sentence, followed by a word for programs.
//! Under Riak's names, the texts are the lines that scripts for Riak expect.

use kvorum_cluster::{ProposeError, Refusal, StagingRefusal};
use kvorum_member::JoinError;

use crate::request::AdminReply;

/// A verb named a node that is not a member.
pub(super) fn not_a_member(name: &str) -> AdminReply {
    failed(
        &format!("'{name}' is not a member of the cluster"),
        "not_member",
    )
}

/// A staged change of the member of this name was refused.
pub(super) fn staging(name: &str, error: &ProposeError) -> AdminReply {
    let ProposeError::Refused(Refusal::Staging(refusal)) = error else {
        return AdminReply::refused(format!("Failed: {}", error.in_full()));
    };
    let word = refusal.to_string();
    match refusal {
        StagingRefusal::NotMember => not_a_member(name),
        StagingRefusal::OnlyMember => failed(&format!("'{name}' is the only member"), &word),
        StagingRefusal::AlreadyLeaving => {
            failed(&format!("'{name}' leaves the cluster already"), &word)
        }
        StagingRefusal::InvalidReplacement => failed(
            "only a node that has just joined and owns no partition can replace another",
            &word,
        ),
        StagingRefusal::AlreadyReplacement => {
            failed("the replacement is staged for another node already", &word)
        }
        StagingRefusal::NoWeight | StagingRefusal::NoPlan(_) | StagingRefusal::PlanChanged => {
            AdminReply::refused(format!("Failed: {word}"))
        }
    }
}

/// This node could not join through the node of this name.
pub(super) fn joining(by: &str, error: &JoinError) -> AdminReply {
    let reply = AdminReply::refused(format!("Failed: {error}"));
    match error {
        JoinError::NotReachable { .. } => {
            reply.with_riak_text(format!("Node {by} is not reachable!"))
        }
        JoinError::SelfJoin => {
            reply.with_riak_text("Failed: This node cannot join itself in a cluster")
        }
        _ => reply,
    }
}

fn failed(sentence: &str, word: &str) -> AdminReply {
    AdminReply::refused(format!("Failed: {sentence} ({word})"))
        .with_riak_text(format!("Failed: {sentence}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an operator's script looks for these lines of Riak's, but got only
    /// `only_member`.
    #[test]
    fn a_refused_change_says_which_node_and_why() {
        let refused = |refusal| ProposeError::Refused(Refusal::Staging(refusal));
        let reply = staging("a@h", &refused(StagingRefusal::OnlyMember));
        assert_eq!(reply.text, "Failed: 'a@h' is the only member (only_member)");
        assert_eq!(
            reply.riak.as_deref(),
            Some("Failed: 'a@h' is the only member.")
        );
        let reply = staging("a@h", &refused(StagingRefusal::NotMember));
        assert_eq!(
            reply.riak.as_deref(),
            Some("Failed: 'a@h' is not a member of the cluster.")
        );
        assert!(!reply.is_ok);
    }

    #[test]
    fn a_join_with_itself_reads_as_in_riak() {
        let reply = joining("a@h", &JoinError::SelfJoin);
        assert_eq!(
            reply.riak.as_deref(),
            Some("Failed: This node cannot join itself in a cluster")
        );
    }
}
