//! Changes of bucket properties: values that this server cannot keep are refused before the cluster
//! agrees on them, and properties without effect are reported.

use std::sync::Arc;

use kvorum_backend::{Flow, FoldDetail, FoldFilter, FoldRange, Lease};
use kvorum_cluster::{ClusterState, Command, ProposeError, Refusal};
use kvorum_encoding::{Bucket, BucketType, bucket_prefix, type_prefix};
use kvorum_object::ObjectTag;
use kvorum_properties::{BucketProperties, PropertyErrors, PropertyOverlay, Reason, WithoutEffect};
use kvorum_runtime::LogQuota;
use kvorum_vnode::Vnode;

use crate::parts::{BackendNames, Parts};
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
    parts: Parts,
    /// The names of backends that a bucket may have.
    backend_names: BackendNames,
    /// Bounds the lines about properties that were set without effect.
    log: LogQuota,
}

impl PropertyChanges {
    pub(crate) fn new(parts: &Parts, backend_names: BackendNames) -> Self {
        Self {
            parts: parts.clone(),
            backend_names,
            log: LogQuota::new(),
        }
    }

    /// Proposes a change and waits until it is agreed. A bucket or a type with data keeps its backend.
    pub(crate) fn propose(
        &self,
        command: Command,
        passed_over: Vec<WithoutEffect>,
    ) -> Result<PropertiesChanged, ProposeError> {
        self.check_stays(&command).map_err(Refusal::from)?;
        self.propose_move(command, passed_over)
    }

    /// The same for an operator's command to move existing data.
    pub(crate) fn propose_move(
        &self,
        command: Command,
        passed_over: Vec<WithoutEffect>,
    ) -> Result<PropertiesChanged, ProposeError> {
        let mut without_effect = self.check_kept(&command).map_err(Refusal::from)?;
        without_effect.extend(passed_over);
        let place = changed_place(&command).map(|it| it.to_string());
        let state = self.parts.cluster.propose(command)?;
        for WithoutEffect { property, because } in &without_effect {
            if let Some(left_out) = self.log.take(self.parts.runtime.now().elapsed()) {
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
        let state = self.parts.cluster.current();
        let types = state.bucket_types().iter();
        let types = types.map(|(name, entry)| (name.to_string(), &entry.properties));
        let buckets = state
            .bucket_overlays()
            .map(|(of_type, bucket, overlay)| (format!("{of_type}/{bucket}"), overlay));
        let defaults = BucketProperties::untyped_defaults();
        for (bucket, overlay) in types.chain(buckets) {
            let backends = self.backend_names.all();
            if let Err(errors) = overlay.check_kept(&defaults, backends, &tag_names()) {
                tracing::warn!(event = "property_not_kept", bucket, properties = %errors);
            }
        }
    }

    fn check_kept(&self, command: &Command) -> Result<Vec<WithoutEffect>, PropertyErrors> {
        let Some((overlay, current)) = changed(&self.parts.cluster.current(), command) else {
            return Ok(Vec::new());
        };
        overlay.check_kept(&current, self.backend_names.all(), &tag_names())
    }

    /// Refuses another backend for a place with data, and a name without a backend.
    fn check_stays(&self, command: &Command) -> Result<(), PropertyErrors> {
        let Some((overlay, current)) = changed(&self.parts.cluster.current(), command) else {
            return Ok(());
        };
        let names = self.backend_names.all();
        let wanted = overlay.backend.as_deref();
        let is_moved =
            wanted.is_some_and(|it| names.contains(&it)) && overlay.backend != current.backend;
        if let Some(place) = moved_place(command)
            && is_moved
            && self.backend_names.are_several()
            && self.holds_data(&place)
        {
            return Err(PropertyErrors::one("backend", Reason::BackendHoldsData));
        }
        Ok(())
    }

    /// True when one of this node's vnodes has data of a bucket, or of any bucket of a type. In a cluster
    /// with more nodes than replicas, other nodes may have some: it stays readable where it is.
    fn holds_data(&self, place: &BucketOrType) -> bool {
        let range = FoldRange::prefix(&match &place.bucket {
            Some(bucket) => bucket_prefix(&place.bucket_type, bucket),
            None => type_prefix(&place.bucket_type),
        });
        let filter = FoldFilter::unexpired(self.parts.wall_time());
        let state = self.parts.cluster.current();
        let mut vnodes = state
            .ring()
            .size()
            .partitions()
            .filter_map(|it| self.parts.vnodes.vnode(it));
        vnodes.any(|vnode| has_any(&vnode, &range, &filter))
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
            let current = BucketProperties::untyped_defaults().with(state.default_properties());
            Some((properties, current))
        }
        _ => None,
    }
}

/// True also for a store that cannot be read.
fn has_any(vnode: &Vnode, range: &FoldRange, filter: &FoldFilter) -> bool {
    let mut is_any = false;
    let visitor = &mut |_: kvorum_backend::Visited<'_>| {
        is_any = true;
        Flow::Stop
    };
    let snapshot = vnode.store_for_upkeep().snapshot(Lease::Unlimited);
    let read = snapshot.and_then(|it| it.fold(FoldDetail::Keys, range, filter, visitor));
    is_any || read.is_err()
}

/// The place whose data would no longer be in the backend of its properties.
fn moved_place(command: &Command) -> Option<BucketOrType> {
    match command {
        Command::UpdateType { .. } | Command::SetBucketProperties { .. } => changed_place(command),
        Command::SetDefaultProperties(_) => {
            Some(BucketOrType::new(&BucketType::default_type(), None))
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
