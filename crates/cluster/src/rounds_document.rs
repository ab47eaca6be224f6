//! The agreed part of rounds as JSON, within the cluster state's document and in commands.

use kvorum_encoding::{Bucket, BucketType};
use kvorum_reaping::{AgreedRounds, Incarnation, ListName, RoundName, Watermark};
use kvorum_ring::Partition;
use serde::{Deserialize, Serialize};

use crate::file_format::DecodeError;
use crate::name_text::{from_text, to_text};
use crate::round_record::Rounds;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoundsDocument {
    epoch: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lists: Vec<AgreedDocument>,
    /// Owner partition, vnode, and the epoch in which the vnode came to the lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    joined: Vec<(u16, u16, u64)>,
    /// Owner partitions whose lists a vnode has left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_lists: Vec<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_keys: Vec<KeysDocument>,
}

/// The keys of a bucket, or of all buckets of a type.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysDocument {
    bucket_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgreedDocument {
    list: ListDocument,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watermark: Option<WatermarkDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    announced: Option<RoundDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDocument {
    partition: u16,
    n_val: u8,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoundDocument {
    number: u64,
    nonce: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatermarkDocument {
    round: RoundDocument,
    epoch: u64,
    /// The incarnations of its replicas.
    replicas: Vec<u64>,
}

impl RoundsDocument {
    pub(crate) fn of(rounds: &Rounds) -> Self {
        let lists = rounds.lists.iter().map(|(list, agreed)| AgreedDocument {
            list: (*list).into(),
            watermark: agreed.watermark.as_ref().map(Into::into),
            announced: agreed.announced.map(Into::into),
        });
        let joined = rounds.joined.iter();
        let joined = joined.map(|((owner, vnode), epoch)| (owner.number(), vnode.number(), *epoch));
        let left_keys = rounds.left_keys.iter();
        let left_keys = left_keys.map(|(bucket_type, bucket)| KeysDocument {
            bucket_type: to_text(bucket_type.as_bytes()),
            bucket: bucket.as_ref().map(|it| to_text(it.as_bytes())),
        });
        Self {
            epoch: rounds.epoch,
            lists: lists.collect(),
            joined: joined.collect(),
            left_lists: rounds.left_lists.iter().map(|it| it.number()).collect(),
            left_keys: left_keys.collect(),
        }
    }

    pub(crate) fn into_rounds(self) -> Result<Rounds, DecodeError> {
        let lists = self.lists.into_iter().map(|it| {
            let agreed = AgreedRounds {
                watermark: it.watermark.map(Into::into),
                announced: it.announced.map(Into::into),
            };
            (it.list.into(), agreed)
        });
        let joined = self.joined.into_iter().map(|(owner, vnode, epoch)| {
            let vnode = partition(vnode)?;
            Ok(((partition(owner)?, vnode), epoch))
        });
        let left_lists = self.left_lists.into_iter().map(partition);
        let left_keys = self.left_keys.into_iter().map(|it| {
            let bucket = it.bucket.as_deref().map(name).transpose()?;
            let bucket_type = BucketType::from(name(&it.bucket_type)?);
            Ok((bucket_type, bucket.map(Bucket::from)))
        });
        Ok(Rounds {
            epoch: self.epoch,
            lists: lists.collect(),
            joined: joined.collect::<Result<_, DecodeError>>()?,
            left_lists: left_lists.collect::<Result<_, _>>()?,
            left_keys: left_keys.collect::<Result<_, DecodeError>>()?,
        })
    }
}

impl From<ListName> for ListDocument {
    fn from(list: ListName) -> Self {
        let ListName { partition, n_val } = list;
        Self { partition, n_val }
    }
}

impl From<ListDocument> for ListName {
    fn from(document: ListDocument) -> Self {
        let ListDocument { partition, n_val } = document;
        Self { partition, n_val }
    }
}

impl From<RoundName> for RoundDocument {
    fn from(round: RoundName) -> Self {
        let RoundName { number, nonce } = round;
        Self { number, nonce }
    }
}

impl From<RoundDocument> for RoundName {
    fn from(document: RoundDocument) -> Self {
        let RoundDocument { number, nonce } = document;
        Self { number, nonce }
    }
}

impl From<&Watermark> for WatermarkDocument {
    fn from(watermark: &Watermark) -> Self {
        Self {
            round: watermark.round.into(),
            epoch: watermark.epoch,
            replicas: watermark.replicas.iter().map(|it| it.0).collect(),
        }
    }
}

impl From<WatermarkDocument> for Watermark {
    fn from(document: WatermarkDocument) -> Self {
        Self {
            round: document.round.into(),
            epoch: document.epoch,
            replicas: document.replicas.into_iter().map(Incarnation).collect(),
        }
    }
}

fn partition(number: u16) -> Result<Partition, DecodeError> {
    let partition = Partition::of_number(number);
    partition.ok_or_else(|| DecodeError::damaged(format!("rounds: no partition {number}")))
}

fn name(text: &str) -> Result<Vec<u8>, DecodeError> {
    let not_a_name = || DecodeError::damaged(format!("rounds: {text:?} is not the text of a name"));
    from_text(text).ok_or_else(not_a_name)
}
