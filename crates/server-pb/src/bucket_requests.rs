//! Properties of buckets and bucket types, and the replicas of a key.

use bytes::Bytes;
use kvorum_cluster::Command;
use kvorum_encoding::{Bucket, BucketType};
use kvorum_protocol::{MessageCode, pb};
use prost::Message as _;

use crate::connection::Connection;
use crate::object_requests::{address_of, bucket_of, type_of};
use crate::property_fields::{fields_of, overlay_of};
use crate::refusal::{Failure, Refusal};

impl Connection {
    pub(crate) fn bucket_properties(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbGetBucketReq::decode(payload)?;
        let bucket_type = type_of(request.r#type)?;
        let bucket = bucket_of(request.bucket)?;
        let state = self.shared.coordinator.state();
        let props = fields_of(state.properties(&bucket_type, &bucket)?);
        self.reply(&pb::RpbGetBucketResp { props })
    }

    pub(crate) async fn set_bucket_properties(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbSetBucketReq::decode(payload)?;
        let bucket_type = kept_type(&type_of(request.r#type)?);
        let bucket = kept_bucket(&bucket_of(request.bucket)?);
        // The type is checked before the values, since a mistyped type is more likely.
        let state = self.shared.coordinator.state();
        let current = state.properties(&bucket_type, &bucket)?;
        let properties =
            overlay_of(&request.props).map_err(|errors| current.reasons_of_change(errors))?;
        let command = Command::SetBucketProperties {
            bucket_type,
            bucket,
            properties,
        };
        self.propose(command).await?;
        self.reply_empty(MessageCode::RPB_SET_BUCKET_RESP)
    }

    /// Succeeds even for a type that does not exist.
    pub(crate) async fn reset_bucket_properties(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbResetBucketReq::decode(payload)?;
        let bucket_type = kept_type(&type_of(request.r#type)?);
        let bucket = kept_bucket(&bucket_of(request.bucket)?);
        let command = Command::ResetBucketProperties {
            bucket_type,
            bucket,
        };
        self.propose(command).await?;
        self.reply_empty(MessageCode::RPB_RESET_BUCKET_RESP)
    }

    pub(crate) fn type_properties(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbGetBucketTypeReq::decode(payload)?;
        let bucket_type = type_of(Some(request.r#type))?;
        let state = self.shared.coordinator.state();
        let properties = state.type_properties(&bucket_type);
        let properties = properties.map_err(|_| Refusal::InvalidType(bucket_type.clone()))?;
        let props = fields_of(properties);
        self.reply(&pb::RpbGetBucketResp { props })
    }

    pub(crate) async fn set_type_properties(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbSetBucketTypeReq::decode(payload)?;
        let bucket_type = kept_type(&type_of(Some(request.r#type))?);
        let state = self.shared.coordinator.state();
        let current = state.type_properties(&bucket_type);
        let properties = overlay_of(&request.props).map_err(|errors| match &current {
            Ok(current) => current.reasons_of_change(errors),
            Err(_) => errors,
        })?;
        let command = Command::UpdateType {
            bucket_type,
            properties,
        };
        self.propose(command).await?;
        self.reply_empty(MessageCode::RPB_SET_BUCKET_RESP)
    }

    pub(crate) fn preference_list(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbGetBucketKeyPreflistReq::decode(payload)?;
        let address = address_of(request.r#type, request.bucket, request.key)?;
        let places = self.shared.coordinator.preference_list_by_ring(&address)?;
        let item = |place: kvorum_coordinator::ReplicaPlace| pb::RpbBucketKeyPreflistItem {
            partition: place.partition.number().into(),
            node: place.node_name.into(),
            primary: place.is_primary,
        };
        let preflist = places.into_iter().map(item).collect();
        self.reply(&pb::RpbGetBucketKeyPreflistResp { preflist })
    }

    async fn propose(&self, command: Command) -> Result<(), Refusal> {
        let coordinator = &self.shared.coordinator;
        let agreed = coordinator.change_bucket_properties(command, Vec::new());
        agreed.await?;
        Ok(())
    }
}

/// A copy that the cluster state may keep: a slice would hold the receive buffer for ever.
fn kept_type(bucket_type: &BucketType) -> BucketType {
    BucketType::new(Bytes::copy_from_slice(bucket_type.as_bytes()))
}

/// The same for a bucket.
fn kept_bucket(bucket: &Bucket) -> Bucket {
    Bucket::new(Bytes::copy_from_slice(bucket.as_bytes()))
}
