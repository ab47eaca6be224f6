//! Promises for an appended batch.

/// The state of a batch when its ticket resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogPromise {
    /// The batch is with the system: a crash of this process does not lose it.
    Written,
    /// It is on the device: a power cut does not lose it either.
    Durable,
}
