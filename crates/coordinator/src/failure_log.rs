//! A bound on the lines that failing and slow requests write to the log.
//!
//! A full disk or a lost quorum fails each request in the same way until an operator acts, and a line for
//! each would fill the rest of the disk. Each kind of error has a quota of its own: a flood of one kind
//! does not hide the first of another. The next line of a kind has the number of omitted lines.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use kvorum_runtime::LogQuota;
use parking_lot::Mutex;

use crate::error::RequestError;

/// The quotas of one kind of event, by error.
#[derive(Default)]
pub(crate) struct FailureLog {
    by_error: Mutex<HashMap<Discriminant<RequestError>, LogQuota>>,
    without_error: LogQuota,
}

impl FailureLog {
    /// Takes a line out of the quota of an error, or of events without an error such as slow requests.
    /// `None` to omit the line, else the number of lines of this kind that were omitted before it.
    pub(crate) fn take(&self, error: Option<&RequestError>, now: Duration) -> Option<u64> {
        match error {
            Some(error) => {
                let mut by_error = self.by_error.lock();
                by_error.entry(discriminant(error)).or_default().take(now)
            }
            None => self.without_error.take(now),
        }
    }
}
