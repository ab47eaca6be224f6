//! Files that upkeep persistently fails to read.
//!
//! A device may fail for a while, so failed reads are retried, and the node waits longer each time. A
//! sector that is lost for good would be retried for ever, and the files behind it would never be read.

use std::collections::BTreeMap;

use crate::{BackendError, ErrorKind};

/// The number of failures of one file. By then the node's arbiter has waited for four minutes.
const FAILURES_MAX: u32 = 8;

/// The number of upkeep's failures with each file since the opening.
#[derive(Clone, Debug, Default)]
pub struct Unreadable {
    failures: BTreeMap<u64, u32>,
}

impl Unreadable {
    /// Counts a failure of the device or the system; other errors are not due to the file. True
    /// once the file must not be tried again.
    pub fn failed(&mut self, file: u64, error: &BackendError) -> bool {
        if error.kind() == ErrorKind::Failed {
            self.count(file);
        }
        self.contains(file)
    }

    /// The same for upkeep that needs more than the file, and may fail with any error. A full disk
    /// and a lack of file handles pass, and do not count.
    pub fn failed_in_any_way(&mut self, file: u64, error: &BackendError) -> bool {
        if !matches!(error.kind(), ErrorKind::Full | ErrorKind::Exhausted) {
            self.count(file);
        }
        self.contains(file)
    }

    fn count(&mut self, file: u64) {
        *self.failures.entry(file).or_default() += 1;
    }

    /// True for a file that is not tried before the next opening.
    pub fn contains(&self, file: u64) -> bool {
        self.failures
            .get(&file)
            .is_some_and(|failures| *failures >= FAILURES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_given_up_after_many_failures_of_the_device_and_of_nothing_else() {
        let mut unreadable = Unreadable::default();
        let error = |kind| BackendError::new(kind, "what it was");
        for _ in 0..100 {
            assert!(!unreadable.failed(1, &error(ErrorKind::Full)));
        }
        for _ in 1..FAILURES_MAX {
            assert!(!unreadable.failed(1, &error(ErrorKind::Failed)));
        }
        assert!(!unreadable.contains(1));
        assert!(unreadable.failed(1, &error(ErrorKind::Failed)));
        assert!(unreadable.contains(1) && !unreadable.contains(2));
    }
}
