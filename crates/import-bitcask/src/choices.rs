//! What of an import's options an interrupted one has to go on with.

use kvorum_import::RecordChoices;
use serde::{Deserialize, Serialize};

/// Options that one import cannot change on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Choices {
    /// Records written before this time are left out, seconds since the Unix epoch.
    pub(crate) expired_before: Option<u64>,
    /// The expiry that was asked for, in seconds.
    pub(crate) expiry_secs: Option<u64>,
    pub(crate) ignore_hints: bool,
}

impl RecordChoices for Choices {
    fn is_same(&self, other: &Self) -> bool {
        (self.expiry_secs, self.ignore_hints) == (other.expiry_secs, other.ignore_hints)
    }
}
