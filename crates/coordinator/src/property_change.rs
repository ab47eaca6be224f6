//! Changes of bucket properties: values that this server would not keep are refused before the cluster
//! agrees on them, and properties without effect are named.

use std::sync::Arc;

use kvorum_cluster::{AgreedState, ClusterState, Command, ProposeError, Refusal};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::ObjectTag;
use kvorum_properties::{BucketProperties, PropertyErrors, PropertyOverlay, WithoutEffect};
use kvorum_runtime::{LogQuota, Runtime};

use crate::parts::Parts;
use crate::request::BucketOrType;

/// A change that the cluster agreed on.
#[derive(Debug)]
pub struct PropertiesChanged {
    /// The state that has it.
    pub state: Arc<ClusterState>,
    /// Properties that were set and have no effect.
    pub without_effect: Vec<WithoutEffect>,
}

/// Changes properties of buckets and bucket types.
pub(crate) struct PropertyChanges {
    cluster: Arc<dyn AgreedState>,
    runtime: Runtime,
    /// The only name of a backend that a bucket may have.
    backend_name: &'static str,
    /// Bounds the lines about properties that were set without effect.
    log: LogQuota,
}

impl PropertyChanges {
    pub(crate) fn new(parts: &Parts, backend_name: &'static str) -> Self {
        Self {
            cluster: parts.cluster.clone(),
            runtime: parts.runtime.clone(),
            backend_name,
            log: LogQuota::new(),
        }
    }

    /// Proposes a change and waits until it is agreed.
    pub(crate) fn propose(
        &self,
        command: Command,
        passed_over: Vec<WithoutEffect>,
    ) -> Result<PropertiesChanged, ProposeError> {
        let mut without_effect = self.check_kept(&command).map_err(Refusal::from)?;
        without_effect.extend(passed_over);
        let place = changed_place(&command).map(|it| it.to_string());
        let state = self.cluster.propose(command)?;
        for WithoutEffect { property, because } in &without_effect {
            if let Some(left_out) = self.log.take(self.runtime.now().elapsed()) {
                tracing::warn!(
                    event = "property_without_effect",
                    bucket = place.as_deref().unwrap_or_default(),
                    property,
                    because,
                    left_out,
                );
            }
        }
        Ok(PropertiesChanged {
            state,
            without_effect,
        })
    }

    /// Logs properties that are agreed and that this server does not keep.
    pub(crate) fn log_not_kept(&self) {
        let state = self.cluster.current();
        let types = state.bucket_types().iter();
        let types = types.map(|(name, entry)| (name.to_string(), &entry.properties));
        let buckets = state
            .bucket_overlays()
            .map(|(of_type, bucket, overlay)| (format!("{of_type}/{bucket}"), overlay));
        let defaults = BucketProperties::untyped_defaults();
        for (bucket, overlay) in types.chain(buckets) {
            if let Err(errors) = overlay.check_kept(&defaults, &[self.backend_name], &tag_names()) {
                tracing::warn!(event = "property_not_kept", bucket, properties = %errors);
            }
        }
    }

    fn check_kept(&self, command: &Command) -> Result<Vec<WithoutEffect>, PropertyErrors> {
        let Some((overlay, current)) = changed(&self.cluster.current(), command) else {
            return Ok(Vec::new());
        };
        overlay.check_kept(&current, &[self.backend_name], &tag_names())
    }
}

/// The names of the kinds of objects that there are.
fn tag_names() -> Vec<&'static str> {
    ObjectTag::all().map(ObjectTag::name).collect()
}

/// The bucket whose kind of objects a command would change, if it is known.
pub(crate) fn retagged<'a>(
    state: &ClusterState,
    command: &'a Command,
) -> Option<(&'a BucketType, &'a Bucket)> {
    let (Command::SetBucketProperties {
        bucket_type,
        bucket,
        ..
    }
    | Command::ResetBucketProperties {
        bucket_type,
        bucket,
    }) = command
    else {
        return None;
    };
    let current = state.properties(bucket_type, bucket).ok()?;
    let of_type = state.type_properties(bucket_type).ok()?;
    let wanted = match command {
        Command::SetBucketProperties { properties, .. } => properties.object_tag.as_deref()?,
        _ => of_type.object_tag(),
    };
    (wanted != current.object_tag()).then_some((bucket_type, bucket))
}

/// The overlay that a command sets, and the properties that it changes; `None` if it sets none, or for
/// an unknown type, which the cluster refuses.
fn changed<'a>(
    state: &ClusterState,
    command: &'a Command,
) -> Option<(&'a PropertyOverlay, BucketProperties)> {
    match command {
        Command::CreateType { properties, .. } => {
            Some((properties, BucketProperties::typed_defaults()))
        }
        Command::UpdateType {
            bucket_type,
            properties,
        } => {
            let current = state.type_properties(bucket_type).ok()?;
            Some((properties, BucketProperties::clone(current)))
        }
        Command::SetBucketProperties {
            bucket_type,
            bucket,
            properties,
        } => {
            let current = state.properties(bucket_type, bucket).ok()?;
            Some((properties, BucketProperties::clone(current)))
        }
        Command::SetDefaultProperties(properties) => {
            Some((properties, BucketProperties::untyped_defaults()))
        }
        _ => None,
    }
}

fn changed_place(command: &Command) -> Option<BucketOrType> {
    match command {
        Command::CreateType { bucket_type, .. } | Command::UpdateType { bucket_type, .. } => {
            Some(BucketOrType::new(bucket_type, None))
        }
        Command::SetBucketProperties {
            bucket_type,
            bucket,
            ..
        } => Some(BucketOrType::new(bucket_type, Some(bucket))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kvorum_properties::OBJECT_TAG_DEFAULT;

    use super::*;

    #[test]
    fn what_is_chosen_by_default_is_a_kind_that_there_is() {
        assert_eq!(ObjectTag::default().name(), OBJECT_TAG_DEFAULT);
        assert_eq!(ObjectTag::chosen(OBJECT_TAG_DEFAULT), ObjectTag::default());
    }
}
