//! Options that a resumed import has to share with the interrupted one.

use kvorum_import::RecordChoices;
use serde::{Deserialize, Serialize};

/// Options fixed for the duration of one import.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Choices {
    /// The beginning of the import, in seconds since the Unix epoch; objects that expired earlier
    /// are skipped.
    pub(crate) began_secs: u64,
}

impl RecordChoices for Choices {
    fn is_same(&self, _: &Self) -> bool {
        true
    }
}
