//! Promises for an appended batch.

/// The state of a batch when its ticket resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogPromise {
    /// The system has the batch: a crash of this process does not lose it.
    Written,
    /// The device has the batch: a power cut does not lose it either.
    Durable,
}
