//! The places with a property for their backend: a type, or a bucket.

use std::fmt;

use bytes::Bytes;
use kvorum_cluster::{ClusterState, Command, TypeStatus};
use kvorum_encoding::{
    Bucket, BucketType, Key, StorageKey, bucket_prefix, prefix_lens, type_prefix,
};
use kvorum_properties::PropertyOverlay;

use crate::move_scope::MoveScope;

/// A type, or one bucket of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) bucket_type: BucketType,
    pub(super) bucket: Option<Bucket>,
}

impl Place {
    fn of_type(bucket_type: &BucketType) -> Self {
        Self {
            bucket_type: bucket_type.clone(),
            bucket: None,
        }
    }

    fn of_bucket(bucket_type: &BucketType, bucket: &Bucket) -> Self {
        Self {
            bucket_type: bucket_type.clone(),
            bucket: Some(bucket.clone()),
        }
    }

    /// The bytes that all its storage keys start with.
    pub(super) fn scope(&self) -> Vec<u8> {
        match &self.bucket {
            Some(bucket) => bucket_prefix(&self.bucket_type, bucket),
            None => type_prefix(&self.bucket_type),
        }
    }

    /// The place whose keys begin so; `None` for no bytes, which means everything.
    pub(super) fn of_scope(scope: &[u8]) -> Option<Self> {
        let is_bucket = prefix_lens(scope).is_ok_and(|(_, len)| len == scope.len());
        // A bucket and a key without effect on the place.
        let rest = match is_bucket {
            true => StorageKey::from_encoded(Bytes::copy_from_slice(scope)),
            false => {
                let any = StorageKey::new(
                    &BucketType::default_type(),
                    &Bucket::from("b"),
                    &Key::from("k"),
                );
                let default_len = type_prefix(&BucketType::default_type()).len();
                let rest = &any.as_bytes()[default_len..];
                StorageKey::from_encoded([scope, rest].concat())
            }
        };
        let address = rest.decode().ok().filter(|_| !scope.is_empty())?;
        Some(Self {
            bucket_type: address.bucket_type,
            bucket: is_bucket.then_some(address.bucket),
        })
    }

    /// The command that sets its backend.
    pub(super) fn command(&self, state: &ClusterState, backend: &str) -> Command {
        let properties = PropertyOverlay {
            backend: Some(backend.to_owned()),
            ..PropertyOverlay::default()
        };
        let bucket_type = self.bucket_type.clone();
        match &self.bucket {
            Some(bucket) => Command::SetBucketProperties {
                bucket_type,
                bucket: bucket.clone(),
                properties,
            },
            None if bucket_type.is_default() => {
                Command::SetDefaultProperties(state.default_properties().with(&properties))
            }
            None => Command::UpdateType {
                bucket_type,
                properties,
            },
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket_type,
            bucket,
        } = self;
        match bucket {
            Some(bucket) => write!(f, "bucket {bucket_type}/{bucket}"),
            None => write!(f, "type {bucket_type}"),
        }
    }
}

/// The places of an order, and the places beneath them that keep a backend of their own.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) moved: Vec<Place>,
    pub(super) kept: Vec<Place>,
}

impl Places {
    /// The places of a scope other than a partition.
    ///
    /// # Errors
    /// A message, for a type that does not exist and for a bucket without a type before it.
    pub(super) fn of(scope: &MoveScope, state: &ClusterState) -> Result<Self, String> {
        match scope {
            MoveScope::Type(name) => Self::of_type(&type_named(name), state),
            MoveScope::Bucket(name) => {
                let (of_type, bucket) = name
                    .split_once('/')
                    .filter(|(of_type, bucket)| !of_type.is_empty() && !bucket.is_empty())
                    .ok_or_else(|| format!("{name:?} is not of the form TYPE/BUCKET"))?;
                let bucket_type = active(&type_named(of_type), state)?;
                let bucket = Bucket::new(bucket.as_bytes().to_vec());
                Ok(Self {
                    moved: vec![Place::of_bucket(&bucket_type, &bucket)],
                    kept: Vec::new(),
                })
            }
            MoveScope::Partition(_) => Ok(Self::default()),
            MoveScope::All => Ok(Self::all(state)),
        }
    }

    fn of_type(bucket_type: &BucketType, state: &ClusterState) -> Result<Self, String> {
        let bucket_type = active(bucket_type, state)?;
        let own = with_backends(state).filter(|it| it.bucket_type == bucket_type);
        Ok(Self {
            kept: own.collect(),
            moved: vec![Place::of_type(&bucket_type)],
        })
    }

    /// Types that are not active have no data yet.
    fn all(state: &ClusterState) -> Self {
        let types = state.bucket_types().iter();
        let active = types.filter(|(_, entry)| entry.status == TypeStatus::Active);
        let mut moved = vec![Place::of_type(&BucketType::default_type())];
        moved.extend(active.map(|(name, _)| Place::of_type(name)));
        moved.extend(with_backends(state));
        Self {
            moved,
            kept: Vec::new(),
        }
    }
}

/// Buckets with a backend of their own.
fn with_backends(state: &ClusterState) -> impl Iterator<Item = Place> {
    let overlays = state.bucket_overlays();
    let own = overlays.filter(|(_, _, overlay)| overlay.backend.is_some());
    own.map(|(bucket_type, bucket, _)| Place::of_bucket(bucket_type, bucket))
}

fn type_named(name: &str) -> BucketType {
    match name {
        "default" => BucketType::default_type(),
        _ => BucketType::new(name.as_bytes().to_vec()),
    }
}

fn active(bucket_type: &BucketType, state: &ClusterState) -> Result<BucketType, String> {
    if bucket_type.is_default() {
        return Ok(BucketType::default_type());
    }
    match state.bucket_types().get(bucket_type) {
        Some(entry) if entry.status == TypeStatus::Active => Ok(bucket_type.clone()),
        Some(_) if state.is_leaving(bucket_type) => Err(format!(
            "the bucket type {bucket_type} is being removed: `kvorum admin bucket-type activate \
             {bucket_type}` cancels that"
        )),
        Some(_) => Err(format!(
            "the bucket type {bucket_type} is not active and has no data: set its backend with \
             `kvorum admin bucket-type create`"
        )),
        None => Err(format!("{bucket_type} is not an existing bucket type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_by_the_beginning_of_its_keys() {
        let typed = BucketType::new(b"ta\0bles".to_vec());
        for bucket_type in [BucketType::default_type(), typed] {
            let bucket = Bucket::new(b"b\0".to_vec());
            for place in [
                Place::of_type(&bucket_type),
                Place::of_bucket(&bucket_type, &bucket),
            ] {
                assert_eq!(Place::of_scope(&place.scope()), Some(place));
            }
        }
        assert_eq!(Place::of_scope(b""), None);
    }
}
