//! Changes of bucket properties: values that this server would not keep are refused before the cluster
//! agrees on them, and properties without effect are named.

use std::fmt;
use std::sync::Arc;

use kvorum_cluster::{ClusterState, Command, ProposeError, Refusal};
use kvorum_properties::{BucketProperties, PropertyErrors, PropertyOverlay, WithoutEffect};

use crate::coordinator::Coordinator;

/// A change that the cluster agreed on.
#[derive(Debug)]
pub struct PropertiesChanged {
    /// The state that has it.
    pub state: Arc<ClusterState>,
    /// Properties that were set and have no effect.
    pub without_effect: Vec<WithoutEffect>,
}

impl Coordinator {
    /// Proposes a change of properties, of a bucket or a bucket type, and waits until it is agreed;
    /// belongs on the blocking pool. Values that this server would not keep are refused
    /// ([`kvorum_properties::Effect`]). Other commands are proposed as they are. `passed_over` are names in
    /// the client's request that cannot be set ([`PropertyOverlay::passed_over`]).
    pub fn change_properties(
        &self,
        command: Command,
        passed_over: Vec<WithoutEffect>,
    ) -> Result<PropertiesChanged, ProposeError> {
        let mut without_effect = self.check_kept(&command).map_err(Refusal::from)?;
        without_effect.extend(passed_over);
        let place = Place::of(&command).map(|it| it.to_string());
        let state = self.cluster().propose(command)?;
        for WithoutEffect { property, because } in &without_effect {
            if let Some(left_out) = self.without_effect_log.take(self.runtime().now().elapsed()) {
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

    /// Logs properties that an earlier version accepted and this server does not keep: types that were
    /// created as consistent, hooks, and other backends' names. Called once, at the start.
    pub fn log_properties_not_kept(&self) {
        let state = self.state();
        let types = state.bucket_types().iter();
        let types = types.map(|(name, entry)| (name.to_string(), &entry.properties));
        let buckets = state
            .bucket_overlays()
            .map(|(of_type, bucket, overlay)| (format!("{of_type}/{bucket}"), overlay));
        let defaults = BucketProperties::untyped_defaults();
        for (bucket, overlay) in types.chain(buckets) {
            if let Err(errors) = overlay.check_kept(&defaults, &[self.settings.backend_name]) {
                tracing::warn!(event = "property_not_kept", bucket, properties = %errors);
            }
        }
    }

    fn check_kept(&self, command: &Command) -> Result<Vec<WithoutEffect>, PropertyErrors> {
        let Some((overlay, current)) = changed(&self.state(), command) else {
            return Ok(Vec::new());
        };
        overlay.check_kept(&current, &[self.settings.backend_name])
    }
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

/// The bucket or bucket type of a change, for the log.
struct Place<'a>(&'a dyn fmt::Display, Option<&'a dyn fmt::Display>);

impl<'a> Place<'a> {
    fn of(command: &'a Command) -> Option<Self> {
        match command {
            Command::CreateType { bucket_type, .. } | Command::UpdateType { bucket_type, .. } => {
                Some(Self(bucket_type, None))
            }
            Command::SetBucketProperties {
                bucket_type,
                bucket,
                ..
            } => Some(Self(bucket_type, Some(bucket))),
            _ => None,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(bucket) => write!(f, "{}/{bucket}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}
