//! The node's log as a backup copies it.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackedUp, BackendError, HeldSegments, SharedLog as _};
use kvorum_backup::CopiedLog;

use crate::node_log::NodeLog;

impl CopiedLog for NodeLog {
    fn backup(
        &self,
        directory: &Path,
        held: &[Arc<HeldSegments>],
    ) -> Result<BackedUp, BackendError> {
        self.values.backup(directory, held)
    }

    fn held_no_more(&self) {
        self.values.usage_changed();
    }
}
