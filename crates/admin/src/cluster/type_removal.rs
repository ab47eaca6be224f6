//! `bucket-type remove`: the type is hidden, all nodes are asked for its keys, and it is removed if
//! there are none.
//!
//! The first and the last step are agreed, and hold for all nodes; this node asks in between. If it
//! stops there, the type stays hidden until the verb is repeated on any node, or until `bucket-type
//! activate` cancels the removal. If a node holds keys or cannot be asked, the removal is cancelled
//! at once, and requests find the type as before.

use std::time::Duration;

use kvorum_cluster::{ClusterState, Command, ProposeError, TypeStatus};
use kvorum_encoding::BucketType;
use kvorum_member::{Holding, Operation, Outcome};
use kvorum_ring::NodeId;
use serde_json::json;

use super::cluster_admin::ClusterAdmin;
use super::words::name_of;
use crate::request::{AdminReply, Replied};

/// Pause before nodes without an answer yet are asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum of such pauses.
const PAUSES_MAX: usize = 100;

/// The answer of one node, for the removal.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The node holds no keys.
    Nothing,
    /// The node must be asked again, for this reason.
    Again(String),
    /// The node prevents the removal, for this reason.
    Hindrance(String),
}

impl ClusterAdmin {
    /// Blocks.
    pub(crate) fn remove_type(&self, name: &str) -> Replied {
        let bucket_type = BucketType::new(name.as_bytes().to_vec());
        let begin = Command::BeginTypeRemoval {
            bucket_type: bucket_type.clone(),
        };
        let begun = self.propose_to_newest(begin);
        let state = begun.map_err(|error| refused(name, &error))?;
        let entry = state.bucket_types().get(&bucket_type);
        let since = match entry.map(|entry| entry.status) {
            None => return Ok(removed(name, &state)),
            Some(TypeStatus::Leaving { since }) => since,
            Some(TypeStatus::Active | TypeStatus::Created) => {
                return Err(AdminReply::refused(format!(
                    "Error removing bucket type {name}: a change of the cluster cancelled the \
                     removal; remove it again"
                )));
            }
        };
        let hindrances = self.hindrances(&state, name, since)?;
        if !hindrances.is_empty() {
            return Err(self.take_back(name, bucket_type, &hindrances));
        }
        let finished = self.propose_to_newest(Command::FinishTypeRemoval { bucket_type, since });
        let state = finished.map_err(|error| refused(name, &error))?;
        Ok(removed(name, &state))
    }

    /// The nodes that prevent the removal, by name, each with the reason.
    fn hindrances(
        &self,
        state: &ClusterState,
        name: &str,
        since: u64,
    ) -> Result<Vec<(String, String)>, AdminReply> {
        let operation = Operation::HoldsType {
            bucket_type: name.to_owned(),
            since,
        };
        let mut hindrances = Vec::new();
        let mut open: Vec<NodeId> = state.members().keys().copied().collect();
        for pause in 0.. {
            let mut again = Vec::new();
            let mut answers = self.ask(open.clone(), &operation);
            for node in open {
                // If this node stops meanwhile, there are no answers.
                let answer = answers.remove(&node);
                let answer = answer.unwrap_or_else(|| Err("there is no answer".to_owned()));
                match said(answer) {
                    Said::Nothing => {}
                    Said::Again(_) if pause < PAUSES_MAX => again.push(node),
                    Said::Again(reason) | Said::Hindrance(reason) => {
                        hindrances.push((name_of(state, node), reason));
                    }
                }
            }
            if again.is_empty() || !hindrances.is_empty() {
                break;
            }
            open = again;
            let runtime = self.member.coordinator().runtime().clone();
            self.wait_for("pause", async move { runtime.sleep(PAUSE).await })?;
        }
        Ok(hindrances)
    }

    /// Makes requests find the type again; returns the refusal.
    fn take_back(
        &self,
        name: &str,
        bucket_type: BucketType,
        hindrances: &[(String, String)],
    ) -> AdminReply {
        let back = self.propose_to_newest(Command::ActivateType { bucket_type });
        let now = match back {
            Ok(_) => "it stays as it was".to_owned(),
            Err(error) => format!(
                "requests do not find it until `kvorum admin bucket-type activate {name}` cancels \
                 the removal, which did not succeed ({})",
                error.in_full()
            ),
        };
        kept(name, &now, hindrances)
    }
}

fn said(answer: Result<Outcome, String>) -> Said {
    match answer {
        Ok(Outcome::HoldsType(Holding::Nothing)) => Said::Nothing,
        Ok(Outcome::HoldsType(Holding::Keys { bucket })) => Said::Hindrance(format!(
            "it has keys of bucket '{bucket}', and perhaps of others"
        )),
        Ok(Outcome::HoldsType(Holding::Hints)) => {
            Said::Hindrance("it keeps objects of it for other nodes".to_owned())
        }
        Ok(Outcome::HoldsType(Holding::NotYet { reason })) => Said::Again(reason),
        Ok(Outcome::Refused(reason)) => Said::Hindrance(reason),
        Ok(other) => Said::Hindrance(format!("an answer to another question: {other:?}")),
        Err(error) => Said::Hindrance(format!("it cannot be asked: {error}")),
    }
}

fn removed(name: &str, state: &ClusterState) -> AdminReply {
    let data = json!({"removed": name, "state_version": state.version()});
    AdminReply::ok(format!("{name} removed"), data)
}

fn refused(name: &str, error: &ProposeError) -> AdminReply {
    let reason = error.in_full();
    AdminReply::refused(format!("Error removing bucket type {name}: {reason}"))
}

fn kept(name: &str, now: &str, hindrances: &[(String, String)]) -> AdminReply {
    let lines = hindrances.iter();
    let lines: Vec<String> = lines
        .map(|(node, reason)| format!("  {node}: {reason}"))
        .collect();
    let error = format!(
        "Error removing bucket type {name}: some nodes may have keys of it; {now}\n{}\n`kvorum \
         admin bucket drop {name}/BUCKET` deletes the keys of a bucket",
        lines.join("\n")
    );
    let nodes = hindrances.iter();
    let nodes: Vec<_> = nodes
        .map(|(node, reason)| json!({"node": node, "reason": reason}))
        .collect();
    AdminReply {
        data: json!({"error": error, "nodes": nodes}),
        ..AdminReply::refused(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_that_says_so_holds_nothing() {
        assert_eq!(
            said(Ok(Outcome::HoldsType(Holding::Nothing))),
            Said::Nothing
        );
        let bucket = "b".to_owned();
        for answer in [
            Ok(Outcome::HoldsType(Holding::Keys { bucket })),
            Ok(Outcome::HoldsType(Holding::Hints)),
            Ok(Outcome::Refused("no".to_owned())),
            Ok(Outcome::Done),
            Err("down".to_owned()),
        ] {
            assert!(matches!(said(answer), Said::Hindrance(_)));
        }
        let reason = "soon".to_owned();
        let not_yet = Ok(Outcome::HoldsType(Holding::NotYet { reason }));
        assert_eq!(said(not_yet), Said::Again("soon".to_owned()));
    }

    #[test]
    fn a_type_that_stays_says_which_node_keeps_it() {
        let hindrances = [("a@h".to_owned(), "it has keys".to_owned())];
        let reply = kept("maps", "it stays as it was", &hindrances);
        assert!(!reply.is_ok);
        assert_eq!(
            reply.text,
            "Error removing bucket type maps: some nodes may have keys of it; it stays as it \
             was\n  a@h: it has keys\n`kvorum admin bucket drop maps/BUCKET` deletes the keys of \
             a bucket"
        );
        assert_eq!(reply.data["nodes"][0]["node"], "a@h");
        assert_eq!(reply.data["error"], reply.text);
    }
}
