//! The replicas of a key, each asked directly.

use std::sync::Arc;

use kvorum_coordinator::ReplicaPlace;
use kvorum_encoding::StorageKey;
use kvorum_object::Object;

use crate::client::address;
use crate::cluster::Cluster;

/// The number of a machine, and the object of its replica.
pub(crate) type ReplicaObject = (u8, Option<Arc<Object>>);

impl Cluster {
    /// The object of each replica of a key, or the reason why one cannot be asked.
    pub(crate) fn replica_objects(
        &self,
        bucket: &[u8],
        key: &str,
    ) -> Result<Vec<ReplicaObject>, String> {
        let address = address(bucket, key);
        let storage_key = StorageKey::from_address(&address);
        // For any node, another may count as down for a moment, and its list would have a fallback.
        let machines = self.machines();
        let nodes = machines.iter().filter_map(|machine| machine.running());
        let lists = nodes.filter_map(|node| node.coordinator.preference_list(&address).ok());
        let primaries =
            |places: &Vec<ReplicaPlace>| places.iter().filter(|it| it.is_primary).count();
        let places = lists.max_by_key(primaries).unwrap_or_default();
        let held = places.into_iter().map(|place| {
            let machine = self.machine_of(place.node);
            let number = machine.as_ref().map_or(0, |machine| machine.number);
            let running = machine.and_then(|machine| machine.running());
            let stored = running.ok_or_else(|| "it is down".to_owned());
            let stored = stored.and_then(|node| node.stored(place.partition, &storage_key));
            let stored = stored.map_err(|it| format!("the replica of {key} on {number}: {it}"));
            Ok((number, stored?))
        });
        held.collect()
    }
}
