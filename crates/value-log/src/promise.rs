//! What is promised of a batch that was appended.

/// What the ticket of a batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogPromise {
    /// The batch is with the system: a crash of this process does not lose it.
    Written,
    /// It is on the device: a power cut does not lose it either.
    Durable,
}
