//! Changes of the cluster as events of the log: joins, commits, departures.
//!
//! Every member logs the changes that it receives, so that the log of any node has the cluster's
//! history. [`changes`] is a pure comparison of two states; several changes may have arrived
//! together.

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState as _, ClusterState, MemberStatus};
use kvorum_encoding::BucketType;
use kvorum_properties::BucketProperties;
use kvorum_ring::NodeId;

use crate::unknown_state::is_unknown;

/// One change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A member was added or removed, or its status changed.
    Member {
        event: &'static str,
        node: NodeId,
        name: String,
    },
    /// A member has a new name.
    Renamed {
        node: NodeId,
        name: String,
        before: String,
    },
    /// An operator staged a change of a member.
    Staged {
        node: NodeId,
        name: String,
        what: &'static str,
    },
    /// A plan was committed; it moves this number of partitions.
    PlanCommitted { moves: usize },
    /// All moves of the plan are done.
    PlanCarriedOut,
    /// The number of replicas is growing, or has grown.
    Replicas { event: &'static str, to: u16 },
    /// The defaults of buckets without a type have changed; `changed` names the properties that
    /// differ.
    BucketDefaults { changed: Vec<String> },
    /// A removal of a bucket type began, was cancelled, or ended.
    BucketType { event: &'static str, name: String },
}

/// The changes between two states, in the order in which they are logged.
pub(crate) fn changes(before: &ClusterState, after: &ClusterState) -> Vec<Change> {
    let mut changes = Vec::new();
    if is_unknown(before) || is_unknown(after) {
        return changes;
    }
    for (node, member) in after.members() {
        let known = before.member(*node);
        let event = known.map_or_else(
            || Some("member_joined"),
            |known| status_event(known.status, member.status),
        );
        changes.extend(event.map(|event| Change::Member {
            event,
            node: *node,
            name: member.name.clone(),
        }));
        if let Some(known) = known.filter(|known| known.name != member.name) {
            changes.push(Change::Renamed {
                node: *node,
                name: member.name.clone(),
                before: known.name.clone(),
            });
        }
    }
    for (node, change) in after.staged() {
        if before.staged().get(node) != Some(change) {
            changes.push(Change::Staged {
                node: *node,
                name: name_of(after, *node),
                what: change.name(),
            });
        }
    }
    match (before.transition(), after.transition()) {
        (None, Some(transition)) => changes.push(Change::PlanCommitted {
            moves: transition.due(after.ring()).count(),
        }),
        (Some(_), None) => changes.push(Change::PlanCarriedOut),
        _ => {}
    }
    changes.extend(changed_defaults(before, after));
    changes.extend(leaving_types(before, after));
    let (had, has) = (before.ring().replicas_max(), after.ring().replicas_max());
    match (before.ring().growth(), after.ring().growth()) {
        (None, Some(growth)) if growth.to != has => changes.push(Change::Replicas {
            event: "replicas_growing",
            to: growth.to,
        }),
        _ if had != has => changes.push(Change::Replicas {
            event: "replicas_grown",
            to: has,
        }),
        _ => {}
    }
    for (node, member) in before.members() {
        if after.member(*node).is_none() {
            changes.push(Change::Member {
                event: "member_left",
                node: *node,
                name: member.name.clone(),
            });
        }
    }
    changes
}

fn changed_defaults(before: &ClusterState, after: &ClusterState) -> Option<Change> {
    if before.default_properties() == after.default_properties() {
        return None;
    }
    let values = |state: &ClusterState| {
        BucketProperties::untyped_defaults().with(state.default_properties())
    };
    let (before, after) = (values(before).to_json(), values(after).to_json());
    let differing = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value));
    let changed: Vec<String> = differing
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    (!changed.is_empty()).then_some(Change::BucketDefaults { changed })
}

fn leaving_types(before: &ClusterState, after: &ClusterState) -> Vec<Change> {
    let change = |name: &BucketType| {
        let is_there = after.bucket_types().contains_key(name);
        let event = match (is_there, before.is_leaving(name), after.is_leaving(name)) {
            (false, ..) => "bucket_type_removed",
            (true, false, true) => "bucket_type_leaving",
            (true, true, false) => "bucket_type_kept",
            (true, ..) => return None,
        };
        let name = name.to_string();
        Some(Change::BucketType { event, name })
    };
    before.bucket_types().keys().filter_map(change).collect()
}

fn status_event(before: MemberStatus, after: MemberStatus) -> Option<&'static str> {
    if before == after {
        return None;
    }
    Some(match after {
        MemberStatus::Joining => "member_joined",
        MemberStatus::Valid if before == MemberStatus::Down => "member_back",
        MemberStatus::Valid => "member_full",
        MemberStatus::Leaving => "member_leaving",
        MemberStatus::Exiting => "member_handed_over",
        MemberStatus::Down => "member_marked_down",
    })
}

fn name_of(state: &ClusterState, node: NodeId) -> String {
    let member = state.member(node);
    member.map_or_else(String::new, |member| member.name.clone())
}

impl Change {
    fn log(&self, version: u64) {
        match self {
            Self::Member { event, node, name } => {
                tracing::info!(event, %node, node_name = %name, version);
            }
            Self::Renamed { node, name, before } => {
                tracing::info!(event = "member_renamed", %node, node_name = %name, %before, version);
            }
            Self::Staged { node, name, what } => {
                tracing::info!(event = "change_staged", change = what, %node, node_name = %name, version);
            }
            Self::PlanCommitted { moves } => {
                tracing::info!(event = "plan_committed", moves, version);
            }
            Self::PlanCarriedOut => tracing::info!(event = "plan_carried_out", version),
            Self::Replicas { event, to } => tracing::info!(event, to, version),
            Self::BucketDefaults { changed } => {
                let changed = changed.join(" ");
                tracing::info!(event = "bucket_defaults_changed", changed, version);
            }
            Self::BucketType { event, name } => {
                tracing::info!(event, bucket_type = %name, version);
            }
        }
    }
}

/// Logs changes of the cluster for as long as it is polled.
pub(crate) async fn keep(state: ReplicatedState) {
    let mut versions = state.versions();
    versions.see();
    let mut known = state.current();
    while versions.changed().await.is_ok() {
        let now = state.current();
        for change in changes(&known, &now) {
            change.log(now.version());
        }
        known = now;
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use kvorum_cluster::{ClusterId, Command, Member};
    use kvorum_properties::PropertyOverlay;
    use kvorum_ring::{Ring, RingSize};

    use super::*;

    impl fmt::Display for Change {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Member { event, name, .. } => write!(f, "{event} {name}"),
                Self::Renamed { name, before, .. } => write!(f, "member_renamed {before} {name}"),
                Self::Staged { name, what, .. } => write!(f, "change_staged {what} {name}"),
                Self::PlanCommitted { moves } => write!(f, "plan_committed {moves}"),
                Self::PlanCarriedOut => f.write_str("plan_carried_out"),
                Self::Replicas { event, to } => write!(f, "{event} {to}"),
                Self::BucketDefaults { changed } => {
                    write!(f, "bucket_defaults_changed {}", changed.join(" "))
                }
                Self::BucketType { event, name } => write!(f, "{event} {name}"),
            }
        }
    }

    fn node(byte: u8) -> NodeId {
        NodeId::from_bytes([byte; 16])
    }

    fn next(state: &ClusterState, command: Command) -> ClusterState {
        kvorum_cluster::apply(state, command).unwrap()
    }

    fn events(before: &ClusterState, after: &ClusterState) -> Vec<String> {
        changes(before, after)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_join_a_commit_and_a_departure_are_reported_by_name() {
        let ring = Ring::single(RingSize::SMALLEST, node(1));
        let cluster = ClusterId::from_random([7; 16]);
        let alone = ClusterState::found(cluster, "orders", node(1), Member::new("a@h"), ring);
        let member = Member {
            status: MemberStatus::Joining,
            ..Member::new("b@h")
        };
        let joined = next(
            &alone,
            Command::AddMember {
                node: node(2),
                member,
            },
        );
        assert_eq!(events(&alone, &joined), ["member_joined b@h"]);
        assert!(events(&joined, &joined).is_empty());
        let id = joined.plan().unwrap().id;
        let committed = next(&joined, Command::CommitPlan { id });
        assert_eq!(
            events(&joined, &committed),
            ["member_full b@h", "plan_committed 4"]
        );
        let defaults = PropertyOverlay {
            allow_mult: Some(true),
            n_val: Some(3),
            ..PropertyOverlay::default()
        };
        let changed = next(&joined, Command::SetDefaultProperties(defaults));
        assert_eq!(
            events(&joined, &changed),
            ["bucket_defaults_changed allow_mult=true"]
        );
        let cleared = next(&joined, Command::ClearStaged);
        assert_eq!(events(&joined, &cleared), ["member_left b@h"]);
    }

    #[test]
    fn a_type_that_goes_is_reported_in_steps() {
        let ring = Ring::single(RingSize::SMALLEST, node(1));
        let cluster = ClusterId::from_random([7; 16]);
        let alone = ClusterState::found(cluster, "orders", node(1), Member::new("a@h"), ring);
        let name = || BucketType::from("maps");
        let create = Command::CreateType {
            bucket_type: name(),
            properties: PropertyOverlay::default(),
        };
        let activate = Command::ActivateType {
            bucket_type: name(),
        };
        let active = next(&next(&alone, create), activate.clone());
        assert!(events(&alone, &active).is_empty());
        let begin = Command::BeginTypeRemoval {
            bucket_type: name(),
        };
        let leaving = next(&active, begin);
        assert_eq!(events(&active, &leaving), ["bucket_type_leaving maps"]);
        let kept = next(&leaving, activate);
        assert_eq!(events(&leaving, &kept), ["bucket_type_kept maps"]);
        let finish = Command::FinishTypeRemoval {
            bucket_type: name(),
            since: leaving.version(),
        };
        let gone = next(&leaving, finish);
        assert_eq!(events(&leaving, &gone), ["bucket_type_removed maps"]);
    }
}
