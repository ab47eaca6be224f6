//! What of an import's options an interrupted one has to go on with.

use kvorum_import::RecordChoices;
use serde::{Deserialize, Serialize};

/// Options that one import cannot change on its way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Choices {
    /// When the import began, in seconds since the Unix epoch: what expired before is left out.
    pub(crate) began_secs: u64,
}

impl RecordChoices for Choices {
    fn is_same(&self, _: &Self) -> bool {
        true
    }
}
