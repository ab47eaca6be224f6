//! Data types beside plain objects: the requirements of an operation on its bucket, and the form in
//! which plain requests see values.
//!
//! Values are stored in a form of our own. Riak's clients may read and write the objects that hold
//! them, so plain requests return and accept Riak's form.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_cluster::ClusterState;
use kvorum_data_types::{
    DataType, Kind, Operation, OperationError, decode_riak_value, encode_legacy_counter,
    encode_riak_value,
};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::{Content, Object, Sibling};
use kvorum_properties::{BucketProperties, Datatype};
use kvorum_vnode::DataTypeUpdate;

use crate::error::RequestError;
use crate::plan::tag_of;

/// The data type of a bucket's objects; `None` for plain objects.
pub(crate) fn kind_of(properties: &BucketProperties) -> Option<Kind> {
    properties.datatype.map(|datatype| match datatype {
        Datatype::Counter => Kind::Counter,
        Datatype::Set => Kind::Set,
        Datatype::GrowOnlySet => Kind::GrowSet,
        Datatype::Map => Kind::Map,
        Datatype::HyperLogLog => Kind::HyperLogLog,
    })
}

/// The properties of a bucket.
pub(crate) fn properties_of<'a>(
    state: &'a ClusterState,
    bucket_type: &BucketType,
    bucket: &Bucket,
) -> Result<&'a BucketProperties, RequestError> {
    let properties = state.properties(bucket_type, bucket);
    Ok(properties.map_err(|_| RequestError::UnknownBucketType)?)
}

/// An operation as the replicas of its bucket carry it out. A bucket without a data type has the
/// older counters, if it keeps concurrent values as siblings.
pub(crate) fn update_in(
    properties: &BucketProperties,
    operation: Operation,
    context: Option<kvorum_data_types::Clock>,
) -> Result<DataTypeUpdate, RequestError> {
    let kind = kind_of(properties);
    if kind.is_none() && !properties.keeps_siblings() {
        return Err(RequestError::CountersNeedSiblings);
    }
    let value = kind.unwrap_or(Kind::Counter);
    if value != operation.kind() {
        let operation = operation.kind();
        let refused = OperationError::Kind { operation, value };
        return Err(RequestError::OperationRefused(refused.riak_text()));
    }
    Ok(DataTypeUpdate {
        operation,
        context,
        precision: properties.hll_precision(),
        tag: tag_of(properties),
    })
}

/// An object of a bucket type as plain requests see it: one value of each data type, in Riak's form.
pub(crate) fn shown(object: Arc<Object>, bucket_type: &BucketType) -> Arc<Object> {
    let is_of_type = |it: &Sibling| Kind::from_content_type(&it.metadata.content_type).is_some();
    if !object.siblings().iter().any(is_of_type) {
        return object;
    }
    let (clock, siblings) = Object::clone(&object).into_parts();
    let mut shown: Vec<Sibling> = Vec::new();
    let mut values: Vec<(Sibling, DataType)> = Vec::new();
    for sibling in siblings {
        match DataType::in_content(&sibling.metadata.content_type, &sibling.value) {
            Some(value) => take_in(&mut values, sibling, value),
            None => shown.push(sibling),
        }
    }
    shown.extend(values.into_iter().map(|(sibling, value)| Sibling {
        value: riak_form(&value, bucket_type),
        ..sibling
    }));
    shown.sort_by_key(|sibling| sibling.dot);
    Object::of_parts(clock, shown).map_or(object, Arc::new)
}

/// Adds a value to those of its type, under the newest sibling.
fn take_in(values: &mut Vec<(Sibling, DataType)>, sibling: Sibling, value: DataType) {
    let same = |(_, other): &&mut (Sibling, DataType)| other.kind() == value.kind();
    let Some((shown, merged)) = values.iter_mut().find(same) else {
        return values.push((sibling, value));
    };
    // Values of one type merge.
    let _same_type = merged.merge(value);
    if sibling.metadata.last_modified > shown.metadata.last_modified {
        *shown = sibling;
    }
}

/// The form in which Riak would have stored the value: counters without bucket type are those of Riak 1.4.
fn riak_form(value: &DataType, bucket_type: &BucketType) -> Bytes {
    match value {
        DataType::Counter(counter) if bucket_type.is_default() => encode_legacy_counter(counter),
        value => encode_riak_value(value),
    }
}

/// The content of a plain request to store: a value in Riak's form becomes one of ours.
pub(crate) fn taken(content: Content) -> Content {
    let Some(kind) = Kind::from_content_type(&content.metadata.content_type) else {
        return content;
    };
    match decode_riak_value(&content.value) {
        Ok(read) if read.value.kind() == kind => Content {
            value: read.value.encode(),
            ..content
        },
        _ => content,
    }
}
