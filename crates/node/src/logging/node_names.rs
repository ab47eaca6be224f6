//! The names of nodes, for lines that have only their identities.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// The names of nodes by their identities, as they are known at the moment.
#[derive(Clone, Default)]
pub(crate) struct NodeNames(Arc<RwLock<BTreeMap<String, String>>>);

impl NodeNames {
    /// Adds the present names. Names of former nodes stay, since lines may still be about them.
    pub(crate) fn learn(&self, names: impl IntoIterator<Item = (String, String)>) {
        self.0.write().extend(names);
    }

    pub(super) fn of(&self, identity: &str) -> Option<String> {
        self.0.read().get(identity).cloned()
    }
}
