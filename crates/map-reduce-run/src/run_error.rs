//! Ends of jobs without all of their results.

use kvorum_coordinator::RequestError;
use kvorum_map_reduce::Failure;

/// The end of a job that did not give all of its results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The job failed, in Riak's words. A retry fails again, unless the data changes.
    #[error("{0}")]
    Failed(#[from] Failure),
    /// The node now has no room or no replica for it. Retry after a pause.
    #[error("{0}")]
    RetryLater(RequestError),
}

impl RunError {
    /// Its JSON, in the form of jobs' failures.
    pub fn json(&self) -> String {
        match self {
            Self::Failed(failure) => failure.json(),
            Self::RetryLater(error) => Failure::Inputs {
                error: error.to_string(),
            }
            .json(),
        }
    }

    /// The text of an error message over protocol buffers.
    pub fn protocol_buffers(&self) -> String {
        match self {
            Self::Failed(Failure::Timeout) => "timeout".to_owned(),
            Self::Failed(failure) => failure.json(),
            Self::RetryLater(error) => error.to_string(),
        }
    }
}

/// True if the request may be answered a little later.
pub(crate) fn is_passing(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Overload
            | RequestError::VnodeNotReady
            | RequestError::VnodeOpening
            | RequestError::VnodeFailed
            | RequestError::AllNodesDown
            | RequestError::InsufficientVnodes { .. }
            | RequestError::InsufficientNodes { .. }
    )
}
