//! Events that the thread that reports waits for.

/// An event from the workers' threads for the thread that reports.
pub(super) enum Event {
    /// All workers of a thread have ended; this many had to be given up in an operation.
    Ended { abandoned: usize },
    /// The user interrupts the run.
    Interrupted,
}
