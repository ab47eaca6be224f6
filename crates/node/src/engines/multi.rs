//! Several engines on one node: the store of a partition is made of one store of each, and the
//! agreed properties decide the engine of each bucket.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use kvorum_backend::{BackendError, Belonging, FoundStore, Result, StoreId};
use kvorum_backend_multi::{ChildNumber, RouteTable, Routes};
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_disk::Disk;
use kvorum_encoding::BucketType;
use kvorum_properties::PropertyOverlay;
use kvorum_settings::MultiSettings;

use crate::engine_names::find_child;

/// The routes that follow from the agreed properties of buckets and types, and this node's names of backends.
pub(super) struct AgreedRoutes {
    names: Vec<String>,
    default: ChildNumber,
    /// Prefixes of bucket names.
    prefixes: Vec<(String, ChildNumber)>,
    /// Set when the member has the agreed state, before any partition's store is opened.
    state: OnceLock<Arc<dyn AgreedState>>,
    /// The table, with the version of its agreed state; 0 for none.
    made: ArcSwap<(u64, Arc<RouteTable>)>,
}

impl AgreedRoutes {
    pub(super) fn new(multi: &MultiSettings) -> Self {
        let numbered = multi.backends.iter().enumerate();
        let prefixes = numbered.flat_map(|(number, it)| {
            let starts = it.bucket_prefixes.iter();
            starts.map(move |start| (start.clone(), number))
        });
        let mut prefixes: Vec<_> = match multi.goes_by_prefix {
            true => prefixes.collect(),
            false => Vec::new(),
        };
        // The first match applies, so longer prefixes, which are more exact, come first.
        prefixes.sort_by_key(|(start, _)| Reverse(start.len()));
        let names = multi.backends.iter().map(|it| it.name.clone()).collect();
        let default = multi.default_number();
        Self {
            names,
            default,
            prefixes,
            state: OnceLock::new(),
            made: ArcSwap::from_pointee((0, Arc::new(RouteTable::to(default)))),
        }
    }

    /// Follows this state from now on.
    pub(super) fn follow(&self, state: Arc<dyn AgreedState>) {
        let _the_first_one_counts = self.state.set(state);
    }

    fn made_of(&self, state: &ClusterState) -> RouteTable {
        let mut table = RouteTable::to(self.default);
        for (start, child) in &self.prefixes {
            table.route_names(start.as_bytes(), *child);
        }
        let untyped = BucketType::default_type();
        if let Some(child) = self.named(state.default_properties(), &untyped) {
            table.route_type(&untyped, child);
        }
        for (of_type, entry) in state.bucket_types() {
            if let Some(child) = self.named(&entry.properties, of_type) {
                table.route_type(of_type, child);
            }
        }
        for (of_type, bucket, overlay) in state.bucket_overlays() {
            let place = format!("{of_type}/{bucket}");
            if let Some(child) = self.named(overlay, &place) {
                table.route_bucket(of_type, bucket, child);
            }
        }
        table
    }

    /// The backend that properties name. A backend that this node does not have is ignored: the
    /// bucket is in the default backend here.
    fn named(
        &self,
        properties: &PropertyOverlay,
        of: &dyn std::fmt::Display,
    ) -> Option<ChildNumber> {
        let name = properties.backend.as_ref()?;
        let number = self.names.iter().position(|it| it == name);
        if number.is_none() {
            tracing::warn!(
                event = "backend_unknown",
                bucket = %of,
                backend = %name,
                known = %self.names.join(", "),
                "this node keeps it in its default backend: declare the backend in multi_backend",
            );
        }
        number
    }
}

impl Routes for AgreedRoutes {
    fn version(&self) -> u64 {
        self.state.get().map_or(0, |it| it.look().version())
    }

    fn table(&self) -> (u64, Arc<RouteTable>) {
        let made = self.made.load_full();
        let Some(state) = self.state.get().map(|it| it.current()) else {
            return (made.0, made.1.clone());
        };
        if made.0 == state.version() {
            return (made.0, made.1.clone());
        }
        let table = self.made_of(&state);
        // An equal table is kept, since callers compare pointers.
        let table = match *made.1 == table {
            true => made.1.clone(),
            false => Arc::new(table),
        };
        self.made.store(Arc::new((state.version(), table.clone())));
        (state.version(), table)
    }
}

/// The identities of a store's children, which are tenants of the value log.
pub(super) fn identities_of_children(disk: &dyn Disk, directory: &Path) -> Result<Vec<StoreId>> {
    let mut identities = Vec::new();
    for child in kvorum_backend_multi::known_children(disk, directory, &Belonging::default())? {
        identities.push(child.identity);
        let found = find_child(disk, &child, &directory.join(&child.name))?;
        if let FoundStore::Store {
            identity, erased, ..
        } = found
        {
            identities.extend([identity, erased]);
        }
    }
    Ok(identities)
}

/// The identity that a store had before an erasure, found without opening it.
pub(super) fn erased_of(found: std::result::Result<FoundStore, BackendError>) -> Result<StoreId> {
    Ok(match found? {
        FoundStore::Store { erased, .. } => erased,
        FoundStore::Nothing | FoundStore::Unusable(_) => StoreId(0),
    })
}
