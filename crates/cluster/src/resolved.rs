//! Properties resolved over all layers once, when the state is made, instead of on each request.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, PropertyOverlay};

use crate::content::{Content, TypeStatus};

/// No active bucket type has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No bucket-type named '{bucket_type}'")]
pub struct UnknownBucketType {
    /// The name.
    pub bucket_type: BucketType,
}

#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    untyped: ResolvedType,
    typed: BTreeMap<BucketType, ResolvedType>,
    /// Types that are being removed.
    leaving: BTreeMap<BucketType, ResolvedType>,
}

#[derive(Clone, Debug)]
struct ResolvedType {
    of_type: Arc<BucketProperties>,
    of_buckets: BTreeMap<Bucket, Arc<BucketProperties>>,
}

impl Resolved {
    pub(crate) fn new(content: &Content) -> Self {
        let nothing = BTreeMap::new();
        let default_type = BucketType::default_type();
        let buckets_of = |bucket_type| content.buckets.get(bucket_type).unwrap_or(&nothing);
        let untyped = ResolvedType::new(
            BucketProperties::untyped_defaults().with(&content.default_properties),
            buckets_of(&default_type),
        );
        let (mut typed, mut leaving) = (BTreeMap::new(), BTreeMap::new());
        for (bucket_type, entry) in &content.types {
            let resolved = match entry.status {
                TypeStatus::Created => continue,
                TypeStatus::Active => &mut typed,
                TypeStatus::Leaving { .. } => &mut leaving,
            };
            let of_type = BucketProperties::typed_defaults().with(&entry.properties);
            let resolved_type = ResolvedType::new(of_type, buckets_of(bucket_type));
            resolved.insert(bucket_type.clone(), resolved_type);
        }
        Self {
            untyped,
            typed,
            leaving,
        }
    }

    /// The largest n_val of any bucket.
    pub(crate) fn n_val_max(&self) -> u32 {
        self.all().map(|it| it.n_val).max().unwrap_or(1)
    }

    /// The properties of all types, and of all buckets with properties of their own. Types that are
    /// being removed are included, so that their data stays in place.
    pub(crate) fn all(&self) -> impl Iterator<Item = &BucketProperties> {
        let types = self.typed.values().chain(self.leaving.values());
        let types = types.chain([&self.untyped]);
        types.flat_map(|it| {
            let of_buckets = it.of_buckets.values();
            of_buckets.chain([&it.of_type]).map(|it| &**it)
        })
    }

    pub(crate) fn of_bucket(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        Ok(self.resolved_type(bucket_type)?.of_bucket(bucket))
    }

    /// Works also for a type that is being removed.
    pub(crate) fn of_stored_bucket(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        Ok(self.stored_type(bucket_type)?.of_bucket(bucket))
    }

    /// Works also for a type that is being removed.
    pub(crate) fn of_stored_type(
        &self,
        bucket_type: &BucketType,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        Ok(&self.stored_type(bucket_type)?.of_type)
    }

    pub(crate) fn of_type(
        &self,
        bucket_type: &BucketType,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        Ok(&self.resolved_type(bucket_type)?.of_type)
    }

    fn stored_type(&self, bucket_type: &BucketType) -> Result<&ResolvedType, UnknownBucketType> {
        match self.leaving.get(bucket_type) {
            Some(leaving) => Ok(leaving),
            None => self.resolved_type(bucket_type),
        }
    }

    fn resolved_type(&self, bucket_type: &BucketType) -> Result<&ResolvedType, UnknownBucketType> {
        if bucket_type.is_default() {
            return Ok(&self.untyped);
        }
        let unknown = || UnknownBucketType {
            bucket_type: bucket_type.clone(),
        };
        self.typed.get(bucket_type).ok_or_else(unknown)
    }
}

impl ResolvedType {
    fn of_bucket(&self, bucket: &Bucket) -> &Arc<BucketProperties> {
        self.of_buckets.get(bucket).unwrap_or(&self.of_type)
    }

    fn new(of_type: BucketProperties, overlays: &BTreeMap<Bucket, PropertyOverlay>) -> Self {
        let of_bucket = |(bucket, overlay): (&Bucket, &PropertyOverlay)| {
            (bucket.clone(), Arc::new(of_type.with(overlay)))
        };
        let of_buckets = overlays.iter().map(of_bucket).collect();
        Self {
            of_type: Arc::new(of_type),
            of_buckets,
        }
    }
}
