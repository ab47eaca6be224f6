//! Events that the thread that reports waits for.

/// Tells the thread that reports about the workers' threads.
pub(super) enum Event {
    /// All workers of a thread have ended; this many had to be given up in an operation.
    Ended { abandoned: usize },
    /// Somebody asks for the end.
    Interrupted,
}
