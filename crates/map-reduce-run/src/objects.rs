//! Objects for map and link phases: read by the coordinator, and converted to the machine's form.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{Coordinator, GetOptions, RequestError};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_map_reduce::{BucketName, ObjectLink, ObjectSibling, ReadObject, Wanted};
use kvorum_object::{Object, Sibling};
use kvorum_properties::Quorum;

/// A requested object, or the reason why it could not be read.
pub(crate) struct Read {
    pub(crate) ticket: u64,
    pub(crate) object: Result<Option<ReadObject>, RequestError>,
}

/// Reads an object with the options of Riak's map phases: the first replica with the object
/// answers, and the object is missing if no replica has it.
pub(crate) async fn read(
    coordinator: Arc<Coordinator>,
    wanted: Wanted,
    patience: Duration,
) -> Read {
    let options = GetOptions {
        r: Some(Quorum::One),
        notfound_ok: Some(false),
        timeout: Some(patience),
        ..GetOptions::default()
    };
    let Wanted {
        ticket,
        bucket,
        key,
    } = wanted;
    let address = Address {
        bucket_type: bucket_type_of(&bucket),
        bucket: Bucket::new(bucket.bucket.clone()),
        key: Key::new(key.clone()),
    };
    let arrived = coordinator.runtime().now();
    let found = coordinator.get(&address, &options, arrived).await;
    let object = found.map(|found| found.map(|object| read_object(bucket, key, &object)));
    Read { ticket, object }
}

/// The bucket type of a bucket in a job.
pub(crate) fn bucket_type_of(bucket: &BucketName) -> BucketType {
    match &bucket.bucket_type {
        Some(name) => BucketType::new(name.clone()),
        None => BucketType::default_type(),
    }
}

fn read_object(bucket: BucketName, key: Bytes, object: &Object) -> ReadObject {
    let siblings = match object.siblings() {
        [only] => vec![sibling_of(only)],
        _ => object
            .siblings_by_value()
            .into_iter()
            .map(sibling_of)
            .collect(),
    };
    ReadObject {
        bucket,
        key,
        siblings,
    }
}

fn sibling_of(sibling: &Sibling) -> ObjectSibling {
    let link = |link: &kvorum_object::Link| ObjectLink {
        bucket: link.bucket.clone(),
        key: link.key.clone(),
        tag: link.tag.clone(),
    };
    ObjectSibling {
        value: sibling.value.clone(),
        links: sibling.metadata.links.iter().map(link).collect(),
    }
}
