//! A command as JSON, the content of a replicated log.
//!
//! Names and values are spelt as in the state's document, so that a reader of the one can read the
//! other. A field that a later version adds is refused by an earlier one: a member that does not
//! understand a command must not go on as if it had applied it.

use kvorum_encoding::{Bucket, BucketType};
use kvorum_ring::{Epoch, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::command::Command;
use crate::content::Member;
use crate::document::{self, MemberDocument, RingDocument, StagedDocument, name, overlay, parsed};
use crate::file_format::DecodeError;
use crate::motion::{GrowthStep, MoveStep};
use crate::name_text::to_text;
use crate::rounds_document::{ListDocument, RoundDocument, WatermarkDocument};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum CommandDocument {
    NameCluster {
        name: String,
    },
    SetDefaultProperties {
        properties: Map<String, Value>,
    },
    CreateType {
        bucket_type: String,
        properties: Map<String, Value>,
    },
    ActivateType {
        bucket_type: String,
    },
    UpdateType {
        bucket_type: String,
        properties: Map<String, Value>,
    },
    ResetType {
        bucket_type: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        property: Option<String>,
    },
    BeginTypeRemoval {
        bucket_type: String,
    },
    FinishTypeRemoval {
        bucket_type: String,
        since: u64,
    },
    SetBucketProperties {
        bucket_type: String,
        bucket: String,
        properties: Map<String, Value>,
    },
    ResetBucketProperties {
        bucket_type: String,
        bucket: String,
    },
    AddMember(MemberDocument),
    UpdateMember(MemberDocument),
    RemoveMember {
        node: String,
    },
    SetRing(RingDocument),
    Stage {
        node: String,
        change: StagedDocument,
    },
    ClearStaged {},
    CommitPlan {
        id: u32,
    },
    Move {
        partition: u16,
        at: u64,
        #[serde(with = "MoveStepDocument")]
        step: MoveStep,
    },
    Grow {
        from: u16,
        step: GrowthStepDocument,
    },
    AnnounceRound {
        list: ListDocument,
        round: RoundDocument,
    },
    RaiseWatermark {
        list: ListDocument,
        watermark: WatermarkDocument,
    },
}

/// The written form of a [`MoveStep`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", remote = "MoveStep")]
enum MoveStepDocument {
    Begin,
    Close,
    Settle,
    Abandon,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrowthStepDocument {
    Begin(u16),
    Close,
    Settle,
    Abandon,
    Filled { partition: u16, at: u64 },
    Known { node: String, at: u64 },
}

impl Command {
    /// The command as JSON, in one line.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(&document_of(self));
        // Maps with text for keys and plain values: nothing in them has no JSON.
        json.unwrap_or_default()
    }

    /// The command that [`Command::to_json`] wrote.
    ///
    /// # Errors
    /// It is not one of this version.
    pub fn from_json(json: &str) -> Result<Self, DecodeError> {
        let document = serde_json::from_str(json);
        command_of(document.map_err(|error| DecodeError::damaged(error.to_string()))?)
    }
}

fn document_of(command: &Command) -> CommandDocument {
    let type_text = |bucket_type: &BucketType| to_text(bucket_type.as_bytes());
    let bucket_text = |bucket: &Bucket| to_text(bucket.as_bytes());
    match command {
        Command::NameCluster(name) => CommandDocument::NameCluster { name: name.clone() },
        Command::SetDefaultProperties(properties) => CommandDocument::SetDefaultProperties {
            properties: properties.to_json(),
        },
        Command::CreateType {
            bucket_type,
            properties,
        } => CommandDocument::CreateType {
            bucket_type: type_text(bucket_type),
            properties: properties.to_json(),
        },
        Command::ActivateType { bucket_type } => CommandDocument::ActivateType {
            bucket_type: type_text(bucket_type),
        },
        Command::UpdateType {
            bucket_type,
            properties,
        } => CommandDocument::UpdateType {
            bucket_type: type_text(bucket_type),
            properties: properties.to_json(),
        },
        Command::ResetType {
            bucket_type,
            property,
        } => CommandDocument::ResetType {
            bucket_type: type_text(bucket_type),
            property: property.clone(),
        },
        Command::BeginTypeRemoval { bucket_type } => CommandDocument::BeginTypeRemoval {
            bucket_type: type_text(bucket_type),
        },
        Command::FinishTypeRemoval { bucket_type, since } => CommandDocument::FinishTypeRemoval {
            bucket_type: type_text(bucket_type),
            since: *since,
        },
        Command::SetBucketProperties {
            bucket_type,
            bucket,
            properties,
        } => CommandDocument::SetBucketProperties {
            bucket_type: type_text(bucket_type),
            bucket: bucket_text(bucket),
            properties: properties.to_json(),
        },
        Command::ResetBucketProperties {
            bucket_type,
            bucket,
        } => CommandDocument::ResetBucketProperties {
            bucket_type: type_text(bucket_type),
            bucket: bucket_text(bucket),
        },
        Command::AddMember { node, member } => {
            CommandDocument::AddMember(document::member_document((node, member)))
        }
        Command::UpdateMember { node, member } => {
            CommandDocument::UpdateMember(document::member_document((node, member)))
        }
        Command::RemoveMember { node } => CommandDocument::RemoveMember {
            node: node.to_string(),
        },
        Command::SetRing(ring) => CommandDocument::SetRing(document::ring_document(ring)),
        Command::Stage { node, change } => CommandDocument::Stage {
            node: node.to_string(),
            change: document::staged_document(change),
        },
        Command::ClearStaged => CommandDocument::ClearStaged {},
        Command::CommitPlan { id } => CommandDocument::CommitPlan { id: *id },
        Command::Move {
            partition,
            at,
            step,
        } => CommandDocument::Move {
            partition: partition.number(),
            at: at.get(),
            step: *step,
        },
        Command::Grow { from, step } => CommandDocument::Grow {
            from: *from,
            step: match step {
                GrowthStep::Begin(to) => GrowthStepDocument::Begin(*to),
                GrowthStep::Close => GrowthStepDocument::Close,
                GrowthStep::Settle => GrowthStepDocument::Settle,
                GrowthStep::Abandon => GrowthStepDocument::Abandon,
                GrowthStep::Filled { partition, at } => GrowthStepDocument::Filled {
                    partition: partition.number(),
                    at: at.get(),
                },
                GrowthStep::Known { node, at } => GrowthStepDocument::Known {
                    node: node.to_string(),
                    at: at.get(),
                },
            },
        },
        Command::AnnounceRound { list, round } => CommandDocument::AnnounceRound {
            list: (*list).into(),
            round: (*round).into(),
        },
        Command::RaiseWatermark { list, watermark } => CommandDocument::RaiseWatermark {
            list: (*list).into(),
            watermark: watermark.into(),
        },
    }
}

fn command_of(document: CommandDocument) -> Result<Command, DecodeError> {
    let bucket_type = |text: &str| name(text).map(BucketType::from);
    let bucket = |text: &str| name(text).map(Bucket::from);
    let member = |document| -> Result<(NodeId, Member), DecodeError> { document::member(document) };
    Ok(match document {
        CommandDocument::NameCluster { name } => Command::NameCluster(name),
        CommandDocument::SetDefaultProperties { properties } => {
            Command::SetDefaultProperties(overlay(&properties)?)
        }
        CommandDocument::CreateType {
            bucket_type: text,
            properties,
        } => Command::CreateType {
            bucket_type: bucket_type(&text)?,
            properties: overlay(&properties)?,
        },
        CommandDocument::ActivateType { bucket_type: text } => Command::ActivateType {
            bucket_type: bucket_type(&text)?,
        },
        CommandDocument::UpdateType {
            bucket_type: text,
            properties,
        } => Command::UpdateType {
            bucket_type: bucket_type(&text)?,
            properties: overlay(&properties)?,
        },
        CommandDocument::ResetType {
            bucket_type: text,
            property,
        } => Command::ResetType {
            bucket_type: bucket_type(&text)?,
            property,
        },
        CommandDocument::BeginTypeRemoval { bucket_type: text } => Command::BeginTypeRemoval {
            bucket_type: bucket_type(&text)?,
        },
        CommandDocument::FinishTypeRemoval {
            bucket_type: text,
            since,
        } => Command::FinishTypeRemoval {
            bucket_type: bucket_type(&text)?,
            since,
        },
        CommandDocument::SetBucketProperties {
            bucket_type: text,
            bucket: bucket_text,
            properties,
        } => Command::SetBucketProperties {
            bucket_type: bucket_type(&text)?,
            bucket: bucket(&bucket_text)?,
            properties: overlay(&properties)?,
        },
        CommandDocument::ResetBucketProperties {
            bucket_type: text,
            bucket: bucket_text,
        } => Command::ResetBucketProperties {
            bucket_type: bucket_type(&text)?,
            bucket: bucket(&bucket_text)?,
        },
        CommandDocument::AddMember(document) => {
            let (node, member) = member(document)?;
            Command::AddMember { node, member }
        }
        CommandDocument::UpdateMember(document) => {
            let (node, member) = member(document)?;
            Command::UpdateMember { node, member }
        }
        CommandDocument::RemoveMember { node } => Command::RemoveMember {
            node: parsed(&node, "node")?,
        },
        CommandDocument::SetRing(document) => Command::SetRing(document::ring(&document)?),
        CommandDocument::Stage { node, change } => Command::Stage {
            node: parsed(&node, "node")?,
            change: document::staged_change(change)?,
        },
        CommandDocument::ClearStaged {} => Command::ClearStaged,
        CommandDocument::CommitPlan { id } => Command::CommitPlan { id },
        CommandDocument::Move {
            partition,
            at,
            step,
        } => Command::Move {
            partition: document::partition(partition)?,
            at: Epoch::new(at),
            step,
        },
        CommandDocument::Grow { from, step } => Command::Grow {
            from,
            step: match step {
                GrowthStepDocument::Begin(to) => GrowthStep::Begin(to),
                GrowthStepDocument::Close => GrowthStep::Close,
                GrowthStepDocument::Settle => GrowthStep::Settle,
                GrowthStepDocument::Abandon => GrowthStep::Abandon,
                GrowthStepDocument::Filled { partition, at } => GrowthStep::Filled {
                    partition: document::partition(partition)?,
                    at: Epoch::new(at),
                },
                GrowthStepDocument::Known { node, at } => GrowthStep::Known {
                    node: parsed(&node, "node")?,
                    at: Epoch::new(at),
                },
            },
        },
        CommandDocument::AnnounceRound { list, round } => Command::AnnounceRound {
            list: list.into(),
            round: round.into(),
        },
        CommandDocument::RaiseWatermark { list, watermark } => Command::RaiseWatermark {
            list: list.into(),
            watermark: watermark.into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kvorum_properties::PropertyOverlay;
    use kvorum_reaping::{Incarnation, ListName, RoundName, Watermark};
    use kvorum_ring::{Ring, RingSize};

    use serde_json::json;

    use super::*;
    use crate::staged_change::StagedChange;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    fn properties() -> PropertyOverlay {
        let json = json!({"n_val": 5, "allow_mult": true});
        PropertyOverlay::from_json(json.as_object().unwrap()).unwrap()
    }

    fn every_command() -> Vec<Command> {
        let bucket_type = || BucketType::from(b"t%\xff".to_vec());
        let bucket = || Bucket::from(b"b\0/".to_vec());
        let member = Member {
            weight: 3,
            location: Some("rack 1".into()),
            addresses: BTreeMap::from([("peer".into(), "10.0.0.1:8099".into())]),
            ..Member::new("kvorum@10.0.0.1")
        };
        let list = ListName {
            partition: 9,
            n_val: 3,
        };
        let round = RoundName {
            number: 2,
            nonce: u64::MAX,
        };
        vec![
            Command::NameCluster("orders".into()),
            Command::SetDefaultProperties(properties()),
            Command::CreateType {
                bucket_type: bucket_type(),
                properties: properties(),
            },
            Command::ActivateType {
                bucket_type: bucket_type(),
            },
            Command::UpdateType {
                bucket_type: bucket_type(),
                properties: properties(),
            },
            Command::ResetType {
                bucket_type: bucket_type(),
                property: None,
            },
            Command::ResetType {
                bucket_type: bucket_type(),
                property: Some("n_val".into()),
            },
            Command::BeginTypeRemoval {
                bucket_type: bucket_type(),
            },
            Command::FinishTypeRemoval {
                bucket_type: bucket_type(),
                since: 7,
            },
            Command::SetBucketProperties {
                bucket_type: bucket_type(),
                bucket: bucket(),
                properties: properties(),
            },
            Command::ResetBucketProperties {
                bucket_type: bucket_type(),
                bucket: bucket(),
            },
            Command::AddMember {
                node: node(1),
                member: member.clone(),
            },
            Command::UpdateMember {
                node: node(1),
                member,
            },
            Command::RemoveMember { node: node(1) },
            Command::SetRing(Ring::single(RingSize::new(16).unwrap(), node(1))),
            Command::Stage {
                node: node(1),
                change: StagedChange::Replace { by: node(2) },
            },
            Command::Stage {
                node: node(1),
                change: StagedChange::Location(None),
            },
            Command::ClearStaged,
            Command::CommitPlan { id: 7 },
            Command::Move {
                partition: RingSize::new(16).unwrap().partition(9).unwrap(),
                at: Epoch::new(4),
                step: MoveStep::Close,
            },
            Command::Grow {
                from: 1,
                step: GrowthStep::Begin(2),
            },
            Command::Grow {
                from: 1,
                step: GrowthStep::Filled {
                    partition: RingSize::new(16).unwrap().partition(9).unwrap(),
                    at: Epoch::new(4),
                },
            },
            Command::Grow {
                from: 1,
                step: GrowthStep::Known {
                    node: node(3),
                    at: Epoch::new(5),
                },
            },
            Command::AnnounceRound { list, round },
            Command::RaiseWatermark {
                list,
                watermark: Watermark {
                    round,
                    epoch: 9,
                    replicas: vec![Incarnation(u64::MAX), Incarnation(3)],
                },
            },
        ]
    }

    #[test]
    fn every_command_survives_its_way() {
        for command in every_command() {
            let json = command.to_json();
            assert!(!json.contains('\n'));
            assert_eq!(Command::from_json(&json), Ok(command), "{json}");
        }
    }

    #[test]
    fn what_a_later_version_says_is_refused() {
        for json in [
            r#"{"enlarge_ring":{}}"#,
            r#"{"remove_member":{"node":"00000000-0000-0000-0000-000000000001","force":true}}"#,
            r#"{"remove_member":{"node":"x"}}"#,
            "",
        ] {
            assert!(Command::from_json(json).is_err(), "{json}");
        }
    }
}
