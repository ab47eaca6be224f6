//! The removal of a bucket type, and the reset of its properties.
//!
//! A type is removed in two steps, between which every node is asked for keys of it. The first step hides
//! the type from requests and raises the epoch of every partition. Requests that were planned before have
//! older epochs, and vnodes refuse them; later requests do not find the type. So no write comes in between.
//! The second step removes the type, and names the version at which the first was agreed. A removal that
//! was cancelled and begun again meanwhile is thus another one, and every node has to be asked again.
//!
//! The answers of the nodes hold for the present places of vnodes. So a change of the ring or of the members
//! cancels every removal that has not ended, and never waits for one.

use std::sync::Arc;

use kvorum_encoding::BucketType;
use kvorum_properties::BucketProperties;
use kvorum_ring::Ring;

use crate::content::{Content, TypeStatus};
use crate::refusal::Refusal;

impl Content {
    pub(crate) fn reset_type(
        &mut self,
        bucket_type: &BucketType,
        property: Option<&str>,
    ) -> Result<(), Refusal> {
        let properties = self.active_type(bucket_type)?.properties.reset(property)?;
        let of_type = BucketProperties::typed_defaults().created_with(&properties)?;
        self.check_buckets(bucket_type, &of_type)?;
        if let Some(entry) = self.types.get_mut(bucket_type) {
            entry.properties = properties;
        }
        Ok(())
    }

    pub(crate) fn begin_type_removal(&mut self, bucket_type: &BucketType) -> Result<(), Refusal> {
        if bucket_type.is_default() {
            return Err(Refusal::DefaultTypeStays);
        }
        match self.types.get(bucket_type).map(|entry| entry.status) {
            None => {
                let bucket_type = bucket_type.clone();
                Err(Refusal::NoSuchType { bucket_type })
            }
            Some(TypeStatus::Created) => {
                // Requests have never found it: it has no data, and no bucket of it has properties.
                self.types.remove(bucket_type);
                Ok(())
            }
            Some(TypeStatus::Active) => self.hide_type(bucket_type),
            Some(TypeStatus::Leaving { .. }) => Ok(()),
        }
    }

    fn hide_type(&mut self, bucket_type: &BucketType) -> Result<(), Refusal> {
        if self.transition.is_some() || is_in_motion(&self.ring) {
            return Err(Refusal::RingMoves);
        }
        if let Some(entry) = self.types.get_mut(bucket_type) {
            // The state gets this version when the command has been applied.
            let since = self.version + 1;
            entry.status = TypeStatus::Leaving { since };
        }
        self.ring = Arc::new(self.ring.with_epochs_raised());
        Ok(())
    }

    pub(crate) fn finish_type_removal(
        &mut self,
        bucket_type: BucketType,
        since: u64,
    ) -> Result<(), Refusal> {
        let status = self.types.get(&bucket_type).map(|entry| entry.status);
        if status != Some(TypeStatus::Leaving { since }) {
            return Err(Refusal::RemovalOvertaken { bucket_type });
        }
        self.types.remove(&bucket_type);
        self.buckets.remove(&bucket_type);
        self.removed_types.insert(bucket_type);
        Ok(())
    }

    /// True if replicas may be in other places than before, or on other nodes.
    pub(crate) fn is_placed_otherwise_than(&self, before: &Self) -> bool {
        self.ring != before.ring
            || self.transition != before.transition
            || !self.members.keys().eq(before.members.keys())
    }

    /// Shows the types again whose removal has not ended.
    pub(crate) fn take_back_removals(&mut self) {
        for entry in self.types.values_mut() {
            if matches!(entry.status, TypeStatus::Leaving { .. }) {
                entry.status = TypeStatus::Active;
            }
        }
    }
}

fn is_in_motion(ring: &Ring) -> bool {
    !ring.moves().is_empty() || ring.growth().is_some()
}
