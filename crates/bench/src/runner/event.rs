//! Events for the reporting thread.

/// An event from the workers' threads for the reporting thread.
pub(super) enum Event {
    /// All workers of a thread have ended; this many were given up during an operation.
    Ended { abandoned: usize },
    /// The user interrupts the run.
    Interrupted,
}
