//! The validators of a bucket, applied to a client's put before any replica is asked.
//!
//! Only plain puts are validated: the result of an operation on a data type is computed here, a
//! tombstone has no value, and an object that is put as it is exists elsewhere already.

use std::sync::Arc;

use kvorum_encoding::Address;
use kvorum_object::Content;
use kvorum_properties::BucketProperties;

use crate::error::RequestError;
use crate::parts::Parts;

/// Values up to this size, in bytes, are validated on the thread that received the request. Larger
/// ones would delay its other connections.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Refuses content that a validator of its bucket rejects.
pub(crate) async fn validate(
    parts: &Parts,
    address: &Address,
    content: &Content,
) -> Result<(), RequestError> {
    let state = parts.cluster.current();
    let properties = state
        .properties(&address.bucket_type, &address.bucket)
        .map_err(|_| RequestError::UnknownBucketType)?;
    if content.value.len() <= INLINE_BYTES_MAX {
        return check(properties, content);
    }
    let (properties, content) = (Arc::clone(properties), content.clone());
    let runtime = &parts.runtime;
    runtime.blocking(move || check(&properties, &content)).await
}

fn check(properties: &BucketProperties, content: &Content) -> Result<(), RequestError> {
    let encoding = &content.metadata.content_encoding;
    properties
        .validators()
        .try_for_each(|validator| validator.check(&content.value, encoding))
        .map_err(|rejected| RequestError::Rejected(rejected.to_string()))
}
