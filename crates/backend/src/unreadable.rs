//! Files that upkeep cannot read, however often it is tried.
//!
//! A device may fail for a while, so what fails is tried again, and the node waits longer each time. A
//! sector that is gone for good would have it try for ever, and whatever comes after that file would
//! never have its turn.

use std::collections::BTreeMap;

use crate::{BackendError, ErrorKind};

/// After so many failures of one file the node's arbiter has waited for four minutes.
const FAILURES_MAX: u32 = 8;

/// How often upkeep of each file has failed since the opening.
#[derive(Clone, Debug, Default)]
pub struct Unreadable {
    failures: BTreeMap<u64, u32>,
}

impl Unreadable {
    /// Counts a failure of the device or the system; other errors say nothing of the file. True once the
    /// file is not to be tried again.
    pub fn failed(&mut self, file: u64, error: &BackendError) -> bool {
        if error.kind() == ErrorKind::Failed {
            self.count(file);
        }
        self.contains(file)
    }

    /// The same where upkeep needs more than the file, which may fail in any way. A full disk and a want of
    /// file handles end, and say nothing.
    pub fn failed_in_any_way(&mut self, file: u64, error: &BackendError) -> bool {
        if !matches!(error.kind(), ErrorKind::Full | ErrorKind::Exhausted) {
            self.count(file);
        }
        self.contains(file)
    }

    fn count(&mut self, file: u64) {
        *self.failures.entry(file).or_default() += 1;
    }

    /// True for a file that is left as it is until the next opening.
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
