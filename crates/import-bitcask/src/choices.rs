//! Options that a resumed import has to share with the interrupted one.

use kvorum_import::RecordChoices;
use serde::{Deserialize, Serialize};

/// Options fixed for the duration of one import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Choices {
    /// Records written before this time are skipped, in seconds since the Unix epoch.
    pub(crate) expired_before: Option<u64>,
    /// Requested expiry, in seconds.
    pub(crate) expiry_secs: Option<u64>,
    pub(crate) ignore_hints: bool,
}

impl RecordChoices for Choices {
    fn is_same(&self, other: &Self) -> bool {
        (self.expiry_secs, self.ignore_hints) == (other.expiry_secs, other.ignore_hints)
    }
}
